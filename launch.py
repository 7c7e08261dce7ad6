"""One config, one command: train an attention variant, measure it, record it, show it beside the others.

python launch.py --config=configs/window128.py [--config.field=value ...] [--workdir=runs] [--dry_run]
                 [--require_device=cpu|gpu|tpu] [--allow_changes] [--compilation_cache=FOLDER] [--profile]
"""

import argparse
import sys

from configs import base
from experiments import run, settings


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise settings.UsageError(message)


def main(argv: list[str]) -> int:
    parser = Parser(
        description=__doc__, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, help="config file; configs/base.py explains every field")
    parser.add_argument("--workdir", default="runs", help="folder of the runs (default: runs)")
    parser.add_argument("--dry_run", action="store_true", help="show the plan; train and write nothing")
    parser.add_argument("--require_device", choices=("cpu", "gpu", "tpu"), help="refuse any other device")
    parser.add_argument(
        "--allow_changes", action="store_true", help="continue with other code, versions or data; recorded"
    )
    parser.add_argument("--compilation_cache", help="folder of compiled programs, kept between runs")
    parser.add_argument(
        "--profile", action="store_true", help="leave a trace of a few steps in the run's folder"
    )
    try:
        options, overrides = parser.parse_known_args(argv)
        config = settings.load(options.config, overrides)
        if options.compilation_cache:
            run.keep_compiled(options.compilation_cache)
        return run.run(
            config,
            settings.differences(config, base.get_config()),
            options.workdir,
            argv=["launch.py", *argv],
            dry_run=options.dry_run,
            require_device=options.require_device,
            allow_changes=options.allow_changes,
            profile=options.profile,
        )
    except settings.UsageError as error:
        print(f"launch.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
