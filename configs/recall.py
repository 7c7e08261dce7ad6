"""Recall of 32 pairs among 128 tokens, with any attention:

python launch.py --config=configs/recall.py:window
"""

from ml_collections import ConfigDict

from configs import base


def get_config(attention: str = "full"):
    config = base.get_config()
    config.name = f"recall-{attention}"
    config.attention = ConfigDict({"name": attention})
    config.task = ConfigDict({"name": "recall"})

    config.model.num_heads = 1
    config.model.model_dim = 64
    config.model.head_dim = 64
    config.model.mlp_dim = 0
    config.model.positions = "none"
    config.model.conv_width = 3

    config.train.batch_size = 64
    config.train.steps = 400
    config.train.eval_every = 50
    config.train.stop_when_solved = True
    return config
