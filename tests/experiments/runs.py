"""A run of launch.py that takes seconds, and what it left."""

import os
import signal
from pathlib import Path

import launch
from experiments import records

ROOT = Path(launch.__file__).parent
TINY = {
    "task.length": 16,
    "task.num_pairs": 2,
    "task.vocab_size": 16,
    "task.num_validation": 12,
    "task.num_test": 12,
    "task.eval_lengths": "(24,)",
    "model.num_layers": 1,
    "model.model_dim": 8,
    "model.head_dim": 8,
    "model.dropout_rate": 0.1,
    "optimizer.warmup_steps": 2,
    "train.batch_size": 4,
    "train.steps": 20,
    "train.eval_every": 5,
    "train.checkpoint_every": 4,
    "train.log_every": 3,
    "train.stop_when_solved": False,
    "eval.batch_size": 8,
    "eval.timed_steps": 2,
}


def command(workdir, *flags, **changes):
    values = TINY | {name.replace("__", "."): value for name, value in changes.items()}
    overrides = [f"--config.{name}={value}" for name, value in values.items()]
    return [f"--config={ROOT}/configs/recall.py", f"--workdir={workdir}", *overrides, *flags]


def stopping_at(step, number=signal.SIGTERM, seeds=None):
    """For `screen.Live.step`: sends this process a signal once `seeds` (None: any) have taken a step."""

    def told(self, label, at, loss, tokens_per_second):
        if at == step and seeds in (None, label):
            os.kill(os.getpid(), number)

    return told


def only_folder(workdir):
    (folder,) = (path for path in workdir.iterdir() if path.is_dir())
    return folder


def record_of(workdir):
    record = records.read_record(only_folder(workdir))
    assert record is not None
    return record


def lasting(record):
    return records.without_timings(record)
