"""Diagnoses of trained models, and the looks that were had while they trained, as a page shows them."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from experiments import records
from experiments.diagnoses import LEAST_KEYS, REACHED, is_look
from experiments.records import Record
from experiments.report import figures
from experiments.report.charts import Chart
from experiments.report.heatmap import heatmap

NOTHING = "Nothing stands out."
UNTRAINED = (
    "Not trained: these are the parameters that it began with (step 0). How heads attend is not judged."
)
SAME = (
    "Both texts are the same up to the word's end, and this model sees nothing after it: these numbers say "
    "nothing of the word. Texts that differ before it would."
)
HINT = (0.1, 1.0)  # of a gradient's norm
MOST_LINES = 12  # in a legend
COLUMNS = {
    "entropy": "entropy, nats", "evenness": "of a uniform head's", "from_uniform": "unlike uniform",
    "nearest": "most like", "from_nearest": "unlike it", "distance": "distance",
    "reach": f"{REACHED:.0%} within", "on_first": "on first token",
}  # fmt: skip
SHARES = ("evenness", "from_uniform", "from_nearest", "on_first")


def shown(found: dict[str, Any], most: int | None = None) -> dict[str, Any]:
    """What the template, or a terminal, wants of a diagnosis, with `most` heat maps (None: of all heads)."""
    look = found["look"]
    cut = "" if len(found["tokens"]) == found["num_tokens"] else f", its first {len(found['tokens'])} tokens"
    count = sum(map(len, found["maps"].values()))
    left = f" The {most} heads of {count} least like a uniform one." if most and most < count else ""
    text = "the first validation item" if found["text"] is None else f"“{found['text']}”"
    step = f"step {look['step']}"
    if found["outcome"] != records.FINISHED:
        step += f", the last before it {found['outcome']}"
    return {
        "title": f"`{found['attention']}` on `{found['task']}`, seed {found['seed']}, {step}",
        "findings": findings(look),
        "heads": _heads(look, found["before"]) if look["heads"] else None,
        "notes": _notes(look),
        "maps": maps(found)[:most],
        "text": f"Weights on {text}{cut}.{left}",
        "vectors": [] if found["vectors"] is None else [_vectors(found["vectors"])],
        "code": f"Trained by {found['trained_by']}, diagnosed by {found['code']}.",
    }


def findings(look: dict[str, Any]) -> list[str]:
    """What stands out in a look, and that nothing does where nothing can."""
    untrained = [UNTRAINED] if look["step"] == 0 else []
    return [*untrained, *look["findings"]] or [NOTHING]


def last(seed: str, own: list[dict[str, Any]]) -> dict[str, Any]:
    """What the last of a seed's looks found: the model that is diagnosed later may be of another step."""
    title = f"Seed {seed} at step {own[-1]['step']}, the last look while it trained:"
    return {"title": title, "findings": findings(own[-1])}


def maps(found: dict[str, Any]) -> list[Chart]:
    """A heat map of each head, those least like a uniform one first."""
    heads = [
        (own["from_uniform"][head] or 0.0, layer, head)
        for layer, own in found["look"]["heads"].items()
        for head in range(len(own["from_uniform"]))
    ]
    name = f"{found['attention']} on {found['task']}, seed {found['seed']}"
    return [
        heatmap(found["tokens"], found["maps"][layer][head], f"{name}: layer {layer}, head {head}")
        for _, layer, head in sorted(heads, key=lambda each: -each[0])
    ]


