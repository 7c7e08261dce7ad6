"""Kill a run at random moments and see that it ends as if nothing had happened.

    python -m tests.kills --trials 100        # writes docs/kills.md

Each trial starts a small run of launch.py in a process of its own, sends it a signal at a random moment,
of the whole run in one half of the trials and after its first validation in the other, starts the same
command again, and compares the exit codes with those that belong to the signal, the record,
timings aside, and the lines of metrics.jsonl with those of an undisturbed run. The code runs from a copy, so
that it may be worked on meanwhile. Exit code 1 if one differs.
"""

import argparse
import collections
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments import files, provenance, records
from experiments.interrupt import EXIT_CODES
from tests.experiments.runs import TINY

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "kills.md"
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
CHANGES = {"train.steps": 60, "train.eval_every": 15, "train.checkpoint_every": 10, "seeds": "(0,1,2)"}
AT_ONCE = (1, 3)  # seeds in one program, in turns
SINCE = ("the start", "the first validation")  # the moment is drawn from what follows; in turns
UNHANDLED = ("starting", "ended")  # where a signal may meet Python's own handling of it
MOST_LATE = 10  # trials in a row whose run had ended before the signal came


def command(workdir: Path, at_once: int) -> list[str]:
    values = TINY | CHANGES | {"train.seeds_at_once": at_once}
    overrides = [f"--config.{name}={value}" for name, value in values.items()]
    cache = f"--compilation_cache={workdir.parent / 'compiled'}"
    return [
        sys.executable,
        "launch.py",
        "--config=configs/recall.py",
        f"--workdir={workdir}",
        cache,
        *overrides,
    ]


