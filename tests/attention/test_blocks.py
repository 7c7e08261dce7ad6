"""Default blocks: never longer than what they cut, and those of the platform that is compiled for."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from attention import Full, Mask, Window, compiling_for
from attention.blocks import CPU_TILE, OTHER_FULL, band_block, full_blocks
from tests.attention.cases import inputs

SIZE = st.integers(1, 5000)


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
@given(SIZE, SIZE, SIZE, SIZE)
def test_blocks_fit(platform, rows, width, query_length, key_length):
    with compiling_for(platform):
        query_block, key_block = full_blocks(rows, query_length, key_length)
        assert 1 <= query_block <= query_length
        assert 1 <= key_block <= key_length
        assert 1 <= band_block(rows, width, query_length) <= query_length


def test_a_cpu_has_small_tiles_and_others_large_ones():
    query_block, key_block = full_blocks(64, 10**4, 10**4)
    assert 64 * query_block * key_block <= CPU_TILE
    with compiling_for("gpu"):
        assert full_blocks(64, 10**4, 10**4) == OTHER_FULL
        with compiling_for("cpu"):
            assert full_blocks(64, 10**4, 10**4) == (query_block, key_block)
        assert band_block(64, 10**3, 10**4) > 256
    assert full_blocks(64, 10**4, 10**4) == (query_block, key_block)


def test_another_platform_is_refused():
    with pytest.raises(ValueError, match=r"platform='cuda' is not accepted.* cpu, gpu, tpu"):
        compiling_for("cuda").__enter__()


def test_what_is_traced_within_has_the_blocks_of_there():
    """Full attention over 1024 tokens in tiles of 1024 keys and not of 512, for 512 queries of 2 heads."""

    def program():
        given = jax.eval_shape(lambda: inputs(Full(), batch=1, length=1024))
        return str(jax.make_jaxpr(lambda x: Full()(x.query, x.key, x.value, Mask()))(given))

    assert ",512,2,512]" in program()
    with compiling_for("tpu"):
        assert ",1024,2,512]" in program()


@pytest.mark.parametrize("variant", [Full(query_block=8, key_block=8), Window(window_size=5)])
def test_a_gpus_layouts_change_no_value(variant):
    """Seeds of a run are mapped over: so is what asks for the layout."""
    given = inputs(variant, batch=2, length=24)

    def gradients(platform):
        def loss(query):
            with compiling_for(platform):
                return jnp.sum(variant(query, given.key, given.value, Mask(causal=True)) ** 2)

        several = jnp.stack([given.query, 2 * given.query])
        program = jax.jit(jax.vmap(jax.value_and_grad(loss)))
        assert ("layout_constraint" in str(jax.make_jaxpr(program)(several))) == (platform == "gpu")
        return program(several)

    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-5, atol=1e-6), gradients("gpu"), gradients("cpu"))
