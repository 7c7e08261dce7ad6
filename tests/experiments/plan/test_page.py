"""The page of plans, from records that were made by hand."""

from experiments import provenance
from experiments.plan import lines, page
from experiments.plan.devices import DEVICES
from experiments.report import figures

MEMORY = {
    "arguments": 2**20,
    "outputs": 2**20,
    "temporaries": 3 * 2**20,
    "aliased": 2**20,
    "total": 4 * 2**20,
}
STEP = {
    "outcome": "compiled", "fits": True, "capacity": 2**34,
    "memory": {"training_step": MEMORY, "forward": {"total": 5 * 2**20}},
    "roofline": {"operations": 10**9, "bytes": 2**23, "compute_seconds": 1e-3, "memory_seconds": 2e-3,
                 "bound_by": "memory"},
    "compiler_estimate": {"training_step": 5e-3}, "compile_seconds": 12.3,
}  # fmt: skip
LOST = {"outcome": "out of memory (compiled)", "reason": "no room", "fits": False}
FOUND = {"length": 4096, "beyond": 4608, "failed": [], "refused": []}


def made(**changes):
    whole = {
        "name": "window128", "identity": "0123456789", "share": 0.8, 
        "config": {"train": {"batch_size": 2}, "eval": {"batch_size": 8}},
        "asked": {"config": "configs/window128.py", "overrides": ["--config.task.length=4096"]},
        "provenance": provenance.gather(),
    }  # fmt: skip
    return whole | changes


def test_a_plan_is_a_table_and_its_command():
    text = page.section(made(compiled_for={"tpu-v5e": STEP, "h200": LOST}))
    assert "--mode=plan --target=tpu-v5e,h200 --config.task.length=4096" in text
    memory = "16 GiB | 4 MiB | 1 MiB | 1 MiB | 3 MiB | 1 MiB | 5 MiB"
    assert f"| TPU v5e | yes | {memory} | 1 G | 8 MiB | 1 | 2 | memory | 5 | 12.3 |" in text
    assert "training step of 2 sequences" in text and "evaluation of 8 sequences" in text
    assert "| NVIDIA H200 SXM 141GB | out of memory (compiled) |" in text
    assert text.startswith("## window128: a training step on tpu-v5e, h200, task.length=4096\n")


def test_each_device_has_its_figures_and_their_source():
    rows = [line for line in page.facts().splitlines() if "https://" in line]
    assert len(rows) == len(DEVICES)
    assert "| NVIDIA H200 SXM 141GB | 141 GiB | 4,800 GB/s | 989.4 | 494.7 | https" in page.facts()


def test_the_longest_are_a_table_and_a_picture(tmp_path):
    more = FOUND | {"length": 2**24, "beyond": None}
    none, failed = FOUND | {"length": None}, FOUND | {"failed": [9000]}
    record = made(
        longest={"tpu-v5e": {"full": FOUND, "window": more}, "cpu": {"full": none, "window": failed}}
    )
    text = page.section(record)
    assert "| full | 4,096 | none |" in text
    assert "| window | 16,777,216 or more | 4,096 (compiler failed at 9,000) |" in text
    assert lines.longest_heads(record)[1:] == ["TPU v5e", "the CPU here"] and "--longest=all" in text
    assert "](images/longest-window128-0123456789.png)" in text
    figures.longest(record, tmp_path / "longest.png")
    assert (tmp_path / "longest.png").stat().st_size > 10_000
