"""Set up before anything of ours is imported: shapes checked, jax on the CPU, nothing random."""

import gc
import importlib.metadata
import os
import shutil
import tempfile
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")  # in name; for what is shared among several
# Compiling is nearly all that the tests do, and what they run is small: it need not be fast.
# A version that does not know a flag ends there and then.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_parallel_codegen_split_count=1"
    + " --xla_cpu_use_fusion_emitters=false"
    * importlib.metadata.version("jaxlib").startswith("0.10."),
)

# Both workers of pytest -n 2, and the processes that tests start, compile much the same: they inherit this.
os.environ.setdefault("TESTED_BY", str(os.getpid()))
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", f"{tempfile.gettempdir()}/compiled-{os.environ['TESTED_BY']}"
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import jax
import jaxtyping
import pytest
from hypothesis import settings

import tests.typechecked  # noqa: F401 (the hook looks it up by name)

# Every annotated shape and dtype in both packages is checked at each call.
jaxtyping.install_import_hook(["attention", "experiments"], "tests.typechecked.typechecked")

settings.register_profile("same-every-time", derandomize=True, deadline=None, database=None, max_examples=25)
settings.load_profile("same-every-time")

MAPS = Path("/proc/self/maps")
MOST_MAPS = 20_000  # Linux allows a process 65,530 memory maps, and XLA aborts at the next one
EVERY = 20  # tests


def pytest_runtest_teardown(item, nextitem):
    """Forget compiled programs before their memory maps run out: each of them holds several."""
    item.session.num_torn_down = getattr(item.session, "num_torn_down", 0) + 1
    if item.session.num_torn_down % EVERY == 0 and MAPS.exists():
        with MAPS.open("rb") as maps:
            count = sum(1 for _ in maps)
        if count > MOST_MAPS:
            jax.clear_caches()
            gc.collect()


def pytest_sessionfinish():
    if os.environ["TESTED_BY"] == str(os.getpid()):
        shutil.rmtree(f"{tempfile.gettempdir()}/compiled-{os.getpid()}", ignore_errors=True)


@pytest.fixture
def as_users_run():
    """Without the hook, which would catch wrong arguments before our own checks do."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
