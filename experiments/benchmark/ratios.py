"""Our variants against their peers, from measured cells: ratios, goals, differences, and what bounds them."""

from typing import Any

from experiments import provenance
from experiments.benchmark import peers, profile
from experiments.report import tables

Cell = dict[str, Any]
WHERE = (
    "Of a traced call, forward and backward: how long operations of each kind were at work. Each may use "
    "several threads, and two at once count twice. An operation counts whole, with all that is fused to it: "
    "as a product if it holds one, else as exponentials if it holds one."
)
AGREE = 1e-4  # outputs of the same maths
PARTS = {"forward": "Forward", "gradient": "Forward and backward"}


def sections(cells: list[Cell]) -> list[str]:
    """Markdown of everything that is about peers."""
    return [
        f"## Goals\n\n{goals(cells)}",
        *([f"## Where the time goes\n\n{WHERE}\n\n{spent}"] if (spent := where(cells)) else []),
        "## How many times as fast as its peers\n\n"
        "The peer's time over our variant's: above 1 ours is faster. `*`: the two are of different runs.",
        *(f"### {title}\n\n{ratios(cells, part)}" for part, title in PARTS.items()),
        f"## How the peers differ\n\n{differences(cells)}",
    ]


def goals(cells: list[Cell]) -> str:
    """A row for each goal and peer, and whether it is met."""
    found = {(cell["name"], cell["length"]): cell for cell in cells}
    rows = []
    for goal in peers.GOALS:
        for peer in goal.peers:
            pair = [found.get((name, goal.length)) for name in (goal.variant, peer)]
            rows.append([_title(goal), f"`{peer}`", *_verdict(goal, *pair)])
    heads = ["goal, forward and backward", "peer", "ours ms", "peer ms", "ratio (by quartiles)", ""]
    tried = [
        f"`{goal.variant}`: {goal.tried}"
        for goal in peers.GOALS
        if any("missed" in row[-1] and row[0] == _title(goal) for row in rows)
    ]
    return "\n\n".join([tables.markdown(heads, rows), *tried])


def where(cells: list[Cell]) -> str:
    """A row for each cell that was traced: what share of its time is of which kind; nothing without any."""
    rows = []
    for cell in cells:
        if total := sum(cell.get("spent", {}).values()):
            shares = [f"{seconds * 1e3:.0f} ({seconds / total:.0%})" for seconds in cell["spent"].values()]
            rows.append([f"`{cell['name']}` at {cell['length']}", *shares])
    return tables.markdown(["milliseconds at work", *profile.KINDS], rows) if rows else ""


def ratios(cells: list[Cell], part: str) -> str:
    """A row for each peer, a column for each length."""
    found = {(cell["name"], cell["length"]): cell for cell in cells}
    lengths = sorted({cell["length"] for cell in cells})
    rows = []
    for name, peer in peers.PEERS.items():
        pairs = [(found.get((peer.variant, n)), found.get((name, n))) for n in lengths]
        rows.append([f"`{peer.variant}`", f"`{name}`", *(_ratio(*pair, part) for pair in pairs)])
    return tables.markdown(["ours", "peer", *map(str, lengths)], rows)


def differences(cells: list[Cell]) -> str:
    """How each peer is called, whether its maths is ours, and the largest difference that was measured."""
    rows, notes = [], []
    for name, peer in peers.PEERS.items():
        held = [cell for cell in cells if cell["name"] == name and cell.get("difference")]
        largest = [_largest(held, part) for part in PARTS]
        same = (
            "differs" if peer.differs else "the same" if agree(held) else "**the same, but not its outputs**"
        )
        rows.append([f"`{name}`", f"`{peer.variant}`", same, *largest])
        notes.append(" ".join(filter(None, [f"- `{name}`: {peer.settings}.", peer.differs])))
    heads = ["peer", "held against", "maths", "largest difference of outputs", "of gradients"]
    return "\n".join([tables.markdown(heads, rows), "", *notes, "", *reasons(cells)]).rstrip()


def agree(cells: list[Cell]) -> bool:
    """Whether outputs that were held against ours are equal, as far as float32 takes them."""
    return all(cell["difference"].get("forward", 0) <= AGREE for cell in cells)


def reasons(cells: list[Cell]) -> list[str]:
    """Why a peer has no time, a line for each reason."""
    found: dict[str, list[str]] = {}
    for cell in cells:
        for part in PARTS:
            if cell["name"] in peers.PEERS and "reason" in cell[part]:
                reason = f"{cell[part]['outcome']}: {cell[part]['reason']}"
                found.setdefault(reason, []).append(f"`{cell['name']}` {part} at {cell['length']}")
    return [f"- {', '.join(where)}: {reason}" for reason, where in found.items()]


def provenance_lines(cells: list[Cell]) -> list[str]:
    """Machine, versions, commits, threads and runs; a warning where ratios are not of one run."""
    known = [cell for cell in cells if "provenance" in cell]
    lines = sorted({provenance.origin(cell["provenance"]) for cell in known})
    versions = {(name, v) for cell in known for name, v in cell.get("packages", {}).items()}
    threads = {str(cell["threads"]) for cell in known if "threads" in cell}
    if versions:
        lines.append(", ".join(f"{name} {version}" for name, version in sorted(versions)))
    if threads:
        lines.append(f"threads of every cell: {' or '.join(sorted(threads))}")
    runs = sorted({cell.get("run", "an unknown time") for cell in known})
    if len(runs) == 1:
        return [*lines, f"all cells are of one run, begun at {runs[0]}"]
    of_runs = f"**Cells of {len(runs)} runs, begun at {', '.join(runs)}**" if runs else "No cells"
    return [*lines, f"{of_runs}: the machine may have had other work. `--fresh` measures all in one run."]


def _title(goal: peers.Goal) -> str:
    return f"`{goal.variant}` at {goal.length}: {goal.text}"


def _verdict(goal: peers.Goal, ours: Cell | None, theirs: Cell | None) -> list[str]:
    own, other = _seconds(ours, "gradient"), _seconds(theirs, "gradient")
    times = [f"{each['median'] * 1e3:.0f}" if each else "" for each in (own, other)]
    if not own or not other:
        return [*times, "", "not measured"]
    ratio = other["median"] / own["median"]
    low, high = other["low"] / own["high"], other["high"] / own["low"]
    verdict = "met" if ratio >= goal.least else "**missed**"
    if low < goal.least <= high:
        verdict += ", within the spread"
    return [*times, f"{ratio:.2f}x ({low:.2f}-{high:.2f})", verdict]


def _ratio(ours: Cell | None, theirs: Cell | None, part: str) -> str:
    own, other = _seconds(ours, part), _seconds(theirs, part)
    if ours and theirs and own and other:
        mark = "" if ours.get("run") == theirs.get("run") else "*"
        return f"{other['median'] / own['median']:.2f}x{mark}"
    return theirs[part]["outcome"] if theirs and not other else ""


def _seconds(cell: Cell | None, part: str) -> dict[str, float] | None:
    return cell[part].get("seconds") if cell else None


def _largest(held: list[Cell], part: str) -> str:
    values = [cell["difference"][part] for cell in held if part in cell["difference"]]
    lengths = " and ".join(str(cell["length"]) for cell in held if part in cell["difference"])
    return f"{max(values):.1e} at {lengths}" if values else "-"
