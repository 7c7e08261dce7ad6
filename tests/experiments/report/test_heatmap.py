"""Heat maps: one range of colours, numbers that can be read, any script."""

import re

import numpy as np
import pytest

from experiments.report import fonts, svg
from experiments.report.heatmap import heatmap

WORKED = [[0.3588, 0.3296, 0.3115], [0.3209, 0.3348, 0.3444], [0.2966, 0.3368, 0.3666]]


def drawn(chart):
    """What its axes hold: the picture, texts in the cells, and their colours."""
    with svg._drawn(chart, {}) as figure:
        axes = figure.axes[0]
        return axes.images[0], [(text.get_text(), text.get_color()) for text in axes.texts]


def test_the_worked_example():
    """Chinese tokens on both axes; each number in its cell, once in the alternative text."""
    chart = heatmap(["早", "上", "好"], WORKED, "three tokens")
    image, texts = drawn(chart)
    assert (image.norm.vmin, image.norm.vmax) == (0, 1)
    assert [text for text, _ in texts] == [f"{value:.2f}" for row in WORKED for value in row]
    assert "上 好 0.34" in chart.told
    made = svg.inline(chart)
    assert made.count(">早<") == 2 and "by the square root" in made
    assert re.search(r"DejaVu Sans[^;\"]*, sans-serif", made)  # where a reader has not that font


@pytest.mark.parametrize("value, colour", [(0.0, "#ffffff"), (1.0, "#000000")])
def test_numbers_stand_out_from_their_cell(value, colour):
    assert drawn(heatmap(["a"], [[value]], "one"))[1] == [(f"{value:.2f}", colour)]


def test_many_tokens_have_no_numbers():
    size = 40
    assert drawn(heatmap(["a"] * size, np.eye(size).tolist(), "many"))[1] == []


def test_weights_below_0_have_a_range_of_their_own():
    image, _ = drawn(heatmap(["a", "b"], [[-0.5, 1.5], [0, 0]], "signed"))
    assert (image.norm.vmin, image.norm.vmax) == (-1, 1)


def test_the_same_weights_have_the_same_colours_in_every_picture():
    one, other = (drawn(heatmap(["a", "b"], [[x, 0.2], [0, 0.1]], str(x)))[0] for x in (0.9, 0.3))
    assert one.cmap(one.norm(0.2)) == other.cmap(other.norm(0.2))


def test_files_for_a_paper_have_every_character_or_its_number(tmp_path):
    chart = heatmap(["早", "a", "␣"], WORKED, "for a paper")
    paths = svg.save(chart, tmp_path, "map")
    assert [path.name for path in paths] == ["map.svg", "map.pdf"]
    assert "早" in paths[0].read_text(encoding="utf-8")
    shown = fonts.drawable("早a␣")
    assert shown in ("早a␣", "U+65E9a␣")
    assert (shown == "早a␣") == (len(fonts.families("早a␣")) > 1)
    with svg._drawn(chart, {}) as figure:
        svg._make_drawable(figure)
        figure.draw_without_rendering()
        labels = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert labels == [fonts.drawable("早"), "a", "␣"]


def test_markup_in_tokens_is_text():
    made = svg.inline(heatmap(["<b>", "$x$", "&"], WORKED, "hostile"))
    assert "<b>" not in made and "&lt;b&gt;" in made and "$x$" in made
