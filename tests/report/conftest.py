"""Models of every awkward size with rows to ask them about, and a browser to look at pages."""

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clbruno import CLBrunoClassifier
from clbruno.report.exam import Exam, examine_arrays
from clbruno.report.page import Subject, report

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / ".browser" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium") or ""
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
GREEK = ("Καρκίνος του πνεύμονα", "υγιής", "μελάνωμα")
HOSTILE = ("<script>alert(1)</script>", '" onload="alert(1)', "$x_$ & {{ 7 * 7 }} | _`a`")


@dataclass(frozen=True)
class Case:
    """A model, and rows to ask it about where there are any."""

    model: CLBrunoClassifier
    x: NDArray[np.float64] | None = None
    y: Any = None
    task: Any = None

    def exam(self) -> Exam | None:
        """Its answers."""
        return None if self.x is None else examine_arrays(self.model, self.x, self.y, self.task)

    def page(self, **more: Any) -> str:
        """Its report."""
        return report(Subject(self.model, "m.clb", 1000, self.exam(), **more))


def blobs(
    labels: list[str], n: int, seed: int = 0, dim: int = 6
) -> tuple[NDArray[np.float64], NDArray[np.str_]]:
    """`n` rows of each label around its own mean."""
    means = 3 * np.random.default_rng(99).normal(size=(len(labels), dim))
    rng = np.random.default_rng(seed)
    x = np.vstack([rng.normal(mean, 1, (n, dim)) for mean in means])
    return x, np.repeat(labels, n)


def grown(tasks: list[list[str]], *, n: int = 12, asked: int = 6, noted: bool = False) -> Case:
    """A model that learned one task after another, with other rows of all of them."""
    labels = list(dict.fromkeys(label for task in tasks for label in task))
    x, y = blobs(labels, n)
    model = CLBrunoClassifier(random_state=0)
    x_test, y_test = blobs(labels, asked, seed=1)
    place = {label: f"site {at + 1}" for at, task in enumerate(tasks) for label in task}
    of = np.array([place[label] for label in y_test])
    for at, task in enumerate(tasks):
        here = np.isin(y, task)
        model.partial_fit(x[here], y[here], task=f"site {at + 1}")
        if noted:
            right = model.predict(x_test) == y_test
            note(model, {site: float(right[of == site].mean()) for site in sorted(set(of))})
    return Case(model, x_test, y_test, of)


def note(model: CLBrunoClassifier, figures: dict[str, float]) -> None:
    """Validation figures in the log, as the command line puts them there."""
    log = model.model_.log
    record = log[-1].noting({}, {f"validation accuracy, task {k}": v for k, v in figures.items()})
    model.model_ = dataclasses.replace(model.model_, log=(*log[:-1], record))


def published() -> Case:
    """The paper's own model, small."""
    x, y = blobs(["a", "b", "c"], 40)
    model = CLBrunoClassifier(
        "paper", couplings=2, hidden=8, context_dim=4, max_epochs=2, random_state=0
    )
    model.partial_fit(x[:80], y[:80], task="first").partial_fit(x[80:], y[80:], task="second")
    return Case(model, x[::3], y[::3], np.repeat(["first", "second"], [27, 13]))


def split(labels: int, tasks: int) -> list[list[str]]:
    """So many labels over so many tasks."""
    names = [f"class {at + 1}" for at in range(labels)]
    return [part.tolist() for part in np.array_split(np.array(names), tasks)]


def case(name: str) -> Case:
    """The case of a name."""
    five = grown(split(30, 5), noted=True)
    makers: dict[str, Callable[[], Case]] = {
        "five tasks": lambda: five,
        "one task": lambda: grown([["a", "b", "c"]]),
        "fifty tasks": lambda: grown(split(50, 50), n=6, asked=2, noted=True),
        "one class": lambda: grown([["only"]], asked=30),
        "two hundred classes": lambda: grown(split(200, 2), n=6, asked=2),
        "no data": lambda: Case(five.model),
        "unlabelled": lambda: dataclasses.replace(five, y=None, task=None),
        "paper": published,
        "one row": lambda: Case(five.model, five.x[:1]),  # type: ignore[index]
        "greek": lambda: grown([list(GREEK[:2]), [GREEK[2]]]),
        "hostile": lambda: grown([list(HOSTILE[:2]), [HOSTILE[2]]]),
        "never learned": lambda: Case(
            grown([["class 1", "class 2"]]).model, five.x, five.y, "another site"
        ),
    }
    return makers[name]()


