"""A config that compiles in a moment."""

from pathlib import Path

from configs import base
from experiments import settings

BASE = str(Path(base.__file__))
FIELDS = (
    "attention.name=dense", "task.name=recall", "task.length=16", "task.num_pairs=4", "task.vocab_size=16",
    "model.num_layers=1", "model.num_heads=2", "model.model_dim=8", "model.head_dim=4", "model.mlp_dim=8",
    "model.conv_width=0", "train.batch_size=2", "train.steps=4",
    "optimizer.learning_rate=3e-3", "optimizer.warmup_steps=2",
)  # fmt: skip


def load(*fields: str):
    """The small config with more fields, "model.remat=True", changed."""
    return settings.load(BASE, [f"--config.{field}" for field in (*FIELDS, *fields)])
