"""Law 10, time: the products that are taken, in tiles and elsewhere, are little more than `flops` counts.

Values and memory say nothing of it: a variant that visits every tile and masks most is as right and as small.
"""

import dataclasses
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import attention
from attention import Full, Mask, Pooled, Window, blockwise
from tests.attention.cases import Inputs, call, cotangents, evaluate, inputs
from tests.attention.masks import build, honours
from tests.attention.products import product_flops

NUM_HEADS, HEAD_DIM, VALUE_DIM = 4, 4, 3  # what `inputs` has
WASTE = 4  # half of a tile that the mask cuts is lost; a band of two chunks is on average seen by half
EXACT = 1.2  # padding to whole blocks, and products that are hardly any
LINEAR = 1.15


class Work(NamedTuple):
    """Pairs of a query and a key in visited tiles, of one head; those of them computed without a mask.

    `flops`: of the products with these pairs, of all heads, and of those that are taken outside tiles.
    """

    pairs: int
    unmasked: int
    flops: int


@pytest.fixture
def work(monkeypatch, as_users_run):
    """A function that gives the Work of a call; nothing is computed but what tiles to visit."""
    calls = []

    def record(program, query, key, value, sides, schedule):
        calls.append((program, query.shape[0], schedule))
        rows = query.shape[:-1]
        return jnp.zeros((*rows, value.shape[-1])), jnp.zeros(rows)

    monkeypatch.setattr(blockwise, "_attend", record)

    def of(variant, given: Inputs, mask: Mask) -> Work:
        elsewhere = product_flops(lambda given: call(variant, given, mask), given)
        calls.clear()  # what was traced does not know its tiles
        call(variant, given, mask)
        pairs, unmasked = (sum(x) for x in zip((0, 0), *(counted(*each) for each in calls), strict=True))
        in_tiles = 2 * NUM_HEADS * pairs * (HEAD_DIM + VALUE_DIM)
        rows = given.query.shape[0]
        return Work(pairs // rows, unmasked // rows, in_tiles + elsewhere)

    return of


def counted(program, rows: int, schedule) -> tuple[int, int]:
    tile = rows * program.query_block * program.key_block
    num_tiles, num_unmasked = int(schedule.num_tiles.sum()), int(schedule.num_unmasked.sum())
    if not program.loops:
        num_tiles = len(schedule.num_tiles)
        num_unmasked = 0 if program.some_masked else num_tiles
    return tile * num_tiles, tile * num_unmasked


def sparing() -> list[str]:
    """Variants that do not claim the whole score matrix."""
    return [name for name in attention.names() if "T^2" not in attention.make(name).capabilities.memory]


def flops(variant, query_length: int, key_length: int, causal: bool):
    return variant.flops(
        batch=1, query_length=query_length, key_length=key_length, num_heads=NUM_HEADS,
        num_kv_heads=NUM_HEADS, head_dim=HEAD_DIM, value_dim=VALUE_DIM, causal=causal,
    )  # fmt: skip


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "two-sided"])
@pytest.mark.parametrize("name", sparing())
def test_law_10_work_is_what_flops_counts(work, name, causal):
    """At the defaults: for T = S, and for queries at the end of many keys."""
    variant = attention.make(name)
    if not honours(variant, Mask(causal)):
        pytest.skip("has no such direction")
    lengths = [(2048, 2048)] + ([(256, 2048)] if variant.capabilities.cross_attention else [])
    for query_length, key_length in lengths:
        given = inputs(variant, batch=1, length=query_length, key_length=key_length, num_kv_heads=NUM_HEADS)
        done = work(variant, given, Mask(causal)).flops
        counted = flops(variant, query_length, key_length, causal).forward
        assert counted <= EXACT * done, f"`flops` counts {counted / done:.1f} times what is done"
        assert done <= WASTE * counted, f"does {done / counted:.1f} times what `flops` counts"


@pytest.mark.parametrize("name", sparing())
def test_law_10_the_backward_is_what_flops_counts(name):
    """Of variants that go by no tiles, whose backward is a loop with turns that are known only when run."""
    variant = attention.make(name)
    mask = Mask(variant.capabilities.causal)
    given = inputs(variant, batch=1, length=512, num_kv_heads=NUM_HEADS)
    if "custom_vjp" in str(jax.make_jaxpr(lambda given: call(variant, given, mask))(given)):
        pytest.skip("goes by tiles")
    both = product_flops(lambda given: evaluate(variant, given, mask, *cotangents(given)), given)
    counted = flops(variant, 512, 512, mask.causal)
    assert both / EXACT <= counted.forward + counted.backward <= EXACT * both


