"""Time and memory of a forward pass and of a training step by length, 1,024 to 32,768; nothing is trained.

    python launch.py --config=configs/scaling.py
    python launch.py --config=configs/scaling.py:full,window,text/nystrom     # these, and on this task

The model is that of `bytes`, with one sequence a batch. What cannot be causal, and so not be trained on
`bytes`, is measured on `text`, beside `full`. `dense` and the synthesizer, whose weights are a matrix, go to
8,192. What does not fit is found by compiling, in its own cell, and is not started.
"""

from ml_collections import ConfigDict

from configs import base

VARIANTS = (
    "full,dense,window,pooled,lsh,block_sparse,dilated,moba,native_sparse,linear,performer,window_linear,"
    "retention,gated_linear,delta,synthesizer,mean,none,gru,ssm,text/full,text/sinkhorn,text/linformer,text/nystrom"
)
LENGTHS = tuple(1024 * 2**doublings for doublings in range(6))
LONGEST = {"dense": 8192, "synthesizer": 8192}


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
    cells = []
    for label in variants.split(","):
        task, _, variant = label.rpartition("/")
        named = {"attention.name": variant, **({"task.name": task} if task else {})}
        cells += [
            {"name": f"scaling-{label.replace('/', '-')}-{length}", **named, "task.length": length}
            for length in LENGTHS
            if length <= LONGEST.get(variant, length)
        ]
    return cells
