"""The documentation site builds without a warning and reads well in a browser."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.report.conftest import ROOT

WIDTHS = (390, 1024, 1600)
JUDGED = ("", "start/", "method/", "api/", "guarantees/", "how-to/report/")
"""Pages that hold between them every kind of thing that a page can hold."""


class Quiet(SimpleHTTPRequestHandler):
    """Files of a folder, without a log."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as strictly as can be."""
    folder = tmp_path_factory.mktemp("site")
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return folder


@pytest.fixture(scope="module")
def site(built: Path) -> Iterator[str]:
    """The address of the site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(built)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()


def test__site__every_page__asks_no_other_machine(built: Path) -> None:
    for page in built.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        for start in ('src="http', "src=//", 'rel="stylesheet" href="http', "@import url(http"):
            assert start not in text, page
        assert "\\(" not in text.split("<article", 1)[-1].split("<code", 1)[0], page


def test__site__every_page__fits_every_width_and_is_quiet(
    built: Path, site: str, reader: Any
) -> None:
    pages = sorted(str(p.parent.relative_to(built)) for p in built.rglob("index.html"))
    assert len(pages) > 20

    for page in pages:
        seen = reader.look(f"{site}{'' if page == '.' else page + '/'}", *WIDTHS)
        assert seen.complaints == [], page
        assert seen.too_wide == [], page
        assert seen.undrawn == [], page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", JUDGED)
def test__site__page__passes_axe(page: str, scheme: str, site: str, reader: Any) -> None:
    seen = reader.look(site + page, 390, 1600, scheme=scheme, judge=True)

    assert seen.complaints == []
