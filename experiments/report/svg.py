"""Charts as pictures: within a page in its colours, light or dark, and as files for a paper."""

import contextlib
import html
import io
import itertools
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.text import Text

from experiments import files
from experiments.report import figures, fonts
from experiments.report.charts import Chart

# Colours that stand for the page's own, whatever they are; nothing else is drawn in them.
INK, LINE = "#010203", "#010204"
OF_PAGE = {INK: "var(--ink)", LINE: "var(--line)"}
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and is drawn in the page's font
    "pdf.fonttype": 42,
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.grid": True,
    "legend.fontsize": 8,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.facecolor": "none",
}
IN_PAGE: dict[str, Any] = {
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("grid.color", "legend.edgecolor"), LINE),
}
TAG, NAMED = re.compile(r"<[^>]*>"), re.compile(r"""(\bid="|href="#|url\(#)""")
NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@contextlib.contextmanager
def _drawn(chart: Chart, style: dict[str, Any]) -> Iterator[Figure]:
    # The title keeps a figure's identifiers apart from those of others in the page.
    settings: Any = STYLE | style | {"svg.hashsalt": chart.title}
    if not (written := chart.title + chart.told).isascii():
        settings["font.family"] = [*fonts.families(written), "sans-serif"]  # the last is the reader's own
    with matplotlib.rc_context(settings):
        figure, axes = plt.subplots(figsize=chart.size, layout="constrained")
        try:
            chart.draw(axes)
            figures.literal(figure)
            with warnings.catch_warnings():
                # Of characters that no font here has: in a page the reader's fonts draw them.
                warnings.filterwarnings("ignore", r"Glyph .* missing from")
                yield figure
        finally:
            plt.close(figure)


def _make_drawable(figure: Figure) -> None:
    """In place of characters that no font here has, their numbers."""
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        labels = [text.get_text() for text in axis.get_ticklabels()]
        if not all(label.isascii() for label in labels):
            axis.set_ticks(axis.get_majorticklocs(), [fonts.drawable(label) for label in labels])
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        text.set_text(fonts.drawable(text.get_text()))


def inline(chart: Chart) -> str:
    """A chart as an element of a page."""
    out = io.StringIO()
    with _drawn(chart, IN_PAGE) as figure:
        figure.savefig(out, format="svg", metadata=NO_METADATA)
    text = re.sub(r"<metadata>.*?</metadata>", "", out.getvalue(), flags=re.DOTALL)
    for stand_in, own in OF_PAGE.items():
        text = text.replace(stand_in, own)
    head, _, body = text[text.index("<svg") :].partition(">")
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    told = f"<title>{html.escape(chart.title)}</title><desc>{html.escape(chart.told)}</desc>"
    label = html.escape(f"{chart.title}. {chart.told}")
    return f'{head} role="img" aria-label="{label}">{told}{body}'


def apart(page: str) -> str:
    """A page whose charts have each its own identifiers: matplotlib gives every figure the same."""
    numbers = itertools.count(1)

    def numbered(chart: re.Match[str]) -> str:
        own = rf"\g<1>chart-{next(numbers)}-"
        return TAG.sub(lambda tag: NAMED.sub(own, tag[0]), chart[0])

    return re.sub(r"<svg\b.*?</svg>", numbered, page, flags=re.DOTALL)


def save(chart: Chart, folder: Path, name: str) -> list[Path]:
    """A chart as SVG and PDF of this name; what was written."""
    paths = []
    for kind, metadata in (("svg", NO_METADATA), ("pdf", {"CreationDate": None})):
        out = io.BytesIO()
        with _drawn(chart, {}) as figure:
            if kind == "pdf":
                _make_drawable(figure)
            figure.savefig(out, format=kind, metadata=metadata)
        paths.append(folder / f"{name}.{kind}")
        files.write(paths[-1], out.getvalue())
    return paths
