"""Compiled programs are kept between tests, workers and runs: compiling is nearly all that the laws cost."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="package")
def kept_compilations(request):
    """Point jax's cache at pytest's own; its key covers program, versions, flags and the machine."""
    options = {
        "jax_compilation_cache_dir": str(request.config.cache.mkdir("jax")),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def pytest_collection_modifyitems(items):
    """All laws of one setting go to one worker, which has traced and compiled what they share."""
    for item in items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        if case is not None:
            item.add_marker(pytest.mark.xdist_group(str(case)))
