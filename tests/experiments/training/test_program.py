"""How programs are compiled: the same bits each time where that must be asked for, and from the cache."""

import jax
import jax.numpy as jnp
import pytest
from ml_collections import ConfigDict

from experiments.training import program


class Compiler:
    """Stands for a jitted function; notes the options it is compiled with."""

    def lower(self, *inputs):
        return self

    def compile(self, options):
        self.options = options
        return jax.jit(lambda: 0).lower().compile()


@pytest.mark.parametrize(
    ("platform", "deterministic", "asked"),
    [("gpu", True, True), ("gpu", False, False), ("cpu", True, False), ("tpu", True, False)],
)
def test_the_same_bits_are_asked_of_a_gpu(platform, deterministic, asked):
    config, compiler = ConfigDict({"train": {"deterministic": deterministic}}), Compiler()
    program._compile(compiler, options=program.options(config, platform))
    assert compiler.options == (program.DETERMINISTIC if asked else None)


def test_a_program_from_the_cache_says_so(tmp_path):
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_persistent_cache_min_compile_time_secs
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    try:
        found = []
        for _ in range(2):
            jax.clear_caches()
            found.append(program._compile(jax.jit(lambda x: x * 3 + 1), jnp.ones(3), options=None)[2])
    finally:
        jax.config.update("jax_compilation_cache_dir", before[0])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", before[1])
    assert found == [False, True]
