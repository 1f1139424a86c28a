"""What the site's build adds: equations as MathML, and the pages that live beside the docs."""

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "benchmarks.md": "benchmarks/README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
PICTURES = ROOT / "benchmarks" / "pictures"
EMPTY = "# Performance\n\nNothing has been measured for this page yet.\n"

_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^\$\$(.+?)\$\$$", re.DOTALL | re.MULTILINE)
_MARK = re.compile("\N{WHITE SQUARE}(\\d+)\N{WHITE SQUARE}")
_NAME = re.compile(r"(<m[io]>(?:log|det)</m[io]>)")
_INLINE = re.compile(r"\\\((.+?)\\\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the benchmark tables, their pictures and the pages of the project's root."""
    for name, source in ELSEWHERE.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_linked(content)))
    for path in sorted(PICTURES.glob("*.svg")):
        files.append(File.generated(config, f"pictures/{path.name}", abs_src_path=str(path)))
    if files.get_file_from_path("performance.md") is None:
        files.append(File.generated(config, "performance.md", content=EMPTY))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put a mark in the place of each `$$ ... $$` and `\\( ... \\)` outside of code."""
    equations: list[str] = []

    def mark(tex: str, display: str) -> str:
        equations.append(_mathml(tex, display))
        return f"\N{WHITE SQUARE}{len(equations) - 1}\N{WHITE SQUARE}"

    def marked(text: str) -> str:
        text = _BLOCK.sub(
            lambda m: f'<div class="equation" tabindex="0">{mark(m[1], "block")}</div>', text
        )
        return _INLINE.sub(lambda m: mark(m[1], "inline"), text)

    parts = _CODE.split(markdown)
    parts[::2] = [marked(part) for part in parts[::2]]
    page.meta["equations"] = equations
    return "".join(parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the equations, as MathML, which needs no script, in the place of their marks."""
    return _MARK.sub(lambda m: page.meta["equations"][int(m[1])], html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Give the theme's search a name, which it lacks for those who listen to the page."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)


def _mathml(tex: str, display: str) -> str:
    found: Any = convert(" ".join(tex.split()), display=display)
    return _NAME.sub(r'\1<mspace width="0.17em"/>', str(found))


def _linked(content: str) -> str:
    """Links of the repository's root as links of the site."""
    return content.replace("](docs/", "](")
