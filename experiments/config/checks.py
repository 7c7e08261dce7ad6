"""What each field of a config accepts. Each refusal is one line: the field, its value, what is accepted."""

import csv
import difflib
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attention
from attention.check import is_int
from experiments.fields import Config
from experiments.model.registry import Mixer
from experiments.model.transformer import DTYPES, INITS, NORMS, POSITIONS
from experiments.tasks.task import LONGEST, SPLITS, Task

SCHEDULES = ("cosine", "rsqrt", "constant")  # of the learning rate
Rule = tuple[str, Callable[[Any], bool]]  # what is accepted, in words and as a predicate
MOST = 2**31 - 1  # steps and items are counted in int32
WIDEST = 2**20  # of anything in the model: more is a mistake, and products of a few must fit int64
MIXERS, LAYERS = "mixers", "model.layers"  # a section, and the field that says which of them a layer has
UNROLLED = 1024  # layers, and places of a convolution: each is in the program as often as it is asked for


class UsageError(ValueError):
    """Something that was asked for cannot be. The message is one line, for the one who asked."""


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())


def is_number(value: Any) -> bool:
    # Compared, not converted: an int may be beyond every float.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def count(least: int, most: int = MOST) -> Rule:
    accepted = f"an int of at least {least} and at most {most}"
    return accepted, lambda value: is_int(value) and least <= value <= most


def above(least: float) -> Rule:
    return f"a number above {least}", lambda value: is_number(value) and value > least


def within(low: float, high: float) -> Rule:
    return f"a number in [{low}, {high})", lambda value: is_number(value) and low <= value < high


def one_of(choices: Iterable[str]) -> Rule:
    return " or ".join(choices), lambda value: value in tuple(choices)


def optional(rule: Rule) -> Rule:
    return f"{rule[0]} or None", lambda value: value is None or rule[1](value)


def _differ(values: Any, holds: Callable[[Any], bool]) -> bool:
    # What holds can be hashed; a list in a tuple cannot.
    return isinstance(values, tuple) and all(map(holds, values)) and len(values) == len(set(values))


FLAG: Rule = "True or False", lambda value: isinstance(value, bool)
NAME: Rule = (
    "letters, digits and ._- with no . in front",
    lambda value: isinstance(value, str) and re.fullmatch(r"[\w-][\w.-]*", value) is not None,
)
SEEDS: Rule = (
    "different ints in [0, 2**31), or ()",
    lambda value: _differ(value, lambda seed: is_int(seed) and 0 <= seed <= MOST),
)

RATES: Rule = (
    "different numbers above 0, or ()",
    lambda value: _differ(value, lambda rate: is_number(rate) and rate > 0),
)

LABELS: Rule = (
    "one or more labels with commas between, one of them attention",
    lambda value: (
        isinstance(value, str)
        and re.fullmatch(r"[A-Za-z]\w*(,[A-Za-z]\w*)*", value, re.ASCII) is not None
        and "attention" in value.split(",")
    ),
)

RULES: dict[str, Rule] = {
    "name": NAME,
    "seeds": SEEDS,
    "model.num_layers": count(1, UNROLLED),
    LAYERS: LABELS,
    "model.num_heads": count(1, WIDEST),
    "model.num_kv_heads": optional(count(1, WIDEST)),
    "model.model_dim": count(1, WIDEST),
    "model.head_dim": count(1, WIDEST),
    "model.value_dim": optional(count(1, WIDEST)),
    "model.mlp_dim": count(0, WIDEST),
    "model.norm": one_of(NORMS),
    "model.positions": one_of(POSITIONS),
    "model.conv_width": count(0, UNROLLED),
    "model.dropout_rate": within(0, 1),
    "model.init": one_of(INITS),
    "model.init_std": above(0),
    "model.max_length": optional(count(1, LONGEST)),
    "model.compute_dtype": one_of(DTYPES),
    "model.remat": FLAG,
    "optimizer.learning_rate": above(0),
    "optimizer.learning_rate_grid": RATES,
    "optimizer.schedule": one_of(SCHEDULES),
    "optimizer.warmup_steps": count(0),
    "optimizer.weight_decay": within(0, math.inf),
    "optimizer.l2": within(0, math.inf),
    "optimizer.beta1": within(0, 1),
    "optimizer.beta2": within(0, 1),
    "optimizer.eps": above(0),
    "optimizer.clip_norm": optional(above(0)),
    "optimizer.ema_decay": optional(within(0, 1)),
    "train.batch_size": count(1, WIDEST),
    "train.num_microbatches": count(1),
    "train.steps": count(1),
    "train.flops": optional(above(0)),
    "train.eval_every": count(1),
    "train.checkpoint_every": count(1),
    "train.log_every": count(1),
    "train.stop_when_solved": FLAG,
    "train.patience": optional(count(1)),
    "train.label_smoothing": within(0, 1),
    "train.entropy_penalty": ("a finite number", is_number),
    "train.seeds_at_once": optional(count(1)),
    "train.deterministic": FLAG,
    "mesh.data": count(1, WIDEST),
    "mesh.sequence": count(1, WIDEST),
    "eval.batch_size": count(1, WIDEST),
    "eval.timed_steps": count(0),
    "eval.diagnose": FLAG,
    "eval.sample_tokens": count(0),
}


def check_known(field: str, known: Iterable[str]) -> None:
    """Raises UsageError unless `field` is one of the known ones."""
    known = list(known)
    if field in known:
        return
    inside = [other for other in known if other.startswith(field + ".")]
    if inside:
        raise UsageError(f"config.{field} is a section; set one of its fields: {', '.join(inside)}")
    near = difflib.get_close_matches(field, known, 1, cutoff=0.8)
    section = [other for other in known if other.split(".")[0] == field.split(".")[0]] or known
    hint = f"did you mean config.{near[0]}?" if near else f"known are {', '.join(section)}"
    raise UsageError(f"there is no field config.{field}; {hint}")


