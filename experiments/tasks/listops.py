"""Nested operations on lists of digits."""

import collections
import dataclasses
import functools
import hashlib
import random
from pathlib import Path
from typing import ClassVar

import numpy as np

from attention.check import check_field, is_int
from experiments.tasks import cache
from experiments.tasks.task import (
    SPLITS,
    Item,
    Task,
    check_counts,
    check_data_dir,
    check_index,
    check_lengths,
    check_split,
)

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
CLOSE = "]"
# Fixed, since a model that was trained with other numbers for the tokens is worth nothing.
VOCABULARY = {token: 1 + i for i, token in enumerate((*map(str, range(10)), *OPERATORS, CLOSE))}
PADDING = 0
DIGIT_PROBABILITY = 0.75  # of a node above the deepest level to be a digit
MOST_NESTED = 100  # levels, each a call in a call here; and arguments
FILES = {"train": "basic_train.tsv", "validation": "basic_val.tsv", "test": "basic_test.tsv"}
FORMAT = "tab-separated, first line 'Source<TAB>Target', tokens between spaces, parentheses allowed"


class TooLongError(Exception):
    """An expression has more tokens than are wanted."""


@dataclasses.dataclass(frozen=True, eq=False)
class Expressions:
    """Token numbers of all expressions one after the other, where each begins, and their values."""

    tokens: np.ndarray  # uint8
    starts: np.ndarray  # int64, one more than there are expressions
    values: np.ndarray  # int32, 0-9

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.tokens[self.starts[index] : self.starts[index + 1]]


@dataclasses.dataclass(frozen=True)
class ListOps(Task):
    """Evaluate an expression of MIN, MAX, MED (median, rounded down) and SM (sum modulo 10) on digits.

    Ten classes, one answer for the whole sequence. Expressions are drawn by the law of Nangia and Bowman
    (2018) in the form of the Long Range Arena (Tay et al. 2021): a node is a digit with probability 3/4, and
    always at depth `max_depth`, else an operator on 2 to `max_args` nodes; kept are those with more than
    `min_length` and fewer than `length` tokens, each once. Parentheses are no tokens. A sample is

        [MAX 2 9 [MIN 4 7 ] 0 ]        9

    The defaults are the Arena's; `min_length=50, length=128` is a short form. Validation and test are fixed.
    Generated expressions are kept in the user's cache folder; `data_dir` reads the Arena's own files
    (basic_train.tsv, basic_val.tsv, basic_test.tsv) instead: all their expressions, cut at `length`.

    Chance is 10%. `baselines`: the most frequent value (16.0% of the 2,000 test expressions at full size,
    15.9% in the short form), and the most frequent value given the root operator alone (35.4% and 34.6%, each
    within 2.1 points of what more expressions would give). What the Arena publishes for its Transformer
    (36.37%), Reformer (37.27%) and most others is therefore what reading one token gives.
    At one of `eval_lengths` the bounds are scaled alike.
    """

    name: ClassVar[str] = "listops"
    version: ClassVar[int] = 1
    head: ClassVar = "pooled"
    pads: ClassVar[bool] = True
    causal: ClassVar[bool] = False
    primary: ClassVar[str] = "accuracy"
    better: ClassVar = "higher"

    length: int = 2000
    min_length: int = 500
    max_depth: int = 10
    max_args: int = 10
    num_train: int = 96_000
    num_validation: int = 2_000
    num_test: int = 2_000
    data_dir: str | None = None  # None: generated
    eval_lengths: tuple[int, ...] = ()

    def __post_init__(self):
        check_counts(self, "num_train", "num_validation", "num_test")
        check_counts(self, "max_depth", "max_args", least=2, most=MOST_NESTED)
        check_field(self, "min_length", "an int of at least 0", is_int(self.min_length, 0))
        check_lengths(self, 5)
        holds = self.length >= self.min_length + 3
        check_field(self, "length", f"at least min_length + 3 = {self.min_length + 3}", holds)
        deepest = _longest(self.max_depth, self.max_args)
        check_field(self, "min_length", f"below {deepest}, the longest there is", self.min_length < deepest)
        check_data_dir(self)

    @property
    def vocab_size(self) -> int:
        return 1 + len(VOCABULARY)

    @property
    def num_outputs(self) -> int:
        return 10

    @property
    def chance(self):
        return {"accuracy": 0.1, "loss": float(np.log(10))}

    @property
    def splits(self):
        return {split: len(self.expressions(split)) for split in SPLITS}

    def source(self, split: str, seed: int, length: int | None = None) -> "ListOpsSource":
        del seed  # every training run sees the same expressions; their order is the reader's
        check_split(split)
        length = self.length if length is None else length
        if not is_int(length, 5):
            raise ValueError(f"listops: length={length} is not accepted; it must be an int of at least 5")
        return ListOpsSource(self.expressions(split, length), length)

    def expressions(self, split: str, length: int | None = None) -> Expressions:
        """All expressions of a split, read or generated once."""
        if self.data_dir is not None:
            return read(Path(self.data_dir), split)
        length = length or self.length
        low = self.min_length * length // self.length
        counts = (self.num_train, self.num_validation, self.num_test)
        if length != self.length:
            counts = (0, *counts[1:])
        return generated(low, length, self.max_depth, self.max_args, counts)[split]

    def baselines(self):
        """Accuracy on the test split of the training split's most frequent value: over all, and by root."""
        train, test = self.expressions("train"), self.expressions("test")
        roots, test_roots = (each.tokens[each.starts[:-1]] for each in (train, test))
        by_root = {root: _most_frequent(train.values[roots == root]) for root in np.unique(roots)}
        usual = _most_frequent(train.values)
        guesses = np.array([by_root.get(root, usual) for root in test_roots])
        return {
            "majority": float((test.values == usual).mean()),
            "root operator": float((test.values == guesses).mean()),
        }

    def encode(self, text):
        words = text.replace("(", " ").replace(")", " ").split()
        if unknown := [word for word in words if word not in VOCABULARY]:
            raise ValueError(f"listops: {unknown[0]!r} is not accepted; known are {' '.join(VOCABULARY)}")
        return np.array([VOCABULARY[word] for word in words], np.int32)

    def decode(self, tokens):
        words = ["", *VOCABULARY]
        return [words[token] for token in tokens]

    def content_hash(self) -> str:
        """sha256 of all expressions and values."""
        total = hashlib.sha256()
        for split in SPLITS:
            found = self.expressions(split)
            for part in (found.tokens, found.starts, found.values):
                total.update(np.ascontiguousarray(part).data)
        return total.hexdigest()


