"""The two tables: what a config would be (dry run), and a run beside every comparable one."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from experiments import compare

Record = dict[str, Any]


def plan(out: Console, record: Record, schedule: list[tuple[int, float]]) -> None:
    """Model, cost and schedule of a record that was not run."""
    arrays = Table(title="parameters", title_justify="left")
    for column, justify in (("array", "left"), ("shape", "left"), ("dtype", "left"), ("size", "right")):
        arrays.add_column(column, justify=justify)  # pyright: ignore[reportArgumentType]
    for name, array in record["parameters"]["by_array"].items():
        shape = " x ".join(map(str, array["shape"]))
        arrays.add_row(escape(name), shape, array["dtype"], f"{array['size']:,}")
    arrays.add_section()
    arrays.add_row("total", "", "", f"{record['parameters']['total']:,}")
    out.print(arrays)
    cost = Table(title="compiled memory", title_justify="left")
    parts = ("arguments", "outputs", "temporaries", "aliased", "total")
    for column in ("program", *parts):
        cost.add_column(column, justify="left" if column == "program" else "right")
    for program in ("forward", "training_step"):
        memory = record["memory"][program]
        cost.add_row(program.replace("_", " "), *(in_bytes(memory[part]) for part in parts))
    out.print(cost)
    flops, train, variant = record["flops"], record["config"]["train"], record["attention"]
    step, share = train["batch_size"] * flops["training"], flops["attention"] / flops["training"]
    out.print(f"FLOPs of one training step: {in_flops(step)}, {share:.0%} of it attention")
    out.print(f"attention: {escape(variant['text'])}, one layer reaches {variant['reach']} tokens back")
    points = ", ".join(f"{rate:.2g} at step {at}" for at, rate in schedule)
    out.print(f"{train['steps']} steps of {train['batch_size']} sequences; learning rate {points}")


def results(out: Console, this: Record, others: list[Record], complaints: list[str]) -> None:
    """This record beside every comparable one, best first; the others named with the reason."""
    rows, refused = compare.table(this, others)
    task, metric = this["task"], this["task"]["primary"]
    lengths = [n for n in this["task"]["eval_lengths"] if n != task["length"]]
    title = f"{task['name']}: test {metric} ({task['better']} is better), length {task['length']}"
    tested = any(row["p"] is not None for row in rows)
    table = Table(title=title, title_justify="left")
    columns = ["run", "attention", metric, *(f"at {n}" for n in lengths), *(["p (Holm)"] if tested else [])]
    columns += ["step ms", "tokens/s", "temporaries", "peak", "FLOPs/step", "parameters", "also differs in"]
    for column in columns:
        left = column in ("run", "attention", "also differs in")
        table.add_column(column, justify="left" if left else "right", overflow="fold")
    for row in rows:
        table.add_row(*_cells(row, metric, lengths, tested), style="bold" if row["this"] else None)
    table.add_section()
    for name, value in _baselines(task).items():
        table.add_row(escape(name), "", f"{value:.4g}", style="dim")
    out.print(table)
    for line in _footnotes(tested, refused, complaints):
        out.print(line, markup=False)


def in_bytes(count: float | None) -> str:
    """As B, KiB, MiB, GiB or TiB."""
    if count is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def in_flops(count: float) -> str:
    """With a decimal prefix."""
    for unit in ("", "k", "M", "G", "T"):
        if count < 1000:
            return f"{count:.3g} {unit}".strip()
        count /= 1000
    return f"{count:.3g} P"


def score(interval: dict[str, Any], failed: int, outcome: str) -> str:
    """Mean, half-width of the interval, number of seeds and failures; the outcome where there is no score."""
    if interval["mean"] is None:
        return outcome
    half = "" if interval["half_width"] is None else f" ± {interval['half_width']:.2g}"
    count = f"n={interval['n']}" + (f", {failed} failed" if failed else "")
    return f"{interval['mean']:.4f}{half} ({count})"


def _cells(row: dict[str, Any], metric: str, lengths: list[int], tested: bool) -> list[str]:
    record = row["record"]
    speed, memory = record.get("speed") or {}, record.get("memory") or {}
    name = f"{record['name']}-{record['identity']}"
    cells = [("> " if row["this"] else "  ") + name, record["attention"]["text"]]
    cells.append(score(row["score"], row["failed"], record["outcome"]))
    for length in lengths:
        at_length = compare.interval(list(compare.scores(record, metric, length).values()))
        cells.append("-" if at_length["mean"] is None else f"{at_length['mean']:.4f}")
    if tested:
        cells.append("" if row["this"] else "not tested" if row["p"] is None else f"{row['p']:.2g}")
    step = speed.get("training_step")
    cells.append(f"{1000 * step['median']:.4g}" if step else "-")
    cells.append(f"{speed['tokens_per_second']:,.0f}" if step else "-")
    cells.append(in_bytes(memory.get("training_step", {}).get("temporaries")))
    cells.append(in_bytes((memory.get("measured") or {}).get("bytes")))
    cells.append(in_flops(record["config"]["train"]["batch_size"] * record["flops"]["training"]))
    cells += [f"{record['parameters']['total']:,}", "; ".join(row["labels"])]
    return [escape(cell) for cell in cells]


def _baselines(task: dict[str, Any]) -> dict[str, float]:
    chance = (task["chance"] or {}).get(task["primary"])
    return ({} if chance is None else {"chance": chance}) | task["baselines"]


def _footnotes(tested: bool, refused: list[str], complaints: list[str]) -> list[str]:
    lines = []
    if not tested:
        pairs = compare.LEAST_PAIRS
        lines.append(f"No difference was tested: a paired t-test wants {pairs} seeds in common.")
    lines += [f"not comparable: {line}" for line in refused]
    lines += [f"not readable: {line}" for line in complaints]
    return lines
