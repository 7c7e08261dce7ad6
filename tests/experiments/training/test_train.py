import jax
import jax.numpy as jnp
import numpy as np

from experiments.config import checks
from experiments.running import run
from experiments.training import data, train
from tests.experiments import small
from tests.experiments.small import prepared, trained


def batches(task):
    return data.train_iterator(task, 0, 2)


def test_the_abstract_state_describes_the_real_one():
    config, task, _ = prepared()
    real = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), train.init_state(config, task, 0))
    assert train.abstract_state(config, task) == real
    assert type(real.params) is dict and real.step == jax.ShapeDtypeStruct((), jnp.int32)


def test_seeds_decide_the_first_state():
    config, task, _ = prepared()
    one, same, other = (train.init_state(config, task, seed) for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, one, same)
    kernels = (state.params["output"]["kernel"] for state in (one, other))
    assert (next(kernels) != next(kernels)).any()


def test_training_lowers_the_loss_and_reports():
    _, first = trained(1)
    state, last = trained(60, "train.steps=60", "optimizer.learning_rate=0.03")
    assert last["loss"] < first["loss"] - 0.3
    assert state.step == 60
    assert set(first) == {"loss", "grad_norm", "param_norm", "learning_rate"}
    assert first["param_norm"] > 0 and first["grad_norm"] > 0
    assert np.isclose(first["learning_rate"], 1.5e-3)


def test_the_step_is_a_pure_function_compiled_once_for_all_seeds():
    one, _ = trained(3, "model.dropout_rate=0.3")
    same, _ = trained(3, "model.dropout_rate=0.3")
    jax.tree.map(np.testing.assert_array_equal, one, same)
    trained(3, "model.dropout_rate=0.3", seed=5)
    assert prepared("model.dropout_rate=0.3")[2]._cache_size() == 1  # pyright: ignore[reportAttributeAccessIssue]


def test_dropout_comes_from_seed_and_step():
    config, task, step = prepared("model.dropout_rate=0.3")
    batch = next(batches(task))

    def loss(seed, number):
        state = train.init_state(config, task, 0)._replace(step=jnp.int32(number))
        return float(step(state, batch, np.int32(seed))[1]["loss"])

    assert loss(0, 0) == loss(0, 0)
    assert len({loss(0, 0), loss(0, 1), loss(1, 0)}) == 3


def test_the_old_state_is_donated():
    config, task, step = prepared()
    state = train.init_state(config, task, 0)
    step(state, next(batches(task)), np.int32(0))
    assert state.params["output"]["kernel"].is_deleted()


def test_a_gradient_that_is_not_finite_is_reported():
    config, task, step = prepared()
    state = train.init_state(config, task, 0)
    state.params["output"]["bias"] = state.params["output"]["bias"].at[0].set(jnp.nan)
    _, metrics = step(state, next(batches(task)), np.int32(0))
    assert not np.isfinite(metrics["loss"]) and not np.isfinite(metrics["param_norm"])


def test_evaluation_sums_over_batches_of_any_size_and_length():
    config, task, _ = prepared()
    step, params = train.eval_step(config, task), train.init_state(config, task, 0).params
    found = []
    for size in (2, 256):
        sums = [step(params, batch)[task.primary] for batch in data.eval_batches(task, "validation", size)]
        found.append(np.sum(sums, axis=0))
    assert np.allclose(found[0], found[1])
    assert found[0][1] == task.splits["validation"] * 4
    sums = step(params, next(iter(data.eval_batches(task, "validation", 2, length=20))))
    assert {"loss", task.primary} <= set(sums)


class Recording:
    """A config, or a section of one, that remembers which of its fields were read by name."""

    def __init__(self, section, seen, prefix=""):
        self._section, self._seen, self._prefix = section, seen, prefix

    def __getattr__(self, field):
        if field not in self._section:
            return getattr(self._section, field)  # a method
        value = self._section[field]
        self._seen.add(self._prefix + field)
        return Recording(value, self._seen, f"{field}.") if hasattr(value, "to_dict") else value

    def __getitem__(self, field):
        return self._section[field]


def test_every_field_is_read_by_a_run(tmp_path):
    little = ("train.eval_every=2", "eval.timed_steps=1", "task.num_validation=4", "task.num_test=4")
    seen, config = set(), small.load(*little)
    assert run.run(Recording(config, seen), {}, str(tmp_path), argv=[]) == 0
    assert set(checks.RULES) - {"train.flops"} <= seen  # which decided the steps when it was loaded
