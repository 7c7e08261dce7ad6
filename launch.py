"""One config, or a sweep of them, one command: train, measure, record, show beside the others.

python launch.py --config=configs/window128.py [--config.field=value ...] [--workdir=runs] [--dry_run]
                 [--require_device=cpu|gpu|tpu] [--allow_changes] [--compilation_cache=FOLDER] [--profile]

A file with a get_sweep is many cells, and so are several --config=...: each runs in a process of its own, one
after the other, with the same overrides. What is finished is not repeated; at the end all stand side by side.
"""

import argparse
import contextlib
import difflib
import os
import signal
import sys
from pathlib import Path

from experiments import accelerators, codes
from experiments.interrupt import EXIT_CODES


def stop(number, _frame):
    """At once, and not by sys.exit: within the import of compiled code Python's own end has crashed."""
    with contextlib.suppress(OSError, RuntimeError):  # nobody reads, or it is in the middle of a line
        sys.stdout.flush()
        os.write(2, b"launch.py: stopped\n")
    os._exit(EXIT_CODES[signal.Signals(number)])


def open_closed_streams():
    """Lead closed ones nowhere: the next file that is opened would get their number, and what is said."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 (as long as the process)


if __name__ == "__main__":  # before the imports, which take seconds
    open_closed_streams()
    accelerators.keep_quiet()
    for asked in EXIT_CODES:
        signal.signal(asked, stop)

from configs import base  # noqa: E402
from experiments.config import settings  # noqa: E402
from experiments.config.checks import one_line  # noqa: E402
from experiments.plan import mode as planning  # noqa: E402
from experiments.running import run  # noqa: E402
from experiments.sweep import cells  # noqa: E402
from experiments.sweep import mode as sweeping  # noqa: E402

HANDED_ON = ("require_device", "allow_changes", "compilation_cache", "profile")  # to the cells of a sweep
OF_RUNS = (*HANDED_ON, "executor", "slurm", "dry_run")


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise settings.UsageError(message)

    def flags(self) -> list[str]:
        return list(self._option_string_actions)


def parser() -> Parser:
    made = Parser(
        description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--config", required=True, action="append", help="config file; configs/base.py explains every field"
    )
    made.add_argument("--workdir", default="runs", help="folder of the runs (default: runs)")
    made.add_argument(
        "--dry_run", action="store_true", help="show the plan; nothing is trained, no run is begun"
    )
    made.add_argument(
        "--mode", choices=("plan", "run"),
        help="plan: train nothing; compile the step for devices that are not here, say what it would take; "
        "run: of a file that holds a sweep too, its get_config alone",
    )  # fmt: skip
    made.add_argument(
        "--longest", nargs="?", const="this", choices=("this", "all"),
        help="of a plan: the longest sequence that trains on each target, with this attention or with all",
    )  # fmt: skip
    made.add_argument("--target", help="of a plan: names of devices, with commas, or all")
    made.add_argument(
        "--executor",
        choices=("local", "slurm"),
        help="of a sweep: one cell after the other here, or jobs of Slurm",
    )
    made.add_argument(
        "--slurm", help="of --executor=slurm: what a job asks for, partition=gpu,time=60 (minutes)"
    )
    made.add_argument("--require_device", choices=("cpu", "gpu", "tpu"), help="refuse any other device")
    made.add_argument(
        "--allow_changes", action="store_true", help="continue with other code, versions or data"
    )
    made.add_argument("--compilation_cache", help="folder of compiled programs, kept between runs")
    made.add_argument(
        "--profile", action="store_true", help="leave a trace of a few steps in the run's folder"
    )
    return made


def parse(argv: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The flags, and what is left: overrides of the config. Raises UsageError for what is nearly a flag."""
    made = parser()
    options, rest = made.parse_known_args(argv)
    for word in rest:
        flag, dot, _ = word.partition("=")[0].partition(".")
        if not dot and (near := difflib.get_close_matches(flag, made.flags(), 1)):
            raise settings.UsageError(f"there is no {flag}; did you mean {near[0]}?")
    return options, rest


def main(argv: list[str]) -> int:
    try:
        options, overrides = parse(argv)
        name, found = cells.load(options.config, overrides, whole=options.mode != "run")
        if options.mode == "plan":
            if strange := [flag for flag in OF_RUNS if getattr(options, flag)]:
                raise settings.UsageError(f"--{strange[0]} is not of --mode=plan")
            return plan(options, found)
        if options.target or options.longest:
            raise settings.UsageError("--target and --longest are of --mode=plan")
        if options.executor and name is None:
            name = cells.name(options.config)
        if options.slurm and options.executor != "slurm":
            raise settings.UsageError("--slurm is of --executor=slurm")
        if name is not None:
            return sweep(options, name, found)
        if options.compilation_cache:
            run.keep_compiled(options.compilation_cache)
        return run.run(
            found[0].config,
            settings.differences(found[0].config, base.get_config()),
            options.workdir,
            argv=["launch.py", *argv],
            dry_run=options.dry_run,
            require_device=options.require_device,
            allow_changes=options.allow_changes,
            profile=options.profile,
        )
    except settings.UsageError as error:
        print(f"launch.py: {one_line(error)}", file=sys.stderr)
        return codes.WRONG_USE
    except OSError as error:
        code = run.code_of(error)
        if code is None:
            raise
        print(f"launch.py: {one_line(error)}", file=sys.stderr)
        return code


def plan(options: argparse.Namespace, found: list[cells.Cell]) -> int:
    """The plan of every cell. Exit code 0."""
    targets = [planning.targets(options.target, cell.config) for cell in found]
    for cell, chosen in zip(found, targets, strict=True):
        changed = settings.differences(cell.config, base.get_config())
        asked = planning.Asked(cell.path, cell.overrides, cell.config, changed)
        if options.longest:
            planning.longest(asked, chosen, options.longest, options.workdir)
        else:
            planning.plan(asked, chosen, options.workdir)
    return codes.DONE


def sweep(options: argparse.Namespace, name: str, found: list[cells.Cell]) -> int:
    """All cells; with --dry_run what is left of them. The exit code."""
    given = {flag: getattr(options, flag) for flag in HANDED_ON}
    flags = [f"--{flag}" + ("" if value is True else f"={value}") for flag, value in given.items() if value]
    asked = sweeping.Sweep(name, found, Path(options.workdir), flags, again=options.profile)
    if options.dry_run:
        return sweeping.left(asked)
    return sweeping.start(asked, options.executor or "local", options.slurm or "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
