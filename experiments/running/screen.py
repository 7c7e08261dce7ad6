"""What a run says while it runs: where it computes, how its config differs, one live line."""

import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO, cast

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID, TextColumn, TimeRemainingColumn

WIDTH = 200  # of what is not a terminal
EVERY_SECONDS = 10.0  # between plain lines


class _Steady:
    """A stream that may be closed by its reader or full: what is said is lost then, and the run goes on."""

    def __init__(self, stream: Any):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except UnicodeEncodeError:  # said with question marks
            encoding = self._stream.encoding
            return self._stream.write(text.encode(encoding, "replace").decode(encoding))
        except OSError:
            self._give_up()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._give_up()

    def _give_up(self) -> None:
        # The stream keeps what it could not write, and would fail with it once more when Python ends.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)


def console() -> Console:
    """Standard output: the terminal as it is, anything else wide enough for the tables."""
    width = None if sys.stdout.isatty() else WIDTH
    return Console(file=cast(TextIO, _Steady(sys.stdout)), width=width, highlight=False, soft_wrap=True)


def banner(out: Console, provenance: dict[str, Any], idle_accelerator: str | None) -> None:
    """One line on device and versions; a loud one where an accelerator is there and not used."""
    device, machine, packages = provenance["device"], provenance["machine"], provenance["packages"]
    kind = "" if device["kind"] == device["platform"] else f" {device['kind']}"
    count = f"{device['used']} of {device['count']}" if device["count"] > device["used"] else device["count"]
    out.print(
        f"[bold]{count} x {device['platform']}{kind}[/]"
        f"  {machine['usable_cores']} cores of {machine['processor']}"
        f"  jax {packages.get('jax')}  Python {provenance['python']}"
    )
    if idle_accelerator:
        out.print(f"[bold red]WARNING: {idle_accelerator}, but jax computes on the CPU[/]")
    git = provenance["git"]
    if git is None or git["dirty"]:
        why = "no git checkout" if git is None else "the working tree differs from its commit"
        out.print(f"[yellow]not citable: {why}[/]")


def differences(out: Console, name: str, layers: list[dict[str, Any]], changed: dict[str, Any]) -> None:
    """The run's name, its layers' mixers with all fields, and how the config differs from the defaults."""
    told = []
    for mixer in layers:
        fields = ", ".join(f"{field}={value!r}" for field, value in mixer.items() if field != "name")
        told.append(f"{mixer['name']}({fields})")
    out.print(f"[bold]{escape(name)}[/]: {escape(' + '.join(told))}")
    out.print(f"Different from the defaults:{'' if changed else ' nothing'}")
    for field, value in changed.items():
        out.print(f"  {field} = {value!r}", markup=False)


def no_cheaper(out: Console, name: str, length: int) -> None:
    """A variant is not what saves anything here."""
    out.print(
        f"[yellow]note: at length {length} this {name} asks for no fewer products than full attention[/]"
    )


def sample(out: Console, found: dict[str, Any]) -> None:
    """What a model writes; what would command the terminal is shown as U+FFFD."""
    shown = "".join(
        c if c.isprintable() or c in "\n\t" else "\ufffd" for c in found["prompt"] + found["text"]
    )
    how = f"temperature {found['temperature']:g}, top_p {found['top_p']:g}"
    out.print(f"seed {found['seed']} writes ({how}; python -m experiments.generate writes more):")
    out.print(shown, markup=False)


def refuse(out: Console, folder: Path, changes: list[str]) -> None:
    """Why a run is not continued, and what can be done."""
    out.print(
        f"[bold red]not continued:[/] {escape(str(folder))} was begun with other code, versions or device:"
    )
    for change in changes:
        out.print(f"  {change}", markup=False)
    out.print("Give another --workdir, or --allow_changes to go on (the record will say so).")


class Live:
    """Progress of the seeds: one live line on a terminal, else a plain line now and then. A `fit.Report`."""

    def __init__(self, out: Console, steps: int, primary: str):
        self._out, self._steps, self._primary = out, steps, primary
        self._score, self._said = "", float("-inf")
        self._start: tuple[str, int, float] | None = None  # seeds, step, time at its first report
        self._progress = Progress(
            TextColumn("{task.fields[seeds]}  step {task.completed:.0f}/{task.total:.0f}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[loss]}{task.fields[score]}  {task.fields[speed]}"),
            console=out,
            disable=not out.is_terminal,
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> "Live":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def step(self, seeds: str, step: int, loss: float, tokens_per_second: float) -> None:
        """A step is done."""
        now = time.monotonic()
        if self._start is None or self._start[0] != seeds or step <= self._start[1]:
            self._begin(seeds, step, now)
        fields: dict[str, Any] = {
            "loss": f"loss {loss:.3f}",
            "score": self._score,
            "speed": f"{tokens_per_second:,.0f} tokens/s",
        }
        if self._task is not None:
            self._progress.update(self._task, completed=step, seeds=seeds, **fields)
        if not self._out.is_terminal and (now - self._said >= EVERY_SECONDS or step == self._steps):
            self._said = now
            text = f"{seeds}  step {step}/{self._steps}  {self._remaining(step, now)}  {fields['loss']}"
            self.note(f"{text}  {fields['speed']}")

    def validated(self, seeds: str, step: int, values: dict[str, float], best: bool) -> None:
        """A validation is done."""
        score = values[self._primary]
        self._score = f"  {self._primary} {score:.4f}"
        suffix = " (best so far)" if best else ""
        self.note(f"{seeds}  step {step}/{self._steps}  validation{self._score}{suffix}")

    def note(self, text: str) -> None:
        """Something that must not scroll away with the live line."""
        self._out.print(text, markup=False)

    def _begin(self, seeds: str, step: int, now: float) -> None:
        self._start, self._score = (seeds, step - 1, now), ""
        if self._task is not None:
            self._progress.remove_task(self._task)
        fields: dict[str, Any] = {"seeds": seeds, "loss": "", "score": "", "speed": ""}
        self._task = self._progress.add_task("", total=self._steps, completed=step, **fields)

    def _remaining(self, step: int, now: float) -> str:
        if self._start is None or step <= self._start[1] + 1:
            return "ETA -:--"
        pace = (now - self._start[2]) / (step - self._start[1] - 1)
        minutes, seconds = divmod(round(pace * (self._steps - step)), 60)
        return f"ETA {minutes}:{seconds:02d}"
