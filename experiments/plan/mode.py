"""`--mode=plan`: what a config would take on devices that are not here."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from experiments import files, measure, provenance
from experiments.config import budget, settings
from experiments.config.checks import UsageError
from experiments.fields import Config
from experiments.plan import lines, pool, roofline
from experiments.plan import longest as search
from experiments.plan.devices import DEVICES, find
from experiments.plan.worker import FAILED, HERE
from experiments.report import figures
from experiments.running import screen
from experiments.training import layout

DEFAULT = ("tpu-v5e", "h200", HERE)
ALL = (*DEVICES, HERE)
FOLDER = "plans"  # in the folder of the runs


@dataclasses.dataclass(frozen=True)
class Asked:
    """A config, and where it came from."""

    path: str  # of its file, with :argument
    overrides: list[str]
    config: Config  # resolved
    differences: dict[str, Any]  # from the defaults


def targets(text: str | None, config: Config) -> list[str]:
    """Of the flag --target. Raises UsageError for what is unknown or cannot be compiled for here."""
    chosen = [*(DEFAULT if text is None else ALL if text == "all" else text.split(","))]
    pool.check(chosen, config)
    return list(dict.fromkeys(chosen))


def plan(asked: Asked, chosen: list[str], workdir: str) -> None:
    """Compile a run's programs for each target, show and keep what they would take there."""
    out, folder = screen.console(), Path(workdir) / FOLDER
    config = asked.config
    screen.differences(out, config.name, settings.layers(config), asked.differences)
    found: dict[str, Any] = {}

    def work(target: str) -> dict[str, Any]:
        with pool.asking(target, asked.path, asked.overrides, folder / "compiled") as ask:
            return ask([])

    for target, answer in pool.side_by_side(chosen, work, os.cpu_count() or 1):
        out.print(f"{target}: {answer['outcome']} {answer.get('reason', '')}", markup=False)
        found[target] = answer
    # The device here is measured for it, when the compilers have left it alone.
    record = _record(asked, {target: _judged(config, target, found[target]) for target in chosen})
    lines.show_steps(out, record)
    _keep(out, folder / f"{config.name}-{settings.identity(config)}.json", record)


def _keep(out: Console, at: Path, record: dict[str, Any]) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(at, record)
    out.print(f"compiled for these devices, run on none; recorded in {at}", markup=False)


def _judged(config: Config, target: str, answer: pool.Answer) -> dict[str, Any]:
    """What a compiler said, whether it fits and how long it takes at least."""
    if "memory" not in answer:
        return answer | {"fits": None if answer["outcome"] == FAILED else False}
    task, mixers = settings.task(config), settings.mixers(config)
    operations = budget.step_flops(config, mixers, task) // layout.num_devices(config)  # on each
    memory, room = answer["memory"]["training_step"], capacity(target, config)
    sharing = _sharing(target, config)
    bounds = roofline.bound(target, config.model.compute_dtype, operations, memory, sharing)
    fits = None if room is None else pool.needed(answer) <= measure.SHARE * room
    return answer | {"fits": fits, "capacity": room, "roofline": bounds}


def capacity(target: str, config: Config) -> int | None:
    """Bytes of memory for each device of a target; of the device here its share of those that are free.

    None if the system does not say.
    """
    if target != HERE:
        return find(target).memory
    free = measure.free_memory(jax.devices()[0])
    return None if free is None else free // _sharing(target, config)


def _sharing(target: str, config: Config) -> int:
    return layout.sharing(config) if target == HERE else 1


def _record(asked: Asked, found: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a plan."""
    config = asked.config
    return {
        "asked": {"config": asked.path, "overrides": asked.overrides},
        "compiled_for": found,
        "share": measure.SHARE,
        "name": config.name,
        "identity": settings.identity(config),
        "config": config.to_dict(),
        "provenance": provenance.gather(),
        "devices": {name: dataclasses.asdict(find(name)) for name in found if name != HERE},
    }


def longest(asked: Asked, chosen: list[str], which: str, workdir: str) -> None:
    """Find the longest sequence that trains on each target, with this variant or with all.

    Raises UsageError for the CPU here where the system does not say how much memory is free.
    """
    out, folder = screen.console(), Path(workdir) / FOLDER
    config, own = asked.config, asked.config.attention.name
    names = search.variants(own, which)
    rooms = {}
    for target in chosen:  # before the compilers take their own
        if (room := capacity(target, config)) is None:
            raise UsageError(f"--target={target}: --longest cannot tell here how much memory is free")
        rooms[target] = room

    def work(target: str) -> dict[str, Any]:
        found = {}
        for name in names:
            # Other lengths and variants are asked for with the steps of this one, whatever these cost.
            steps = ["--config.train.flops=None", f"--config.train.steps={config.train.steps}"]
            overrides = search.overrides_of(name, own, [*asked.overrides, *steps])
            with pool.asking(target, asked.path, overrides, folder / "compiled") as ask:
                start, shares = config.task.length, config.mesh.sequence
                found[name] = search.of_target(ask, rooms[target], start, shares)
            out.print(f"{target}, {name}: {lines.length(found[name])}", markup=False)
        return found

    found = dict(pool.side_by_side(chosen, work, os.cpu_count() or 1))
    record = _record(asked, {}) | {"longest": {target: found[target] for target in chosen}}
    lines.show_longest(out, record)
    at = folder / f"longest-{config.name}-{settings.identity(config)}.json"
    _keep(out, at, record)
    figures.longest(record, at.with_suffix(".png"))
    out.print(f"drawn in {at.with_suffix('.png')}", markup=False)
