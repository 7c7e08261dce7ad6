"""Selective copying of 16 tokens among 128, tested at other lengths too, with any attention:

python launch.py --config=configs/selective_copy.py:window

Measured with seed 0: `full` copies 88% of the tokens after 700 steps, but at 64 and 256 tokens 16% and 12%;
with `--config.model.positions=none` 33%, 27% and 26%.
"""

from configs import recall


def get_config(attention: str = "full"):
    config = recall.get_config(attention)
    config.name = f"selective_copy-{attention}"
    config.task = {"name": "selective_copy", "length": 128, "eval_lengths": (64, 256)}
    config.model.positions = "rotary"  # the n-th token must be told from the next
    config.optimizer.learning_rate = 2e-3
    config.train.steps = 700
    return config
