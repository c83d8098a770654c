"""Links out of docs/: what they lead to becomes a page of the site (see mkdocs.yml).

Markdown is a page as it is, any other file a page that shows it. A file lies on the site where it
lies in the repository; what is in docs/ or .github/ lies at the top.
"""

# ruff: noqa: INP001 - mkdocs reads the file

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, InclusionLevel

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)")
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
# Tables are wide here, and what their first column names is one word.
_STYLE = """\
.md-grid { max-width: 80rem; }
.md-typeset td:first-child code { white-space: nowrap; word-break: normal; }
"""
_SHOWN = "---\nsearch: {exclude: true}\n---\n# `%s`\n\n~~~~~~ { .%s }\n%s\n~~~~~~\n"


def _place(path: Path) -> str:
    """Where a file of the repository lies on the site."""
    name = path.relative_to(ROOT).as_posix()
    name = name.removeprefix("docs/").removeprefix(".github/")
    is_shown = path.suffix in (".md", ".png", ".svg")
    return name if is_shown else f"{name}.md"


def _linked(page: Path) -> set[Path]:
    found = (page.parent / link for link in _LINK.findall(_CODE.sub("", page.read_text())))
    return {path.resolve() for path in found if path.is_file()}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md, what the pages link to, and what that links to."""
    files.append(File.generated(config, "site.css", content=_STYLE))
    there = {Path(file.abs_src_path or "").resolve() for file in files}
    found = [{ROOT / "README.md"}, *(_linked(path) for path in there if path.suffix == ".md")]
    while found:
        for path in sorted(found.pop() - there):
            there.add(path)
            place, level = _place(path), InclusionLevel.NOT_IN_NAV
            if path.suffix == ".md":
                page = File.generated(config, place, abs_src_path=str(path), inclusion=level)
                found.append(_linked(path))
            else:
                name, kind = path.relative_to(ROOT), path.suffix.removeprefix(".")
                text = _SHOWN % (name, kind, path.read_text())
                page = File.generated(config, place, content=text, inclusion=level)
            files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Links as they are on the site; Markdown inside of <details> is Markdown."""
    source = page.file.abs_src_path
    if source is None:
        return markdown  # a file that is shown
    folder, here = Path(source).parent, Path(page.file.src_uri).parent

    def moved(link: re.Match[str]) -> str:
        path = (folder / link[1]).resolve()
        return os.path.relpath(_place(path), here) if path.is_file() else link[1]

    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [_LINK.sub(moved, markdown[end : code.start()]), code[0]]
        end = code.end()
    parts.append(_LINK.sub(moved, markdown[end:]))
    return "".join(parts).replace("\n<details>", '\n<details markdown="1">')
