"""Killed at a chosen point, on a full disk, on other devices: nothing is lost, nothing is torn."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import launch
from experiments import records
from experiments.training import checkpoint
from tests.experiments.runs import command, lasting, only_folder, record_of

ROOT = Path(launch.__file__).parent
# launch.py that is killed before, during or after the nth call of a function, made in that of another one.
KILLED_AT = """
import json, os, pkgutil, signal, subprocess, sys, time, launch

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def arm(when, call, *inner):
    where, name = call[0].rsplit(".", 1)
    owner, nth, calls = pkgutil.resolve_name(where), call[1], []
    original = getattr(owner, name)
    def counted(*arguments, **named):
        calls.append(None)
        if len(calls) != nth:
            return original(*arguments, **named)
        if inner:
            arm(when, *inner)
            return original(*arguments, **named)
        if when == "before":
            kill()
        if when == "during":  # from outside: what holds the interpreter's lock could not
            subprocess.Popen(["sh", "-c", f"sleep 0.05; kill -9 {os.getpid()}"])
        original(*arguments, **named)
        if when == "during":
            time.sleep(60)
        kill()
    setattr(owner, name, counted)

arm(*json.loads(sys.argv[1]))
sys.exit(launch.main(sys.argv[2:]))
"""
POINTS = {
    "before the first record": ("before", ("experiments.records.write_record", 1)),
    "while compiling": (
        "during",
        ("experiments.training.program.build", 1),
        ("jax.stages.Lowered.compile", 2),
    ),
    "compiled": ("after", ("experiments.training.program.build", 1)),
    "in a step": (
        "before",
        ("experiments.training.fit._advance", 7),
        ("experiments.training.fit._collect", 1),
    ),
    "in a validation": ("after", ("experiments.training.fit.evaluate", 2), ("jax.device_get", 1)),
    "between metrics and checkpoint": ("after", ("experiments.training.fit._validate", 2)),
    "while saving": ("after", ("experiments.training.checkpoint._hashes", 2)),
    "while old checkpoints are deleted": (
        "after",
        ("experiments.training.checkpoint._forget", 3),
        ("os.unlink", 1),
    ),
    "in the test": ("after", ("experiments.training.fit.evaluate", 5), ("jax.device_get", 1)),
    "between checkpoint and record": ("after", ("experiments.running.work.fit", 1)),
    "while measuring": ("after", ("experiments.measure.watched", 1)),
}
# What such a kill leaves half done, in the folder of the run.
HALF = {
    "while saving": "seed-0/checkpoints/.saving-*/arrays.json",
    "while old checkpoints are deleted": "seed-0/checkpoints/.saving-*/state",
}

FEW = ("in a step", "while saving", "between checkpoint and record")  # the others are for campaigns


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Of compiled programs: the processes here compile the same ones."""
    return f"--compilation_cache={tmp_path_factory.mktemp('compiled')}"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache):
    workdir = tmp_path_factory.mktemp("undisturbed")
    assert run(command(workdir, cache)).returncode == 0
    return workdir


def run(arguments, script=None, stdout=subprocess.PIPE, **environment):
    start = ["launch.py"] if script is None else ["-c", script]
    return subprocess.run(
        [sys.executable, *start, *arguments],
        cwd=ROOT,
        env=os.environ | {"JAX_PLATFORMS": "cpu"} | environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def run_to(point, arguments):
    return run([json.dumps(POINTS[point]), *arguments], KILLED_AT)


@pytest.mark.parametrize(
    "point",
    [pytest.param(each, marks=pytest.mark.slow if each in FEW else pytest.mark.campaign) for each in POINTS],
)
def test_killed_there_it_ends_as_if_nothing_had_happened(undisturbed, tmp_path, cache, point):
    # Where it is compiled, it must not be there already.
    arguments = command(tmp_path, f"{cache}/cold" if point == "while compiling" else cache)
    killed = run_to(point, arguments)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert point not in HALF or list(only_folder(tmp_path).glob(HALF[point]))
    again = run(arguments)
    assert again.returncode == 0, again.stderr
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))
    assert course(tmp_path) == course(undisturbed)


def course(workdir):
    lines = records.read(only_folder(workdir) / "seed-0" / "metrics.jsonl")
    return [line | {"seconds": None} for line in lines]


