"""Tables by length and by task, of records made by hand."""

from experiments import records
from experiments.report import by_length
from experiments.sweep import table
from tests.experiments.report.test_tables import complete

LENGTHS = (1024, 2048, 4096, 8192)


def measured(name, length, seconds, temporaries, **changes):
    made = complete(name, (), **changes)
    made["attention"] |= {"text": name, "capabilities": {"time": "O(T^2)", "memory": "O(T)"}}
    made["config"]["task"]["length"] = made["task"]["length"] = length
    made["config"]["eval"] = {"batch_size": 4}
    programs = ("forward", "training_step")
    planned = {"temporaries": temporaries}
    made["memory"] = dict.fromkeys(programs, planned)
    if seconds is not None:
        spread = {"median": seconds, "low": seconds, "high": seconds, "n": 3}
        made["speed"] = dict.fromkeys(programs, spread) | {"tokens_per_second": length / seconds}
    return made


def sweep():
    found = [measured("full", n, 1e-9 * n * n, 1024 * n) for n in LENGTHS]
    found += [measured("linear", n, 3e-6 * n, 2048 * n) for n in LENGTHS]
    lost = measured("linear", 16384, None, 2**40, outcome=records.OUT_OF_MEMORY_COMPILED)
    return [*found, lost]


def rows(found):
    (group,) = by_length.groups(found)
    return {heads[0]: {row[0]: row[1:] for row in lines} for heads, lines in by_length.parts(group)}


def test_exponents_crossovers_and_what_does_not_fit():
    found = rows(sweep())
    assert list(found) == [*by_length.QUANTITIES, "below `full` from length"]
    for program in ("forward, ms", "training step, ms"):
        assert found[program]["`full`"] == [
            "1.049",
            "4.194",
            "16.78",
            "67.11",
            "",
            "n^2.00 (3 points)",
            "O(T^2)",
        ]
        assert found[program]["`linear`"][-3:-1] == ["out of memory (compiled)", "n^1.00 (3 points)"]
    temporaries = found["training step, temporaries"]
    assert temporaries["`full`"] == ["1 MiB", "2 MiB", "4 MiB", "8 MiB", "", "n^1.00 (3 points)", "O(T)"]
    assert temporaries["`linear`"][-3] == "1 TiB"  # the compiler's word, although nothing was run
    assert found["below `full` from length"] == {
        "`linear`": ["3,000", "3,000", "not up to 8,192", "not up to 8,192"]
    }


def test_long_times_have_no_exponent():
    assert [by_length._in_milliseconds(seconds) for seconds in (0.012345, 26.15)] == ["12.35", "26,150"]


def test_only_what_differs_in_attention_and_length_is_put_together():
    found = sweep()
    found[0]["config"]["model"]["num_heads"] = 2
    found[1]["provenance"]["machine"]["processor"] = "abacus"
    found[2]["not_citable"] = ["the working tree differed"]
    (group,) = by_length.groups(found)
    assert len(group) == len(found) - 2
    assert "1 of 7 cells are not citable." in by_length.note(group)
    assert by_length.groups(found[:1]) == by_length.groups(found[:2]) == []


def test_measured_cells_are_in_the_tables_by_length_and_trained_ones_in_their_tasks():
    trained = complete("full", (2.0,), config__eval={"batch_size": 4})
    page = table.markdown("mine", [*sweep(), trained], ["x: failed: why"])
    assert page.count("**By length**") == 1 and page.count("**`bytes`**, length 256") == 1
    assert page.startswith("# mine\n") and page.endswith("\n- x: failed: why\n")
    assert page.count("| attention |") == 1
    alone = table.markdown("mine", [measured("full", 1024, 1.0, 1)], [])
    assert "| `full` | not trained |" in alone and "By length" not in alone and "Learning rate" not in alone


def test_older_records_and_steps_that_flops_pay_for_are_put_together_too():
    found = sweep()
    for steps, record in enumerate(found, start=1):
        record["config"]["train"] = record["config"]["train"] | {"flops": 1e12, "steps": steps}
    assert len(rows(found)) == len(rows(sweep()))
    old, new = sweep(), sweep()
    for record in new:
        record["config"]["train"] = record["config"]["train"] | {"flops": None}
    (group,) = by_length.groups([*old[:3], *new[3:]])
    assert len(group) == len(old)
