"""A sweep from its command to its table: what it skips, continues, survives and says."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import jax
import pytest

import launch
from experiments import measure, provenance, records
from experiments.plan import mode as planning
from experiments.running import screen
from experiments.sweep import execute
from tests.experiments.runs import ROOT, command, stopping_at

pytestmark = pytest.mark.usefixtures("compiled_once")

MINE = f"""
def get_sweep(which="full,window"):
    return [{{"config": "{ROOT}/configs/recall.py:" + name}} for name in which.split(",")]
"""
# Says what it was called with, and takes long or ends as the name of its config says.
CHILD = """
import pathlib, signal, sys, time
name = sys.argv[1].rpartition(":")[2]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
with open(pathlib.Path(__file__).with_name("started"), "a") as file:
    print(*sys.argv[1:], sep="\\t", file=file, flush=True)
print("said by", name, flush=True)
time.sleep(60 if name == "pooled" else 0)
sys.exit({"window": 1, "lsh": 75}.get(name, 5))
"""
# launch.py, so slow that a kill falls in the middle of a cell.
SLOWED_DOWN = """
import sys, time, launch
from experiments.running.screen import Live
Live.step = lambda *_: time.sleep(0.2)
sys.exit(launch.main(sys.argv[1:]))
"""


@pytest.fixture
def sweep(tmp_path):
    """The command of a small sweep, with more flags."""
    (tmp_path / "mine.py").write_text(MINE)

    def asked(*flags, which="", workdir="runs"):
        _, *rest = command(tmp_path / workdir)
        return [f"--config={tmp_path}/mine.py{which}", *rest, *flags]

    return asked


@pytest.fixture
def inside(monkeypatch):
    """Cells run within this process; gives the names of those that did."""
    ran = []

    def run_cell(arguments, log):
        ran.append(arguments[0].rpartition(":")[2])
        with open(log, "a") as file, contextlib.redirect_stdout(file):
            return launch.main(arguments)

    monkeypatch.setattr(execute, "run_cell", run_cell)
    return ran


def kept(folder):
    """Of sweep.json: outcome and exit code of each cell."""
    (path,) = folder.glob("sweeps/*/sweep.json")
    return [(cell["outcome"], cell["exit_code"]) for cell in json.loads(path.read_text())["cells"]]


def page(folder):
    """The table, without its timings."""
    (path,) = folder.glob("sweeps/*/table.md")
    lines = [line.split(" | ") for line in path.read_text().splitlines()]
    (heads,) = (line for line in lines if line[0] == "| attention")
    timed = [heads.index(name) for name in ("step ms", "tokens/s", "compile s", "in use")]
    assert len(lines) > 5
    return [[cell for at, cell in enumerate(line) if len(line) < 5 or at not in timed] for line in lines]


def test_a_sweep_killed_and_started_again_repeats_nothing_and_gives_the_same_table(
    sweep, inside, tmp_path, monkeypatch, capsys
):
    assert launch.main(sweep(workdir="undisturbed")) == 0
    shown = capsys.readouterr().out
    assert inside == ["full", "window"] and kept(tmp_path / "undisturbed") == [("finished", 0)] * 2
    assert re.search(r"\[1/2\] recall-full-\w{10}: finished, 0\.\d+ accuracy, \d+ s, about \d+ s left", shown)
    assert "recall, length 16: test accuracy" in shown and "No difference was tested" in shown
    inside.clear()

    class Killed(BaseException):
        pass

    def killed(self, label, at, loss, tokens_per_second):
        if inside == ["full", "window"] and at == 9:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", killed)
        with pytest.raises(Killed):
            launch.main(sweep())
    assert kept(tmp_path / "runs") == [("finished", 0), ("unfinished", None)]
    assert launch.main(sweep()) == 0
    assert inside == ["full", "window", "window"]
    assert "finished before, 0." in capsys.readouterr().out
    assert page(tmp_path / "runs") == page(tmp_path / "undisturbed")
    before = (tmp_path / "runs/sweeps/mine/table.md").read_bytes()
    assert launch.main(sweep()) == 0 and len(inside) == 3
    assert (tmp_path / "runs/sweeps/mine/table.md").read_bytes() == before


def test_no_room_is_a_result_and_a_failure_ends_nothing(sweep, inside, tmp_path, monkeypatch, capsys):
    run_cell = execute.run_cell

    def without_room(arguments, log):
        with monkeypatch.context() as patch:
            if arguments[0].endswith(":full"):
                patch.setattr(measure, "free_memory", lambda _: 1000)
            return run_cell(arguments, log)

    def failing(arguments, log):
        assert arguments[0].endswith(":full")  # the other one is finished
        with open(log, "a") as file:
            print("RuntimeError: by hand", file=file)
        return 1

    monkeypatch.setattr(execute, "run_cell", without_room)
    assert launch.main(sweep()) == 0
    assert inside == ["full", "window"]
    assert kept(tmp_path / "runs") == [("out of memory (compiled)", 4), ("finished", 0)]
    assert ": out of memory (compiled), " in capsys.readouterr().out
    text = (tmp_path / "runs/sweeps/mine/table.md").read_text()
    assert "| `full` | out of memory (compiled) |" in text and "| `window(window_size=16)` | 0." in text
    monkeypatch.setattr(execute, "run_cell", failing)
    assert launch.main(sweep()) == 1
    assert ": failed: RuntimeError: by hand" in capsys.readouterr().out
    text = (tmp_path / "runs/sweeps/mine/table.md").read_text()
    assert text.endswith(": failed: RuntimeError: by hand\n") and "| `window(window_size=16)` | 0." in text


def test_a_cell_stopped_by_itself_can_be_continued(sweep, inside, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(screen.Live, "step", stopping_at(7))
        assert launch.main(sweep(which=":full")) == 75
    assert kept(tmp_path / "runs") == [("interrupted", 75)]
    assert launch.main(sweep(which=":full")) == 0


def test_the_sweep_itself_looks_for_no_device(sweep, inside, monkeypatch):
    """It would take the memory that its cells want."""
    assert launch.main(sweep(which=":full")) == 0
    for name in ("devices", "default_backend", "local_devices"):
        monkeypatch.setattr(jax, name, None)
    monkeypatch.setattr(provenance, "gather", None)
    assert launch.main(sweep(which=":full")) == 0 and inside == ["full"]


def test_what_is_left_is_shown_and_nothing_started(sweep, inside, tmp_path, capsys):
    assert launch.main(sweep("--dry_run")) == 0
    assert capsys.readouterr().out.count(" all ") == 2 and not (tmp_path / "runs").exists()
    assert launch.main(sweep(which=":full")) == 0
    assert launch.main(sweep("--dry_run", "--config.seeds=(0,4,5)")) == 0
    assert "seeds 4, 5, finished" in capsys.readouterr().out


@pytest.mark.parametrize("flags", [[], ["--longest"]])
def test_the_plan_of_a_sweep_is_that_of_each_cell(sweep, monkeypatch, flags):
    asked = []
    for name in ("plan", "longest"):
        monkeypatch.setattr(
            planning, name, lambda each, *rest, name=name: asked.append((name, each.path, rest[0]))
        )
    assert launch.main(sweep("--mode=plan", "--target=cpu", *flags)) == 0
    name = "longest" if flags else "plan"
    assert asked == [(name, f"{ROOT}/configs/recall.py:{each}", ["cpu"]) for each in ("full", "window")]


@pytest.fixture
def children(tmp_path, monkeypatch):
    """Children that compute nothing; gives what was asked of them so far."""
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    monkeypatch.setattr(execute, "LAUNCH", script)
    started = script.with_name("started")
    started.touch()
    return lambda: [line.split("\t") for line in started.read_text().splitlines()]


def test_several_configs_run_one_after_the_other_each_in_its_own_process(tmp_path, children, capsys):
    first, workdir, *rest = command(tmp_path / "runs")
    configs = [f"{first}:{name}" for name in ("full", "window", "lsh")]
    spaced = [word for config in configs for word in config.split("=")]
    for count, words in enumerate((configs, spaced), start=1):
        assert launch.main([*words, workdir, *rest, "--allow_changes"]) == 1
        assert children() == [[config, "--allow_changes", workdir, *rest] for config in configs] * count
    assert launch.main([*configs, f"{first}:lhs", workdir, *rest]) == 2 and len(children()) == 6
    assert kept(tmp_path / "runs") == [("failed", 5), ("failed", 1), ("interrupted", 75)]
    assert "failed: said by window, 0 s" in capsys.readouterr().out


def test_what_is_passed_to_a_file_with_a_sweep_of_its_own(tmp_path, children):
    (tmp_path / "mine.py").write_text(
        "from configs import recall\nget_config = recall.get_config\n"
        "def get_sweep():\n    return [{'train.steps': 30}]"
    )
    _, workdir, *rest = command(tmp_path / "runs")
    launch.main([f"--config={tmp_path}/mine.py", workdir, *rest])
    assert children() == [
        [f"--config={tmp_path}/mine.py", "--mode=run", workdir, "--config.train.steps=30", *rest]
    ]


def test_an_interruption_ends_the_whole(sweep, children, capsys):
    before = signal.getsignal(signal.SIGTERM)

    def terminate():
        while ":pooled" not in "".join(map(str, children())):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate)
    thread.start()
    assert launch.main(sweep(which=":lsh,pooled,full")) == 75
    thread.join()
    assert len(children()) == 2 and signal.getsignal(signal.SIGTERM) is before
    assert "stopped; the same command continues" in capsys.readouterr().out


def test_jobs_of_submitit_take_the_same_path(sweep, tmp_path, monkeypatch):
    submitit = pytest.importorskip("submitit")
    for name, value in {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURMD_NODENAME": "x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(
        execute.EXECUTORS, "slurm", lambda folder, _: submitit.LocalExecutor(folder=folder / "%j")
    )
    assert launch.main(sweep("--executor=slurm", which=":full")) == 0
    assert kept(tmp_path / "runs") == [("finished", 0)]
    assert list((tmp_path / "runs/sweeps/mine-full/jobs").iterdir())


@pytest.mark.slow
def test_killed_for_real_it_ends_as_if_nothing_had_happened(sweep, tmp_path):
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    slow, whole = tmp_path / "slow.py", [sys.executable, "launch.py"]
    slow.write_text(SLOWED_DOWN)
    assert subprocess.run([*whole, *sweep(workdir="undisturbed")], cwd=ROOT, env=environment).returncode == 0
    patched = f"from experiments.sweep import execute\nexecute.LAUNCH = {str(slow)!r}\n"
    killed = subprocess.Popen(
        [sys.executable, "-c", patched + SLOWED_DOWN, *sweep()], cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    begun = "recall-window-*/seed-0/checkpoints/00000008"
    deadline = time.monotonic() + 300
    while not list((tmp_path / "runs").glob(begun)) and time.monotonic() < deadline:
        time.sleep(0.05)
    killed.kill()
    killed.wait()
    (full,) = (tmp_path / "runs").glob("recall-full-*")
    before = (full / records.RECORD).read_bytes()
    assert subprocess.run([*whole, *sweep()], cwd=ROOT, env=environment).returncode == 0
    assert (full / records.RECORD).read_bytes() == before
    assert page(tmp_path / "runs") == page(tmp_path / "undisturbed")
