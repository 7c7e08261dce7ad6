"""Whatever is asked for, it runs or is answered by one line that names the field, and exit code 2."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, settings, strategies

import attention
import launch
from configs import base
from experiments import checks, data, program, tasks, train
from tests.experiments import small

ROOT = Path(launch.__file__).parent
WINDOW = f"--config={ROOT}/configs/window128.py"
FOREIGN = re.compile(
    r"Traceback|FlagValues|absl|ml_collections|ConfigDict|config_flags|flag --|dataclass|jax\.errors"
)

# What was tried: the arguments, and words that the one line of the answer must hold.
TRIED = [
    ([], ["--config"]),
    (["configs/window128.py"], ["--config"]),
    ([WINDOW, "stray"], ["stray", "--config.field=value"]),
    ([WINDOW, "--config.train.steps", "5"], ["--config.train.steps"]),
    ([WINDOW, "-x"], ["-x"]),
    ([WINDOW, "--dry-run"], ["--dry-run"]),
    ([WINDOW, "--dryrun"], ["--dryrun"]),
    ([WINDOW, "--dry_run=yes"], ["--dry_run"]),
    ([WINDOW, "--require_device=abacus"], ["abacus", "gpu"]),
    ([WINDOW, "--require_device=tpu"], ["tpu", "cpu"]),
    ([WINDOW, "--workdir"], ["--workdir"]),
    (["--config="], ["there is no file"]),
    (["--config=configs/windw128.py"], ["windw128.py", "there is no file", "window128.py"]),
    (["--config=configs"], ["configs", "there is no file"]),
    ([f"--config={ROOT}/README.md"], ["README.md", "not a Python file"]),
    ([f"--config={ROOT}/launch.py"], ["get_config"]),
    ([f"{WINDOW}:lsh"], ["too many positional arguments"]),
    ([f"--config={ROOT}/configs/recall.py:lhs"], ["'lhs'", "lsh"]),
    ([WINDOW, "--config.model.num_layer=3"], ["model.num_layer", "did you mean config.model.num_layers"]),
    ([WINDOW, "--config.modl.num_layers=3"], ["modl.num_layers", "did you mean config.model.num_layers"]),
    ([WINDOW, "--config.num_layers=3"], ["num_layers"]),
    ([WINDOW, "--config.model=3"], ["config.model is a section"]),
    ([WINDOW, "--config.=3"], ["--config.field=value"]),
    ([WINDOW, "--config=3"], ["--config=3", "there is no file"]),
    ([WINDOW, "--config.model.num_layers=three"], ["model.num_layers='three'", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers=1e4"], ["model.num_layers='1e4'", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers=2.0"], ["model.num_layers", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers=None"], ["model.num_layers", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers=0"], ["model.num_layers=0", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers="], ["model.num_layers", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers=True"], ["model.num_layers", "an int of at least 1"]),
    ([WINDOW, "--config.model.remat=maybe"], ["model.remat", "True or False"]),
    ([WINDOW, "--config.model.remat=1.5"], ["model.remat", "True or False"]),
    ([WINDOW, "--config.model.norm=middle"], ["model.norm='middle'", "pre or post"]),
    ([WINDOW, "--config.model.positions=Rotary"], ["model.positions='Rotary'", "rotary"]),
    ([WINDOW, "--config.model.head_dim=63"], ["model.head_dim=63", "even with model.positions=rotary"]),
    ([WINDOW, "--config.model.num_kv_heads=3"], ["model.num_kv_heads=3", "divisor"]),
    ([WINDOW, "--config.model.max_length=10"], ["model.max_length=10", "at least 1024"]),
    ([WINDOW, "--config.model.init_std=nan"], ["model.init_std=nan", "above 0"]),
    ([WINDOW, "--config.optimizer.learning_rate=-1"], ["optimizer.learning_rate=-1.0", "above 0"]),
    ([WINDOW, "--config.optimizer.learning_rate=inf"], ["optimizer.learning_rate=inf", "above 0"]),
    ([WINDOW, "--config.optimizer.learning_rate_grid=(1e-3,-1)"], ["learning_rate_grid", "above 0"]),
    ([WINDOW, "--config.optimizer.learning_rate_grid=(1e-3,1e-3)"], ["learning_rate_grid", "different"]),
    ([WINDOW, "--config.optimizer.clip_norm=none"], ["optimizer.clip_norm='none'", "or None"]),
    ([WINDOW, "--config.optimizer.ema_decay=1"], ["optimizer.ema_decay=1", "[0, 1)"]),
    ([WINDOW, "--config.seeds=()"], ["seeds=()", "different ints"]),
    ([WINDOW, "--config.seeds=(0,0)"], ["seeds=(0, 0)", "different ints"]),
    ([WINDOW, "--config.seeds=(0,-1)"], ["seeds=(0, -1)", "different ints"]),
    ([WINDOW, "--config.seeds=0.5"], ["seeds", "different ints"]),
    ([WINDOW, "--config.seeds=(1,'a')"], ["seeds", "different ints"]),
    ([WINDOW, "--config.name=a/b"], ["name='a/b'", "letters"]),
    ([WINDOW, "--config.name=.."], ["name='..'", "letters"]),
    ([WINDOW, "--config.name="], ["name=''", "letters"]),
    (
        [WINDOW, "--config.train.batch_size=3", "--config.train.num_microbatches=2"],
        ["num_microbatches=2", "batch_size=3"],
    ),
    ([WINDOW, "--config.train.stop_when_solved=true"], ["stop_when_solved", "never solved"]),
    (
        [WINDOW, "--config.train.entropy_penalty=1", "--config.attention.softcap=5"],
        ["entropy_penalty", "softcap"],
    ),
    ([WINDOW, "--config.attention.name=windw"], ["'windw'", "window"]),
    ([WINDOW, "--config.attention.name=None"], ["attention", "None"]),
    ([WINDOW, "--config.attention.window_size=0"], ["window_size=0", "at least 1"]),
    ([WINDOW, "--config.attention.window_size=64.5"], ["window_size", "int"]),
    ([WINDOW, "--config.attention.window_size=None"], ["window_size", "int"]),
    ([WINDOW, "--config.attention.num_hashes=2"], ["attention.num_hashes"]),
    ([WINDOW, "--config.attention.windowsize=2"], ["did you mean config.attention.window_size"]),
    ([WINDOW, "--config.attention.dropout_rate=1"], ["dropout_rate=1", "[0, 1)"]),
    ([WINDOW, "--config.attention.scale=x"], ["scale='x'", "above 0"]),
    ([WINDOW, "--config.attention.name=lsh", "--config.attention.window_size=2"], ["attention.window_size"]),
    ([WINDOW, "--config.attention.name=pooled", "--config.attention.pooling=max"], ["pooling='max'", "mean"]),
    ([WINDOW, "--config.attention.name=lsh", "--config.attention.num_buckets=3"], ["num_buckets=3", "even"]),
    ([WINDOW, "--config.task.name=recal"], ["'recal'", "recall"]),
    ([WINDOW, "--config.task.length=0"], ["length=0", "at least 1"]),
    ([WINDOW, "--config.task.length=1e3"], ["length", "1e3"]),
    ([WINDOW, "--config.task.eval_lengths=(64,'x')"], ["eval_lengths", "ints"]),
    ([WINDOW, "--config.task.data_dir=/nowhere"], ["data_dir='/nowhere'", "a folder or None"]),
    ([WINDOW, f"--config.task.data_dir={ROOT}/docs"], ["data_dir", ".py"]),
    ([WINDOW, "--config.task.length=100000000"], ["length=100000000"]),
    ([WINDOW, "--config.task.name=recall", "--config.task.num_pairs=64"], ["length=128", "at least 256"]),
    ([WINDOW, "--config.task.name=listops", f"--config.task.data_dir={ROOT}"], ["basic_train.tsv"]),
    ([WINDOW, "--config.task.name=text", f"--config.task.data_dir={ROOT}"], ["aclImdb"]),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def traced_not_compiled():
    """A program is traced, which finds all that cannot be, and shown as if it needed nothing."""

    def build(config, task, num_seeds=1):
        state = train.abstract_state(config, task)
        batch = data.abstract_batch(task, config.train.batch_size)
        jax.eval_shape(train.train_step(config, task), state, batch, jax.ShapeDtypeStruct((), jnp.int32))
        for length in (task.length, *task.eval_lengths):
            inputs = data.abstract_batch(task, config.eval.batch_size, length)
            jax.eval_shape(train.eval_step(config, task), state.params, inputs)
        nothing = dict.fromkeys(("arguments", "outputs", "temporaries", "aliased", "total"), 0)
        memory = {"training_step": nothing, "forward": nothing}
        return program.Program(config, task, num_seeds, state, None, None, {}, memory, {})  # pyright: ignore[reportArgumentType]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "build", build)
        yield


@pytest.mark.parametrize(("arguments", "words"), TRIED, ids=lambda x: " ".join(x).replace(str(ROOT), ""))
def test_what_was_tried_is_answered_by_one_line(as_users_run, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(ROOT)
    assert launch.main([*arguments, "--dry_run"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("launch.py: ") and error.count("\n") == 1, error
    assert not FOREIGN.search(error), error
    for word in words:
        assert word in error, error


GENERATED = ("recall", "induction", "selective_copy")
FIELDS = [
    *checks.RULES,
    *(f"attention.{field}" for name in attention.names() for field in attention.hyperparameters(name)),
    *(f"task.{field}" for name in GENERATED for field in tasks.hyperparameters(name)),
    "attention.name", "task.name", "model", "train.stepz", "attention", "", "model.num_heads.x",
]  # fmt: skip
WORDS = """
None none True false 0 1 2 3 4 8 16 17 -1 -0 1.0 0.5 1e4 1e-3 nan inf -inf 1e400 () (1,) (1,2)
(1,1) [1] {} 'x' x full dense window pooled lsh recall induction selective_copy learned
sinusoidal rotary none pre post xavier he cosine rsqrt constant bfloat16 float32 mean 0x10
1_000 é = -- 10000000000 64 (0.1,0.2)
"""
VALUES = strategies.one_of(
    strategies.sampled_from(WORDS.split()),
    strategies.just(""),
    strategies.integers(-3, 70).map(str),
    strategies.floats(-2, 2).map(repr),
    strategies.text(max_size=4),
)
OVERRIDES = strategies.lists(
    strategies.tuples(strategies.sampled_from(FIELDS), VALUES), min_size=1, max_size=4
)


def answered(overrides, capsys):
    """Exit code of a dry run with these overrides on a small config; fails unless it ran or was answered."""
    fields = [f"--config.{field}" for field in small.FIELDS] + [f"--config.{f}={v}" for f, v in overrides]
    code = launch.main([f"--config={base.__file__}", *fields, "--dry_run"])
    shown = capsys.readouterr()
    if code == 2:
        assert shown.err.startswith("launch.py: ") and shown.err.count("\n") == 1, shown.err
        assert not FOREIGN.search(shown.err), shown.err
    else:
        assert code == 0 and not shown.err
    return code


def campaign(examples):
    codes = {0: 0, 2: 0}

    @settings(
        max_examples=examples, deadline=None, derandomize=True, database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )  # fmt: skip
    @given(OVERRIDES)
    def run(capsys, overrides):
        codes[answered(overrides, capsys)] += 1

    return run, codes


def test_random_overrides_run_or_are_answered(as_users_run, capsys):
    run, codes = campaign(150)
    run(capsys)
    assert min(codes.values()) > 10


@pytest.mark.campaign
def test_two_thousand_random_overrides_run_or_are_answered(as_users_run, capsys):
    run, codes = campaign(2500)
    run(capsys)
    assert sum(codes.values()) >= 2000 and min(codes.values()) > 150
