import functools
from pathlib import Path

import pytest

import launch
from experiments import provenance
from experiments.config import settings
from experiments.tasks import cache
from experiments.training import program
from tests.experiments import small
from tests.experiments.runs import command
from tests.experiments.tasks.test_text import folder


@pytest.fixture(scope="module")
def compiled_once():
    """Programs are compiled once for each identity, and the tree may be worked on meanwhile."""
    build, known = program.build, {}

    def cached(config, task, num_seeds=1):
        name = settings.identity(config), num_seeds
        if name not in known:
            known[name] = build(config, task, num_seeds)
        return known[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "build", cached)
        patch.setattr(provenance, "gather", functools.cache(provenance.gather))
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, compiled_once):
    """The workdir of a run that nothing befell."""
    workdir = tmp_path_factory.mktemp("undisturbed")
    assert launch.main(command(workdir)) == 0
    return workdir


@pytest.fixture(scope="module")
def small_tasks(tmp_path_factory):
    """By task, the fields with which its data are there in a moment, wherever the tests run."""
    reviews = {"data_dir": str(folder(tmp_path_factory.mktemp("reviews")))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield small.TASKS | {"text": small.TASKS["text"] | reviews}


def pytest_collection_modifyitems(items):
    """All tests of a file go to one worker: what they share takes long to make."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(here))))
