"""Asks workers, one process for each target, and keeps their answers."""

import concurrent.futures
import hashlib
import importlib.metadata
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments import files, provenance, tied
from experiments.config import settings
from experiments.config.checks import UsageError
from experiments.fields import Config
from experiments.plan import worker
from experiments.plan.devices import find
from experiments.training import layout

Answer = dict[str, Any]
Ask = Callable[[list[str]], Answer]
COMPILERS = {"tpu": "libtpu", "gpu": "jax-cuda13-plugin"}  # distributions, by a target's kind
ALWAYS = ("jax", "jaxlib")  # decide what is compiled, whatever the target
PROGRAMS = ("training_step", "forward")  # a run takes turns at them: each must fit


def needed(answer: Answer) -> int:
    """Bytes that a run needs on each device, of an answer that has them."""
    return max(answer["memory"][name]["total"] for name in PROGRAMS)


def check(targets: list[str], config: Config) -> None:
    """Raises UsageError for a target that is unknown, not the config's mesh, or without a compiler here."""
    asked = layout.num_devices(config)
    for target in targets:
        if target == worker.HERE:
            continue
        try:
            device = find(target)
        except ValueError as error:
            raise UsageError(f"--target={error}, {worker.HERE} and all") from error
        if device.count != asked:
            raise UsageError(
                f"--target={target} is {device.count} devices, but config.mesh asks for "
                f"{config.mesh.data} x {config.mesh.sequence}; a slice is written as tpu-v5e:4x4, h200:8"
            )
        if _version(COMPILERS[device.kind]) is None:
            raise UsageError(
                f"--target={target} wants a compiler that is not installed: pip install -e '.[plan]'"
            )


@contextmanager
def asking(target: str, path: str, overrides: list[str], kept: Path) -> Iterator[Ask]:
    """A function from further overrides to what the target's compiler says of the config at `path`.

    Answers are kept in the folder `kept`, and found there if config, code and compilers are the same.
    """
    file, colon, argument = path.partition(":")
    path = f"{Path(file).absolute()}{colon}{argument}"  # a worker works elsewhere
    num_devices = layout.num_devices(settings.load(path, overrides))
    process: list[subprocess.Popen[str]] = []

    def ask(more: list[str]) -> Answer:
        key = _key(target, path, [*overrides, *more])
        at = kept / f"{target.replace(':', '-')}-{key}.json"
        if at.exists():
            return files.read_json(at) | {"kept": True}
        if not process:
            process.append(_started(target, num_devices))
        answer = _answered(process, {"config": path, "overrides": [*overrides, *more], "programs": PROGRAMS})
        if answer["outcome"] != worker.FAILED:
            kept.mkdir(parents=True, exist_ok=True)
            files.write_json(at, answer)
        return answer

    try:
        yield ask
    finally:
        for each in process:
            each.kill()
            each.wait()


def side_by_side(targets: list[str], work: Callable[[str], Any], at_once: int) -> Iterator[tuple[str, Any]]:
    """(target, work(target)) of each target, as they come."""
    todo = iter(targets)
    answers: queue.SimpleQueue[tuple[str, concurrent.futures.Future[Any]]] = queue.SimpleQueue()

    def thread() -> None:
        for target in todo:  # shared: each target goes to the thread that asks first
            answer = concurrent.futures.Future()
            try:
                answer.set_result(work(target))
            except BaseException as error:
                answer.set_exception(error)
            answers.put((target, answer))

    for _ in range(at_once):  # daemons: who stops a plan does not wait for its compilers
        threading.Thread(target=thread, daemon=True).start()
    for _ in targets:
        target, answer = answers.get()
        yield target, answer.result()


def _answered(process: list[subprocess.Popen[str]], request: dict[str, Any]) -> Answer:
    (running,) = process
    assert running.stdin and running.stdout
    try:
        running.stdin.write(json.dumps(request) + "\n")
        running.stdin.flush()
        if line := running.stdout.readline():
            return json.loads(line)
    except BrokenPipeError:
        pass
    process.clear()
    code = running.wait()
    return {"outcome": worker.FAILED, "reason": f"the compiler's process ended with {code}"}


def _started(target: str, num_devices: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        tied.command([sys.executable, "-m", "experiments.plan.worker", target]),
        cwd=provenance.ROOT,
        env=worker.environment(num_devices),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _key(target: str, path: str, overrides: list[str]) -> str:
    identity = settings.identity(settings.load(path, overrides))
    versions = {name: _version(name) for name in (*ALWAYS, *COMPILERS.values())}
    whole = [target, PROGRAMS, identity, provenance.code_sha256(), versions, provenance.switches()]
    if target == worker.HERE:
        whole.append(provenance.machine())
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:16]


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
