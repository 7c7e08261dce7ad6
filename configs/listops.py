"""ListOps in its short form (50 to 128 tokens), with any attention:

    python launch.py --config=configs/listops.py:window

Measured on 2 cores with seed 0, in about two minutes: `full` has 38.8% of the test split right, `window` of
16 tokens 33.9%. The operator at the root alone tells 34.6%, the commonest answer 15.9%: little is learnt.

The Arena's size is --config.task.length=2000 --config.task.min_length=500 --config.task.num_train=96000
--config.task.num_validation=2000.
"""

from configs import recall


def get_config(attention: str = "full"):
    config = recall.get_config(attention)
    config.name = f"listops-{attention}"
    config.task = {
        "name": "listops", "length": 128, "min_length": 50,
        "num_train": 20_000, "num_validation": 1_000, "num_test": 2_000,
    }  # fmt: skip
    config.model.num_heads = 2
    config.model.mlp_dim = 128
    config.model.positions = "learned"
    config.optimizer.learning_rate = 1e-3
    config.train.stop_when_solved = False
    config.train.batch_size = 32
    config.train.steps = 900
    config.train.eval_every = 150
    config.train.checkpoint_every = 150
    return config
