"""The report is one whole, safe file for models of every size."""

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pytest

from clbruno.report.page import Subject, report
from tests.report.conftest import CASES, GREEK, HOSTILE, Case

VOID = {"meta", "link", "br", "img", "hr", "input"}


class Outline(HTMLParser):
    """The elements of a page, and whether each is closed where it should be."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.handlers: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.add(tag)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.handlers += [name for name in values if name.startswith("on")]
        self.loads += [
            value or ""
            for name, value in attrs
            if name in ("src", "href", "xlink:href") and not re.match(r"#|data:", value or "")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.mark.parametrize("name", CASES)
def test__report__any_model__is_one_well_formed_file_that_loads_and_runs_nothing(
    name: str, pages: Callable[[str], str]
) -> None:
    page = pages(name)

    outline = Outline(page)

    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    assert not outline.tags & {"script", "iframe", "object", "embed", "form"}
    assert outline.loads == []
    assert outline.handlers == []
    assert "url(http" not in page
    assert "{%" not in page
    assert {"header", "nav", "main", "footer", "h1", "h2"} <= outline.tags
    assert "nan" not in re.findall(r"\w+", " ".join(outline.text).lower())


@pytest.mark.parametrize("name", CASES)
def test__report__every_picture__has_words_and_an_alternative(
    name: str, pages: Callable[[str], str]
) -> None:
    page = pages(name)

    figures = re.findall(r"<figure.*?</figure>", page, flags=re.DOTALL)

    assert figures
    for figure in figures:
        assert re.search(r'<svg role="img" aria-label="[^"]{20,}"', figure)
        assert "What it shows" in figure
        assert "What would be bad" in figure


def test__report__five_tasks_of_thirty_classes__has_all_sections_in_little_room(
    pages: Callable[[str], str],
) -> None:
    page = pages("five tasks")

    assert len(page.encode()) < 1_500_000
    assert re.findall(r'<figure class="card figure" id="([\w-]+)"', page) == [
        *("retention", "confusion", "identity", "reliability", "typicality", "pca", "tsne"),
        *("pull-0", "pull-1"),
    ]
    assert "5 tasks" in page
    assert "30 classes" in page


def test__report__no_data__says_how_to_give_some(pages: Callable[[str], str]) -> None:
    page = pages("no data")

    assert "--data test.csv" in page
    assert re.findall(r'<figure class="card figure" id="([\w-]+)"', page) == ["retention"]


def test__report__unlabelled__draws_what_needs_no_label(pages: Callable[[str], str]) -> None:
    ids = re.findall(r'<figure class="card figure" id="([\w-]+)"', pages("unlabelled"))

    assert {"typicality", "pca", "tsne", "pull-0"} <= set(ids)
    assert not {"confusion", "reliability", "identity"} & set(ids)


def test__report__one_class__explains_no_choice(pages: Callable[[str], str]) -> None:
    page = pages("one class")

    assert "1 class<" in page
    assert 'id="pull-0"' not in page


def test__report__labels_never_learned__are_marked(pages: Callable[[str], str]) -> None:
    page = pages("never learned")

    assert "class 30 <small>never learned</small>" in page
    assert "another site <small>never learned</small>" in page


@pytest.mark.parametrize("name", GREEK)
def test__report__greek__stands_in_text_and_pictures(
    name: str, pages: Callable[[str], str]
) -> None:
    page = pages("greek")

    assert name in page
    assert name[:8] in "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))


def test__report__hostile_names__stay_text(pages: Callable[[str], str]) -> None:
    page = pages("hostile")

    text = "".join(Outline(page).text)

    for name in HOSTILE:
        assert name in text
    assert "49" not in re.findall(r"\$x_\$ & (\d+)", text)


def test__report__row_asked_for__is_explained(cases: Callable[[str], Case]) -> None:
    some = cases("one task")

    page = some.page(explain=("row 3",))

    assert "Why row 3 was called" in page
    assert 'id="pull-1"' not in page


def test__report__same_model_and_rows__is_the_same_but_for_the_time(
    cases: Callable[[str], Case],
) -> None:
    def made() -> str:
        return re.sub(r"Made .* by clbruno", "", cases("one task").page())

    assert made() == made()


def test__report__log_without_figures__says_so(cases: Callable[[str], Case]) -> None:
    import dataclasses

    import clbruno

    model = clbruno.CLBrunoClassifier(random_state=0, validation_share=0.0)
    some = cases("one task")
    model.fit(some.x, some.y)
    bare: Any = dataclasses.replace(model.model_.log[0], after={})
    model.model_ = dataclasses.replace(model.model_, log=(bare,))

    assert "No update held back any row" in report(Subject(model, "m.clb"))
