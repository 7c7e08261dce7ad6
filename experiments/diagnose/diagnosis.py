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


class Place(NamedTuple):
    """Where a word ends in a text that was read."""

    tokens: np.ndarray
    end: int


def diagnosis(
    trained: Trained, text: str | None = None, word: Word | None = None, looker: Looker | None = None
) -> dict[str, Any]:
    """All that is to be shown of a trained seed, JSON. Without a text, of the task's first validation item.

    `looker` saves compiling again what it has compiled. Raises ValueError that names the argument, before
    anything is computed, for a text that the task cannot read or that is too long, or a word not in both.
    """
    start = time.perf_counter()
    read = None if text is None else _read(trained, text, "text")
    places = None if word is None else _places(trained, word)
    looker, record = looker or Looker(trained.config, trained.task), trained.record
    tokens = _first_item(looker) if read is None else read
    weights = looker.weights(trained.params, tokens[None], _valid(trained, tokens))
    maps = {layer: np.asarray(own.matrix[0, :, :SHOWN, :SHOWN], np.float64) for layer, own in weights}
    vectors = None
    if word is not None and places is not None:
        same = trained.task.causal and _same(*places)
        vectors = {**word._asdict(), "same": same, "layers": _vectors(looker, trained, places)}
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


def _read(trained: Trained, text: str, name: str) -> np.ndarray:
    try:
        tokens = trained.task.encode(text)
    except ValueError as error:
        raise ValueError(f"{name} cannot be read: {error}") from error
    most = longest(trained)
    if not 0 < len(tokens) <= most:
        raise ValueError(f"{name} has {len(tokens)} tokens; it must have 1 to {most}")
    return tokens


def longest(trained: Trained) -> int:
    """Tokens that a text may have: positions that are learned end where training needed no more."""
    model, task = trained.config.model, trained.task
    ends = model.max_length or max((task.length, *task.eval_lengths))
    return min(TOKENS, ends) if model.positions == "learned" else TOKENS


def _valid(trained: Trained, tokens: np.ndarray) -> np.ndarray | None:
    return np.ones((1, len(tokens)), bool) if trained.task.pads else None


def _places(trained: Trained, word: Word) -> tuple[Place, Place]:
    own = _read(trained, word.word, "word")
    texts = {"text": word.text, "other": word.other}
    one, other = (_place(own, _read(trained, text, name), word.word, name) for name, text in texts.items())
    return one, other


def _place(word: np.ndarray, tokens: np.ndarray, own: str, name: str) -> Place:
    starts = (i for i in range(len(tokens) - len(word) + 1) if (tokens[i : i + len(word)] == word).all())
    start = next(starts, None)
    if start is None:
        raise ValueError(f"word {own!r} is not in {name}")
    return Place(tokens, start + len(word) - 1)


def _same(one: Place, other: Place) -> bool:
    return np.array_equal(one.tokens[: one.end + 1], other.tokens[: other.end + 1])


def _vectors(
    looker: Looker, trained: Trained, places: tuple[Place, Place]
) -> dict[int, dict[str, list[float]]]:
    """Cosine of the word's query in one text with that in the other, by layer and head; and of its key.

    Of a key, by the query heads that share it.
    """
    one, other = (_word_vectors(looker, trained, place) for place in places)
    return {
        layer: {name: heads.cosines(vector, other[layer][name]) for name, vector in own.items()}
        for layer, own in one.items()
    }


def _word_vectors(looker: Looker, trained: Trained, place: Place) -> dict[int, dict[str, Any]]:
    tokens, at, found = place.tokens, place.end, {}
    for layer, own in looker.programs.inputs(trained.params, tokens[None], _valid(trained, tokens)).items():
        found[layer] = {"query": np.asarray(own.plain_query[0, at])}
        if own.plain_key is not None:
            key = np.asarray(own.plain_key[0, at])
            found[layer]["key"] = key.repeat(len(found[layer]["query"]) // len(key), axis=0)
    return found
