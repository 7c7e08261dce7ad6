"""The commands that make a record again."""

import shlex

import jax

from experiments import provenance
from experiments.records import Record

AGAIN = "again"  # the folder of the new run


def steps(record: Record, folder: str) -> list[str]:
    """Lines for a shell: code, environment, run, check. What cannot be had is said in a comment."""
    new = f"{AGAIN}/{record['name']}-{record['identity']}"
    return [
        *_code(record),
        *_environment(record),
        *_machine(record),
        " ".join(["python", *(shlex.quote(word) for word in argv(record))]),
        f"python -m experiments.reproduce {shlex.quote(folder)} --against {shlex.quote(new)}",
    ]


def argv(record: Record) -> list[str]:
    """The command line of the record's first session, for all its seeds, into another folder.

    Later sessions asked for the same numbers: a folder has one config.
    """
    sessions = record["sessions"]
    given = sessions[0]["argv"] if sessions else ["launch.py"]
    dropped = ("--workdir", "--config.seeds=", "--allow_changes", "--profile", "--compilation_cache")
    kept, skip = [], False
    for word in given:
        if not skip and not word.startswith(dropped):
            kept.append(word)
        skip = word in ("--workdir", "--compilation_cache")  # their values are the next word
    seeds = ",".join(map(str, record["config"]["seeds"]))
    comma = "," if len(record["config"]["seeds"]) == 1 else ""
    return [*kept, f"--config.seeds=({seeds}{comma})", f"--workdir={AGAIN}"]


def _code(record: Record) -> list[str]:
    git = record["provenance"]["git"]
    if git is None:
        return ["# the code was no git checkout: it is not known by a commit"]
    lines = [f"git checkout {git['commit']}"]
    if git["dirty"]:
        files = ", ".join(line.strip() for line in git.get("status", []))
        lines.append(f"# and the working tree differed ({files}): dirty-*.diff in the run's folder")
    return lines


def _environment(record: Record) -> list[str]:
    origin = record["provenance"]
    packages = [f"{n}=={origin['packages'][n]}" for n in provenance.NUMERIC if n in origin["packages"]]
    lines = [
        f"# Python {origin['python']}",
        "python -m venv .venv && . .venv/bin/activate",
        f"pip install -e . {' '.join(packages)}",
    ]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in origin.get("environment", {}).items()]
    settings = origin.get("jax_settings", {})
    asked = {name: value for name, value in settings.items() if value != getattr(jax.config, name, None)}
    return lines + [f"export {name.upper()}={shlex.quote(str(value))}" for name, value in asked.items()]


def _machine(record: Record) -> list[str]:
    machine, device = record["provenance"]["machine"], record["provenance"]["device"]
    used = device.get("used", device["count"])
    where = f"{used} x {device['kind']}, {machine['processor']} with {machine['usable_cores']} cores"
    return [f"# on {where}; on another machine the last bits may differ"]
