"""Language modelling, byte by byte, on the sources of Python's standard library."""

import dataclasses
import functools
import hashlib
import lzma
import math
import sysconfig
import zlib
from pathlib import Path
from typing import ClassVar

import numpy as np

from experiments.tasks import utf8
from experiments.tasks.task import (
    ENDLESS,
    SPLITS,
    Item,
    Task,
    check_counts,
    check_data_dir,
    check_index,
    check_lengths,
    check_split,
)

BETWEEN_FILES = b"\0"
OTHERS = {"site-packages", "dist-packages"}  # installed beside the library, not part of it
COPIES = "encodings"  # tables of characters, each nearly the text of another one
GENERATED = "_sysconfigdata"  # written when Python is built, with the builder's paths
SHARES = {"train": 90, "validation": 5, "test": 5}  # of a hundred files


@dataclasses.dataclass(frozen=True)
class Bytes(Task):
    r"""Predict each next byte of Python source text. Real data that is on every machine that runs this.

    All `.py` files of the standard library but its tables of characters, which repeat one another (30.1 MB in
    1,667 files for CPython 3.11; some distributions leave files out), or of `data_dir`, split by file: a hash
    of a file's path decides its split. Training items are chunks at random places, an endless stream;
    validation and test are `num_validation` and `num_test` chunks spread evenly over their files. A sample is

        tokens   'def unparse(ast_obj):\n    unparser = '
        targets  'ef unparse(ast_obj):\n    unparser = U'

    Bits per byte: 8 is chance; `baselines` measures what byte and byte-pair statistics of the training files,
    zlib and lzma reach on the test items (4.65, 3.47, 2.09, 1.91 for CPython 3.11). No numbers are published
    for this split. Other versions of Python have other sources: their records do not compare, and the content
    hash says so.
    """

    name: ClassVar[str] = "bytes"
    version: ClassVar[int] = 2
    primary: ClassVar[str] = "bits_per_byte"
    better: ClassVar = "lower"
    blind: ClassVar = ("unigram",)
    prompt: ClassVar = "def "

    length: int = 1024
    num_validation: int = 32
    num_test: int = 128
    data_dir: str | None = None  # None: the standard library of the Python that runs
    eval_lengths: tuple[int, ...] = ()

    def __post_init__(self):
        check_lengths(self, 1)
        check_counts(self, "num_validation", "num_test")
        check_data_dir(self)

    @property
    def vocab_size(self) -> int:
        return 256

    @property
    def num_outputs(self) -> int:
        return 256

    @property
    def chance(self):
        return {"bits_per_byte": 8.0, "loss": math.log(256), "accuracy": 1 / 256}

    @property
    def splits(self):
        return {"train": ENDLESS, "validation": self.num_validation, "test": self.num_test}

    def source(self, split: str, seed: int, length: int | None = None) -> "BytesSource":
        check_split(split)
        text = texts(self.data_dir)[split]
        length = self.length if length is None else length
        if not 0 < length < text.size:
            raise ValueError(
                f"bytes: length={length} is not accepted; it must be above 0 and below the {text.size} bytes "
                f"of the {split} files"
            )
        size = self.splits[split]
        if split != "train":
            # Another length asks about as many bytes, as near as chunks of it come.
            size = max(1, size * self.length // length)
        return BytesSource(text, split, seed if split == "train" else 0, length, size)

    def encode(self, text):
        return utf8.encode(text)

    def decode(self, tokens):
        return utf8.decode(tokens)

    def write(self, tokens):
        return utf8.write(tokens)

    def losses(self, logits, batch):
        sums = super().losses(logits, batch)
        total, weight = sums["loss"]
        return sums | {"bits_per_byte": (total / math.log(2), weight)}

    def baselines(self):
        """Bits per byte: counts of the training files (plus one half), and compressors of the test items."""
        source = self.source("test", 0)
        chunks = [source.chunk(index) for index in range(len(source))]
        joined = np.concatenate([chunk[1:] for chunk in chunks]).tobytes()
        pairs = _pair_counts(texts(self.data_dir)["train"])
        before, after = (np.concatenate(x) for x in zip(*((c[:-1], c[1:]) for c in chunks), strict=True))
        return {
            "unigram": _bits(pairs.sum(0)[None], np.zeros_like(before), after),
            "bigram": _bits(pairs, before, after),
            "zlib": 8 * len(zlib.compress(joined, 9)) / len(joined),
            "lzma": 8 * len(lzma.compress(joined, preset=9)) / len(joined),
        }

    def content_hash(self) -> str:
        """sha256 of all text, split by split."""
        total = hashlib.sha256()
        for split in SPLITS:
            total.update(f"{split}\n".encode())
            total.update(texts(self.data_dir)[split].data)
        return total.hexdigest()


@dataclasses.dataclass(frozen=True, eq=False)
class BytesSource:
    """Chunks of `text` (uint8)."""

    text: np.ndarray
    split: str
    seed: int
    length: int
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Item:
        chunk = self.chunk(index).astype(np.int32)
        return {"tokens": chunk[:-1], "targets": chunk[1:], "weights": np.ones(self.length, np.float32)}

    def chunk(self, index: int) -> np.ndarray:
        """`length` + 1 bytes."""
        check_index(index, self.size)
        room = self.text.size - self.length
        if self.split == "train":
            start = int(np.random.default_rng((self.seed, SPLITS.index("train"), index)).integers(room))
        else:
            start = index * room // self.size
        return self.text[start : start + self.length + 1]


@functools.cache
def texts(data_dir: str | None) -> dict[str, np.ndarray]:
    """The files of each split, one after the other, uint8.

    Raises ValueError if a split has no file.
    """
    root = Path(data_dir or sysconfig.get_paths()["stdlib"])
    parts: dict[str, list[bytes]] = {split: [] for split in SPLITS}
    for path in sorted(root.rglob("*.py"), key=lambda path: path.relative_to(root).as_posix()):
        inside = path.relative_to(root)
        left_out = OTHERS & set(inside.parts) or COPIES in inside.parts or GENERATED in inside.name
        if not left_out:
            parts[_split(inside.as_posix())].append(path.read_bytes() + BETWEEN_FILES)
    for split, files in parts.items():
        if not files:
            raise ValueError(f"bytes: data_dir={str(root)!r} has no .py file that falls to the {split} split")
    return {split: np.frombuffer(b"".join(files), np.uint8) for split, files in parts.items()}


def _split(path: str) -> str:
    place = int.from_bytes(hashlib.sha256(path.encode()).digest()[:4], "big") % 100
    for split, share in SHARES.items():
        if place < share:
            return split
        place -= share
    raise AssertionError("shares make a hundred")


def _pair_counts(text: np.ndarray) -> np.ndarray:
    """How often byte j follows byte i: [i, j]."""
    counts, part = np.zeros(65536, np.int64), 1 << 20
    for start in range(0, text.size - 1, part):
        some = text[start : start + part + 1].astype(np.int64)
        counts += np.bincount(some[:-1] * 256 + some[1:], minlength=65536)
    return counts.reshape(256, 256)


def _bits(counts: np.ndarray, before: np.ndarray, after: np.ndarray) -> float:
    """Cross-entropy in bits of `after` given `before` under counts (context, byte) plus one half each."""
    smooth = counts + 0.5
    bits = -np.log2(smooth / smooth.sum(1, keepdims=True))
    return float(bits[before, after].mean())
