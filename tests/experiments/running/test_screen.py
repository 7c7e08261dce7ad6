"""What is said: the fallback loudly, plain lines where there is no terminal, one live line where there is."""

import copy
import io

from rich.console import Console

from experiments import accelerators, provenance
from experiments.running import screen

HERE = provenance.gather()


def printed(terminal=False, width=160):
    stream = io.StringIO()
    return stream, Console(file=stream, width=width, force_terminal=terminal, highlight=False, soft_wrap=True)


def test_banner_names_device_and_versions_and_an_unused_accelerator():
    stream, out = printed()
    clean = copy.deepcopy(HERE) | {"git": {"commit": "c" * 40, "dirty": False}}
    screen.banner(out, clean, None)
    assert "x cpu" in stream.getvalue() and f"jax {HERE['packages']['jax']}" in stream.getvalue()
    assert stream.getvalue().count("\n") == 1
    screen.banner(out, clean | {"git": None}, "this machine has an NVIDIA GPU")
    assert "WARNING: this machine has an NVIDIA GPU, but jax computes on the CPU" in stream.getvalue()
    assert "not citable: no git checkout" in stream.getvalue()


def test_idle_accelerator_is_seen_unless_the_cpu_was_asked_for(monkeypatch, tmp_path):
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(accelerators, "SHOWN", {str(tmp_path / "nvidia0"): "an NVIDIA GPU"})
    for told, expected in [("cpu", None), ("", "this machine has an NVIDIA GPU")]:
        monkeypatch.setattr(provenance, "_platforms", lambda told=told: told)
        assert provenance.idle_accelerator() == expected
    monkeypatch.setattr(accelerators, "SHOWN", {})
    assert provenance.idle_accelerator() is None


def test_differences_are_literal():
    stream, out = printed()
    screen.differences(
        out, "lsh", [{"name": "lsh", "num_hashes": 4}, {"name": "gru"}],
        {"attention.num_hashes": 4, "model.init": "[bold]"},
    )  # fmt: skip
    assert "lsh: lsh(num_hashes=4) + gru()\n" in stream.getvalue()
    assert "attention.num_hashes = 4" in stream.getvalue() and "model.init = '[bold]'" in stream.getvalue()


def test_plain_lines_come_now_and_then_and_at_the_end(monkeypatch):
    stream, out = printed()
    clock = iter(range(1000))
    monkeypatch.setattr(screen.time, "monotonic", lambda: next(clock))
    with screen.Live(out, 30, "accuracy") as live:
        for step in range(1, 31):
            live.step("seed 0", step, 2.0, 1234.5)
            if step == 12:
                live.validated("seed 0", step, {"accuracy": 0.5, "loss": 1.0}, best=True)
    lines = stream.getvalue().splitlines()
    assert [line.split()[3] for line in lines] == ["1/30", "11/30", "12/30", "21/30", "30/30"]
    assert "ETA 0:19  loss 2.000" in lines[1] and "1,234 tokens/s" in lines[1]
    assert "validation  accuracy 0.5000 (best so far)" in lines[2]
    assert "accuracy" not in lines[3]  # of step 12, not of 21


def test_a_terminal_gets_one_live_line():
    stream, out = printed(terminal=True)
    with screen.Live(out, 30, "accuracy") as live:
        for seed in (3, 4):
            for step in range(1, 31):
                live.step(f"seed {seed}", step, 2.0, 1234.5)
            live.validated(f"seed {seed}", 30, {"accuracy": 0.25}, best=False)
    shown = stream.getvalue()
    assert "seed 3" in shown and "seed 4" in shown and "30/30" in shown and "1,234 tokens/s" in shown
    assert shown.count("\n") < 20
