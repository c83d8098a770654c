"""Is a report ready to be filed? What its text and its files alone show. Pure.

Whether its command shows the failure on a clean machine is found out by running it, elsewhere
(`harness.report.filing`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token

GITHUB_LIMIT = 65_536
"""Characters that GitHub takes as the body of an issue (its API's documentation)."""
_TITLE_LIMIT = 256

_PATH = re.compile(r"(?<![\w:/.$~{}-])/(?:[\w.@+=-]+/)+(?=[\w.@+=-])")
_HOMES = re.compile(rb"/(?:home|Users)/(?!runner\b)[\w.-]+|/root/|[A-Z]:\\Users\\", re.ASCII)
_TOKENS = re.compile(
    rb"\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bhf_[A-Za-z]{20,}|\bsk-[\w-]{20,}|\bAKIA[0-9A-Z]{16}"
    rb"|\bglpat-[\w-]{16,}|\bpypi-[\w-]{40,}|\bxox[abprs]-[\w-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY"
    rb"|(?i:authorization: *(?:bearer|basic) +\S{8,})|https?://[^\s/:@]+:[^\s/:@]+@"
)
_BYTES = re.compile(r"\.b8\s+([\d,\s]+)")
_LINK = re.compile(r"https?://[^\s/$.?#].\S*\Z")
# What a template leaves where a value was missing.
# A compiler may say that a name "is undefined"; what a template leaves is not such a sentence.
# Not `{%r1, %r2}` of PTX: a statement of a template has a blank.
_HOLES = re.compile(r"\{\{|\{% |(?<![\w`\"'=.])(?:None|nan|(?<!\bis )undefined)(?![\w`\"'=.])")
_TAG = re.compile(r"<(/?)(details|summary|table|tr|td|pre|code)\b[^>]*>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One thing that keeps a report from being filed: what, and in which file."""

    kind: str
    file: str
    words: str

    def __str__(self) -> str:
        return f"{self.file}: {self.words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """Words that must be in no file, by what they are: `host name`, `user name`, ..."""

    words: Mapping[str, Sequence[str]]

    def find(self, data: bytes) -> Iterator[tuple[str, str]]:
        """What it is, and the text around it."""
        for kind, words in self.words.items():
            for word in words:
                # As a word of its own: a user called `al` is not in every `global`.
                pattern = rb"(?<![A-Za-z0-9])" + re.escape(word.encode()) + rb"(?![A-Za-z0-9])"
                if match := re.search(pattern, data):
                    yield kind, _around(data, match)


def without_folders(text: str) -> str:
    """The text with absolute paths cut to the file's name: where it lay is private.

    Addresses (`https://...`) stay, and so do paths that begin with a variable.
    """
    return _PATH.sub("", text)


def inspect_report(
    issue: str,
    files: Mapping[str, bytes],
    *,
    required: Sequence[str],
    private: Private,
    name: str = "issue.md",
) -> list[Defect]:
    """Everything that is wrong with the issue's text and the files of its bundle.

    Args:
        issue: Markdown; its first line is the title.
        files: name to content.
        required: headings that must be there, with something below them.
        private: what must be in no file.
        name: the name of the issue in its defects.
    """
    defects = [
        Defect(kind=kind, file=name, words=words)
        for kind, words in (*_sizes(issue), *_fields(issue, required), *_well_formed(issue, files))
    ]
    for file, data in {name: issue.encode(), **files}.items():
        defects += [
            Defect(kind="privacy", file=file, words=words) for words in _leaks(data, private)
        ]
    return defects


def _sizes(issue: str) -> Iterator[tuple[str, str]]:
    if len(issue) > GITHUB_LIMIT:
        yield "size", f"{len(issue):,} characters, GitHub takes {GITHUB_LIMIT:,}"
    title = issue.partition("\n")[0]
    if not title.startswith("# ") or not title[2:].strip():
        yield "field", "no title: the first line is to be `# ...`"
    elif len(title) - 2 > _TITLE_LIMIT:
        yield "size", f"the title has {len(title) - 2} characters, GitHub takes {_TITLE_LIMIT}"


def _fields(issue: str, required: Sequence[str]) -> Iterator[tuple[str, str]]:
    sections = _sections(_parse(issue))
    for heading in required:
        if heading not in sections:
            yield "field", f"no section {heading!r}"
        elif not sections[heading]:
            yield "field", f"section {heading!r} is empty"


def _parse(issue: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(issue)


def _sections(tokens: Sequence[Token]) -> dict[str, bool]:
    sections: dict[str, bool] = {}
    open_: list[tuple[int, str]] = []
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            level, title = int(token.tag[1]), tokens[index + 1].content
            open_ = [heading for heading in open_ if heading[0] < level]
            open_.append((level, title))
            sections[title] = False
        elif token.type in ("inline", "fence", "code_block", "html_block"):
            is_title = index > 0 and tokens[index - 1].type == "heading_open"
            if not is_title and token.content.strip():
                sections.update({title: True for _, title in open_})
    return sections


def _well_formed(issue: str, files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    lines = issue.splitlines()
    depth: list[str] = []
    for token in _parse(issue):
        if token.type == "fence" and token.map:
            last = lines[token.map[1] - 1].strip()
            if token.map[1] - token.map[0] < 2 or not last.startswith(token.markup):
                yield "markdown", f"line {token.map[0] + 1}: a code block that is never closed"
        elif token.type in ("inline", "html_block"):
            yield from _tags(token, depth)
            for child in token.children or ():
                yield from _inline(child, files)
    if depth:
        yield "markdown", f"<{depth[-1]}> is never closed"
    yield from _tables(lines)


def _tags(token: Token, depth: list[str]) -> Iterator[tuple[str, str]]:
    pieces = [token] if token.type == "html_block" else token.children or []
    for piece in pieces:
        if piece.type not in ("html_block", "html_inline"):
            continue
        for closing, tag in _TAG.findall(piece.content):
            if not closing:
                depth.append(tag)
            elif depth and depth[-1] == tag:
                depth.pop()
            else:
                yield "markdown", f"</{tag}> closes nothing"


def _inline(token: Token, files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    if token.type in ("link_open", "image"):
        target = str(token.attrGet("href") or token.attrGet("src") or "")
        is_file = target in files
        if not is_file and not target.startswith("#") and not _LINK.match(target):
            yield "markdown", f"a link to {target!r}: neither an address nor a file of the bundle"
    elif token.type == "text" and (hole := _HOLES.search(token.content)):
        yield "field", f"{hole[0]!r} stands where a value should: {token.content.strip()[:80]!r}"


def _tables(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Rows with more or fewer cells than their header; GitHub drops or pads them in silence."""
    inside_fence = False
    columns: int | None = None
    for number, line in enumerate(lines, start=1):
        if line.lstrip().startswith("```"):
            inside_fence = not inside_fence
        if inside_fence or not line.startswith("|"):
            columns = None
            continue
        cells = len(re.findall(r"(?<!\\)\|", line)) - 1
        if columns is not None and cells != columns:
            yield "markdown", f"line {number}: {cells} cells in a table of {columns} columns"
        columns = columns if columns is not None else cells


def _leaks(data: bytes, private: Private) -> Iterator[str]:
    """Private words in the bytes, and in what debug sections of PTX spell as numbers."""
    spelled = b"".join(_spelled(data))
    for text, where in ((data, ""), (spelled, " (spelled in .b8 numbers)")):
        for kind, around in private.find(text):
            yield f"holds a {kind}{where}: {around}"
        for kind, pattern in (("home path", _HOMES), ("token", _TOKENS)):
            if match := pattern.search(text):
                # A token is not repeated in what we print.
                shown = "" if kind == "token" else f": {_around(text, match)}"
                yield f"holds a {kind}{where}{shown}"


def _spelled(data: bytes) -> Iterator[bytes]:
    for match in _BYTES.finditer(data.decode("latin-1")):
        numbers = (int(word) for word in re.findall(r"\d+", match[1]))
        yield bytes(number for number in numbers if 0 < number < 256)


def _around(data: bytes, match: re.Match[bytes]) -> str:
    start, stop = max(0, match.start() - 20), match.end() + 20
    text = data[start:stop].decode("latin-1")
    return repr("".join(char if char.isprintable() else "." for char in text))
