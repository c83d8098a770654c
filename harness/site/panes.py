"""What came out of a cell, stage by stage: panes whose lines know where they come from. Pure.

All panes are linked by the lines of the kernel's source, as far as debug information goes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape

from pygments.lexers.python import PythonLexer
from pygments.token import Token

from harness.judging.origins import (
    LOCAL_ACCESS,
    Origins,
    kernel_file,
    lines_of,
    mlir_origins,
    ptx_origins,
    sass_origins,
)
from harness.judging.ptxas.sass import line_tables
from harness.site.live import Live, LiveCurve, live_curves, live_margins

# The lines of a pane as HTML.
#
# A page has tens of thousands of them, and a template takes ten times as long for each.


def pane_html(pane: Pane, anchors: Mapping[int, str]) -> str:
    """What stands in a pane; of what the store holds everything is escaped.

    `anchors` lead from a line of the source to where code that comes from it stands.
    """
    texts = _coloured(pane.name, [line.text for line in pane.lines])
    return "".join(
        _line_html(pane, line, text, anchors) for line, text in zip(pane.lines, texts, strict=True)
    )


def _line_html(pane: Pane, line: PaneLine, text: str, anchors: Mapping[int, str]) -> str:
    if line.is_spill:
        text = f"<mark>{text}</mark>"
    at = line.origin
    if pane.is_source and at in anchors:
        text = f'<a data-l="{at}" href="#{escape(anchors[at or 0])}">{text}</a>'
    elif at and not pane.is_source:
        first = f' id="{pane.name}-{at}"' if line.is_first else ""
        text = f'<span data-l="{at}"{first}>{text}</span>'
    # SASS has addresses in place of numbers.
    number = f' data-n="{line.number}"' if line.number and pane.name != "sass" else ""
    peak = f' id="{escape(line.anchor)}" class="peak"' if line.anchor else ""
    return f"<i{number}{peak}>{escape(line.margin)}</i>{text}\n"


_COLOURS = (
    *((Token.Keyword, "b"), (Token.Operator.Word, "b"), (Token.Comment, "em")),
    *((Token.Literal, "var"), (Token.Name.Decorator, "u"), (Token.Name.Function, "u")),
)
"""The elements of Python's words; of assembly and IR those of operations and comments."""

_OPERATION = re.compile(
    r"^(\s*(?:/\*[0-9a-f]{4,}\*/\s+)?\{?\s*(?:@!?%?\w+\s+|%[\w#:, %]+=\s+)?)"
    r"([.A-Za-z][\w.:]*)(?=[\s;]|$)"
)
_COMMENT = re.compile(r"//.*|/\*.*?\*/")
_ADDRESS = re.compile(r"^ +(/\*[0-9a-f]{4,}\*/) +")


def _coloured(stage: str, lines: Sequence[str]) -> Iterator[str]:
    """Lines as HTML, with the colours of their language."""
    if stage == "python":
        html = ""
        lexer = PythonLexer(stripnl=False, ensurenl=False)
        for kind, words in lexer.get_tokens("\n".join(lines)):
            tag = next((tag for known, tag in _COLOURS if kind in known), None)
            parts = map(escape, words.split("\n"))
            html += "\n".join(f"<{tag}>{part}</{tag}>" if tag and part else part for part in parts)
        yield from html.split("\n")
        return
    for line in lines:
        text = escape(_ADDRESS.sub(r"\1  ", line))
        if stage != "log":
            text = _OPERATION.sub(r"\1<b>\2</b>", text, count=1)
            text = _COMMENT.sub(r"<em>\g<0></em>", text)
        yield text


_FIRST, _LAST = ("python", "source"), ("ptx", "sass", "log")

_TITLES = {
    "python": "Source",
    "source": "Front end's IR",
    "ptx": "PTX",
    "sass": "SASS",
    "log": "Log",
}
_CHOSEN = ("python", "source", "ptx", "sass")
_MLIR = re.compile(r"^\s*(?:module\b|#loc|[a-z]+\.func\b)", re.MULTILINE)
_MOST_LINES = 10_000
_MOST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class PaneLine:
    """One line: `origin` is the source's line that it comes from, `margin` what stands beside it.

    `number` is its own in the stage as it is stored, 0 where there is none.
    `is_first`: no line before it has this origin. `anchor` is a name to lead here by, "" for none.
    """

    text: str
    origin: int | None = None
    is_spill: bool = False
    margin: str = ""
    is_first: bool = False
    anchor: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pane:
    """One stage; `note` says what is not shown. The lines of others come from those of `is_source`.

    `spills` of its lines, the hidden ones too, load from or store to local memory. `curves` are
    those of the live registers of SASS.
    """

    name: str
    title: str
    lines: tuple[PaneLine, ...]
    note: str = ""
    spills: int = 0
    curves: tuple[LiveCurve, ...] = ()
    is_source: bool = False

    @property
    def is_chosen(self) -> bool:
        """Whether it is among those that are shown first."""
        return self.is_source or self.name in _CHOSEN

    @property
    def anchors(self) -> set[str]:
        """The names by which lines of it can be led to, besides their origins."""
        return {line.anchor for line in self.lines if line.anchor}

    @property
    def is_linked(self) -> bool:
        """Whether any line says where it comes from."""
        return any(line.origin is not None for line in self.lines)


def shown_stages(stages: Sequence[str]) -> tuple[str, ...]:
    """What a page shows of a cell, in order, by its compiler's stages; LLVM's IR is left out."""
    between = (stage for stage in stages if stage not in (*_FIRST, "llir", *_LAST))
    return (*_FIRST, *between, *_LAST)