def check_fields(fields: dict[str, Any]) -> None:
    """Each field outside of attention and task, by itself. Raises UsageError."""
    for field in fields:
        check_known(field, RULES)
    for field, (accepted, holds) in RULES.items():
        if field not in fields:
            raise UsageError(f"config.{field} is missing; it must be {accepted}")
        if not holds(fields[field]):
            refuse(field, fields[field], accepted)


def check_together(config: Config, mixers: Sequence[Mixer], task: Task) -> None:
    """Fields against each other, the mixers and the task. Raises UsageError."""
    model = config.model
    if not config.seeds and not config.eval.timed_steps:
        refuse("seeds", (), "at least one with eval.timed_steps=0: there is nothing to do")
    if len(mixers) > model.num_layers:
        refuse(LAYERS, model.layers, f"no longer than model.num_layers={model.num_layers}")
    if model.num_kv_heads and model.num_heads % model.num_kv_heads:
        refuse("model.num_kv_heads", model.num_kv_heads, f"a divisor of model.num_heads={model.num_heads}")
    if model.positions == "rotary" and model.head_dim % 2:
        refuse("model.head_dim", model.head_dim, "even with model.positions=rotary")
    longest = max((task.length, *task.eval_lengths))
    if model.max_length is not None and model.max_length < longest:
        refuse("model.max_length", model.max_length, f"at least {longest}, the task's longest, or None")
    if config.train.stop_when_solved and task.solved is None:
        refuse("train.stop_when_solved", True, f"False: the task {task.name} is never solved")
    if config.train.batch_size % config.train.num_microbatches:
        divided = f"a divisor of train.batch_size={config.train.batch_size}"
        refuse("train.num_microbatches", config.train.num_microbatches, divided)
    reasons = list(filter(None, map(attention.no_entropy, mixers)))
    if config.train.entropy_penalty and reasons:
        refuse("train.entropy_penalty", config.train.entropy_penalty, f"0: {reasons[0]}")
    _check_capable(model, mixers, task)
    _check_shares(config, mixers, task)


def check_warmup(config: Config) -> None:
    """The warm-up against the number of steps, once it is known. Raises UsageError."""
    steps, paid = config.train.steps, config.train.flops
    if config.optimizer.warmup_steps >= steps:
        source = "" if paid is None else f", which train.flops={paid:g} pays for"
        refuse("optimizer.warmup_steps", config.optimizer.warmup_steps, f"below train.steps={steps}{source}")


def _check_capable(model: Config, mixers: Sequence[Mixer], task: Task) -> None:
    for mixer in mixers:
        if not (mixer.capabilities.causal if task.causal else mixer.capabilities.two_sided):
            direction = "causal" if task.causal else "two-sided"
            raise UsageError(f"the task {task.name} is {direction}, which attention {mixer.name} cannot be")
    # Beside attention, heads are no concern of what is recurrent.
    for mixer in [each for each in mixers if isinstance(each, attention.Attention)] or mixers:
        able = mixer.capabilities
        if not able.grouped_queries and model.num_kv_heads not in (None, model.num_heads):
            refuse("model.num_kv_heads", model.num_kv_heads, f"None with attention {mixer.name}")
        if not able.value_width and model.value_dim not in (None, model.head_dim):
            refuse("model.value_dim", model.value_dim, f"None with attention {mixer.name}")


def _check_shares(config: Config, mixers: Sequence[Mixer], task: Task) -> None:
    data, sequence, train = config.mesh.data, config.mesh.sequence, config.train
    sizes = {
        "train.batch_size": (train.batch_size, data * train.num_microbatches),
        "eval.batch_size": (config.eval.batch_size, data),
        "task.length": (task.length, sequence),
        **{f"task.eval_lengths[{i}]": (length, sequence) for i, length in enumerate(task.eval_lengths)},
    }
    for field, (size, shares) in sizes.items():
        if size % shares:
            refuse(field, size, f"a multiple of {shares}, with config.mesh={data}x{sequence}")
    whole = [mixer.name for mixer in mixers if not mixer.capabilities.sequence_parallel]
    if sequence > 1 and whole:
        refuse("mesh.sequence", sequence, f"1 with attention {whole[0]}")
    if sequence > 1 and train.entropy_penalty:
        refuse("train.entropy_penalty", train.entropy_penalty, f"0 with mesh.sequence={sequence}")
    if data * sequence > 1 and train.seeds_at_once not in (None, 1):
        refuse("train.seeds_at_once", train.seeds_at_once, f"1 or None with config.mesh={data}x{sequence}")


def check_data(task: Task) -> None:
    """The task's data are there, and have the lengths that are asked for. Raises UsageError."""
    try:
        for split in SPLITS:
            for length in dict.fromkeys((task.length, *(task.eval_lengths if split == "test" else ()))):
                source = task.source(split, 0, length)
                if not len(source):
                    raise ValueError(f"{task.name}: the {split} split holds nothing")
                source[0]
    except (ValueError, OSError, MemoryError, csv.Error) as error:
        raise UsageError(f"config.task: {one_line(error)}") from error


def refuse(field: str, value: Any, accepted: str, cause: Exception | None = None) -> None:
    """Raises UsageError."""
    raise UsageError(f"config.{field}={value!r} is not accepted; {field} must be {accepted}") from cause
