"""A card for each attention: what it is by its own words, what it can, what it costs."""

import inspect
from typing import Any, NamedTuple

from experiments.model import registry
from experiments.records import Record

CLAIMS = ("time", "memory")  # of the capabilities, texts


class Card(NamedTuple):
    """Of one variant."""

    name: str
    words: str  # formula, paper, cost and limits, as its author wrote them; "" if it is not known here
    able: list[str]
    unable: list[str]
    claims: dict[str, str]
    settings: list[dict[str, Any]]  # of each setting that ran: its text, reach, FLOPs, parameters


def cards(found: list[Record]) -> list[Card]:
    """Of every variant in the records, by name."""
    by_name: dict[str, list[Record]] = {}
    for record in found:
        by_name.setdefault(record["attention"]["name"], []).append(record)
    return [_card(name, own) for name, own in sorted(by_name.items())]


def _card(name: str, own: list[Record]) -> Card:
    capabilities = own[0]["attention"].get("capabilities", {})
    flags = {key.replace("_", " "): value for key, value in capabilities.items() if isinstance(value, bool)}
    settings = {record["attention"]["text"]: record for record in own}
    return Card(
        name,
        _words(name),
        [key for key, value in flags.items() if value],
        [key for key, value in flags.items() if not value],
        {key: capabilities[key] for key in CLAIMS if key in capabilities},
        [_setting(text, record) for text, record in sorted(settings.items())],
    )


def _words(name: str) -> str:
    """Of a mixer, or of all that a model mixes by layer."""
    parts = name.split("+")
    told = [inspect.getdoc(registry.MIXERS[part]) or "" for part in parts if part in registry.MIXERS]
    if len(parts) > 1:
        told = [f"{part}: {words}" for part, words in zip(parts, told, strict=False)]
    return "\n\n".join(told) if len(told) == len(parts) else ""


def _setting(text: str, record: Record) -> dict[str, Any]:
    share = record["flops"]["attention"] / (record["flops"]["training"] or 1)
    return {
        "text": text,
        "reach": record["attention"].get("reach", "-"),
        "length": record["task"]["length"],
        "share": f"{share:.0%}",
        "parameters": record["parameters"]["total"],
    }
