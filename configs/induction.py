"""Induction heads at length 128, tested at other lengths too, with any attention:

python launch.py --config=configs/induction.py:window
"""

from configs import recall


def get_config(attention: str = "full"):
    config = recall.get_config(attention)
    config.name = f"induction-{attention}"
    config.task = {"name": "induction", "length": 128, "eval_lengths": (64, 256, 512)}
    config.optimizer.learning_rate = 2e-3
    return config
