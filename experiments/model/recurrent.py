"""The contract of mixers that are no attention: they carry a state along the sequence.

As a variant of attention is, each is a frozen dataclass that holds its hyperparameters, and gives the Flax
module of a layer. Letters beside those of attention: I inner width, num_heads * head_dim; N size of a
channel's state.
"""

import abc
import math
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Int

from attention import Capabilities, Flops, Mask

CAPABILITIES = Capabilities(
    causal=True,
    two_sided=True,
    interior_padding=True,
    segments=False,
    explicit_positions=False,
    cross_attention=False,
    grouped_queries=False,
    value_width=False,
    shared_key=False,
    decoding=True,
    sequence_parallel=False,
    exact=False,
    equivariant=False,
    learned=True,
    time="O(T)",
    memory="O(T)",
)


class Recurrent(abc.ABC):
    """A recurrent layer's hyperparameters. Subclasses are frozen dataclasses, validated when built."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities] = CAPABILITIES
    reach: ClassVar[float] = math.inf

    @abc.abstractmethod
    def flops(
        self,
        *,
        batch: int,
        query_length: int,
        key_length: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        value_dim: int,
        causal: bool,
    ) -> Flops:
        """What the layer asks for beside products with its kernels, which the model counts for any."""

    @abc.abstractmethod
    def module(
        self,
        *,
        model_dim: int,
        inner_dim: int,
        causal: bool,
        kernel_init: nnx.Initializer,
        dtype: Any,
        rngs: nnx.Rngs,
    ) -> nnx.Module:
        """A layer: (x B T D, mask, rng) -> B T D. One that is not causal reads the sequence both ways."""


def check_mask(name: str, mask: Mask, causal: bool) -> None:
    """Raises NotImplementedError for what a layer that was built `causal`, or not, cannot honour."""
    refused = [field for field in mask.given() if not field.endswith("valid")]
    if refused:
        raise NotImplementedError(f"{name} cannot honour the mask's {', '.join(refused)}")
    if mask.causal != causal:
        raise NotImplementedError(f"this {name} was built with causal={causal}: mask.causal={mask.causal}")


def check_decodes(name: str, causal: bool) -> None:
    """Raises NotImplementedError for a layer that reads both ways."""
    if not causal:
        raise NotImplementedError(f"this {name} was built with causal=False: it reads what is yet to come")


def real(lengths: Int[Array, " B"] | None, length: int) -> Bool[Array, "B T"] | None:
    """Which of `length` tokens are no padding, where padding is at the end only."""
    return None if lengths is None else jnp.arange(length) < lengths[:, None]