@pytest.mark.parametrize("kind", ["plain", "appended", "shifted"])
@pytest.mark.parametrize("name", sparing())
def test_law_10_work_grows_as_claimed(work, name, kind):
    """Linear where the claim has one T; a claim of T^2, or of T times T over something, is not tried."""
    variant = attention.make(name)
    if len(re.findall(r"\bT\b", variant.capabilities.time)) > 1 or "T^2" in variant.capabilities.time:
        pytest.skip("claims no linear time")
    lengths = [1024, 4096]
    masks = [build(kind, variant.capabilities.causal, 1, length, length) for length in lengths]
    if not honours(variant, masks[0]):
        pytest.skip("does not take this mask")
    done = [
        work(variant, inputs(variant, batch=1, length=length), mask).flops
        for length, mask in zip(lengths, masks, strict=True)
    ]
    growth = np.log(max(done[1], 1) / max(done[0], 1)) / np.log(lengths[1] / lengths[0])
    assert growth < LINEAR


@pytest.mark.parametrize(
    "variant", [Full(query_block=16, key_block=16), Window(window_size=512, key_block=64)]
)
def test_packed_documents_cost_what_they_cost_apart(work, variant):
    """Documents of 64 tokens: full attention is linear in their number; a long window is as short as they."""
    done = []
    for length in (512, 1024):
        segments = jnp.arange(length)[None] // 64
        mask = Mask.for_self(causal=True, segments=segments)
        done.append(work(variant, inputs(variant, batch=1, length=length), mask).pairs)
    assert done[1] == 2 * done[0]


@pytest.mark.parametrize(
    "variant", [Full(query_block=16, key_block=16), Window(window_size=48, query_block=16)]
)
def test_positions_that_ascend_cost_what_the_defaults_do(work, variant):
    """As they are, far from 0, from 0 in each packed document, and with gaps that a window skips."""
    length = 512
    given = inputs(variant, batch=1, length=length)
    tile = 16 * (variant.key_block or 32)
    default = work(dataclasses.replace(variant, key_block=variant.key_block or 32), given, Mask(True)).pairs
    index = jnp.arange(length)[None]
    for positions in (index, index + 2**29):
        assert work(variant, given, Mask.for_self(causal=True, positions=positions)).pairs == default
    packed = Mask.for_self(causal=True, segments=index // 64, positions=index % 64)
    assert work(variant, given, packed).pairs <= length // 64 * 4 * 4 * tile
    gaps = Mask.for_self(causal=True, positions=index * 100)
    assert (work(variant, given, gaps).pairs == default) == isinstance(variant, Full)
    assert work(variant, given, gaps).pairs <= default


def test_padding_is_not_visited(work):
    """Half of the queries and half of the keys are padding: a quarter of the pairs."""
    variant, length = Full(query_block=16, key_block=16), 512
    valid = jnp.arange(length)[None] < length // 2
    given = inputs(variant, batch=1, length=length)
    assert work(variant, given, Mask.for_self(valid=valid)).pairs == (length // 2) ** 2


@pytest.mark.parametrize("given_segments", [False, True])
def test_only_the_diagonal_is_masked(work, given_segments):
    """Of causal full attention in 32 blocks, also where that is told only by the arrays."""
    variant, length = Full(query_block=16, key_block=16), 512
    segments = jnp.zeros((1, length), int) if given_segments else None
    done = work(
        variant, inputs(variant, batch=1, length=length), Mask.for_self(causal=True, segments=segments)
    )
    assert done.pairs - done.unmasked == 32 * 16 * 16
    assert done.pairs == (32 * 33 // 2) * 16 * 16


def test_pools_that_all_see_need_no_mask(work):
    """Memory-compressed attention, four blocks of one pool each: 0 + 1 + 2 + 3 pools, none of them masked."""
    variant = Pooled(window_size=0, pool_size=8, num_levels=1, query_block=8, key_block=1)
    near = dataclasses.replace(variant, pool_size=32)
    done, exact = (work(x, inputs(x, batch=1, length=32), Mask(True)) for x in (variant, near))
    assert done.unmasked >= 8 * (0 + 1 + 2 + 3)
    assert done.pairs < exact.pairs


@pytest.mark.parametrize("loss", ["forward", "backward"])
def test_the_backward_visits_what_the_forward_visits(monkeypatch, as_users_run, loss):
    """Three blocks of four queries: 1 + 2 + 3 tiles."""
    visited = []
    original = blockwise._tile_logits
    monkeypatch.setattr(
        blockwise, "_tile_logits", lambda *args: (visited.append(args[1]), original(*args))[1]
    )
    variant, mask = Full(query_block=4, key_block=4), Mask(causal=True)
    given = inputs(variant, batch=1, length=12)
    with jax.disable_jit():
        if loss == "forward":
            call(variant, given, mask)
        else:
            evaluate(variant, given, mask, *cotangents(given))
    times = 1 if loss == "forward" else 2
    assert visited.count(True) == times * 3
    assert visited.count(False) == times * (0 + 1 + 2)
