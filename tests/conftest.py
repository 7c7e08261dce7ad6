"""Set up before anything of ours is imported: shapes checked, jax on the CPU, nothing random."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jaxtyping
import pytest
from hypothesis import settings

import tests.typechecked  # noqa: F401 (the hook looks it up by name)

# Every annotated shape and dtype in both packages is checked at each call.
jaxtyping.install_import_hook(["attention", "experiments"], "tests.typechecked.typechecked")

settings.register_profile("same-every-time", derandomize=True, deadline=None, database=None, max_examples=25)
settings.load_profile("same-every-time")


@pytest.fixture
def as_users_run():
    """Without the hook, which would catch wrong arguments before our own checks do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
