"""The weights of a head as a picture: queries down, keys across, one range of colours for all."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm

from experiments.report.charts import Chart

MOST_VALUES = 14  # tokens beside which a number in each cell can be read
COLOURS, SIGNED_COLOURS = "cividis", "RdBu"
SHORT = 2  # characters that fit under a cell
DARK = 0.45  # luminance below which numbers are white


def heatmap(tokens: list[str], weights: list[list[float]], title: str) -> Chart:
    """Of an `attention_matrix`, T T, or its first rows and columns.

    Colours go from 0 to 1 by the square root, so that small weights can be told apart; from -1 to 1, evenly,
    where some weight is below 0. What lies beyond is drawn as the end.
    """
    matrix = np.array(weights, np.float64).reshape(len(tokens), len(tokens))
    signed = bool((matrix < 0).any())
    words = [_short(token) for token in tokens]

    def draw(axes: Axes) -> None:
        look: dict[str, Any] = {"cmap": COLOURS, "norm": PowerNorm(0.5, 0, 1)}
        if signed:
            look = {"cmap": SIGNED_COLOURS, "vmin": -1, "vmax": 1}
        image = axes.imshow(matrix, interpolation="nearest", **look)
        axes.grid(visible=False)
        # Places by hand: to find them from 64 labels takes longer than all the rest.
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.set_layout_engine("none")
        axes.set_position((0.11, 0.13, 0.70, 0.78))
        size = max(4.5, min(9.0, 200 / len(words)))
        turned = 0 if max(map(len, words)) <= SHORT else 90
        axes.set_xticks(range(len(words)), words, fontsize=size, rotation=turned)
        axes.set_yticks(range(len(words)), words, fontsize=size)
        axes.set(xlabel="key", ylabel="query", title=title)
        scale = "from -1 to 1" if signed else "from 0 to 1, by the square root"
        bar = figure.add_axes((0.84, 0.22, 0.03, 0.6))
        figure.colorbar(image, cax=bar, label=f"weight, {scale}")
        if len(words) <= MOST_VALUES:
            _write_values(axes, matrix, image)

    return Chart(title, _told(tokens, matrix), draw, size=(5.6, 5.0))


def _write_values(axes: Axes, matrix: np.ndarray, image: Any) -> None:
    for (row, column), value in np.ndenumerate(matrix):
        colour = "#ffffff" if _luminance(image.cmap(image.norm(value))) < DARK else "#000000"
        size = min(8.0, 80 / len(matrix))
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=size)


def _luminance(colour: tuple[float, ...]) -> float:
    red, green, blue = colour[:3]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _told(tokens: list[str], matrix: np.ndarray) -> str:
    told = [f"{token} {_most(tokens, row)}" for token, row in zip(tokens, matrix, strict=True)]
    return f"Each token and the one of those shown that it gives most weight: {'; '.join(told)}"


def _most(tokens: list[str], row: np.ndarray) -> str:
    if not np.isfinite(row).all():
        return "none, as weights are not finite"
    return f"{tokens[row.argmax()]} {row.max():.2f}" if row.any() else "none"


def _short(token: str) -> str:
    return token if len(token) <= 12 else token[:11] + "…"
