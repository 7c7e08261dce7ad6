"""Attention variants for long sequences: pure functions over arrays."""

from attention.block_sparse import BlockSparse
from attention.blocks import compiling_for
from attention.buckets import lsh_buckets
from attention.cache import bytes_of
from attention.delta import Delta
from attention.dense import Dense
from attention.dilated import Dilated
from attention.entropy import attend_with_entropy, no_entropy
from attention.full import Full
from attention.gated_linear import GatedLinear
from attention.interface import Attention, Capabilities, Flops, Limit, Observation, SoftmaxAttention
from attention.linear import Linear
from attention.linformer import Linformer
from attention.lsh import LSH
from attention.mask import Mask
from attention.matrix import attention_matrix
from attention.mean import Mean
from attention.merge import merge
from attention.moba import MoBA
from attention.native_sparse import NativeSparse
from attention.none import Nothing
from attention.nystrom import Nystrom
from attention.performer import Performer
from attention.pooled import Pooled
from attention.registry import capabilities, hyperparameters, make, names
from attention.retention import Retention
from attention.sharded import attend_sharded
from attention.sinkhorn import Sinkhorn
from attention.synthesizer import Synthesizer
from attention.window import Window
from attention.window_linear import WindowLinear

__all__ = [
    "LSH",
    "Attention",
    "BlockSparse",
    "Capabilities",
    "Delta",
    "Dense",
    "Dilated",
    "Flops",
    "Full",
    "GatedLinear",
    "Limit",
    "Linear",
    "Linformer",
    "Mask",
    "Mean",
    "MoBA",
    "NativeSparse",
    "Nothing",
    "Nystrom",
    "Observation",
    "Performer",
    "Pooled",
    "Retention",
    "Sinkhorn",
    "SoftmaxAttention",
    "Synthesizer",
    "Window",
    "WindowLinear",
    "attend_sharded",
    "attend_with_entropy",
    "attention_matrix",
    "bytes_of",
    "capabilities",
    "compiling_for",
    "hyperparameters",
    "lsh_buckets",
    "make",
    "merge",
    "names",
    "no_entropy",
]
