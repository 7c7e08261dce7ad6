"""A mesh changes where things are computed, and neither what nor what it is called."""

import functools
import re

import jax
import numpy as np
import pytest

import launch
from configs import base
from experiments.config import settings
from experiments.training import data, layout, program, train
from tests.experiments import small
from tests.experiments.runs import command, record_of

BATCH = 8
FIELDS = (f"train.batch_size={BATCH}", f"eval.batch_size={BATCH}", "model.conv_width=3")
FIELDS_OF = {"lsh": ("attention.chunk_size=4",), "window": ("attention.window_size=5",)}
WORDS = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


def config_of(name, data_shares, sequence_shares):
    own = FIELDS_OF.get(name, ())
    shares = (f"mesh.data={data_shares}", f"mesh.sequence={sequence_shares}")
    return small.load(*FIELDS, f"attention.name={name}", *own, *shares)


@functools.cache
def stepped(name, data_shares, sequence_shares):
    """What a training step gives, and the collectives in it."""
    config = config_of(name, data_shares, sequence_shares)
    task = settings.task(config)
    function, shapes = program.functions(config, task, mesh=layout.mesh(config))["training_step"]
    compiled = function.lower(*shapes).compile()
    one = (train.init_state(config, task, 0), next(data.train_iterator(task, 0, BATCH)), np.int32(0), True)
    state, metrics = compiled(*jax.tree.map(lambda x: np.asarray(x)[None], one))
    used = [word for word in WORDS if re.search(rf" {word}(-start)?\(", compiled.as_text())]
    return jax.device_get((state.params, metrics)), used


@pytest.mark.parametrize(
    ("name", "shares", "allowed"),
    [
        *((name, (8, 1), ["all-reduce"]) for name in ("full", "pooled", "lsh", "delta", "native_sparse")),
        # Its choices are sorted for the whole batch: devices that share one send each other the tokens.
        ("moba", (8, 1), ["all-gather", "all-reduce"]),
        ("window", (2, 4), ["all-reduce", "collective-permute"]),
        ("full", (2, 4), ["all-reduce", "collective-permute"]),
    ],
    ids=str,
)
def test_devices_together_train_as_one(name, shares, allowed):
    """The same parameters and metrics; tokens are sent to other devices but never gathered."""
    expected, _ = stepped(name, 1, 1)
    found, used = stepped(name, *shares)
    assert used == allowed
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), found, expected)


def test_a_run_on_two_devices_is_recorded_and_continued(tmp_path, capsys):
    assert launch.main(command(tmp_path, mesh__data=2)) == 0
    record = record_of(tmp_path)
    assert record["provenance"]["device"]["used"] == 2
    assert record["config"]["mesh"] == {"data": 2, "sequence": 1}
    capsys.readouterr()
    assert launch.main(command(tmp_path, mesh__data=2, seeds="(0,1)")) == 0
    assert record_of(tmp_path)["seeds"]["0"] == record["seeds"]["0"]


def test_what_one_device_did_before_there_was_a_mesh_keeps_its_name():
    config = settings.load(small.BASE, [])
    without = config.copy_and_resolve_references()
    with without.unlocked():
        del without.mesh
    assert settings.identity(without) == settings.identity(config)
    assert settings.identity(config) != settings.identity(settings.load(small.BASE, ["--config.mesh.data=2"]))


def test_too_few_devices_are_one_line(tmp_path, capsys):
    assert launch.main(command(tmp_path, mesh__data=4096, train__batch_size=4096, eval__batch_size=4096)) == 2
    error = capsys.readouterr().err
    assert "config.mesh asks for 4096 x 1 devices, but there are 8" in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            ("mesh.data=3",),
            "config.train.batch_size=8 is not accepted; train.batch_size must be a multiple of 3",
        ),
        (("mesh.data=4", "train.num_microbatches=4"), "train.batch_size must be a multiple of 16"),
        (("mesh.data=2", "eval.batch_size=3"), "config.eval.batch_size=3"),
        (("mesh.sequence=5",), "task.length must be a multiple of 5"),
        (("mesh.sequence=2", "attention.name=pooled"), "mesh.sequence must be 1 with attention pooled"),
        (("mesh.sequence=2", "train.entropy_penalty=1"), "train.entropy_penalty must be 0"),
        (("mesh.data=2", "train.seeds_at_once=2"), "train.seeds_at_once must be 1 or None"),
        (("mesh.data=0",), "config.mesh.data=0"),
    ],
)
def test_shares_that_do_not_fit_are_refused(fields, words):
    with pytest.raises(settings.UsageError, match=re.escape(words)):
        small.load(*FIELDS, "attention.name=full", *fields)


def test_one_device_here_has_no_mesh():
    assert layout.mesh(base.get_config()) is None
