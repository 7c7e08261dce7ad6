"""Attention variants for long sequences: pure functions over arrays."""

from attention.dense import Dense
from attention.full import Full
from attention.interface import Attention, Capabilities, Flops, Limit, SoftmaxAttention
from attention.mask import Mask
from attention.merge import merge
from attention.registry import capabilities, hyperparameters, make, names
from attention.window import Window

__all__ = [
    "Attention", "Capabilities", "Dense", "Flops", "Full", "Limit", "Mask", "SoftmaxAttention", "Window",
    "capabilities", "hyperparameters", "make", "merge", "names",
]  # fmt: skip
