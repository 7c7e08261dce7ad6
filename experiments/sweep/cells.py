"""The cells of a command: what each is, and whether anything is left of it."""

import dataclasses
import re
from pathlib import Path
from typing import Any

from experiments import records
from experiments.config import config_file, settings
from experiments.config.checks import UsageError, check_data
from experiments.fields import Config, flat
from experiments.records import Record
from experiments.running import work

CONFIG = "config"  # of a cell's overrides: the file that it starts from, seen from the sweep's
LONGEST_NAME = 100  # of a sweep; the name of a file has 255 characters at the most


@dataclasses.dataclass(frozen=True)
class Cell:
    """A config that is run in a process of its own."""

    path: str  # of its file, with :argument
    overrides: list[str]
    config: Config  # resolved
    beside_sweep: bool  # the file has a sweep too, which is not meant

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.config.name}-{settings.identity(self.config)}"

    def record(self, workdir: Path) -> Record | None:
        """Its record, None if it has none that can be read: its own process says what is wrong with it."""
        try:
            record = records.read_record(workdir / self.name)
        except (OSError, ValueError):
            return None
        return record if record is not None and record.get("schema") == records.SCHEMA else None


def load(paths: list[str], overrides: list[str], whole: bool = True) -> tuple[str | None, list[Cell]]:
    """The sweep's name, and all its cells; no name for one config alone.

    `overrides` come after each cell's own. Without `whole` the sweeps in files are not looked for. Raises
    UsageError, one line that names the cell, if any of them cannot be, or two are the same.
    """
    cells, alone = [], len(paths) == 1
    for path in paths:
        described = config_file.read_sweep(path) if whole else None
        if described is None:
            cells.append(Cell(path, overrides, settings.load(path, overrides), not whole))
            continue
        alone = False
        for number, fields in enumerate(described, start=1):
            try:
                cells.append(_cell(path, fields, overrides))
            except UsageError as error:
                raise UsageError(f"cell {number} of {path}, {_shown(fields)}: {error}") from error
    _check_different(cells)
    return (None if alone else name(paths)), cells


def name(paths: list[str]) -> str:
    """Of the sweep of these files: their names, and arguments."""
    parts = []
    for path in paths:
        file, _, argument = path.partition(":")
        parts.append("-".join(filter(None, (Path(file).stem, re.sub(r"[^\w.-]+", "-", argument)))))
    return "+".join(parts)[:LONGEST_NAME]


def check_all_data(cells: list[Cell]) -> None:
    """The data of all cells are there. Raises UsageError, one line that names the cell."""
    checked = set()
    for cell in cells:
        task = settings.task(cell.config)
        if task not in checked:
            checked.add(task)
            try:
                check_data(task)
            except UsageError as error:
                raise UsageError(f"{cell.name}: {error}") from error


def distinctions(cells: list[Cell]) -> dict[str, str]:
    """By a cell's name, what sets it apart from other cells of the same config.name; "" if there are none."""
    flats = {cell.name: flat(cell.config) for cell in cells}
    texts = {}
    for cell in cells:
        own = flats[cell.name]
        others = [each for each in flats.values() if each["name"] == own["name"]]
        fields = [field for field in own if any(each.get(field) != own[field] for each in others)]
        texts[cell.name] = ", ".join(f"{field}={own[field]}" for field in fields)
    return texts


def is_done(cell: Cell, record: Record | None) -> bool:
    """Whether its record has all that is asked for."""
    return record is not None and work.is_done(record, cell.config)


def left(cell: Cell, record: Record | None) -> str:
    """What of a cell is still to be done, in a phrase."""
    if record is None:
        return "all"
    if is_done(cell, record):
        return f"nothing, {record['outcome']}"
    seeds = ", ".join(map(str, work.left(record, cell.config)))
    parts = ["speed and memory"] * work.unmeasured(record, cell.config) + [f"seeds {seeds}"] * bool(seeds)
    return f"{' and '.join(parts) or 'something'}, {record['outcome']}"


def _cell(path: str, fields: dict[str, Any], overrides: list[str]) -> Cell:
    own = path.partition(":")[0]
    start = fields.get(CONFIG)
    if not isinstance(start, str | None):
        raise UsageError(f"{CONFIG!r} must be the name of a config file")
    # The argument of the sweep's path was for its cells.
    start = own if start is None else str(Path(own).parent / start)
    given = [f"--config.{field}={value}" for field, value in fields.items() if field != CONFIG]
    config = settings.load(start, [*given, *overrides])
    return Cell(start, [*given, *overrides], config, config_file.has_sweep(start))


def _shown(fields: dict[str, Any]) -> str:
    return ", ".join(f"{field}={value!r}" for field, value in fields.items()) or "no overrides"


def _check_different(cells: list[Cell]) -> None:
    seen: dict[str, Cell] = {}
    for cell in cells:
        # The folder decides, but two names for the same numbers are a mistake as well.
        identity = settings.identity(cell.config)
        if other := seen.get(identity):
            raise UsageError(
                f"two cells ask for the same, {other.name} and {cell.name}: a run of several seeds is one "
                "cell, with the field seeds"
            )
        seen[identity] = cell
