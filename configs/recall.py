"""Recall of 32 pairs among 128 tokens, with any attention:

    python launch.py --config=configs/recall.py:window

Measured, means of 8 seeds: `full` and `dense` are solved after 150 to 200 steps (99.9%), `window` stays at
chance (0.8%), `pooled` reaches 36%, `lsh` 51%: it learns late, and its seeds end anywhere from 4% to 99%. A
value of the context at random is right in 3.1%. On 2 cores a seed takes one to four minutes.

What looks at some keys only has hyperparameters that are short for 128 tokens: windows, chunks and blocks of
16, and the others as SHORT says.
"""

from ml_collections import ConfigDict

from configs import base

# At their defaults most of 128 tokens would be near enough to be seen exactly.
SHORT = {
    "window": {"window_size": 16},
    "pooled": {"window_size": 16},
    "lsh": {"chunk_size": 16},
    "block_sparse": {"block_size": 16, "random_blocks": 1},
    "dilated": {"window_size": 8, "dilation": 4},
    "window_linear": {"window_size": 16},
    "moba": {"block_size": 16, "top_k": 3},
    "native_sparse": {
        "compress_block": 8,
        "compress_stride": 4,
        "select_block": 8,
        "num_selected": 4,
        "window_size": 16,
    },
}


def get_config(attention: str = "full"):
    config = base.get_config()
    config.name = f"recall-{attention}"
    config.attention = ConfigDict({"name": attention, **SHORT.get(attention, {})})
    config.task = ConfigDict({"name": "recall"})

    model = config.model
    model.num_heads = 1
    model.model_dim = 64
    model.head_dim = 64
    model.mlp_dim = 0
    model.positions = "none"
    model.conv_width = 3

    config.optimizer.learning_rate = 3e-3
    config.optimizer.warmup_steps = 50

    config.train.batch_size = 64
    config.train.steps = 400
    config.train.stop_when_solved = True
    config.eval.batch_size = 64
    return config
