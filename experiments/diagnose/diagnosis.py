"""The diagnosis of one trained seed: a look at it, and the weights of each head on some text."""

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import diagnoses, files, provenance, records
from experiments.diagnose import heads
from experiments.diagnose.look import TOKENS, Looker
from experiments.training.trained import Trained

SHOWN = 32  # tokens of a heat map at the most: the first ones
DIGITS = 4  # of a weight


class Word(NamedTuple):
    """A word and two texts with it. Vectors are compared at its last token, where it first stands in each."""

    word: str
    text: str
    other: str


def diagnosis(
    trained: Trained, text: str | None = None, word: Word | None = None, looker: Looker | None = None
) -> dict[str, Any]:
    """All that is to be shown of a trained seed, JSON. Without a text, of the task's first validation item.

    `looker` saves compiling again what it has compiled. Raises ValueError for a text that the task cannot
    read or that is too long.
    """
    start = time.perf_counter()
    looker, record = looker or Looker(trained.config, trained.task), trained.record
    tokens = _first_item(looker) if text is None else _read(trained, text)
    weights = looker.weights(trained.params, tokens[None], _valid(trained, tokens))
    maps = {layer: np.asarray(own.matrix[0, :, :SHOWN, :SHOWN], np.float64) for layer, own in weights}
    vectors = None if word is None else {**word._asdict(), "layers": _vectors(looker, trained, word)}
    return records.plain(
        {
            "schema": diagnoses.SCHEMA,
            "name": record["name"],
            "identity": record["identity"],
            "attention": record["attention"]["text"],
            "task": record["task"]["name"],
            "seed": trained.seed,
            "outcome": record["seeds"][str(trained.seed)]["outcome"],
            "code": provenance.commit(provenance.gather()),
            "trained_by": provenance.commit(record["provenance"]),
            "look": looker(trained.seed, trained.step, trained.params),
            "before": looker.before(trained.seed),
            "text": text,
            "num_tokens": len(tokens),
            "tokens": trained.task.decode(tokens[:SHOWN]),
            "maps": {layer: np.round(own, DIGITS).tolist() for layer, own in maps.items()},
            "vectors": vectors,
            "seconds": time.perf_counter() - start,
        }
    )


def write(folder: Path, found: dict[str, Any]) -> Path:
    """Keep a diagnosis in its run's folder; where."""
    path = diagnoses.path(folder, found["seed"], found["text"], found["vectors"])
    path.parent.mkdir(exist_ok=True)
    files.write_json(path, found, indent=None)
    return path


def _first_item(looker: Looker) -> np.ndarray:
    tokens, valid = looker.sample
    return tokens[0] if valid is None else tokens[0][valid[0]]


def _read(trained: Trained, text: str) -> np.ndarray:
    tokens = trained.task.encode(text)
    if not 0 < len(tokens) <= TOKENS:
        raise ValueError(f"text has {len(tokens)} tokens; it must have 1 to {TOKENS}")
    return tokens


def _valid(trained: Trained, tokens: np.ndarray) -> np.ndarray | None:
    return np.ones((1, len(tokens)), bool) if trained.task.pads else None


def _vectors(looker: Looker, trained: Trained, word: Word) -> dict[int, dict[str, list[float]]]:
    """Cosine of the word's query in one text with that in the other, by layer and head; and of its key.

    Of a key, by the query heads that share it.
    """
    one, other = (_word_vectors(looker, trained, word.word, text) for text in (word.text, word.other))
    return {
        layer: {name: heads.cosines(vector, other[layer][name]) for name, vector in own.items()}
        for layer, own in one.items()
    }


def _word_vectors(looker: Looker, trained: Trained, word: str, text: str) -> dict[int, dict[str, Any]]:
    tokens = _read(trained, text)
    at = _end_of(trained.task.encode(word), tokens, word, text)
    found = {}
    for layer, own in looker.programs.inputs(trained.params, tokens[None], _valid(trained, tokens)).items():
        found[layer] = {"query": np.asarray(own.plain_query[0, at])}
        if own.plain_key is not None:
            key = np.asarray(own.plain_key[0, at])
            found[layer]["key"] = key.repeat(len(found[layer]["query"]) // len(key), axis=0)
    return found


def _end_of(word: np.ndarray, tokens: np.ndarray, name: str, text: str) -> int:
    starts = (i for i in range(len(tokens) - len(word) + 1) if (tokens[i : i + len(word)] == word).all())
    start = next(starts, None) if len(word) else None
    if start is None:
        raise ValueError(f"word {name!r} is not in {text!r}")
    return start + len(word) - 1
