"""All that folders of runs hold: records, diagnoses, plans."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments import diagnoses, files, records
from experiments.records import Record

PLANS = "plans"


@dataclasses.dataclass(frozen=True)
class Found:
    """Runs with their folders, plans, diagnoses, and a line for each file that could not be read."""

    runs: list[tuple[Path, Record]]
    plans: list[dict[str, Any]]
    complaints: list[str]
    diagnoses: dict[Path, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)  # by folder of run

    @property
    def records(self) -> list[Record]:
        return [record for _, record in self.runs]

    @property
    def longest(self) -> list[dict[str, Any]]:
        """Plans that asked for the longest sequences."""
        return [plan for plan in self.plans if plan.get("longest")]


def gather(folders: list[Path]) -> Found:
    """What is in folders that hold runs. Raises ValueError for one that is no folder, or where nothing is."""
    runs, plans, complaints, kept = [], [], [], {}
    for folder in _distinct(folders):
        if not folder.is_dir():
            raise ValueError(f"{folder} is no folder")
        found, wrong = records.find(folder)
        known = {path.resolve() for path, _ in runs}
        found = [(path, record) for path, record in found if path.resolve() not in known]
        for path, record in found:
            if record.get("schema") == records.SCHEMA:
                runs.append((path, record))
            else:
                wrong.append(f"{path} has a record of schema {record.get('schema')}, not {records.SCHEMA}")
        complaints += wrong
        for path, record in found:
            complaints += _damaged(path, record)
            own = [
                _read(diagnoses.read, x, complaints) for x in sorted((path / diagnoses.FOLDER).glob("*.json"))
            ]
            kept[path] = [each for each in own if each is not None]
        every = [_read(_plan, path, complaints) for path in sorted((folder / PLANS).glob("*.json"))]
        plans += [plan for plan in every if plan is not None]
    if not runs and not plans:
        told = "; ".join([f"no run is in {', '.join(map(str, folders))}", *complaints])
        raise ValueError(told)
    return Found(runs, plans, complaints, kept)


def _damaged(path: Path, record: Record) -> list[str]:
    """A line for each seed whose metrics cannot be read: curves and looks do without them."""
    complaints = []
    for seed in record["seeds"] if record.get("schema") == records.SCHEMA else ():
        try:
            records.read(path / f"seed-{seed}" / "metrics.jsonl")
        except (OSError, ValueError) as error:
            complaints.append(str(error))
    return complaints


def _distinct(folders: list[Path]) -> list[Path]:
    """Each folder once, however it is named."""
    return list({folder.resolve(): folder for folder in reversed(folders)}.values())[::-1]


def _read(read: Callable[[Path], dict[str, Any]], path: Path, complaints: list[str]) -> dict[str, Any] | None:
    try:
        return files.printable(read(path))
    except (OSError, ValueError) as error:
        complaints.append(str(error))
        return None


def _plan(path: Path) -> dict[str, Any]:
    plan = files.read_json(path)
    if not isinstance(plan, dict) or not {"name", "devices", "provenance"} <= plan.keys():
        raise ValueError(f"{path} is not a plan")
    return plan
