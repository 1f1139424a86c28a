"""Colours and type of every picture; each colour has a twin for dark paper.

The pairs keep at least 4.5 : 1 to their paper and differ in lightness as well as in hue, so that
they stay apart for eyes that do not tell red from green.
"""

from typing import Any

INK = "#1c2733"
MUTED = "#566372"
GRID = "#d9dfe6"
HEAT = "#0a4d8c"
ON_HEAT = "#fffffe"
SERIES = ("#0067b0", "#b8430a", "#007359", "#97397a", "#7c5c01", "#4b5a6b")

DARK = {
    INK: "#e6ebf1",
    MUTED: "#a3afbc",
    GRID: "#333e4a",
    HEAT: "#8cc6ff",
    ON_HEAT: "#0d1620",
    SERIES[0]: "#63b3ff",
    SERIES[1]: "#ff9457",
    SERIES[2]: "#35c9a0",
    SERIES[3]: "#eb9bd0",
    SERIES[4]: "#e3bb3f",
    SERIES[5]: "#b4bfca",
}
"""What stands for each colour on dark paper."""

SIZE = (4.8, 3.3)
"""Inches of a picture that still reads on a phone."""

RC: Any = {
    "font.family": "sans-serif",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.labelsize": 9.5,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": False,
    "figure.facecolor": "none",
    "figure.figsize": SIZE,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "svg.fonttype": "none",
}
"""matplotlib's settings while a picture is drawn; a name with dollar signs is no formula."""


def shortened(name: object, most: int = 22) -> str:
    """A name that fits into a picture."""
    text = printable(str(name))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def printable(text: str) -> str:
    """The text in one line, without control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
