"""docs/performance.md from cells made by hand; which cells are kept, and what a process leaves."""

import copy
import re
import subprocess

import jax
import jax.numpy as jnp
import pytest

import attention
from experiments import files, provenance
from experiments.benchmark import __main__ as command
from experiments.benchmark import cells, inputs, jax_side, page, peers, profile, ratios, torch_side

HERE = provenance.gather()
SDPA = "torch.scaled_dot_product_attention"


def cell(name, length, seconds, temporaries=2**20, **changes):
    part = {
        "outcome": "measured",
        "memory": {"temporaries": temporaries},
        "seconds": {"median": seconds, "low": seconds, "high": seconds, "n": 9},
    }
    own = {"attention_sha256": provenance.code_sha256(("attention",)), "provenance": HERE}
    return {"name": name, "length": length, "forward": part, "gradient": part} | own | changes


def test_exponents_ratios_and_what_did_not_fit():
    lengths = (1024, 4096, 8192, 16384, 32768)
    made = [cell("linear", n, 1e-6 * n, 2**10 * n) for n in lengths]
    made += [cell("square", n, 1e-9 * n * n, n * n) for n in lengths[:-1]]
    lost = {"outcome": "out of memory (compiled)", "memory": {"temporaries": 2**40}}
    made.append(cell("square", 32768, 1.0, forward=lost, gradient=lost))
    text = page.page(made, "square")
    assert text.count("n^1.00 (4 points)") == 4 and "n^2.00" in text and "out of memory (compiled)" in text
    assert "| `linear` | 1.02x | 4.10x | 8.19x |" in text.split("## Speed against `square`")[1]


def test_the_time_of_a_program_is_in_its_products_or_elsewhere():
    def program(arrays):
        x = jax.lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x @ x), arrays[0])
        return jnp.exp(x)

    compiled = jax.jit(program).lower([jnp.ones((64, 64))]).compile()
    text = compiled.as_text()
    kinds, loops = profile.by_operation(text), re.findall(r"%(\S+) = .* while\(", text)
    assert set(kinds.values()) == set(profile.KINDS) and loops and not {*loops} & {*kinds}
    spent = profile.spent(compiled, [jnp.ones((64, 64))])
    assert list(spent) == list(profile.KINDS) and spent[profile.PRODUCTS] > 0
    shares = ratios.where(
        [cell("full", 8192, 1.0, spent=dict(zip(profile.KINDS, (3.0, 1.0, 0.0), strict=True)))]
    )
    assert "3000 (75%) | 1000 (25%) | 0 (0%)" in shares


def test_cells_of_other_code_versions_or_machines_are_measured_again():
    other = copy.deepcopy(HERE)
    other["packages"]["jax"] = "0.0.1"
    made = [
        cell("same", 1, 1.0),
        cell("code", 1, 1.0, attention_sha256="0"),
        cell("jax", 1, 1.0, provenance=other),
        {"name": "failed", "length": 1},
    ]
    assert [found["name"] for found in cells.still_true(made, HERE)] == ["same"]


def test_of_a_process_that_failed_the_last_line_is_told():
    failed = subprocess.CompletedProcess([], 1, stderr="Traceback\n  at once\nValueError: why\n")
    assert cells.last_line(failed) == "ValueError: why"


def pair(ours, theirs, length=8192, name=SDPA, **changes):
    """The cells of a peer and of the variant that it is held against, which took so many seconds."""
    of_peer = {"packages": {"torch": "1.2.3"}, "threads": 2, "run": "noon"} | changes
    own = cell(peers.PEERS[name].variant, length, ours, threads=2, run="noon")
    return [own, cell(name, length, theirs, **of_peer)]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [(1.0, 1.25, "1.25x (1.25-1.25) | met |"), (1.0, 0.5, "0.50x (0.50-0.50) | **missed** |")],
)
def test_a_goal_is_judged_by_the_cells(ours, theirs, verdict):
    assert verdict in ratios.goals(pair(ours, theirs))
    assert "| not measured |" in ratios.goals(pair(ours, theirs, length=4096))


def test_a_goal_within_the_spread_is_said_to_be():
    own, other = pair(1.0, 1.1)
    wide = {"seconds": {"median": 1.1, "low": 0.8, "high": 1.2, "n": 9}}
    assert "1.10x (0.80-1.20) | met, within the spread |" in ratios.goals([own, {**other, "gradient": wide}])
    wide["seconds"]["median"] = 0.9
    assert "| **missed**, within the spread |" in ratios.goals([own, {**other, "gradient": wide}])


