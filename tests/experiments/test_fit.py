"""The course of a seed with a toy in the model's place: its accuracy at each step is written in a list."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from experiments import checkpoint, data, records, tasks
from experiments.fit import Fit, evaluate, fit
from experiments.program import Program
from experiments.train import TrainState

TASK = tasks.make("recall", length=16, num_pairs=4, vocab_size=16, num_validation=7, num_test=5)
STEPS = 8


class Silent:
    def __init__(self):
        self.notes = []

    def step(self, seed: int, step: int, loss: float, tokens_per_second: float) -> None: ...

    def validated(self, seed: int, step: int, values: dict[str, float], best: bool) -> None: ...

    def note(self, text: str) -> None:
        self.notes.append(text)


def toy(accuracies, **changes):
    """A program whose only parameter counts the steps; `accuracies[step]` is what it scores."""
    table = jnp.asarray(accuracies, jnp.float32)
    settings = {"batch_size": 2, "steps": STEPS, "eval_every": 2, "checkpoint_every": 100, "log_every": 100}
    config = ConfigDict(
        {"train": settings | {"stop_when_solved": False} | changes, "eval": {"batch_size": 3}}
    )

    def init(seed):
        del seed
        return TrainState({"w": jnp.zeros((), jnp.int32)}, (), jnp.zeros((), jnp.int32))

    def train(state, batch, seed):
        loss = table[state.params["w"]] + 0 * (batch["weights"].sum() + seed)
        return TrainState({"w": state.params["w"] + 1}, (), state.step + 1), {"loss": loss}

    def score(params, batch):
        weight = batch["weights"].sum()
        return {
            "accuracy": (table[params["w"]] * weight, weight),
            "token": (batch["tokens"][0, 0] * 1.0, 1.0),
        }

    seed = jax.ShapeDtypeStruct((), jnp.int32)
    state = jax.eval_shape(init, seed)
    batch = data.abstract_batch(TASK, 2)
    compiled = jax.jit(score).lower(state.params, data.abstract_batch(TASK, 3)).compile()
    return Program(
        config=config,
        task=TASK,
        abstract_state=state,
        init=jax.jit(init).lower(seed).compile(),
        train=jax.jit(train).lower(state, batch, seed).compile(),
        evaluate=lambda length: compiled,
        memory={},
        compile_seconds={},
    )


def outcome(folder, accuracies, **changes):
    return fit(Fit(toy(accuracies, **changes), 0, folder, lambda: None, Silent()))


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
    assert best in checkpoint.steps(tmp_path / "checkpoints")
    assert (entry["sha256"]["params"] == entry["sha256"]["best_params"]) == (best == STEPS)


def test_it_stops_when_solved_only_if_asked(tmp_path):
    accuracies = [0, 0, 0.5, 0, 0.99, 0, 1, 0, 1]
    patient = outcome(tmp_path / "patient", accuracies)
    assert patient["step"] == STEPS and not patient["solved"]
    eager = outcome(tmp_path / "eager", accuracies, stop_when_solved=True)
    assert eager["step"] == eager["best_step"] == 4 and eager["solved"]
    again = outcome(tmp_path / "eager", accuracies, stop_when_solved=True)  # from its last checkpoint
    assert again == eager


def test_a_validation_that_is_not_finite_is_divergence(tmp_path):
    entry = outcome(tmp_path, [0, 0, 0.1, 0, float("nan"), 0, 0, 0, 0], checkpoint_every=3)
    assert entry["outcome"] == records.DIVERGED and entry["step"] == 4
    assert entry["reason"] == "validation accuracy is nan at step 4" and entry["last_good_step"] == 3


def test_the_logged_loss_is_the_mean_since_the_last_line(tmp_path):
    outcome(tmp_path, np.arange(9) / 10, log_every=4)
    lines = [line for line in records.read(tmp_path / "metrics.jsonl") if line["split"] == "train"]
    assert [line["step"] for line in lines] == [4, 8]
    assert [line["loss"] for line in lines] == pytest.approx([0.15, 0.55])


def test_sums_are_taken_over_all_batches():
    values = evaluate(toy([0.5] * 9), {"w": jnp.int32(0)}, "validation", TASK.length, lambda: None)
    batches = data.eval_batches(TASK, "validation", 3)
    assert values == {"accuracy": 0.5, "token": np.mean([batch["tokens"][0, 0] for batch in batches])}
