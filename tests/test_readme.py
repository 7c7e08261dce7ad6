"""What README.md says is true: its commands are there, its recipes run."""

import re
import sys
import types
from pathlib import Path

import jax
import numpy as np

import attention
from attention import registry

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


def test_the_recipe_for_a_variant_gives_one(monkeypatch):
    code = next(block for block in blocks("python") if "class Strided" in block)
    statement = next(block for block in blocks("python") if "def allowed" in block)
    recipe = types.ModuleType("strided_recipe")
    monkeypatch.setitem(sys.modules, recipe.__name__, recipe)  # dataclasses look their module up
    exec(code, recipe.__dict__)
    stated: dict = {"np": np}
    exec(statement, stated)
    monkeypatch.setitem(registry.VARIANTS, "strided", recipe.Strided)
    variant = attention.make("strided", **stated["SETTINGS"][0])
    query, key = jax.random.normal(jax.random.key(0), (2, 1, 13, 2, 4))
    for causal in (True, False):
        mask = attention.Mask(causal=causal)
        matrix = np.asarray(attention.attention_matrix(variant, query, key, mask))[:, 0]
        np.testing.assert_array_equal(matrix > 0, stated["allowed"](variant, mask, 1, 13, 13))
    assert "strided" in attention.capabilities()
    lines = [
        line for line in code.split("\n") if line.strip() and not line.startswith(("import", "from", "#"))
    ]
    assert len(lines) <= 22, "the README promises a short recipe"
