"""Attention variants for long sequences: pure functions over arrays."""

from attention.blocks import compiling_for
from attention.dense import Dense
from attention.entropy import attend_with_entropy, no_entropy
from attention.full import Full
from attention.interface import Attention, Capabilities, Flops, Limit, Observation, SoftmaxAttention
from attention.lsh import LSH, lsh_buckets
from attention.mask import Mask
from attention.matrix import attention_matrix
from attention.merge import merge
from attention.pooled import Pooled
from attention.registry import capabilities, hyperparameters, make, names
from attention.sharded import attend_sharded
from attention.window import Window

__all__ = [
    "LSH",
    "Attention",
    "Capabilities",
    "Dense",
    "Flops",
    "Full",
    "Limit",
    "Mask",
    "Observation",
    "Pooled",
    "SoftmaxAttention",
    "Window",
    "attend_sharded",
    "attend_with_entropy",
    "attention_matrix",
    "capabilities",
    "compiling_for",
    "hyperparameters",
    "lsh_buckets",
    "make",
    "merge",
    "names",
    "no_entropy",
]
