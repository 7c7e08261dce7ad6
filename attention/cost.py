"""Counting the matrix products that a definition asks for."""

import numpy as np

from attention.interface import Flops


def softmax_flops(pairs: int, *, batch: int, num_heads: int, head_dim: int, value_dim: int) -> Flops:
    """FLOPs when each head of each row looks at `pairs` (query, key) pairs.

    Forward q.k and weights.v; backward recomputes q.k and has the four products of the gradients.
    """
    rows = batch * num_heads * pairs
    return Flops(2 * rows * (head_dim + value_dim), 2 * rows * (3 * head_dim + 2 * value_dim))


def count_pairs(first: np.ndarray, last: np.ndarray) -> int:
    """Pairs in intervals of key indices (T each, first > last where empty)."""
    return int(np.maximum(last.astype(np.int64) - first + 1, 0).sum())
