"""A picture as SVG that stands in a page: its colours are the page's own, light or dark."""

import re
import warnings
from collections.abc import Callable
from html import escape
from io import StringIO

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from clbruno.report.style import DARK, RC, SIZE

_HEAD = re.compile(r"\A.*?(?=<svg )", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_GROUP_ID = re.compile(r'(<g) id="[^"]*"')
_ID = re.compile(r'(\bid="|url\(#|href="#)')
_FONT = re.compile(r"font-family: [^;\"]*")
_STYLE = re.compile(r"<style.*?</style>", re.DOTALL)
_SIZE = re.compile(r'(<svg [^>]*?) width="[^"]*"')
_HEIGHT = re.compile(r'(<svg [^>]*?) height="[^"]*"')


def svg(
    draw: Callable[[Axes], object], name: str, words: str, size: tuple[float, float] = SIZE
) -> str:
    """Draw on new axes and return an `<svg>` element.

    Args:
        draw: draws on the axes that it is given.
        name: unique in the page: what ids inside the picture begin with.
        words: the alternative text.
        size: inches.
    """
    with rc_context({**RC, "svg.hashsalt": name}), warnings.catch_warnings():
        # The reader's fonts set the text, so what this machine's font lacks does not matter.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        figure = Figure(figsize=size, layout="constrained")
        draw(figure.subplots())
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return _mended(text.getvalue(), name, words)


def themed(text: str) -> str:
    """Every colour as the page's variable, with itself as what it is where there is none."""
    for colour in DARK:
        text = text.replace(colour, f"var(--c{colour[1:]}, {colour})")
    return text


def standalone(picture: str) -> str:
    """A picture of `svg` as a file of its own, with paper under it, light or dark."""
    style = (
        f"<style>:root{{--paper:#ffffff;{variables(dark=False)}}}"
        "@media (prefers-color-scheme:dark){:root{--paper:#10161d;"
        f"{variables(dark=True)}}}image{{filter:invert(1) hue-rotate(180deg)}}}}"
        "</style><rect width='100%' height='100%' rx='8' style='fill:var(--paper)'/>"
    )
    head, rest = picture.split(">", 1)
    return f"{head}>{style}{rest}"


def variables(dark: bool) -> str:
    """The style sheet's variables for the pictures' colours."""
    return "".join(f"--c{colour[1:]}:{twin if dark else colour};" for colour, twin in DARK.items())


def _mended(text: str, name: str, words: str) -> str:
    text = _METADATA.sub("", _HEAD.sub("", text, count=1))
    text = _STYLE.sub("", text)  # it would hold for the whole page
    text = _GROUP_ID.sub(r"\1", text)
    text = _ID.sub(rf"\g<1>{name}-", text)
    text = _FONT.sub("font-family: var(--sans, sans-serif)", text)
    text = _HEIGHT.sub(r"\1", _SIZE.sub(r"\1", text, count=1), count=1)
    label = f'<svg role="img" aria-label="{escape(words)}" class="picture" '
    return themed(text.replace("<svg ", label, 1))