def test_what_was_tried_is_said_where_a_goal_is_missed():
    (tried,) = (goal.tried for goal in peers.GOALS if SDPA in goal.peers)
    assert tried in ratios.goals(pair(1.0, 0.5)) and tried not in ratios.goals(pair(1.0, 1.5))


def test_the_page_says_what_was_tried_and_equal_maths_gives_equal_outputs():
    kept = files.read_json(command.RESULTS)
    missed = [line for line in ratios.goals(kept).splitlines() if "missed" in line]
    for goal in peers.GOALS:
        assert goal.tried or not any(ratios._title(goal) in line for line in missed)
    assert "but not its outputs" not in ratios.differences(kept)


def test_goals_are_about_peers_of_their_variant_and_measured_lengths():
    for goal in peers.GOALS:
        assert {peers.PEERS[name].variant for name in goal.peers} == {goal.variant}
        assert goal.length in command.LENGTHS


def test_ratios_of_one_run_bear_no_mark_and_others_do():
    assert "| 2.00x |" in ratios.ratios(pair(1.0, 2.0), "forward")
    mixed = pair(1.0, 2.0, run="midnight")
    assert "| 2.00x* |" in ratios.ratios(mixed, "forward")
    assert "**Cells of 2 runs, begun at midnight, noon**" in page.page(mixed)
    text = page.page(pair(1.0, 2.0))
    assert "all cells are of one run, begun at noon" in text and "- torch 1.2.3\n" in text
    assert "- threads of every cell: 2\n" in text


def test_what_a_peer_cannot_do_is_told_with_the_reason():
    lost = {"outcome": "not supported", "reason": "no backward"}
    made = pair(1.0, 2.0, name="torch.flex_attention", gradient=lost, difference={"forward": 2e-7})
    text = page.page(made)
    assert "| `full` | `torch.flex_attention` | not supported |" in text
    assert "- `torch.flex_attention` gradient at 8192: not supported: no backward" in text
    assert "| the same | 2.0e-07 at 8192 | - |" in text


def test_temporaries_and_resident_sets_are_kept_apart():
    own, other = pair(1.0, 2.0)
    grown = {"outcome": "measured", "resident": {"bytes": 3 * 2**20, "method": "by hand"}}
    text = page.page([own, {**other, "forward": grown, "gradient": grown}])
    planned, measured = text.split("## Growth of the resident set", 1)
    assert SDPA not in planned.split("## Temporaries")[1]
    assert f"| `{SDPA}` | 3.00 |" in measured and "`full` | 3.00" not in measured


def test_every_peer_says_whether_its_maths_is_ours():
    text = ratios.differences([])
    for name, peer in peers.PEERS.items():
        assert f"| `{name}` | `{peer.variant}` | {'differs' if peer.differs else 'the same'} |" in text
        assert f"- `{name}`: {peer.settings}." in text


def test_peers_are_asked_for_what_our_variants_do_by_default():
    window, lsh = attention.make("window"), attention.make("lsh")
    assert window.window_size == peers.WINDOW
    assert (lsh.num_hashes, lsh.chunk_size) == (peers.HASHES, peers.BUCKET)
    nystrom, performer = attention.make("nystrom"), attention.make("performer")
    assert (nystrom.num_landmarks, nystrom.pinv_iterations) == (peers.LANDMARKS, peers.TURNS)
    assert (performer.num_features, performer.feature_seed) == (peers.FEATURES, 0)
    assert attention.make("linformer").num_projected == peers.PROJECTED


@pytest.mark.parametrize("name", [name for name in cells.contenders() if name not in peers.PEERS])
def test_every_variant_is_called_with_all_that_it_takes(name, monkeypatch):
    monkeypatch.setattr(inputs, "SHAPE", {"batch": 1, "num_heads": 2, "head_dim": 8})
    arrays = inputs.fresh(48, "gradient", 0)
    found = jax.eval_shape(jax_side.programs(name)["gradient"], arrays, jax_side.besides(name, 48))
    assert [each.shape for each in found] == [(1, 48, 2, 8)] * 3