def started(copy: Path, workdir: Path, at_once: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command(workdir, at_once), cwd=copy, env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def outcome(workdir: Path) -> tuple[Any, Any]:
    """What must be the same: the record without timings, and the metrics without seconds."""
    (folder,) = (path for path in workdir.iterdir() if path.is_dir())
    record = records.read_record(folder)
    assert record is not None
    lines = {
        path.parent.name: [line | {"seconds": None} for line in records.read(path)]
        for path in sorted(folder.glob("seed-*/metrics.jsonl"))
    }
    return records.without_timings(record), lines


def where(workdir: Path) -> str:
    """What the run was at when the signal came, as its folder tells."""
    folders = [path for path in workdir.glob("*") if path.is_dir()] if workdir.exists() else []
    if not folders:
        return "starting"
    record = records.read_record(folders[0])
    if record is None or not record["memory"]:
        return "compiling"
    if record["outcome"] == records.FINISHED:
        return "ended"
    if list(folders[0].glob("*/checkpoints/.saving-*")):
        return "saving"
    done = len(record["seeds"]) == len(record["config"]["seeds"])
    return "training" if list(folders[0].glob("*/metrics.jsonl")) and not done else "before or after training"


def expected_codes(number: int, place: str) -> set[int]:
    """How a process may end that got the signal; outside the run it handles none."""
    if number == signal.SIGKILL:
        return {-number}
    return {EXIT_CODES[signal.Signals(number)]} | ({-number} if place in UNHANDLED else set())


def in_time(attempt: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The first attempt whose run had not ended before the signal came, and how many had; at last any."""
    result = attempt()
    late = 0
    while result["codes"][0] == 0 and late < MOST_LATE:
        late, result = late + 1, attempt()
    return result | {"late": late}


def passed(result: dict[str, Any], number: int, undisturbed: tuple[Any, Any]) -> bool:
    """Whether a trial ended as it should: first by the signal, then well, and with the same numbers."""
    first, *later = result["codes"]
    right = first in expected_codes(number, result["where"]) and later == [0]
    return right and result.get("outcome") == undisturbed


def differing(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two trees of dictionaries and tuples differ."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if not (isinstance(one, dict) and isinstance(other, dict)):
        return [] if one == other else [path]
    names = sorted(one.keys() | other.keys(), key=str)
    return [each for name in names for each in differing(one.get(name), other.get(name), f"{path}.{name}")]


def begun(process: subprocess.Popen[bytes], workdir: Path, since: str) -> float:
    """Waits until the moments begin that are drawn from; when that was, in seconds."""
    while since != SINCE[0] and process.poll() is None and not list(workdir.glob("*/*/metrics.jsonl")):
        time.sleep(0.002)
    return time.monotonic()


def trial(copy: Path, workdir: Path, at_once: int, since: str, delay: float, number: int) -> dict[str, Any]:
    process = started(copy, workdir, at_once)
    start = begun(process, workdir, since)
    with contextlib.suppress(subprocess.TimeoutExpired):
        return {"where": "ended", "codes": [process.wait(delay)], "seconds": time.monotonic() - start}
    place = where(workdir)
    process.send_signal(number)
    errors = process.communicate()[1].decode()
    codes = [process.returncode]
    if where(workdir) == "ended":  # it got there between the look and the signal
        place = "ended"
    if "Traceback" in errors and place not in UNHANDLED:
        return {"where": place, "codes": codes, "error": errors[-2000:]}
    if codes == [0]:  # it ended between the wait and the signal
        return {"where": place, "codes": codes}
    process = started(copy, workdir, at_once)
    errors = process.communicate()[1].decode()
    codes.append(process.returncode)
    if codes[-1] != 0:
        return {"where": place, "codes": codes, "error": errors[-2000:]}
    return {"where": place, "codes": codes, "outcome": outcome(workdir)}


def undisturbed(copy: Path, base: Path) -> tuple[dict[int, Any], dict[tuple[int, str], float]]:
    """The outcome of a run that nothing happens to, and how long it takes since either moment."""
    expected, seconds = {}, {}
    for at_once in AT_ONCE:
        for since in (SINCE[0], *SINCE):  # the first run fills the cache of compiled programs
            workdir = base / "undisturbed"
            shutil.rmtree(workdir, ignore_errors=True)
            process = started(copy, workdir, at_once)
            start = begun(process, workdir, since)
            assert process.wait() == 0, process.communicate()[1].decode()
            expected[at_once], seconds[at_once, since] = outcome(workdir), time.monotonic() - start
    return expected, seconds


def campaign(trials: int, seed: int) -> list[dict[str, Any]]:
    draw, found = random.Random(seed), []
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(temporary)
        copy = base / "copy"
        shutil.copytree(
            ROOT, copy, ignore=shutil.ignore_patterns(".git", "runs", "results", "__pycache__", ".*")
        )
        expected, seconds = undisturbed(copy, base)
        for index in range(trials):
            since, number = SINCE[index // len(AT_ONCE) % len(SINCE)], draw.choice(SIGNALS)
            at_once = AT_ONCE[index % len(AT_ONCE)]
            span = at_once, since

            def attempt(span: tuple[int, str] = span, number: int = number) -> dict[str, Any]:
                shutil.rmtree(base / "trial", ignore_errors=True)
                # Before 0.1 of a run Python itself starts, whose exit codes are not ours.
                delay = draw.uniform(0.1 if span[1] == SINCE[0] else 0, 0.95) * seconds[span]
                result = trial(copy, base / "trial", *span, delay, number)
                # A machine may be busier at one time than at another.
                seconds[span] = result.pop("seconds", seconds[span])
                return result

            result = in_time(attempt)
            same = passed(result, number, expected[at_once])
            ended = result.pop("outcome", None)
            if ended and not same:
                result["differing"] = differing(ended, expected[at_once])
            found.append(result | {"same": same, "signal": signal.Signals(number).name, "at_once": at_once})
            print(index + 1, found[-1], flush=True)
    return found


def page(found: list[dict[str, Any]], seed: int, origin: str) -> str:
    counts = collections.Counter((result["where"], result["signal"]) for result in found)
    bad = [result for result in found if not result["same"]]
    lines = [
        "# Kills",
        "",
        f"Written by `python -m tests.kills --trials {len(found)} --seed {seed}`; do not edit.",
        "",
        f"{len(found)} runs of three seeds, one by one and at once, each sent a signal at a random moment,",
        "half of them of the whole run and half of what follows its first validation, and started again.",
        f"{len(found) - len(bad)} ended first with the exit code of the signal, then with",
        "0 and the record and the metrics of an undisturbed run, bit for bit, timings aside; "
        f"{len(bad)} did not.",
        f"{sum(result['late'] for result in found)} more had ended before the signal came, and do not count.",
        "",
        f"{origin}.",
        "",
        "| it was | signal | times |",
        "| --- | --- | --- |",
        *(f"| {place} | {name} | {count} |" for (place, name), count in sorted(counts.items())),
        *(["", "What differed:", "", *(f"- {result}" for result in bad)] if bad else []),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    origin = provenance.origin(provenance.gather())  # of what is copied now
    found = campaign(arguments.trials, arguments.seed)
    files.write(PAGE, page(found, arguments.seed, origin))
    return int(not all(result["same"] for result in found))


if __name__ == "__main__":
    sys.exit(main())