@dataclasses.dataclass(frozen=True, eq=False)
class ListOpsSource:
    """Expressions of one split, padded to `length` tokens."""

    expressions: Expressions
    length: int

    def __len__(self) -> int:
        return len(self.expressions)

    def __getitem__(self, index: int) -> Item:
        check_index(index, len(self))
        found = self.expressions[index][: self.length]
        tokens = np.full(self.length, PADDING, np.int32)
        tokens[: found.size] = found
        return {
            "tokens": tokens,
            "valid": np.arange(self.length) < found.size,
            "targets": np.array(self.expressions.values[index]),
            "weights": np.ones((), np.float32),
        }


@functools.lru_cache(4)
def generated(
    low: int, high: int, max_depth: int, max_args: int, counts: tuple[int, int, int]
) -> dict[str, Expressions]:
    """`counts` different expressions a split with `low` < tokens < `high`, from the cache if it has them."""
    name = f"listops-{ListOps.version}-{low}-{high}-{max_depth}-{max_args}-{'-'.join(map(str, counts))}"

    def make() -> dict[str, np.ndarray]:
        return _generate(random.Random(name), low, high, max_depth, max_args, sum(counts))

    arrays = cache.arrays(name, make)
    every = Expressions(**arrays)
    result, first = {}, 0
    for split, count in zip(SPLITS, counts, strict=True):
        bounds = every.starts[first : first + count + 1]
        tokens = every.tokens[bounds[0] : bounds[-1]]
        result[split] = Expressions(tokens, bounds - bounds[0], every.values[first : first + count])
        first += count
    return result


