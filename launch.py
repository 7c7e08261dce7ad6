"""One config, one command: train an attention variant, measure it, record it, show it beside the others.

python launch.py --config=configs/window128.py [--config.field=value ...] [--workdir=runs] [--dry_run]
                 [--require_device=cpu|gpu|tpu] [--allow_changes] [--compilation_cache=FOLDER] [--profile]

Several --config=... run one after the other, each in a process of its own, with the same overrides.
"""

import argparse
import difflib
import os
import signal
import subprocess
import sys

from experiments import accelerators, codes
from experiments.interrupt import EXIT_CODES


def stop(number, _frame):
    print("launch.py: stopped", file=sys.stderr)
    sys.exit(EXIT_CODES[signal.Signals(number)])


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
from experiments import run, settings  # noqa: E402
from experiments.plan import mode as planning  # noqa: E402


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
        "--mode", choices=("plan",),
        help="plan: train nothing; compile the step for devices that are not here, say what it would take",
    )  # fmt: skip
    made.add_argument(
        "--longest", nargs="?", const="this", choices=("this", "all"),
        help="of a plan: the longest sequence that trains on each target, with this attention or with all",
    )  # fmt: skip
    made.add_argument("--target", help="of a plan: names of devices, with commas, or all")
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
        configs = [settings.load(path, overrides) for path in options.config]
        if len(configs) > 1:
            return one_by_one(options, overrides)
        if options.mode == "plan":
            asked = planning.Asked(options.config[0], overrides, configs[0])
            chosen = planning.targets(options.target, configs[0])
            if options.longest:
                return planning.longest(asked, chosen, options.longest, options.workdir)
            return planning.plan(asked, chosen, options.workdir)
        if options.target or options.longest:
            raise settings.UsageError("--target and --longest are of --mode=plan")
        if options.compilation_cache:
            run.keep_compiled(options.compilation_cache)
        return run.run(
            configs[0],
            settings.differences(configs[0], base.get_config()),
            options.workdir,
            argv=["launch.py", *argv],
            dry_run=options.dry_run,
            require_device=options.require_device,
            allow_changes=options.allow_changes,
            profile=options.profile,
        )
    except settings.UsageError as error:
        print(f"launch.py: {error}", file=sys.stderr)
        return codes.WRONG_USE
    except OSError as error:
        code = run.code_of(error)
        if code is None:
            raise
        print(f"launch.py: {error}", file=sys.stderr)
        return code


def one_by_one(options: argparse.Namespace, overrides: list[str]) -> int:
    """Run every config in a process of its own; the first exit code that is not 0, or 0.

    An interruption ends the whole: SIGTERM is passed on to the one that runs; Ctrl-C reaches it anyway.
    """
    given = {name: value for name, value in vars(options).items() if value and name != "config"}
    flags = [f"--{name}" + ("" if value is True else f"={value}") for name, value in given.items()]
    ended, received, child = [], [], None

    def stop(number: int, _frame: object) -> None:
        received.append(number)
        if child and number == signal.SIGTERM:
            child.terminate()

    before = {number: signal.signal(number, stop) for number in EXIT_CODES}
    try:
        for path in options.config:
            child = subprocess.Popen([sys.executable, __file__, f"--config={path}", *flags, *overrides])
            if signal.SIGTERM in received:  # came while there was no child to pass it on to
                child.terminate()
            code = child.wait()
            ended.append(code if code >= 0 else 128 - code)
            if received:
                return EXIT_CODES[signal.Signals(received[0])]
            if ended[-1] in EXIT_CODES.values():
                return ended[-1]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return next((code for code in ended if code), codes.DONE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