def panes_of(stages: Mapping[str, bytes], live: Live | None = None) -> list[Pane]:
    """The panes of a cell.

    Args:
        stages: what there is of `shown_stages`, in that order, and the `cubin` that links SASS to
            PTX.
        live: the live registers at each instruction of the SASS.
    """
    texts = {
        name: data.decode("utf-8", "replace")
        for name, data in stages.items()
        if name != "cubin" and data and not (name not in _LAST and b"\0" in data)
    }
    home = _home(texts)
    origins = _origins(texts, stages.get("cubin", b""))
    weights = _weights(texts.get("sass", ""), origins.get("sass", ()))
    margins: dict[str, list[tuple[str, str]]] = {}
    if "python" in texts:
        texts.pop("source", None)  # the same once more, in the compiler's words
    if home in texts:
        reached = {at for lines in origins.values() for at in lines if at}
        numbers = range(1, len(lines_of(texts[home])) + 1)
        origins[home] = [at if at in reached else None for at in numbers]
        margins[home] = [(weights.get(at, ""), "") for at in numbers]
    curves: list[LiveCurve] = []
    if live and "sass" in texts:
        margins["sass"] = live_margins(texts["sass"], live)
        curves = live_curves(texts["sass"], origins.get("sass", ()), live)
    return [
        replace(
            _pane(name, text, origins.get(name, ()), margins.get(name, ())),
            curves=tuple(curves) if name == "sass" else (),
            is_source=name == home,
        )
        for name, text in texts.items()
    ]


def _home(texts: Mapping[str, str]) -> str:
    """The stage whose lines the debug information counts: the kernel's file, or generated source.

    Of a compiler that writes source for another one, the PTX names a file that is not Python.
    """
    file = kernel_file(texts.get("ptx", ""))
    between = [name for name in texts if name not in (*_FIRST, *_LAST)]
    if file is None or file.endswith(".py") or not between or _MLIR.search(texts[between[-1]]):
        return "python"
    return between[-1]


def anchors_of(panes: Sequence[Pane]) -> dict[int, str]:
    """For each line of the source, where the first line of the last stage that has it stands."""
    anchors: dict[int, str] = {}
    for pane in panes:
        if not pane.is_source:
            anchors |= {
                line.origin: f"{pane.name}-{line.origin}" for line in pane.lines if line.origin
            }
    return anchors


def _origins(texts: Mapping[str, str], cubin: bytes) -> dict[str, Origins]:
    ptx = texts.get("ptx", "")
    file = kernel_file(ptx)
    if file is None:
        return {}
    by_stage: dict[str, Origins] = {"ptx": ptx_origins(ptx)}
    between = [name for name in texts if name not in ("python", *_LAST)]
    by_stage |= {name: mlir_origins(texts[name], file) for name in between}
    if "sass" in texts and cubin:
        by_stage["sass"] = sass_origins(texts["sass"], line_tables(cubin), by_stage["ptx"])
    return by_stage


def _pane(name: str, text: str, origins: Origins, margins: Sequence[tuple[str, str]]) -> Pane:
    every = lines_of(text)
    lines = lines_of(text[:_MOST_BYTES])[:_MOST_LINES]
    note = ""
    if len(lines) < len(every):
        note = f"The first {len(lines):,} of {len(every):,} lines; triage show prints all."
    is_plain = name in (*_FIRST, "log")
    shown_lines = enumerate(lines, 1) if is_plain else _without_locations(lines)
    is_local = LOCAL_ACCESS.search if name == "sass" else (lambda _: None)
    shown: set[int | None] = {None}
    pane_lines = []
    for number, line in shown_lines:
        index = number - 1
        # Line 0 is what no line stands for.
        at = (origins[index] if index < len(origins) else None) or None
        margin, anchor = margins[index] if index < len(margins) else ("", "")
        pane_lines.append(
            PaneLine(
                line.rstrip(),
                at,
                is_spill=is_local(line) is not None,
                margin=margin,
                is_first=at not in shown,
                anchor=anchor,
                number=number,
            )
        )
        shown.add(at)
    return Pane(
        name=name,
        title=_TITLES.get(name, name.upper() if name.endswith("ir") else name),
        lines=tuple(pane_lines),
        note=note,
        spills=sum(is_local(line) is not None for line in every),
    )


_NOISE = re.compile(r"\s*(?:\.loc\b|\.file\b|\$L__(?:tmp|func_begin|func_end)\d+:|#loc\d* = )")
_LOCATION = re.compile(r"\s*loc\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)")
_DEBUG = re.compile(r"\s*\.section\s+\.debug")


def _without_locations(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, without debug information: what it says is in their links."""
    inside = False
    for number, line in enumerate(lines, 1):
        inside = inside or _DEBUG.match(line) is not None
        if not inside and not _NOISE.match(line):
            yield number, _LOCATION.sub("", line)
        inside = inside and "}" not in line


def _weights(sass: str, origins: Origins) -> dict[int, str]:
    instructions: Counter[int] = Counter()
    spills: Counter[int] = Counter()
    for line, origin in zip(lines_of(sass), origins, strict=False):
        if origin:
            instructions[origin] += 1
            spills[origin] += LOCAL_ACCESS.search(line) is not None
    return {
        at: f"{count:,}" + (f" ({spills[at]:,})" if spills[at] else "")
        for at, count in instructions.items()
    }