def _generate(
    draw: random.Random, low: int, high: int, max_depth: int, max_args: int, count: int
) -> dict[str, np.ndarray]:
    seen, kept, values, failed = set(), [], [], 0
    while len(kept) < count:
        tokens: list[int] = []
        try:
            value = _expression(draw.random, tokens, high - 1, 1, max_depth, max_args)
        except TooLongError:
            continue
        packed = bytes(tokens)
        if len(tokens) <= low or packed in seen:
            failed += 1
            if failed > 10_000 + 1_000 * len(kept):
                raise ValueError(
                    f"listops: {len(kept)} different expressions between min_length={low} and length={high} "
                    f"were found where {count} are asked for; ask for fewer or for other lengths"
                )
            continue
        seen.add(packed)
        kept.append(packed)
        values.append(value)
    starts = np.cumsum([0, *map(len, kept)], dtype=np.int64)
    tokens_of_all = np.frombuffer(b"".join(kept), np.uint8)
    return {"tokens": tokens_of_all, "starts": starts, "values": np.array(values, np.int32)}


def _expression(draw, tokens: list[int], most: int, depth: int, max_depth: int, max_args: int) -> int:
    """Append a node, and what is below it, to `tokens`; give its value. Raises TooLongError above `most`."""
    if depth >= max_depth or draw() > 1 - DIGIT_PROBABILITY:
        digit = int(10 * draw())
        tokens.append(1 + digit)
        return digit
    operator = int(len(OPERATORS) * draw())
    tokens.append(11 + operator)
    count = 2 + int((max_args - 1) * draw())
    if len(tokens) + count + 1 > most:  # already too long: what is below need not be drawn
        raise TooLongError
    values = []
    for _ in range(count):
        values.append(_expression(draw, tokens, most - 1, depth + 1, max_depth, max_args))
        if len(tokens) >= most:
            raise TooLongError
    tokens.append(VOCABULARY[CLOSE])
    return evaluate(operator, values)


def evaluate(operator: int, values: list[int]) -> int:
    """Value of an operator, numbered as in OPERATORS, on digits."""
    if operator == 0:
        return min(values)
    if operator == 1:
        return max(values)
    if operator == 2:
        ordered, half = sorted(values), len(values) // 2
        return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) // 2
    return sum(values) % 10


@functools.lru_cache(3)
def read(folder: Path, split: str) -> Expressions:
    """A split of the Arena's files. Raises ValueError, naming the file, for anything that is not expected."""
    path = folder / FILES[split]
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        wanted = ", ".join(FILES.values())
        raise ValueError(
            f"listops: data_dir={str(folder)!r} must hold {wanted} ({FORMAT}); {path}: {error.strerror}"
        ) from error
    if not lines or lines[0].split("\t") != ["Source", "Target"]:
        raise ValueError(f"listops: {path} does not begin with 'Source<TAB>Target'; expected is {FORMAT}")
    parts, values = [], []
    for number, line in enumerate(lines[1:], 2):
        source, _, target = line.partition("\t")
        tokens = ["]" if token in ("]", "X") else token for token in source.split() if token not in "()"]
        unknown = next((token for token in tokens if token not in VOCABULARY), None)
        if unknown or not tokens or target not in map(str, range(10)):
            wrong = f"unknown token {unknown!r}" if unknown else f"target {target!r}"
            raise ValueError(f"listops: {path}:{number}: {wrong}; expected is {FORMAT}")
        parts.append(bytes(VOCABULARY[token] for token in tokens))
        values.append(int(target))
    if not parts:
        raise ValueError(f"listops: {path} holds no expression")
    starts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return Expressions(np.frombuffer(b"".join(parts), np.uint8), starts, np.array(values, np.int32))


def _longest(max_depth: int, max_args: int) -> float:
    """Tokens of the longest expression: every node above the deepest level has all its arguments."""
    length = 1
    for _ in range(max_depth - 1):
        length = 2 + max_args * length
        if length > 10**9:
            break
    return length


def _most_frequent(values: np.ndarray) -> int:
    return collections.Counter(values.tolist()).most_common(1)[0][0]
