"""Whatever is asked for, it runs or is answered by one line that names the field, and exit code 2."""

import collections
import dataclasses
import functools
import re
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import pytest
from hypothesis import HealthCheck, given, seed, settings, strategies

import attention
import launch
from attention.registry import VARIANTS
from configs import base
from experiments import provenance, tasks
from experiments.config import checks
from experiments.model import registry
from experiments.tasks import listops
from experiments.training import data, program, train
from tests.experiments import small

ROOT = Path(launch.__file__).parent
WINDOW = f"--config={ROOT}/configs/window128.py"
FOREIGN = re.compile(
    r"Traceback|FlagValues|absl|ml_collections|ConfigDict|config_flags|flag --|dataclass|jax\.errors"
)
MOST_MADE = 1000  # expressions of listops

# What was tried: the arguments, and words that the one line of the answer must hold.
TRIED = [
    ([], ["--config"]),
    (["configs/window128.py"], ["--config"]),
    ([WINDOW, "stray"], ["stray", "--config.field=value"]),
    ([WINDOW, "--config.train.steps", "5"], ["'--config.train.steps' has no value"]),
    ([WINDOW, "-x"], ["-x"]),
    ([WINDOW + "\nb.py"], ["no file"]),
    ([WINDOW, "--dry-run"], ["--dry-run", "did you mean --dry_run?"]),
    ([WINDOW, "--dryrun"], ["--dryrun", "did you mean --dry_run?"]),
    ([WINDOW, "--wrkdir=runs"], ["no --wrkdir; did you mean --workdir?"]),
    ([WINDOW, "--hidden=3"], ["--hidden=3", "--config.field=value"]),
    ([WINDOW, "--dry_run=yes"], ["--dry_run"]),
    ([WINDOW, "--require_device=abacus"], ["abacus", "gpu"]),
    ([WINDOW, "--require_device=tpu"], ["tpu", "cpu"]),
    ([WINDOW, "--workdir"], ["--workdir"]),
    ([WINDOW, "--mode=plan", "--dry_run"], ["--dry_run is not of --mode=plan"]),
    ([WINDOW, "--mode=plan", "--executor=local"], ["--executor is not of --mode=plan"]),
    ([WINDOW, "--mode=plan", "--slurm=time=3"], ["--slurm is not of --mode=plan"]),
    ([WINDOW, "--mode=plan", "--require_device=cpu"], ["--require_device is not of --mode=plan"]),
    ([WINDOW, "--mode=plan", "--allow_changes"], ["--allow_changes is not of --mode=plan"]),
    ([WINDOW, "--mode=plan", "--compilation_cache=x"], ["--compilation_cache is not of --mode=plan"]),
    ([WINDOW, "--mode=plan", "--profile"], ["--profile is not of --mode=plan"]),
    (["--config="], ["there is no file"]),
    (["--config=configs/windw128.py"], ["windw128.py", "there is no file", "window128.py"]),
    (["--config=configs"], ["configs", "there is no file"]),
    ([f"--config={ROOT}/README.md"], ["README.md", "not a Python file"]),
    ([f"--config={ROOT}/launch.py"], ["get_config"]),
    ([f"{WINDOW}:lsh"], ["window128.py takes no argument 'lsh'"]),
    ([f"--config={ROOT}/configs/recall.py:lhs"], ["'lhs'", "lsh"]),
    ([WINDOW, "--config.model.num_layer=3"], ["model.num_layer", "did you mean config.model.num_layers"]),
    ([WINDOW, "--config.modl.num_layers=3"], ["modl.num_layers", "did you mean config.model.num_layers"]),
    ([WINDOW, "--config.num_layers=3"], ["num_layers"]),
    ([WINDOW, "--config.modle.remat=1"], ["no field config.modle.remat; did you mean config.model.remat?"]),
    ([WINDOW, "--config.model=3"], ["config.model is a section; set one of its fields: model.compute_dtype"]),
    ([WINDOW, "--config.=3"], ["--config.field=value"]),
    ([WINDOW, "--config=3"], ["--config=3", "there is no file"]),
    ([WINDOW, "--config.model.num_layers=three"], ["model.num_layers='three'", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers=1e4"], ["model.num_layers='1e4'", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers=2.0"], ["model.num_layers", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers=None"], ["model.num_layers", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers=0"], ["model.num_layers=0 is not accepted", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers=10000000000"], ["num_layers=10000000000", "at most 1024"]),
    ([WINDOW, f"--config.model.model_dim={10**400}"], ["model_dim=1000", "at most"]),
    ([WINDOW, "--config.model.num_layers="], ["model.num_layers", "an int of at least 1"]),
    ([WINDOW, "--config.model.num_layers=True"], ["model.num_layers", "an int of at least 1"]),
    ([WINDOW, "--config.model.remat=maybe"], ["model.remat", "True or False"]),
    ([WINDOW, "--config.model.remat=1.5"], ["model.remat", "True or False"]),
    ([WINDOW, "--config.model.norm=middle"], ["model.norm='middle'", "must be pre or post"]),
    (
        [WINDOW, "--config.model.positions=Rotary"],
        ["model.positions='Rotary'", "must be learned or sinusoidal or rotary or none"],
    ),
    ([WINDOW, "--config.model.head_dim=63"], ["model.head_dim=63", "even with model.positions=rotary"]),
    ([WINDOW, "--config.model.num_kv_heads=3"], ["model.num_kv_heads=3", "divisor"]),
    ([WINDOW, "--config.model.max_length=10"], ["model.max_length=10", "at least 1024"]),
    ([WINDOW, "--config.model.init=zeros"], ["must be xavier or he or normal"]),
    ([WINDOW, "--config.model.compute_dtype=float16"], ["must be float32 or bfloat16"]),
    ([WINDOW, "--config.model.init_std=nan"], ["model.init_std=nan", "above 0"]),
    ([WINDOW, "--config.optimizer.learning_rate=-1"], ["optimizer.learning_rate=-1.0", "above 0"]),
    ([WINDOW, "--config.optimizer.learning_rate=inf"], ["optimizer.learning_rate=inf", "above 0"]),
    ([WINDOW, "--config.optimizer.learning_rate=nan"], ["learning_rate=nan is not accepted"]),
    ([WINDOW, "--config.optimizer.schedule=linear"], ["must be cosine or rsqrt or constant"]),
    ([WINDOW, "--config.optimizer.learning_rate_grid=[[1e-3]]"], ["learning_rate_grid", "different numbers"]),
    ([WINDOW, "--config.optimizer.learning_rate_grid=(1e-3,-1)"], ["learning_rate_grid", "above 0"]),
    ([WINDOW, "--config.optimizer.learning_rate_grid=(1e-3,1e-3)"], ["learning_rate_grid", "different"]),
    (
        [WINDOW, "--config.optimizer.warmup_steps=200"],
        ["optimizer.warmup_steps=200 is not accepted", "below train.steps=200"],
    ),
    (
        [WINDOW, "--config.train.flops=1e11"],
        ["optimizer.warmup_steps=20 is not accepted", "steps=16, which train.flops=1e+11 pays for"],
    ),
    ([WINDOW, "--config.train.flops=1e9"], ["train.flops=1000000000.0", "6128336896", "one training step"]),
    ([WINDOW, "--config.train.flops=0"], ["train.flops=0 is not accepted", "a number above 0 or None"]),
    ([WINDOW, "--config.train.flops=1e300"], ["train.flops=1e+300", "2147483647 times"]),
    ([WINDOW, "--config.optimizer.clip_norm=none"], ["clip_norm='none'", "a number above 0 or None"]),
    ([WINDOW, f"--config.optimizer.clip_norm={10**400}"], ["optimizer.clip_norm=1000", "a number above 0"]),
    ([WINDOW, "--config.optimizer.ema_decay=1"], ["optimizer.ema_decay=1", "[0, 1)"]),
    ([WINDOW, "--config.seeds=()", "--config.eval.timed_steps=0"], ["seeds=()", "nothing to do"]),
    ([WINDOW, "--config.seeds=(0,0)"], ["seeds=(0, 0)", "different ints"]),
    ([WINDOW, "--config.seeds=(0,-1)"], ["seeds=(0, -1)", "different ints"]),
    ([WINDOW, "--config.seeds=0.5"], ["seeds", "different ints"]),
    ([WINDOW, "--config.seeds=a"], ["seeds=('a',)", "different ints"]),
    ([WINDOW, "--config.seeds=[[0,1]]"], ["seeds=([0, 1],)", "different ints"]),
    ([WINDOW, "--config.seeds=" + "-" * 10_000 + "1"], ["config.seeds=", "different ints"]),
    ([WINDOW, "--config.seeds=(1,'a')"], ["seeds", "different ints"]),
    ([WINDOW, "--config.name=a/b"], ["config.name='a/b' is not accepted", "letters"]),
    ([WINDOW, "--config.name=.."], ["name='..'", "letters"]),
    ([WINDOW, "--config.name="], ["name=''", "letters"]),
    (
        [WINDOW, "--config.train.batch_size=3", "--config.train.num_microbatches=2"],
        ["num_microbatches=2", "batch_size=3"],
    ),
    ([WINDOW, "--config.train.stop_when_solved=true"], ["False: the task bytes is never solved"]),
    (
        [WINDOW, "--config.train.entropy_penalty=1", "--config.attention.softcap=5"],
        ["entropy_penalty", "softcap"],
    ),
    (
        [WINDOW, "--config.attention.name=windw"],
        ["unknown attention 'windw'; known are " + ", ".join(registry.names())],
    ),
    ([WINDOW, "--config.attention.name=None"], ["attention", "None"]),
    ([WINDOW, "--config.attention.window_size=0"], ["window: window_size=0 is not accepted", "at least 1"]),
    ([WINDOW, "--config.attention.window_size=64.5"], ["window_size", "int"]),
    ([WINDOW, "--config.attention.window_size=1e4"], ["attention.window_size='1e4' is not accepted"]),
    ([WINDOW, "--config.attention.window_size=None"], ["window_size", "int"]),
    (
        [WINDOW, "--config.attention.num_hashes=2"],
        ["attention.num_hashes", "known are attention.dropout_rate, attention.key_block"],
    ),
    ([WINDOW, "--config.attention.windowsize=2"], ["did you mean config.attention.window_size"]),
    ([WINDOW, "--config.attention.dropout_rate=1"], ["dropout_rate=1", "[0, 1)"]),
    ([WINDOW, "--config.attention.scale=x"], ["window: scale='x' is not accepted", "above 0"]),
    ([WINDOW, "--config.attention.name=lsh", "--config.attention.window_size=2"], ["attention.window_size"]),
    ([WINDOW, "--config.attention.name=pooled", "--config.attention.pooling=max"], ["pooling='max'", "mean"]),
    ([WINDOW, "--config.attention.name=lsh", "--config.attention.num_buckets=3"], ["num_buckets=3", "even"]),
    ([WINDOW, "--config.task.name=recal"], ["unknown task 'recal'; known are " + ", ".join(tasks.names())]),
    ([WINDOW, "--config.task.length=0"], ["bytes: length=0 is not accepted", "at least 1"]),
    ([WINDOW, "--config.task.length=1e3"], ["length", "1e3"]),
    ([WINDOW, "--config.task.eval_lengths=(64,'x')"], ["eval_lengths", "ints"]),
    ([WINDOW, "--config.task.data_dir=/nowhere"], ["data_dir='/nowhere'", "a folder or None"]),
    ([WINDOW, f"--config.task.data_dir={ROOT}/docs"], ["data_dir", ".py"]),
    ([WINDOW, "--config.task.length=100000000"], ["length=100000000"]),
    ([WINDOW, "--config.task.name=recall", "--config.task.num_pairs=64"], ["length=128", "at least 256"]),
    ([WINDOW, "--config.task.num_test=10000000000000000000"], ["num_test=1000", "at most"]),
    ([WINDOW, "--config.task.name=recall", "--config.task.power=inf"], ["power=inf", "at most 16"]),
    ([WINDOW, "--config.task.name=listops", "--config.task.max_args=101"], ["max_args=101", "at most 100"]),
    ([WINDOW, "--config.task.name=listops", f"--config.task.data_dir={ROOT}"], ["basic_train.tsv"]),
    ([WINDOW, "--config.task.name=text", f"--config.task.data_dir={ROOT}"], ["aclImdb"]),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def nothing_heavy():
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

    def generate(*law, make=listops._generate):
        if law[-1] > MOST_MADE:
            raise ValueError("listops: more than a test should make")
        return make(*law)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "build", build)
        patch.setattr(provenance, "gather", functools.cache(provenance.gather))
        patch.setattr(listops, "_generate", generate)
        yield


@pytest.mark.parametrize(("arguments", "words"), TRIED, ids=lambda x: " ".join(x).replace(str(ROOT), "")[:80])
def test_what_was_tried_is_answered_by_one_line(as_users_run, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(ROOT)
    assert launch.main([*arguments, "--dry_run"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("launch.py: ") and error.count("\n") == 1, error
    assert not FOREIGN.search(error), error
    for word in words:
        assert word in error, error


@dataclasses.dataclass(frozen=True)
class Limited(attention.Full):
    name: ClassVar[str] = "limited"

    @property
    def capabilities(self):
        return dataclasses.replace(
            super().capabilities, causal=False, grouped_queries=False, value_width=False
        )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([], "the task bytes is causal, which attention limited cannot be"),
        (["--config.task.name=listops", "--config.model.num_kv_heads=1"], "num_kv_heads=1 is not accepted"),
        (["--config.task.name=listops", "--config.model.value_dim=3"], "value_dim=3 is not accepted"),
    ],
)
def test_what_a_variant_cannot_do_is_one_line(monkeypatch, capsys, fields, words):
    monkeypatch.setitem(VARIANTS, "limited", Limited)
    assert launch.main([WINDOW, "--config.attention.name=limited", *fields]) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


HUGE = "1" + "0" * 400
WORDS = f"""
None none True false 0 1 2 3 4 8 16 17 -1 -0 1.0 0.5 1e4 1e-3 nan inf -inf 1e400 () (1,) (1,2)
(1,1) [1] [[0,1]] [[1e-3]] {{}} 'x' x full dense window pooled lsh recall induction selective_copy learned
sinusoidal rotary none pre post xavier he cosine rsqrt constant bfloat16 float32 mean 0x10
1_000 é = -- 1073741824 10000000000 10000000000000000000 {HUGE} 64 (0.1,0.2)
"""
ANYTHING = strategies.one_of(
    strategies.sampled_from(WORDS.split()),
    strategies.just(""),
    strategies.integers(-3, 70).map(str),
    strategies.floats(-2, 2).map(repr),
    strategies.text(max_size=4),
)
LIKELY = {  # by the type of the default, what may well be accepted
    bool: strategies.sampled_from(("true", "false")),
    int: strategies.integers(1, 8).map(str),
    float: strategies.floats(0.01, 0.99).map(repr),
    tuple: strategies.sampled_from(("()", "0", "(24,32)")),
    type(None): strategies.sampled_from(("None", "1", "2", "0.5")),
}
COMMON = {field: functools.reduce(getattr, field.split("."), base.get_config()) for field in checks.RULES}
WRONG = (
    "model", "attention", "task", "", "train.stepz", "model.num_heads.x", "attention.windowsize",
    *(f"attention.{field}" for name in registry.names() for field in registry.hyperparameters(name)),
)  # fmt: skip


@strategies.composite
def overrides(draw):
    """A variant and a task, and then values of their fields, of the common ones and of some there are not."""
    variant, task = (draw(strategies.sampled_from(each.names())) for each in (registry, tasks))
    own = (
        {f"attention.{field}": value for field, value in registry.hyperparameters(variant).items()},
        {f"task.{field}": value for field, value in tasks.hyperparameters(task).items()},
    )
    known = COMMON | own[0] | own[1]
    pools = [[*each] for each in (*own, (*COMMON, *WRONG)) if each]  # a variant may have no field
    fields = strategies.one_of(*(strategies.sampled_from(pool) for pool in pools))
    drawn = draw(strategies.lists(fields, min_size=1, max_size=3))
    likely = [LIKELY.get(type(known.get(field)), ANYTHING) for field in drawn]
    return (
        variant,
        task,
        [(field, draw(strategies.one_of(each, ANYTHING))) for field, each in zip(drawn, likely, strict=True)],
    )


def answered(overrides, capsys):
    """Exit code of a dry run with these overrides on a small config; fails unless it ran or was answered."""
    fields = [f"--config.{field}" for field in small.SIZE] + [f"--config.{f}={v}" for f, v in overrides]
    code = launch.main([f"--config={base.__file__}", *fields, "--dry_run"])
    error = "".join(
        line for line in capsys.readouterr().err.splitlines(True) if not line.startswith("making listops-")
    )
    if code == 2:
        assert error.startswith("launch.py: ") and error.count("\n") == 1, error
        assert not FOREIGN.search(error), error
    else:
        assert code == 0 and not error
    return code


def campaign(examples, capsys, small_tasks, draw=0):
    """How often a dry run ended with each code, by variant and by task. Every `draw` gives others."""
    codes = collections.Counter()

    @seed(draw)
    @settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
    )
    @given(overrides())
    def run(drawn):
        variant, task, fields = drawn
        named = [("attention.name", variant), ("task.name", task)]
        small_ones = [(f"task.{field}", value) for field, value in small_tasks.get(task, {}).items()]
        code = answered([*named, *small_ones, *fields], capsys)
        codes.update({(code, variant), (code, task)})

    run()
    every = (*registry.names(), *tasks.names())
    return {(code, name): codes[code, name] for code in (0, 2) for name in every}


def test_random_overrides_run_or_are_answered(as_users_run, capsys, small_tasks):
    codes = campaign(60, capsys, small_tasks)
    for each in (registry, tasks):
        reached = {name: (codes[0, name], codes[2, name]) for name in each.names()}
        assert sum(sum(both) > 0 for both in reached.values()) > len(reached) / 2, reached
        assert min(map(sum, zip(*reached.values(), strict=True))) > 10, reached


@pytest.mark.campaign
@pytest.mark.parametrize("draw", range(1, 6))
def test_2500_random_overrides_run_or_are_answered(as_users_run, capsys, small_tasks, draw):
    codes = campaign(500, capsys, small_tasks, draw)
    assert min(codes.values()) > 2, codes
