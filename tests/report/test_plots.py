"""The pictures as functions: what they draw, and what they refuse."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib import rcParams
from matplotlib.axes import Axes

from clbruno import InputError, plots
from clbruno.report.style import DARK, INK, MUTED, ON_HEAT, SERIES
from tests.report.conftest import Case, grown

RECORD = {
    "accuracy_matrix": [[1.0, 0.2], [0.9, 0.8]],
    "tasks": ["one", "two"],
    "task_heat": [[0.9, 0.1], [0.2, 0.8]],
    "scatter": [
        {"task": "one", "test": [[0, 1, 0], [1, 1, 1]], "generated": [[0, 2, 0], [2, 1, 1]]},
        {"task": "two", "test": [[3, 1, 0]], "generated": [[3, 2, 0]]},
    ],
}


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No picture is left open, and none needs a screen."""
    monkeypatch.setenv("MPLBACKEND", "agg")
    plt.switch_backend("agg")
    yield
    plt.close("all")


DRAWN: dict[str, Callable[[Case], Axes]] = {
    "retention": lambda c: plots.retention(c.model, c.x, c.y, c.task),
    "retention of a log": lambda c: plots.retention(c.model),
    "retention of a record": lambda c: plots.retention(RECORD),
    "task_identity": lambda c: plots.task_identity(c.model, c.x, c.task),
    "task_identity of a record": lambda c: plots.task_identity(RECORD),
    "confusion": lambda c: plots.confusion(c.model, c.x, c.y),
    "reliability": lambda c: plots.reliability(c.model, c.x, c.y),
    "typicality": lambda c: plots.typicality(c.model, c.x),
    "generated": lambda c: plots.generated(c.model, c.x, c.y, c.task),
    "generated without labels": lambda c: plots.generated(c.model, c.x),
    "generated of a record": lambda c: plots.generated(RECORD),
}


@pytest.mark.parametrize("name", DRAWN)
def test__plots__each__returns_axes_with_names_and_content(
    name: str, cases: Callable[[str], Case]
) -> None:
    before = dict(rcParams)

    ax = DRAWN[name](cases("five tasks"))

    assert isinstance(ax, Axes)
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    assert ax.has_data()
    ax.figure.canvas.draw()
    assert dict(rcParams) == before


def test__plots__ax_given__is_drawn_on(cases: Callable[[str], Case]) -> None:
    case = cases("five tasks")
    _, axes = plt.subplots(1, 2)
    exam = case.exam()
    assert exam is not None

    assert plots.confusion(exam, ax=axes[1]) is axes[1]
    assert not axes[0].has_data()


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        (lambda c: plots.confusion(c.model), "give the rows X"),
        (lambda c: plots.confusion(c.model, c.x), "give `y`"),
        (lambda c: plots.reliability(c.model, c.x), "give `y`"),
        (lambda c: plots.task_identity(c.model, c.x), "give `task`"),
        (lambda c: plots.reliability(RECORD), "has no rows"),
        (lambda c: plots.generated(c.model), "the real rows X"),
        (lambda c: plots.generated(c.model, c.x, how="umap"), "'pca' or 'tsne'"),
        (lambda c: plots.generated({"tasks": []}), "no 'scatter'"),
        (lambda c: plots.retention(c.exam()), "has no past"),
    ],
)
def test__plots__what_is_missing__is_named(
    draw: Callable[[Case], Any], says: str, cases: Callable[[str], Case]
) -> None:
    with pytest.raises(InputError, match=says):
        draw(cases("five tasks"))


def test__retention__forgetting_of_one_task__is_the_line_that_is_named() -> None:
    matrix = np.full((9, 9), 0.99)
    matrix[5:, 3] = 0.4

    ax = plots.retention({"accuracy_matrix": matrix.tolist()})

    assert "batch 4" in [text.get_text() for text in ax.texts]
    assert len(ax.texts) < 9


def test__confusion__counts__are_the_shares_of_the_image(cases: Callable[[str], Case]) -> None:
    case = cases("one task")

    (image,) = plots.confusion(case.model, case.x, case.y).images

    share = np.asarray(image.get_array())[..., 3]
    np.testing.assert_allclose(share.sum(axis=1), 1)
    right = (case.model.predict(case.x) == case.y).mean()
    assert np.diag(share).mean() == pytest.approx(right)


def test__names__underscore_and_dollar__are_shown_as_they_are() -> None:
    case = grown([["_a", "$x_$"], ["^{"]], n=30)

    ax = plots.confusion(case.model, case.x, case.y)
    ax.figure.canvas.draw()
    scatter = plots.generated(case.model, case.x, case.y)
    scatter.figure.canvas.draw()

    assert [label.get_text() for label in ax.get_xticklabels()] == ["$x_$", "_a", "^{"]
    legend = scatter.get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {"$x_$", "_a", "^{"}


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Contrast of WCAG 2."""
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("colour", [INK, MUTED, *SERIES])
def test__colours__text_and_lines__stand_out_on_both_papers(colour: str) -> None:
    assert contrast(colour, "#ffffff") >= 4.5
    assert contrast(DARK[colour], "#182029") >= 4.5


def test__colours__on_the_darkest_cell__can_be_read() -> None:
    assert contrast(ON_HEAT, "#0a4d8c") >= 4.5
