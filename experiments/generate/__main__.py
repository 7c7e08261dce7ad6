"""What a trained model writes after a prompt.

    python -m experiments.generate runs/window128-00ac6f76d4 --prompt "def main(argv):"
    python -m experiments.generate RUN --prompt "import " --tokens 300 --top_p 0.9 --samples 3

Without `--greedy` tokens are drawn: the same seed draws the same. Prompt and samples stand on standard
output, byte by byte as the model wrote them, a line of "---" between two samples.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from experiments.interrupt import end_with_the_reader

if __name__ == "__main__":
    end_with_the_reader()

from experiments import codes
from experiments.generate.generate import generate
from experiments.generate.sampling import Sampling
from experiments.training import trained
from experiments.training.checkpoint import DamagedError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.generate", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of a run")
    parser.add_argument("--prompt", required=True, help="what it continues, as the task reads text")
    parser.add_argument("--tokens", type=int, default=200, help="how many to write (200)")
    parser.add_argument("--samples", type=int, default=1, help="how many texts (1)")
    parser.add_argument("--greedy", action="store_true", help="the likeliest token each time; draws nothing")
    parser.add_argument("--temperature", type=float, default=1.0, help="below 1: likely ones more often (1)")
    parser.add_argument("--top_k", type=int, help="draw from so many of the likeliest alone")
    parser.add_argument("--top_p", type=float, default=1.0, help="from the fewest that sum to it (1)")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn (0)")
    parser.add_argument(
        "--of", metavar="SEED", type=int, help="which of the run's seeds wrote it (the first)"
    )
    options = parser.parse_args(arguments)
    drawn = (options.temperature, options.top_k, options.top_p, options.samples)
    if options.greedy and drawn != (1.0, None, 1.0, 1):
        parser.error("--greedy goes without --temperature, --top_k, --top_p and --samples")
    if options.samples < 1:
        parser.error(f"--samples={options.samples} is not accepted; it must be at least 1")
    try:
        sampling = Sampling(0 if options.greedy else options.temperature, options.top_k, options.top_p)
        model = trained.load(options.run, options.of)
        prompts = [model.task.encode(options.prompt)] * options.samples
        texts = generate(model, prompts, options.tokens, sampling, options.seed)
    except (OSError, ValueError, NotImplementedError, DamagedError) as error:
        print(f"generate: {error}", file=sys.stderr)
        return codes.WRONG_USE
    whole = (np.concatenate(pair) for pair in zip(prompts, texts, strict=True))
    print("\n---\n".join(map(model.task.write, whole)))
    return codes.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