def test_what_is_two_sided_is_said_to_be():
    named = [name for name in cells.contenders() if peers.two_sided(name)]
    assert {"nystrom", "nystrom-attention", "performer-two-sided"} <= {*named}
    assert not {"full", "performer", "performer-pytorch", SDPA, peers.BASELINE} & {*named}
    made = [
        cell(name, 64, 1.0, **cells.identity(name)) for name in ("full", "nystrom", "performer-two-sided")
    ]
    assert [each.get("causal", True) for each in made] == [True, False, False]
    assert "- two-sided, where all others are causal: `nystrom`, `performer-two-sided`\n" in page.page(made)
    assert "two-sided, where" not in page.page(made[:1])


def test_what_is_two_sided_sees_later_tokens(monkeypatch):
    monkeypatch.setattr(inputs, "SHAPE", {"batch": 1, "num_heads": 2, "head_dim": 8})
    query, key, value = inputs.fresh(48, "forward", 0)
    for name, sees in (("performer", False), ("performer-two-sided", True)):
        outputs = [
            jax_side.attend(name)(query, key, each)[:, :24] for each in (value, value.at[:, 24:].add(1))
        ]
        assert bool((abs(outputs[0] - outputs[1]) > 1e-3).any()) == sees


def test_a_peer_is_measured_again_when_its_packages_change_and_not_when_our_code_does(monkeypatch):
    monkeypatch.setattr(peers, "versions", lambda name: {"torch": "1.2.3"} if name in peers.PEERS else {})
    own = {"settings": peers.PEERS[SDPA].settings, "packages": {"torch": "1.2.3"}}
    kept = cell(SDPA, 1, 1.0, **own)
    of_other_code = {**kept, "attention_sha256": "0"}
    again = [
        {**kept, "packages": {"torch": "1.2.4"}},
        {**kept, "settings": "others"},
        {**of_other_code, "difference": {"forward": 0.0}},
    ]
    assert cells.still_true([kept, of_other_code, *again], HERE) == [kept, of_other_code]


def test_a_peer_that_is_not_installed_is_said_to_be_so(monkeypatch):
    monkeypatch.setattr(peers, "versions", lambda name: {"torch": None, "numpy": "2"})
    lost = {**cells.run_cell(SDPA, 64), "run": "noon"}
    assert cells.still_true([lost], HERE) == []
    text = page.page([cell("full", 64, 1.0), lost])
    assert f"| `{SDPA}` | not installed |" in text and f"not installed: torch: {peers.INSTALL}" in text


def test_an_installed_package_has_its_version_and_no_other():
    assert peers._version("numpy") == HERE["packages"]["numpy"] and peers._version("no-such") is None


def test_what_torch_would_not_fit_is_not_run(monkeypatch):
    monkeypatch.setattr(torch_side.measure, "free_memory", lambda device: 1000)
    parts = torch_side.measure_parts(SDPA, 64)
    assert {found["outcome"] for found in parts.values()} == {torch_side.OUT_OF_MEMORY}
    assert "it is estimated to take" in parts["forward"]["reason"]


def test_a_cell_of_jax_itself_is_held_against_ours(monkeypatch):
    monkeypatch.setattr(inputs, "SHAPE", {"batch": 1, "num_heads": 2, "head_dim": 8})
    found = cells.measure_cell(peers.BASELINE, 48)
    assert found["gradient"]["seconds"]["n"] >= 3 and found["packages"] == {} and found["threads"] > 0
    assert set(found["difference"]) == {"forward", "gradient"} and max(found["difference"].values()) < 1e-4
    assert "difference" not in cells.measure_cell("window", 48)


def test_the_command_keeps_cells_and_marks_their_run(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "RESULTS", tmp_path / "results" / "performance.json")
    monkeypatch.setattr(command, "PAGE", provenance.ROOT / "docs" / "performance.md")
    written = {}
    monkeypatch.setattr(command.files, "write", lambda path, text: written.update({path.name: text}))
    made = []

    def run_cell(name, length):
        made.append((name, length))
        return cell(name, length, 1.0)

    monkeypatch.setattr(cells, "run_cell", run_cell)
    monkeypatch.setattr(command.files, "write_json", lambda path, value: written.update({path.name: value}))
    command.run((1024, 2048), ("full", "window"), fresh=True)
    assert made == [("full", 1024), ("window", 1024), ("full", 2048), ("window", 2048)]
    assert len({found["run"] for found in written["performance.json"]}) == 1
    assert written["performance.md"].startswith("# Performance\n")
