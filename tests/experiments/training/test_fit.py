"""The course of a seed with a toy in the model's place: its accuracy at each step is written in a list."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from experiments import records, tasks
from experiments.interrupt import Interrupted
from experiments.training import checkpoint, data
from experiments.training.fit import Fit, evaluate, fit
from experiments.training.program import Program
from experiments.training.train import TrainState

TASK = tasks.make("recall", length=16, num_pairs=4, vocab_size=16, num_validation=7, num_test=5)
STEPS = 8


class Silent:
    def __init__(self):
        self.notes = []

    def step(self, seeds: str, step: int, loss: float, tokens_per_second: float) -> None: ...

    def validated(self, seeds: str, step: int, values: dict[str, float], best: bool) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def toy(accuracies, **changes):
    """A program whose only parameter counts the steps; `accuracies[step]` is what it scores."""
    table = jnp.asarray(accuracies, jnp.float32)
    table = table if table.ndim == 2 else table[None]
    seeds = len(table)
    settings = {"batch_size": 2, "steps": STEPS, "eval_every": 2, "checkpoint_every": 100, "log_every": 100}
    settings |= {"stop_when_solved": False, "patience": None}
    config = ConfigDict({"train": settings | changes, "eval": {"batch_size": 3}})
    zeros, every = jnp.zeros(seeds, jnp.int32), jnp.arange(seeds)

    def train(state, batch, seed, active):
        loss = table[every, state.params["w"]] + 0 * (batch["weights"].sum() + seed.sum())
        taken = jnp.where(active, 1, 0)
        return TrainState({"w": state.params["w"] + taken}, (), state.step + taken), {"loss": loss}

    def score(params, batch):
        weight = jnp.full(seeds, batch["weights"].sum())
        return {
            "accuracy": (table[every, params["w"]] * weight, weight),
            "token": (jnp.full(seeds, batch["tokens"][0, 0] * 1.0), jnp.ones(seeds)),
        }

    def init(seed):
        return TrainState({"w": zeros}, (), 0 * seed)

    seed, active = (jax.ShapeDtypeStruct((seeds,), dtype) for dtype in (jnp.int32, jnp.bool_))
    state = jax.eval_shape(init, seed)
    batch = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((seeds, *x.shape), x.dtype), data.abstract_batch(TASK, 2)
    )
    compiled = jax.jit(score).lower(state.params, data.abstract_batch(TASK, 3)).compile()
    return Program(
        config=config,
        task=TASK,
        num_seeds=seeds,
        abstract_state=state,
        init=jax.jit(init).lower(seed).compile(),
        train=jax.jit(train).lower(state, batch, seed, active).compile(),
        evaluate={TASK.length: compiled},
        memory={},
        compile_seconds={},
    )


def outcomes(folder, accuracies, check=lambda: None, **changes):
    built = toy(accuracies, **changes)
    report = Silent()
    return fit(Fit(built, tuple(range(built.num_seeds)), folder, check, report))


def outcome(folder, accuracies, **changes):
    return outcomes(folder, accuracies, **changes)[0]


@pytest.mark.parametrize(
    ("accuracies", "best"),
    [
        ([0, 0, 0.1, 0, 0.3, 0, 0.2, 0, 0.1], 4),
        ([0, 0, 0.3, 0, 0.3, 0, 0.3, 0, 0.3], 2),  # of equal ones the first
        ([0, 0.9, 0.1, 0.9, 0.2, 0.9, 0.3, 0.9, 0.4], 8),
    ],
)
def test_the_best_validated_step_is_tested(tmp_path, accuracies, best):
    entry = outcome(tmp_path, accuracies)
    assert entry["best_step"] == best and entry["step"] == STEPS
    for split in ("validation", "test"):
        assert entry[split]["accuracy"] == pytest.approx(accuracies[best])
    assert best in checkpoint.steps(tmp_path / "seed-0" / "checkpoints")
    assert (entry["sha256"]["params"] == entry["sha256"]["best_params"]) == (best == STEPS)


def test_it_stops_when_solved_only_if_asked(tmp_path):
    accuracies = [0, 0, 0.5, 0, 0.99, 0, 1, 0, 1]
    patient = outcome(tmp_path / "patient", accuracies)
    assert patient["step"] == STEPS and patient["ended"] == "steps"
    eager = outcome(tmp_path / "eager", accuracies, stop_when_solved=True)
    assert eager["step"] == eager["best_step"] == 4 and eager["ended"] == "solved"
    again = outcome(tmp_path / "eager", accuracies, stop_when_solved=True)  # from its last checkpoint
    assert again == eager


def test_it_stops_when_patience_is_at_its_end(tmp_path):
    accuracies = [0, 0, 0.3, 0, 0.2, 0, 0.4, 0, 0.3]
    one, two = (outcome(tmp_path / str(n), accuracies, patience=n) for n in (1, 2))
    assert (one["step"], one["best_step"], one["ended"]) == (4, 2, "patience")
    assert (two["step"], two["best_step"], two["ended"]) == (STEPS, 6, "steps")


def test_patience_goes_on_counting_after_a_kill(tmp_path):
    accuracies = [0, 0, 0.3, 0, 0.2, 0, 0.1, 0, 0.4]
    undisturbed = outcome(tmp_path / "undisturbed", accuracies, patience=2)
    assert undisturbed["step"] == 6
    calls = iter(range(10**6))

    def stop():
        if next(calls) == 10:
            raise Interrupted(signal.SIGTERM)

    with pytest.raises(Interrupted):
        outcomes(tmp_path / "stopped", accuracies, stop, patience=2)
    assert 0 < checkpoint.steps(tmp_path / "stopped" / "seed-0" / "checkpoints")[-1] < 6
    again = outcome(tmp_path / "stopped", accuracies, patience=2)
    assert {**again, "timing": 0} == {**undisturbed, "timing": 0}


@pytest.mark.parametrize(
    ("split", "at", "where"),
    [
        ("validation", TASK.length, "validation"),
        ("test", TASK.length, f"test at {TASK.length}"),
        ("test", 2 * TASK.length, f"test at {2 * TASK.length}"),
    ],
)
def test_any_metric_that_is_no_number_ends_a_seed(tmp_path, monkeypatch, split, at, where):
    def strange(program, params, asked, length, check):
        found = evaluate(program, params, asked, TASK.length, check)
        wrong = {"token": float("nan")} if (asked, length) == (split, at) else {}
        return [values | wrong for values in found]

    monkeypatch.setattr("experiments.training.fit.evaluate", strange)
    built = toy([0.5] * (STEPS + 1))
    built.evaluate[2 * TASK.length] = built.evaluate[TASK.length]
    entry = fit(Fit(built, (0,), tmp_path, lambda: None, Silent()))[0]
    assert entry["outcome"] == records.DIVERGED and "test" not in entry
    assert entry["reason"] == f"{where} token is nan at step 2"
    assert entry["timing"]["seeds_together"] == 1


def test_seeds_at_once_end_each_in_its_own_way(tmp_path):
    nan = float("nan")
    table = [
        [0, 0, 0.5, 0, 0.99, 0, 0.2, 0, 0.3],  # solved at step 4
        [0, 0, 0.3, nan, 0.9, 0, 0.2, 0, 0.3],  # loss at step 4 is not finite
        [0, 0, 0.1, 0, 0.2, 0, 0.4, 0, 0.3],
    ]
    found = outcomes(tmp_path, table, stop_when_solved=True)
    assert [found[seed]["outcome"] for seed in range(3)] == ["finished", "diverged", "finished"]
    assert found[0]["ended"] == "solved" and found[0]["step"] == found[0]["best_step"] == 4
    assert found[1]["step"] == 4 and found[1]["last_good_step"] == 2
    assert found[2]["step"] == STEPS and found[2]["best_step"] == 6
    assert [found[seed]["timing"]["seeds_together"] for seed in range(3)] == [3, 3, 3]
    for seed in (0, 2):
        alone = outcome(tmp_path / f"alone-{seed}", table[seed], stop_when_solved=True)
        assert {**found[seed], "timing": 0} == {**alone, "timing": 0}
        lines = [records.read(f / "seed-0" / "metrics.jsonl") for f in (tmp_path / f"alone-{seed}",)]
        own = records.read(tmp_path / f"seed-{seed}" / "metrics.jsonl")
        assert [line["step"] for line in own] == [line["step"] for line in lines[0]]
    kept = checkpoint.steps(tmp_path / "seeds-0-1-2" / "checkpoints")
    assert {2, 4, 6} <= set(kept)


def test_a_validation_that_is_not_finite_is_divergence(tmp_path):
    entry = outcome(tmp_path, [0, 0, 0.1, 0, float("nan"), 0, 0, 0, 0], checkpoint_every=3)
    assert entry["outcome"] == records.DIVERGED and entry["step"] == 4
    assert entry["reason"] == "validation accuracy is nan at step 4" and entry["last_good_step"] == 3
    assert checkpoint.steps(tmp_path / "seed-0" / "checkpoints") == [2, 3]


def test_the_logged_loss_is_the_mean_since_the_last_line(tmp_path):
    outcome(tmp_path, np.arange(9) / 10, log_every=4)
    lines = [line for line in records.read(tmp_path / "seed-0" / "metrics.jsonl") if line["split"] == "train"]
    assert [line["step"] for line in lines] == [4, 8]
    assert [line["loss"] for line in lines] == pytest.approx([0.15, 0.55])


def test_sums_are_taken_over_all_batches():
    params = {"w": jnp.zeros(1, jnp.int32)}
    (values,) = evaluate(toy([0.5] * 9), params, "validation", TASK.length, lambda: None)
    batches = data.eval_batches(TASK, "validation", 3)
    assert values == {"accuracy": 0.5, "token": np.mean([batch["tokens"][0, 0] for batch in batches])}