def _heads(look: dict[str, Any], before: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    observed = list(dict.fromkeys(name for own in look["observed"].values() for name in own))
    heads = ["layer", "head", *COLUMNS.values(), *(name.replace("_", " ") for name in observed)]
    heads.insert(5, "before training")
    rows = []
    for layer, own in look["heads"].items():
        extra = look["observed"].get(layer, {})
        for head in range(len(own["entropy"])):
            cells = [_number(name, own[name][head]) for name in COLUMNS]
            cells.insert(3, _number("from_uniform", before["heads"][layer]["from_uniform"][head]))
            cells += [_number("", extra[name]["values"][head]) if name in extra else "-" for name in observed]
            rows.append([layer, str(head), *cells])
    return heads, rows


def _number(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    if name in SHARES:
        return f"{value:.1%}"
    return f"head {value}" if name == "nearest" else f"{value:.3g}"


def _notes(look: dict[str, Any]) -> list[str]:
    own = {name: each["meaning"] for layer in look["observed"].values() for name, each in layer.items()}
    gradients = "; ".join(
        f"{part.replace('_', ' ')} {', '.join(f'{norm:.2g}' for norm in norms.values() if norm is not None)}"
        for part, norms in look["gradients"].items()
    )
    of_heads = (
        f"Of {look['items']} validation items of {look['tokens']:,} tokens each, in the mean of their rows: "
        "the entropy of a head's weights, and its share of a uniform head's; the share of the weight that "
        "lies elsewhere than a uniform head's, now and before training; the head of the layer that is most "
        "like it, and the share of the weight that lies elsewhere than that one's; the distance in tokens, "
        f"and the least within which {REACHED:.0%} of the weight lies; the weight on the first token. Rows "
        f"that see fewer than {LEAST_KEYS} keys are left out of what says how a head spreads."
    )
    return [
        *([of_heads] if look["heads"] else []),
        *(f"{name.replace('_', ' ')}: {meaning}." for name, meaning in own.items()),
        f"Norm of the gradient by part, layer after layer, on validation items and before clipping: "
        f"{gradients}. {_hint()}",
    ]


def _hint() -> str:
    low, high = HINT
    return (
        f"Between {low:g} and {high:g} is a rule of thumb for a loss in nats: it depends on the loss's "
        "scale, so it is a hint."
    )


def _vectors(vectors: dict[str, Any]) -> dict[str, Any]:
    heads = ["layer", "head", *next(iter(vectors["layers"].values()), {})]
    rows = [
        [layer, str(head), *(f"{own[name][head]:.3f}" if head < len(own[name]) else "-" for name in own)]
        for layer, own in vectors["layers"].items()
        for head in range(max(map(len, own.values())))
    ]
    title = f"“{vectors['word']}” in “{vectors['text']}” and in “{vectors['other']}”: cosine of its vectors"
    return {"title": title, "heads": heads, "rows": rows, "notes": [SAME] if vectors.get("same") else []}


def looks(
    folder: Path, record: Record, seeds: Iterable[str] | None = None
) -> tuple[str, list[dict[str, Any]]] | None:
    """The first seed of a run, or of these, that was looked at while it trained, and its looks."""
    for seed in record["seeds"] if seeds is None else seeds:
        try:
            lines = records.read(folder / f"seed-{seed}" / "metrics.jsonl")
        except (OSError, ValueError):
            continue
        own = [line for line in lines if line["split"] == records.LOOK and is_look(line)]
        own = [line for line in own if _same_parts(line, own[0])]
        if own:
            return seed, own
    return None


def _same_parts(look: dict[str, Any], first: dict[str, Any]) -> bool:
    return all(
        look["heads"].keys() == first["heads"].keys()
        and len(look["heads"][layer]["evenness"]) == len(own["evenness"])
        for layer, own in first["heads"].items()
    )


def courses(record: Record, seed: str, own: list[dict[str, Any]]) -> list[Chart]:
    """How the gradient's norm by part, and each head's evenness, went while a seed trained."""
    name = f"{record['attention']['text']} on {record['task']['name']}, seed {seed}"
    return [_gradients(name, own), *([_evenness(name, own)] if own[0]["heads"] else [])]


def _gradients(name: str, own: list[dict[str, Any]]) -> Chart:
    steps = [look["step"] for look in own]
    parts = {part: [_total(look["gradients"].get(part, {})) for look in own] for part in own[0]["gradients"]}

    def draw(axes: Axes) -> None:
        axes.axhspan(*HINT, alpha=0.12, color="0.5", label="0.1 to 1, a hint")
        for number, (part, norms) in enumerate(parts.items()):
            look = figures.distinct(number)
            axes.plot(steps, norms, label=part.replace("_", " "), **look)
        axes.set(yscale="log", xlabel="training step", ylabel="norm of the gradient", title=title)
        axes.legend()

    title = f"{name}: gradient by part"
    last = ", ".join(f"{part.replace('_', ' ')} {norms[-1]:.2g}" for part, norms in parts.items())
    return Chart(title, f"At step {steps[-1]}: {last}. {_hint()}", draw)


def _total(norms: dict[str, float | None]) -> float:
    return math.sqrt(sum((math.nan if norm is None else norm) ** 2 for norm in norms.values()))


def _evenness(name: str, own: list[dict[str, Any]]) -> Chart:
    steps = [look["step"] for look in own]
    lines = {
        f"layer {layer}, head {head}": [look["heads"][layer]["evenness"][head] for look in own]
        for layer, first in own[0]["heads"].items()
        for head in range(len(first["evenness"]))
    }
    lines = {label: [math.nan if x is None else x for x in values] for label, values in lines.items()}

    def draw(axes: Axes) -> None:
        for number, (label, values) in enumerate(lines.items()):
            axes.plot(steps, values, label=label, **figures.distinct(number))
        axes.set(ylim=(0, 1.05), xlabel="training step", ylabel="entropy, of a uniform head's", title=title)
        if len(lines) <= MOST_LINES:
            axes.legend()

    title = f"{name}: how evenly each head attends"
    last = ", ".join(f"{label} {values[-1]:.0%}" for label, values in lines.items())
    return Chart(title, f"At step {steps[-1]}: {last}.", draw)


def cost(folder: Path, record: Record) -> str:
    """What looking took, of all seeds, beside their training."""
    every = [found[1] for seed in record["seeds"] if (found := looks(folder, record, [seed]))]
    took = sum(look["seconds"] for looked in every for look in looked)
    seconds = {
        tuple(group): record["seeds"].get(str(group[0]), {}).get("timing", {}).get("train")
        for group in record["groups"]
    }
    trained = sum(each for each in seconds.values() if each)
    beside = f", beside {trained:.3g} s of training" if trained else ""
    return f"{sum(map(len, every))} looks took {took:.3g} s, compiling included{beside}."
