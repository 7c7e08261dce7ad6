"""What may be said of the records of one task, in words made from the numbers."""

import collections

from experiments.records import Record
from experiments.report import compare, digits, tables
from experiments.report.best import MOST, best, pairs

LISTED = 8  # runs whose score is told
TESTS = "paired t-tests, Holm-corrected"


def of_task(group: list[Record], family: list[Record] | None = None) -> str:
    """Scores, best first, and what was shown by tests; `family` is the whole table, if `group` is not."""
    family = group if family is None else family
    rows = [row for row in compare.ranked(group) if row["score"]["mean"] is not None]
    task = group[0]["task"]
    metric = task["primary"].replace("_", " ")
    what = f"On `{task['name']}` ({metric}, {task['better']} is better; length {task['length']:,}"
    if not rows:
        return f"{what}) no run has a test score."
    first = rows[0]["score"]["n"]
    scores = [_score(row, first) for row in rows[:LISTED]]
    more = f" and {len(rows) - LISTED} more" if len(rows) > LISTED else ""
    simple = [f"{name} {value:.4g}" for name, value in tables.simple_scores(task).items()][:1]
    told = "; ".join([f"{', '.join(scores)}{more}", *simple])
    ranked = [row["record"] for row in rows]
    return " ".join([f"{what}, {_seeds(first)}): {told}.", *_tested(ranked, family)])


def _score(row: dict, usual: int) -> str:
    count = "" if row["score"]["n"] == usual else f" ({_seeds(row['score']['n'])})"
    return f"`{row['record']['attention']['text']}` {digits.text(row['score'])}{count}"


def _tested(ranked: list[Record], family: list[Record]) -> list[str]:
    """Sentences on what the first one was shown to be better than, and on what it was not."""
    first, *others = ranked
    ahead = best(ranked, family)
    if ahead:
        names = joined([f"`{record['attention']['text']}`" for record in ahead])
        below = [f"`{o['attention']['text']}`" for o in others if not any(o is each for each in ahead)]
        rest = "every other run" if len(ranked) == len(family) else joined(below)
        level = "" if len(ahead) == 1 else ", and not told apart"
        return [f"{names} {'is' if len(ahead) == 1 else 'are'} better than {rest} ({TESTS}{level})."]
    if not others or len(family) > MOST:
        return []
    made = pairs(family)
    shown, rest = [], collections.defaultdict(list)
    for other in others:
        name, claim = f"`{other['attention']['text']}`", made[frozenset((id(first), id(other)))]
        if claim["untested"]:
            rest[f"not tested: {claim['untested']}"].append(name)
        elif claim["better"] is first and claim["p"] < 1 - compare.CONFIDENCE:
            doubts = f" ({'; '.join(claim['doubts'])})" if claim["doubts"] else ""
            shown.append(name + doubts)
        else:
            rest["tested, and no difference shown"].append(name)
    name = f"`{first['attention']['text']}`"
    told = "; ".join(f"{joined(names)} ({reason})" for reason, names in rest.items())
    sentences = [f"{name} was shown to be better than {joined(shown)} ({TESTS})."] if shown else []
    return [*sentences, f"{name} was not shown to be better than {told}."] if rest else sentences


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"n = {count}"


def joined(names: list[str]) -> str:
    """In a phrase."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
