"""Attention over a mesh of devices that share the batch, the sequence or both."""

import dataclasses
import math

import jax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Key

from attention.check import check_call
from attention.dropout import Dropout, for_tokens
from attention.interface import Attention, Params, SoftmaxAttention
from attention.mask import Mask
from attention.operands import is_empty, operands

DATA, SEQUENCE = "data", "sequence"  # axes of the mesh


def attend_sharded(
    variant: Attention,
    query: Float[Array, "B T N H"],
    key: Float[Array, "B S K H"] | None,
    value: Float[Array, "B S K V"],
    mask: Mask,
    *,
    mesh: Mesh,
    params: Params = {},  # noqa: B006 (never written to)
    rng: Key[Array, ""] | None = None,
    gates: Float[Array, "B T N F"] | None = None,
) -> tuple[Float[Array, "B T N V"], Float[Array, "B T N"]]:
    """`variant.attend`, with rows of the batch shared along the mesh's axis "data", tokens along "sequence".

    The same values and gradients as on one device, and the same weights dropped. Memory of a device is that
    of its share. Sharing the batch alone needs none of this: any variant, called with arrays that are sharded
    on their first axis, is partitioned by the compiler.

    Raises what `attend` does; ValueError for a mesh without these axes and for a batch or a length that does
    not divide; NotImplementedError, naming both, for a variant that cannot share a sequence and for what it
    cannot do there.
    """
    check_call(variant, query, key, value, mask, params=params, rng=rng, gates=gates)
    if not isinstance(variant, SoftmaxAttention) or not variant.capabilities.sequence_parallel:
        raise NotImplementedError(f"{variant.name} cannot share a sequence among devices")
    _check_mesh(variant, mesh, query, value, mask)
    if is_empty(query, value):
        return variant.attend(query, key, value, mask, params=params, rng=rng, gates=gates)
    query, key, wide = operands(query, key, value, mask)
    dropout = for_tokens(rng, getattr(variant, "dropout_rate", 0.0), query.shape, wide.shape)
    given = {name: getattr(mask, name) for name in mask.given()}

    def share(query, key, value, given, dropout, params, gates):
        options = {"axis_name": SEQUENCE, "dropout": dropout, "params": params, "gates": gates}
        return variant._attend_shard(query, key, value, dataclasses.replace(mask, **given), **options)

    tokens = P(DATA, SEQUENCE)
    # A row of a mask that stands for the whole batch is nobody's share of it.
    masks = {name: P(None, SEQUENCE) if x.shape[0] == 1 else tokens for name, x in given.items()}
    words = P(DATA, None, None, SEQUENCE)
    draws = None if dropout is None else Dropout((words, words), P(None, None, SEQUENCE))
    run = jax.shard_map(
        share,
        mesh=mesh,
        in_specs=(tokens, tokens, tokens, masks, draws, P(), tokens),
        out_specs=tokens,
        check_vma=False,  # loops begin with constants, which it takes for the same on all devices
    )
    output, lse = run(query, key, wide, given, dropout, params, gates)
    return output[..., : value.shape[3]].astype(query.dtype), lse


def _check_mesh(variant: SoftmaxAttention, mesh: Mesh, query, value, mask: Mask) -> None:
    """What of a call that fits can be shared among the devices of a mesh.

    Raises ValueError for a mesh or sizes that do not fit, NotImplementedError for what the variant cannot do.
    """
    if set(mesh.axis_names) != {DATA, SEQUENCE}:
        raise ValueError(f'mesh must have the axes "{DATA}" and "{SEQUENCE}", got {mesh.axis_names}')
    sizes = {"the batch": (query.shape[0], DATA), "the query's length": (query.shape[1], SEQUENCE),
             "the key's length": (value.shape[1], SEQUENCE)}  # fmt: skip
    for what, (size, axis) in sizes.items():
        if size % mesh.shape[axis]:
            raise ValueError(f"{what} {size} does not divide into {mesh.shape[axis]} shares (mesh {axis!r})")
    if math.isfinite(variant.reach):
        # How many tokens away a position is cannot be told from the positions' values.
        if mask.query_positions is not None:
            raise NotImplementedError(
                f"{variant.name} shares a sequence among devices only at default positions, "
                "but query_positions are given"
            )
        if query.shape[1] != value.shape[1]:
            raise NotImplementedError(
                f"{variant.name} shares a sequence among devices only where T = S, "
                f"not {query.shape[1]} queries and {value.shape[1]} keys"
            )
