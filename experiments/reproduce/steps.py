"""The commands that make a record again."""

import shlex
from pathlib import Path

import jax

from experiments import provenance
from experiments.records import Record

AGAIN = "again"  # the folder of the code as it was, and of the new run


def steps(record: Record, folder: Path) -> list[str]:
    """Lines for a shell: code, environment, run, check. What cannot be had is said in a comment.

    The check is by this code, from where it lies: code as old as the record may know of none, and its
    checkout may not have the record.
    """
    place = Path.cwd() / AGAIN
    new = place / f"{record['name']}-{record['identity']}"
    return [
        *_code(record, folder, place),
        *_environment(record),
        *_machine(record),
        _words("python", *argv(record, place)),
        f"deactivate; {_words('cd', provenance.ROOT)}",
        _words("python", "-m", "experiments.reproduce", folder.resolve(), "--against", new),
    ]


def _words(*words: object) -> str:
    return " ".join(shlex.quote(str(word)) for word in words)


def argv(record: Record, place: Path) -> list[str]:
    """The command line of the record's first session, for all its seeds, into another folder.

    Later sessions asked for the same numbers: a folder has one config.
    """
    sessions = record["sessions"]
    given = ["launch.py", *(sessions[0]["argv"][1:] if sessions else [])]  # that of the code as it was
    dropped = ("--workdir", "--config.seeds=", "--allow_changes", "--profile", "--compilation_cache")
    kept, skip = [], False
    for word in given:
        if not skip and not word.startswith(dropped):
            kept.append(word)
        skip = word in ("--workdir", "--compilation_cache")  # their values are the next word
    seeds = ",".join(map(str, record["config"]["seeds"]))
    comma = "," if len(record["config"]["seeds"]) == 1 else ""
    return [*kept, f"--config.seeds=({seeds}{comma})", f"--workdir={place}"]


def _code(record: Record, folder: Path, place: Path) -> list[str]:
    git = record["provenance"]["git"]
    lines = [_words("cd", provenance.ROOT)]
    if git is None:
        return [
            *lines,
            "# the code was no git checkout: it is not known by a commit, this is the present one",
        ]
    own = place / f"code-{git['commit'][:12]}"
    lines += [_words("git", "worktree", "add", "--detach", own, git["commit"]), _words("cd", own)]
    if git["dirty"]:
        changed = ", ".join(line.strip() for line in git.get("status", []))
        where = folder.resolve() / "dirty-*.diff"
        lines.append(f"# and the working tree differed ({changed}): git apply {where}, if it was kept")
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
