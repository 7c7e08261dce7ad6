"""Induction heads at length 128, tested at other lengths too, with any attention:

python launch.py --config=configs/induction.py:window

Measured on 2 cores with seed 0, in half a minute: `full` is solved after 150 steps, and as well at 64, 256
and 512 tokens.
"""

from configs import recall


def get_config(attention: str = "full"):
    config = recall.get_config(attention)
    config.name = f"induction-{attention}"
    config.task = {"name": "induction", "length": 128, "eval_lengths": (64, 256, 512)}
    config.optimizer.learning_rate = 2e-3
    return config
