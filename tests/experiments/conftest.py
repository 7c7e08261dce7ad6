import functools

import pytest

import launch
from experiments import program, provenance, settings
from tests.experiments.runs import command


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
