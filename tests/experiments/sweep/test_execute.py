"""Where a cell runs: its process, its log, its signals, its environment, and the jobs of a cluster."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from experiments import provenance
from experiments.sweep import execute

# Stands for launch.py.
CHILD = """
import json, os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
print(json.dumps({"argv": sys.argv[1:], "environment": dict(os.environ), "pid": os.getpid()}), flush=True)
if "kill" in sys.argv: os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60 if "long" in sys.argv else 0)
sys.exit(3)
"""
# A sweep whose cell takes long.
SWEEP = """
import pathlib, sys
from experiments.sweep import execute
execute.LAUNCH = pathlib.Path(sys.argv[1])
execute.run_cell(["long"], sys.argv[2])
"""
# What a login shell, an salloc or a container may have left.
HALF_SET = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURMD_NODENAME": "node0"}


@pytest.fixture
def child(tmp_path, monkeypatch):
    (tmp_path / "child.py").write_text(CHILD)
    monkeypatch.setattr(execute, "LAUNCH", tmp_path / "child.py")
    return tmp_path / "log"


def said(log, deadline=60):
    """What the child says when it starts."""
    until = time.monotonic() + deadline
    while not (log.exists() and log.read_text().endswith("\n")) and time.monotonic() < until:
        time.sleep(0.01)
    return json.loads(log.read_text().splitlines()[-1])


def test_a_cell_knows_nothing_of_a_half_set_cluster_and_its_words_are_kept(child, monkeypatch):
    for name, value in HALF_SET.items():
        monkeypatch.setenv(name, value)
    assert execute.Here().submit(execute.run_cell, ["a", "b c"], str(child)).result() == 3
    assert execute.run_cell(["kill"], str(child)) == -signal.SIGKILL
    assert len(child.read_text().splitlines()) == 2
    first = json.loads(child.read_text().splitlines()[0])
    assert first["argv"] == ["a", "b c"]
    assert not [name for name in first["environment"] if name.startswith("SLURM")]
    assert first["environment"]["PATH"] == os.environ["PATH"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_signal_is_passed_on_and_then_met_as_before(child, number, code):
    received = []
    before = signal.signal(number, lambda *_: received.append(number))
    thread = threading.Thread(target=lambda: said(child) and os.kill(os.getpid(), number))
    try:
        thread.start()
        assert execute.run_cell(["long"], str(child)) == code
    finally:
        thread.join()
        assert signal.signal(number, before) and received == [number]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills who is left behind")
def test_what_kills_a_sweep_kills_its_cell(child):
    arguments = [sys.executable, "-c", SWEEP, str(execute.LAUNCH), str(child)]
    sweep = subprocess.Popen(arguments, cwd=provenance.ROOT)
    pid = said(child)["pid"]
    sweep.kill()
    sweep.wait()
    until = time.monotonic() + 30
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(pid)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_parameters_of_jobs():
    assert execute.parameters("") == {}
    assert execute.parameters("partition=gpu,time=60,exclusive=True,gres=gpu:1") == {
        "partition": "gpu", "time": 60, "exclusive": True, "gres": "gpu:1",
    }  # fmt: skip


def test_without_submitit_the_command_that_installs_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ValueError, match=r"pip install -e '\.\[slurm\]'"):
        execute.slurm(tmp_path, {})


def test_without_a_cluster_that_is_said(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ValueError, match="--executor=slurm: "):
        execute.slurm(tmp_path, {})
