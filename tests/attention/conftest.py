"""Compiled programs are kept between tests, workers and runs: compiling is nearly all that the laws cost."""

import jax
import pytest

from tests.attention.cases import first_cases


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


# Laws that a variant's first setting is under in CI, and the others by hand (`-m campaign`). Values,
# gradients, refusals and decoding are tested of every setting.
OF_FIRST_SETTINGS = ("causality", "padding", "numbers", "running", "matter")


def pytest_collection_modifyitems(items):
    """All tests of one setting go to one worker, which has traced and compiled what they share."""
    first = {str(case) for case in first_cases()}
    for item in items:
        case = getattr(item, "callspec", None) and item.callspec.params.get("case")
        if case is None:
            continue
        item.add_marker(pytest.mark.xdist_group(str(case)))
        law = item.path.stem.removeprefix("test_laws_")
        if law in OF_FIRST_SETTINGS and str(case) not in first:
            item.add_marker(pytest.mark.campaign)
