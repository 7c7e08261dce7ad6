"""What each attention learns of tasks that are made to need it: recall, induction heads, selective copying.

    python launch.py --config=configs/synthetic.py --workdir=results/synthetic     # hours on 2 cores
    python launch.py --config=configs/synthetic.py:full,window                     # these alone

All that can be causal, and the recurrent layers; each with one seed and the best of three learning rates by
validation. Recall of 8 pairs among 64 tokens and of 32 among 128; induction heads trained at 256 tokens and
tested from 64 to 16,384; 16 tokens of 128 copied. The model is recall.py's: two layers with one head of 64, a
convolution over 3 tokens, nothing between. README has the table.
"""

# By what they do, so that those to compare end about together.
MIXERS = (
    "full,window,linear,delta,none,mean,gated_linear,retention,ssm,gru,window_linear,block_sparse,dilated,"
    "performer,synthesizer,pooled,lsh,dense,moba,native_sparse"
)
RATES = {"optimizer.learning_rate_grid": (1e-3, 3e-3, 1e-2), "eval.timed_steps": 0, "train.eval_every": 25}
TASKS = {
    "recall8": {"config": "recall.py", "task.num_pairs": 8, "task.length": 64, "train.steps": 600},
    "recall32": {"config": "recall.py", "train.steps": 600},
    "induction": {
        "config": "induction.py", "task.length": 256, "train.steps": 400, "train.batch_size": 32,
        "eval.batch_size": 16, "task.eval_lengths": (64, 512, 2048, 16384), "task.num_test": 128,
    },
    "selective_copy": {
        "config": "selective_copy.py", "train.steps": 600, "train.batch_size": 32, "task.eval_lengths": (),
    },
}  # fmt: skip


def get_sweep(mixers: str = MIXERS):
    return [
        {**fields, "config": f"{fields['config']}:{mixer}", "name": f"{task}-{mixer}", **RATES}
        for task, fields in TASKS.items()
        for mixer in mixers.split(",")
    ]