CASES = (
    *("five tasks", "one task", "fifty tasks", "one class", "two hundred classes", "no data"),
    *("unlabelled", "paper", "one row", "greek", "hostile", "never learned"),
)


@pytest.fixture(scope="session")
def cases() -> Callable[[str], Case]:
    """The maker of cases; each is made once."""
    made: dict[str, Case] = {}

    def get(name: str) -> Case:
        if name not in made:
            made[name] = case(name)
        return made[name]

    return get


@pytest.fixture(scope="session")
def pages(cases: Callable[[str], Case]) -> Callable[[str], str]:
    """The reports of the cases; each is made once."""
    made: dict[str, str] = {}

    def get(name: str) -> str:
        if name not in made:
            made[name] = cases(name).page()
        return made[name]

    return get


@dataclass(frozen=True)
class Seen:
    """What a browser found on a page."""

    complaints: list[str]
    too_wide: list[str]
    pictures: int
    undrawn: list[str]


LOOK = """() => {
  const wide = document.documentElement.clientWidth;
  const box = e => e.getBoundingClientRect();
  const pictures = [...document.querySelectorAll('main svg.picture, main img')];
  return {
    too_wide: document.documentElement.scrollWidth <= wide ? [] :
      [...document.querySelectorAll('body *')].filter(e => box(e).right > wide + 1)
        .slice(0, 5).map(e => e.outerHTML.slice(0, 120)),
    pictures: pictures.length,
    undrawn: pictures.filter(e => box(e).width < 50 || box(e).height < 50 ||
        (e.tagName === 'IMG' && !(e.complete && e.naturalWidth > 0)) ||
        (e.tagName === 'svg' && !e.querySelector('path, use, image')))
      .map(e => e.outerHTML.slice(0, 120)),
  };
}"""


class Reader:
    """A browser that opens pages at some width and says what is wrong with them."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium
        self._axe = AXE.read_text(encoding="utf-8")

    def look(self, address: str, *widths: int, scheme: str = "light", judge: bool = False) -> Seen:
        """Open a page and look at it at some widths, the last one most of all.

        With `judge`, check contrast, landmarks and the rest with axe-core at every width.
        """
        context = self._chromium.new_context(color_scheme=scheme, reduced_motion="reduce")
        complaints: list[str] = []
        say = complaints.append
        too_wide: list[str] = []
        try:
            page = context.new_page()
            page.on("console", lambda m: m.type in ("error", "warning") and say(m.text))
            page.on("pageerror", lambda error: say(str(error)))
            page.on("requestfailed", lambda request: say(f"failed: {request.url}"))
            page.on("response", lambda got: got.status >= 400 and say(f"{got.status} {got.url}"))
            page.set_viewport_size({"width": widths[0], "height": 900})
            page.goto(address, wait_until="load")
            if judge:
                page.evaluate(self._axe)
            for width in widths:
                page.set_viewport_size({"width": width, "height": 900})
                found = page.evaluate(LOOK)
                too_wide += [f"{width}: {element}" for element in found.pop("too_wide")]
                complaints += self._judged(page) if judge else []
        finally:
            context.close()
        return Seen(complaints, too_wide, **found)

    @staticmethod
    def _judged(page: Any) -> list[str]:
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{found['id']}: {node['html'][:150]}: {node['failureSummary'][:250]}"
            for found in result["violations"]
            for node in found["nodes"][:2]
        ]


@pytest.fixture(scope="session")
def reader() -> Iterator[Reader]:
    """Headless Chromium."""
    from playwright.sync_api import sync_playwright

    if not CHROMIUM or not AXE.exists():
        pytest.fail("Chromium or axe-core is not there; `make browser` installs both")
    os.environ.setdefault("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield Reader(chromium)
        chromium.close()
