"""Memory and time are what they say: additive, waited for, and with a method."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import measure

CPU = jax.devices("cpu")[0]


def test_compiled_memory_adds_up_and_knows_donation():
    def step(state, x):
        return state + jnp.sin(x[:, None] * x).sum(0), jnp.float32(0)

    shape = jax.ShapeDtypeStruct((512,), jnp.float32)
    kept = measure.compiled_memory(jax.jit(step).lower(shape, shape).compile())
    given = measure.compiled_memory(jax.jit(step, donate_argnums=0).lower(shape, shape).compile())
    for memory in (kept, given):
        parts = memory["arguments"] + memory["outputs"] + memory["temporaries"] - memory["aliased"]
        assert memory["total"] == parts
        assert memory["arguments"] == 2 * 512 * 4
    assert kept["aliased"] == 0 and given["aliased"] == 512 * 4


def test_what_does_not_fit_is_said_with_both_numbers(monkeypatch):
    monkeypatch.setattr(measure, "free_memory", lambda _: 1000)
    assert measure.shortage(800, CPU) is None
    reason = measure.shortage(801, CPU)
    assert reason is not None and "801" in reason and "1000" in reason and "80%" in reason
    monkeypatch.setattr(measure, "free_memory", lambda _: None)
    assert measure.shortage(10**18, CPU) is None


def test_free_memory_honours_the_limit_of_a_container(monkeypatch, tmp_path):
    real = measure.free_memory(CPU)
    assert real is not None and real > 2**20
    files = {"memory.max": "5000", "memory.current": "2000", "memory.stat": "anon 7\ninactive_file 500\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(measure, "CONTROL_GROUPS", ((str(tmp_path), *measure.CONTROL_GROUPS[0][1:]),))
    assert measure.free_memory(CPU) == 3500
    (tmp_path / "memory.max").write_text("max")
    assert measure.free_memory(CPU) == pytest.approx(real, rel=0.5)


@pytest.mark.parametrize(("version", "own"), [(0, "0::/job/step"), (1, "4:cpu,memory:/job/step")])
def test_free_memory_honours_the_least_limit_around_a_process(monkeypatch, tmp_path, version, own):
    """Slurm limits a job, and the process is in a group inside of it."""
    _, controller, limit, used, cache = measure.CONTROL_GROUPS[version]
    (tmp_path / "job" / "step").mkdir(parents=True)
    for folder, most in {"": 9000, "job": 5000, "job/step": 8000}.items():
        (tmp_path / folder / limit).write_text(str(most))
        (tmp_path / folder / used).write_text("2000")
    (tmp_path / "own").write_text(f"9:name=systemd:/elsewhere\n{own}\n")
    monkeypatch.setattr(measure, "OWN_GROUPS", str(tmp_path / "own"))
    monkeypatch.setattr(measure, "CONTROL_GROUPS", ((str(tmp_path), controller, limit, used, cache),))
    assert measure.free_memory(CPU) == 3000


def test_peak_sees_an_allocation_and_names_its_method():
    size = 300 * 2**20
    _, before = measure.watched(lambda _: jnp.zeros(()), range(3), CPU)
    _, after = measure.watched(lambda _: np.ones(size, np.uint8).sum(), range(3), CPU)
    assert after["bytes"] - before["bytes"] > size // 2
    assert "resident set" in after["method"]


def test_times_leave_out_the_warm_up_and_wait_for_every_output():
    calls = []

    def run(index):
        calls.append(index)
        time.sleep(0.05 if index == 0 else 0.001)
        return jnp.zeros(())

    seconds = measure.times(run, range(measure.WARM_UP + 3))
    assert calls == [0, 1, 2, 3, 4] and len(seconds) == 3 and all(second > 0 for second in seconds)
    assert measure.spread([4.0, 1.0, 2.0, 3.0, 5.0]) == {"median": 3.0, "low": 2.0, "high": 4.0, "n": 5}


def test_growth_is_of_the_call_and_not_of_what_was_there():
    held = np.ones(2**23)
    grown = measure.resident_growth(lambda size: np.ones(size), 2**22)
    if grown["bytes"] is None:
        assert grown["method"].startswith("not measured")
    else:
        assert 2**25 <= grown["bytes"] + 2**20 < 2**25 + 2**24 and "VmHWM" in grown["method"]
    assert held.size == 2**23
