"""The report in a real browser, at the widths of a phone, a tablet and a desk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import CASES, Seen

WIDTHS = (390, 1024, 1600)


def written(folder: Path, page: str) -> str:
    """The address of a page in a file."""
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path.as_uri()


def assert_fine(seen: Seen) -> None:
    assert seen.complaints == []
    assert seen.too_wide == []
    assert seen.pictures > 0
    assert seen.undrawn == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test__report__five_tasks__reads_well_at_every_width(
    scheme: str, pages: Callable[[str], str], reader: Any, tmp_path: Path
) -> None:
    address = written(tmp_path, pages("five tasks"))

    assert_fine(reader.look(address, *WIDTHS, scheme=scheme, judge=True))


@pytest.mark.parametrize("name", [name for name in CASES if name != "five tasks"])
def test__report__awkward_models__read_well_at_every_width(
    name: str, pages: Callable[[str], str], reader: Any, tmp_path: Path
) -> None:
    address = written(tmp_path, pages(name))

    assert_fine(reader.look(address, *WIDTHS))


def test__reader__page_with_every_fault__sees_each(reader: Any, tmp_path: Path) -> None:
    address = written(
        tmp_path,
        "<title>x</title><main><p style='color:#ccc'>pale</p><div style='width:3000px'>wide</div>"
        "<svg class='picture' width='100' height='100'></svg><img src='none.png'></main>"
        "<script>console.error('loud')</script>",
    )

    seen = reader.look(address, 390, judge=True)

    assert "loud" in seen.complaints
    assert any("none.png" in complaint for complaint in seen.complaints)
    assert any(complaint.startswith("color-contrast") for complaint in seen.complaints)
    assert any(complaint.startswith("html-has-lang") for complaint in seen.complaints)
    assert seen.too_wide
    assert len(seen.undrawn) == 2
