"""What is wrong with a model, in sentences, from a look at it and a look at it before training."""

import math
import statistics
from collections.abc import Iterator
from typing import Any

from experiments.diagnoses import LEAST_KEYS

Look = dict[str, Any]  # as `look` gives it
Gradients = dict[str, dict[str, float | None]]  # norms, by part and layer

NEAR = 0.05  # share of the weight: what lies closer together is taken for the same
SPREAD = 0.95  # evenness, over all heads
EXPLODED = 10.0  # times the median of all parts, and its own norm before training
GROWN = 20.0  # times before training, in the median of all parts


def findings(now: Look, before: Look) -> list[str]:
    """A sentence for each thing that stands out; [] of a model that is sound, or is not trained yet.

    A head that is near uniform is lazy only if training moved others and not it: before training all may be.
    """
    trained = now["step"] > 0
    told = [*_uniform(now, before), *_twins(now), *_spread(now)] if trained else []
    exploded = _exploded(now["gradients"], before["gradients"])
    return [*_unknown(now), *told, *exploded, *_observed(now["observed"])]


def _unknown(now: Look) -> list[str]:
    told = [
        f"Layer {layer}, head {head}: its weights are not finite."
        for layer, own in now["heads"].items()
        for head, value in enumerate(own["entropy"])
        if value is None
    ]
    if not now["heads"]:
        return ["No layer has attention: there are no heads to look at."]
    if not told and not list(_each(now, "from_uniform")):
        told = [f"No row sees {LEAST_KEYS} keys: how heads spread cannot be judged."]
    return told


def _each(look: Look, name: str) -> Iterator[tuple[str, int, Any]]:
    """Layer, head and number of every head of which it is known."""
    for layer, own in look["heads"].items():
        for head, value in enumerate(own[name]):
            if value is not None:
                yield layer, head, value


def _uniform(now: Look, before: Look) -> list[str]:
    known = list(_each(now, "from_uniform"))
    lazy = [(layer, head, value) for layer, head, value in known if value < NEAR]
    began = {(layer, head): value for layer, head, value in _each(before, "from_uniform")}
    if lazy and len(lazy) == len(known) and began and all(value < NEAR for value in began.values()):
        return [
            "Every head is near uniform, as before training: the model has not begun to attend. It is too "
            "early to call a head lazy."
        ]
    return [_one_uniform(layer, head, value, began.get((layer, head))) for layer, head, value in lazy]


def _one_uniform(layer: str, head: int, value: float, before: float | None) -> str:
    if before is None:
        return f"Layer {layer}, head {head} is near uniform: {_share(value)} of its weight is elsewhere."
    if before < NEAR:
        return (
            f"Layer {layer}, head {head} is lazy: near uniform, as it began ({_share(value)} of its weight "
            f"is elsewhere, {_share(before)} before training), while others have moved."
        )
    return (
        f"Layer {layer}, head {head} has become near uniform: {_share(value)} of its weight is elsewhere, "
        f"and {_share(before)} was before training."
    )


def _twins(now: Look) -> list[str]:
    uniform = {(layer, head) for layer, head, value in _each(now, "from_uniform") if value < NEAR}
    pairs = {}
    for layer, head, value in _each(now, "from_nearest"):
        if value < NEAR and (layer, head) not in uniform:
            pairs[layer, *sorted((head, now["heads"][layer]["nearest"][head]))] = value
    return [
        f"Layer {layer}, heads {one} and {other} attend alike: {_share(value)} of their weight differs."
        for (layer, one, other), value in pairs.items()
    ]


def _spread(now: Look) -> list[str]:
    values = [value for _, _, value in _each(now, "evenness")]
    every = [value for _, _, value in _each(now, "from_uniform")]
    if not values or statistics.fmean(values) < SPREAD or all(value < NEAR for value in every):
        return []
    return [
        f"Attention is spread: its entropy is {_share(statistics.fmean(values))} of a uniform head's in the "
        "mean. A temperature below 1, or a larger scale, would sharpen it."
    ]


def _exploded(now: Gradients, before: Gradients) -> list[str]:
    known = {(part, layer): norm for part, own in now.items() for layer, norm in own.items()}
    growths = [norm / began for key, norm in known.items() if norm and (began := _at(before, *key))]
    usual, growth = _usual(now), statistics.median(growths or [0.0])
    told = [f"Gradients explode: {growth:.3g} times those before training, in the median."] * (growth > GROWN)
    for (part, layer), norm in known.items():
        where = f"Layer {layer}, the gradient of {part.replace('_', ' ')}"
        began = _at(before, part, layer)
        if norm is None or not math.isfinite(norm):
            told.append(f"{where} is not finite.")
        elif norm > EXPLODED * usual and norm > EXPLODED * (began or 0.0):
            told.append(
                f"{where} explodes: its norm is {norm:.3g}, the median of all parts is {usual:.3g}"
                + ("." if began is None else f", and before training its own was {began:.3g}.")
            )
    return told


def _at(gradients: Gradients, part: str, layer: str) -> float | None:
    return gradients.get(part, {}).get(layer)


def _usual(gradients: Gradients) -> float:
    known = [norm for own in gradients.values() for norm in own.values() if norm is not None]
    return statistics.median(known or [0.0])


def _observed(observed: dict[str, dict[str, Any]]) -> list[str]:
    return [
        f"Layer {layer}, head {head}: {value:.3g} {each['meaning']}; below {each['least']:.3g} is too few."
        for layer, own in observed.items()
        for each in own.values()
        for head, value in enumerate(each["values"])
        if each["least"] is not None and value is not None and value < each["least"]
    ]


def _share(value: float) -> str:
    return f"{value:.1%}" if value < 0.1 else f"{value:.0%}"