@pytest.mark.slow
def test_nobody_need_read_what_it_says(undisturbed, tmp_path, cache):
    reader, closed = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    for name, stdout in {"closed": closed, "full": full}.items():
        done = run(command(tmp_path / name, cache), stdout=stdout)
        os.close(stdout)
        assert (done.returncode, done.stderr) == (0, "")
        assert lasting(record_of(tmp_path / name)) == lasting(record_of(undisturbed))


SMALL_DISK = """
import resource, signal, sys, launch
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(launch.main(sys.argv[2:]))
"""


@pytest.mark.slow
def test_where_nothing_can_be_written_one_line_says_so_and_nothing_is_lost(undisturbed, tmp_path, cache):
    """No file may grow beyond a limit, as on a disk that fills up while it is written."""
    arguments = command(tmp_path, cache)
    stopped = run(["2000", *arguments], SMALL_DISK)
    assert stopped.returncode == 75, stopped.stderr
    assert "Traceback" not in stopped.stderr and stopped.stderr.count("\n") <= 1
    assert not list(tmp_path.glob("*/seed-0/checkpoints/0*"))
    assert run(arguments).returncode == 0
    assert lasting(record_of(tmp_path)) == lasting(record_of(undisturbed))


@pytest.mark.slow
def test_a_real_full_disk(undisturbed, tmp_path, cache):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=400", "tmpfs", disk],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        run_to("between metrics and checkpoint", command(disk, cache))
        kept = checkpoint.steps(only_folder(disk) / "seed-0" / "checkpoints")
        assert kept
        for room in (300_000, 0):  # for a record, not for a checkpoint; for nothing
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
            (disk / f"ballast-{room}").write_bytes(b"0" * max(0, free - room))
            stopped = run(command(disk, cache))
            assert stopped.returncode == 75 and "Traceback" not in stopped.stderr, stopped.stderr
            assert stopped.stderr.count("\n") <= 1
            assert "No space left" in stopped.stdout + stopped.stderr or "are free" in stopped.stdout
            assert checkpoint.steps(only_folder(disk) / "seed-0" / "checkpoints") == kept
        for ballast in disk.glob("ballast-*"):
            ballast.unlink()
        for name in range(os.statvfs(disk).f_favail - 5):
            (disk / f"ballast-{name}").touch()
        stopped = run(command(disk, cache))
        assert stopped.returncode == 75 and "more files are possible" in stopped.stdout
        assert "Traceback" not in stopped.stderr
        for ballast in disk.glob("ballast-*"):
            ballast.unlink()
        again = run(command(disk, cache))
        assert again.returncode == 0, again.stderr
        assert f"continues at step {kept[-1]}" in again.stdout
        assert lasting(record_of(disk)) == lasting(record_of(undisturbed))
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.slow
def test_another_number_of_devices_is_refused_and_if_allowed_restored(undisturbed, tmp_path, cache):
    arguments = command(tmp_path, cache)
    run_to("in a validation", arguments)
    two = {"JAX_NUM_CPU_DEVICES": "2"}
    refused = run(arguments, **two)
    was = f"device was {len(jax.devices())} x cpu"
    assert refused.returncode == 5 and was in refused.stdout
    allowed = run([*arguments, "--allow_changes"], **two)
    assert allowed.returncode == 0, allowed.stderr
    record = record_of(tmp_path)
    assert record["seeds"]["0"]["outcome"] == records.FINISHED
    assert any(was in reason for reason in record["not_citable"])


@pytest.mark.slow
def test_checkpoints_of_another_optimizer_are_refused(tmp_path, cache):
    """The folder is another one for another config; what is copied into it does not fit and is not cast."""
    arguments = command(tmp_path / "one", cache)
    run_to("in a validation", arguments)
    other = command(tmp_path / "two", cache, optimizer__ema_decay=0.9)
    run_to("compiled", other)
    saved = only_folder(tmp_path / "one") / "seed-0"
    saved.rename(only_folder(tmp_path / "two") / "seed-0")
    mixed = run(other)
    assert mixed.returncode == 5, (mixed.returncode, mixed.stdout, mixed.stderr)
    assert "Traceback" not in mixed.stderr and "average" in mixed.stdout
