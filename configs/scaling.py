"""Time and memory of a forward pass and of a training step by length, 1,024 to 65,536; nothing is trained.

    python launch.py --config=configs/scaling.py
    python launch.py --config=configs/scaling.py:full,window     # these variants

The model is that of `bytes`, with one sequence a batch. `full` and `dense`, whose time is quadratic, go to
16,384 and 8,192. What does not fit is found by compiling, in its own cell, and is not started.
"""

from ml_collections import ConfigDict

from configs import base

VARIANTS = "full,dense,window,pooled,lsh"
LENGTHS = tuple(1024 * 2**doublings for doublings in range(7))
LONGEST = {"full": 16384, "dense": 8192}


def get_config():
    config = base.get_config()
    config.name = "scaling"
    config.seeds = ()
    config.task = ConfigDict({"name": "bytes", "num_validation": 8, "num_test": 8})
    config.train.batch_size = 1
    config.eval.batch_size = 1
    config.eval.timed_steps = 3
    return config


def get_sweep(variants: str = VARIANTS):
    return [
        {"name": f"scaling-{variant}-{length}", "attention.name": variant, "task.length": length}
        for variant in variants.split(",")
        for length in LENGTHS
        if length <= LONGEST.get(variant, length)
    ]
