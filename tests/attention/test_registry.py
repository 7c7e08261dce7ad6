"""Variants by name, and what a wrong name, field or value is told."""

import dataclasses
import subprocess
import sys

import pytest

import attention
from attention import Attention, Window
from attention.registry import VARIANTS
from tests.attention.cases import cases

NAMES = pytest.mark.parametrize("name", attention.names())


@NAMES
def test_a_name_makes_its_variant(name):
    variant = attention.make(name)
    assert type(variant) is VARIANTS[name]
    assert issubclass(type(variant), Attention)
    assert variant.name == name


@NAMES
def test_hyperparameters_are_the_fields_with_their_defaults(name):
    defaults = attention.hyperparameters(name)
    assert attention.make(name) == attention.make(name, **defaults)
    assert list(defaults) == [field.name for field in dataclasses.fields(VARIANTS[name])]  # pyright: ignore[reportArgumentType]


def test_fields_override_defaults():
    assert attention.make("window", window_size=7) == Window(window_size=7)


def test_a_registered_variant_is_under_the_laws(monkeypatch):
    """Without a line more: at its defaults, or with the settings that its own test file gives."""

    @dataclasses.dataclass(frozen=True)
    class Another(Window):
        name = "another"

    monkeypatch.setitem(VARIANTS, "another", Another)
    found = [case for case in cases.__wrapped__() if case.variant.name == "another"]
    assert [case.variant for case in found] == [Another()]


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError) as refusal:
        attention.make("windwo")
    assert "'windwo'" in str(refusal.value)
    assert all(name in str(refusal.value) for name in attention.names())
    for function in (attention.hyperparameters, attention.make):
        with pytest.raises(ValueError, match="unknown attention"):
            function("")


@NAMES
def test_an_unknown_field_is_told_the_fields(name):
    with pytest.raises(ValueError) as refusal:
        attention.make(name, no_such_field=1)
    assert name in str(refusal.value)
    assert "'no_such_field'" in str(refusal.value)
    assert all(field in str(refusal.value) for field in attention.hyperparameters(name))


def test_a_misspelt_field_is_asked_whether_the_right_one_was_meant():
    with pytest.raises(ValueError, match="did you mean 'window_size'"):
        attention.make("window", windowsize=3)


@pytest.mark.usefixtures("as_users_run")
@NAMES
def test_wrong_values_are_named_with_what_is_accepted(name):
    """Every field refuses a value of no sense, and says its own name and the value."""
    for field in attention.hyperparameters(name):
        for value in (object(), [1], float("nan"), -3):
            with pytest.raises(ValueError) as refusal:
                attention.make(name, **{field: value})
            message = str(refusal.value)
            assert message.startswith(name)
            assert f"{field}={value!r}" in message
            assert f"{field} must be" in message


def test_the_library_needs_neither_flax_nor_our_other_packages():
    """`from attention import Window` in a fresh process."""
    code = (
        "import sys; from attention import Window; "
        "print({'flax', 'optax', 'experiments', 'configs', 'ml_collections'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"
