"""What README.md says is true: its commands are there, its recipes run."""

import re
import sys
import types
from pathlib import Path

import pytest

import attention
import launch
import tests.attention.test_laws_causality as laws_causality
import tests.attention.test_laws_cost as laws_cost
import tests.attention.test_laws_matter as laws_matter
import tests.attention.test_laws_numbers as laws_numbers
import tests.attention.test_laws_padding as laws_padding
import tests.attention.test_laws_value as laws_value
import tests.attention.test_sharded as test_sharded
from attention import Mask, registry
from attention.tiles import slab_or_tiles
from attention.visibility import default_band
from experiments.report import gathered, page
from tests.attention.cases import Case
from tests.experiments.runs import command

README = Path(__file__).resolve().parent.parent / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def test_the_two_commands_are_there():
    commands = " ".join(blocks(""))
    assert "pip install -e . && python launch.py --config=configs/window128.py" in commands
    assert "pip install -e '.[test]' && pytest" in commands


def test_the_library_example_runs():
    example = next(block for block in blocks("python") if "attention.make(" in block)
    assert "4096" in example
    names: dict = {}
    exec(example.replace("4096", "64"), names)
    assert names["output"].shape == (1, 64, 8, 64)
    assert names["lse"].shape == (1, 64, 8)


@pytest.fixture
def recipe(monkeypatch) -> Case:
    """The README's variant, registered, with what its test file states."""
    code = next(block for block in blocks("python") if "class Shifted" in block)
    module = types.ModuleType("attention.shifted")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
    exec(code, module.__dict__)
    stated: dict = {}
    exec(next(block for block in blocks("python") if "def allowed" in block), stated)
    monkeypatch.setitem(registry.VARIANTS, "shifted", module.Shifted)
    return Case(attention.make("shifted", **stated["SETTINGS"][0]), "", types.SimpleNamespace(**stated))


def test_the_recipe_for_a_variant_is_short_and_gives_one(recipe):
    code = next(block for block in blocks("python") if "class Shifted" in block)
    lines = [
        line for line in code.split("\n") if line.strip() and not line.startswith(("import", "from", "#"))
    ]
    assert len(lines) <= 22, "the README promises a short recipe"
    assert "shifted" in attention.capabilities()
    names = "attention.", "numpy", "dataclasses", "typing"
    assert all(line.split()[1].startswith(names) for line in code.split("\n") if line.startswith("from"))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["plain", "placed"])
def test_the_recipe_is_right(recipe, kind, causal):
    laws_value.test_law_1_output_and_gradients_equal_the_reference(recipe, kind, causal)
    if kind == "plain":
        laws_value.test_law_1_for_cross_attention(recipe, kind, 11, 37, causal)
        laws_value.test_law_2_at_its_limit_it_is_full(recipe, causal)


@pytest.mark.parametrize("causal", [True, False])
def test_the_recipe_shares_a_sequence(recipe, causal):
    test_sharded.assert_shared_alike(recipe.variant, (1, 8), Mask(causal=causal))


def test_the_recipe_is_causal(recipe):
    laws_causality.test_law_3_later_tokens_change_no_earlier_output(recipe, laws_causality.others)
    laws_causality.test_law_3_gradients_reach_exactly_the_declared_pattern(recipe)
    laws_causality.test_reach_is_how_far_back_one_layer_looks(recipe)


def test_the_recipe_knows_padding_and_segments(recipe):
    laws_padding.test_law_4_a_row_that_sees_nothing_is_zero(recipe, True)
    laws_padding.test_law_5_appended_padding_changes_nothing(recipe, True)
    laws_padding.test_law_5_padding_anywhere_changes_nothing_where_declared(recipe, False)
    laws_padding.test_law_5_another_segment_changes_nothing(recipe, True)
    laws_padding.test_law_5_packed_equals_separate(recipe, True)


def test_the_recipe_keeps_its_numbers(recipe):
    laws_numbers.test_law_7_huge_logits_stay_finite(recipe)
    laws_numbers.test_law_7_bfloat16_is_near_the_reference(recipe)
    laws_numbers.test_float64_is_kept(recipe)


def test_the_recipe_has_hyperparameters_that_matter(recipe, as_users_run):
    for field in ("window_size", "shift"):
        laws_matter.test_law_12_every_hyperparameter_matters(recipe, field)


def test_the_recipe_does_no_more_than_it_says(recipe):
    """At its defaults: FLOPs linear in T, as its row of the table says, and so few tiles."""
    variant = attention.make("shifted")
    laws_cost.test_law_10_flops_grow_as_claimed(recipe)
    band = variant._band(True)
    tiles = slab_or_tiles(*default_band(4096, 4096, *band), 64, None)
    assert tiles.num_tiles.sum() * 64 * tiles.key_block < 4096 * 2 * variant.window_size


def test_the_recipe_is_all_that_a_report_needs(recipe, tmp_path):
    """Table, learning curve, heat map and card of a run, and curves by length of three."""
    for length in (16, 32, 48):
        fields = {"attention.name": "shifted", "attention.shift": 2, "eval.diagnose": length == 16}
        assert launch.main(command(tmp_path, **fields, task__length=length, name=f"shifted-{length}")) == 0
    text = page.html(gathered.gather([tmp_path]), "Ours")
    told = re.findall(r'aria-label="([^"]*)"', text)
    for picture in (
        "accuracy while training", "training step, bytes of temporaries, by length", "gradient by part",
        "shifted, a head: ",
    ):  # fmt: skip
        assert any(picture in each and "shifted(shift=2)" in each for each in told), (picture, told)
    assert 'id="card-shifted"' in text and "0 &lt;= t - shift - s" in text
