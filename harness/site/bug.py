"""What the page of a bug shows besides its life: the grid that blame is read from, links. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from harness.cells.spelling import spell_command, words_of
from harness.io.packages.versions import toolchain_order, version_order
from harness.site.overview import SEEN_LETTERS, SEEN_TONES, SEEN_WORDS
from harness.site.squares import Square, SquareGrid, SquareLine
from harness.values.bug import Bug, BugFacts, Seen

_ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")
_HASH = 8
_MOST_SQUARES = 3_000
_MOST_SAID = 6

_Beside: TypeAlias = tuple[BugFacts, str, Seen]
_Lines: TypeAlias = dict[tuple[str, str], dict[str, _Beside]]
"""By program (or compiler) and flags, then by assembler."""
_Compilers: TypeAlias = dict[tuple[str, str], list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameView:
    """Programs by assemblers at one place: what each pair does with a bug, and what that says.

    `place` is the kernel, launch, config and target. `command` tries the pairs that are missing.
    """

    place: str
    grid: SquareGrid
    says: tuple[str, ...]
    command: str


def blame_view(beside: Sequence[_Beside]) -> BlameView | None:
    """The grid of the cells at one place; None where there is none.

    A line is one program, byte for byte, or a compiler that came to none; a column an assembler.
    """
    if not beside:
        return None
    ordered = sorted(beside, key=lambda each: _order(each[0]))
    tools = {facts.tool: (facts.assembler, version_order(facts.ptxas)) for facts, _, _ in beside}
    columns = sorted(tools, key=lambda tool: tools[tool])
    lines: _Lines = defaultdict(dict)
    compilers: _Compilers = defaultdict(list)
    for facts, href, seen in ordered:
        program = facts.ptx_body_sha256 or ""
        key = (program or facts.compiler_name, facts.flags)
        lines[key][facts.tool] = (facts, href, seen)
        if facts.compiler_name not in compilers[key]:
            compilers[key].append(facts.compiler_name)
    most = max(1, _MOST_SQUARES // len(columns))
    shown = list(lines.items())[:most]
    gone = len(lines) - len(shown)
    example = next((facts for facts, _, seen in ordered if seen is Seen.HERE), ordered[0][0])
    return BlameView(
        place=example.place,
        grid=SquareGrid(
            title="Programs by assemblers",
            columns=tuple(columns),
            lines=tuple(
                SquareLine(
                    _label(key, compilers[key]),
                    tuple(_square(found[tool]) if tool in found else None for tool in columns),
                )
                for key, found in shown
            ),
            left_out=f"{gone:,} of {len(lines):,} programs; the rows have all." if gone else "",
            row_title="program",
        ),
        says=tuple(_says(lines, compilers)),
        command=spell_command("blame", words_of(example)),
    )


def _order(facts: BugFacts) -> tuple[object, ...]:
    return toolchain_order(facts.compiler_version, facts.ptxas, facts.ptxas_origin)


def _label(key: tuple[str, str], compilers: Sequence[str]) -> str:
    program, flags = key
    is_known = program not in compilers
    more = (f", program {program[:_HASH]}" if is_known else "") + (f", {flags}" if flags else "")
    return f"{', '.join(compilers)}{more}"


def _square(one: _Beside) -> Square:
    facts, href, seen = one
    words = f"{facts.compiler_name}, {facts.tool}: {SEEN_WORDS[seen]} ({facts.verdict})"
    return Square(SEEN_LETTERS[seen], SEEN_TONES[seen], words, href)


def _says(lines: _Lines, compilers: _Compilers) -> list[str]:
    """What the grid proves: two of program, assembler and options are the same, one differs."""
    said: list[str] = []
    of_tool: dict[tuple[str, str], dict[str, _Beside]] = defaultdict(dict)
    of_options: dict[tuple[str, str], dict[str, _Beside]] = defaultdict(dict)
    for (program, flags), found in lines.items():
        is_program = program not in compilers[program, flags]
        options = f" {flags}" if flags else ""
        if is_program and (pair := _both(found)):
            said.append(
                f"Program {program[:_HASH]}{options}, the same each time, fails with {pair[0]} "
                f"and works with {pair[1]}: it depends on the assembler."
            )
        for tool, one in found.items():
            of_tool[tool, flags][", ".join(compilers[program, flags])] = one
            if is_program:
                of_options[tool, program][flags or "none"] = one
    for (tool, flags), found in of_tool.items():
        options = f" {flags}" if flags else ""
        if pair := _both(found):
            said.append(
                f"{tool}{options} fails with what {pair[0]} generates and works with what "
                f"{pair[1]} generates: it depends on the program."
            )
    for (tool, program), found in of_options.items():
        if pair := _both(found):
            said.append(
                f"Program {program[:_HASH]} on {tool} fails with the options {pair[0]} and works "
                f"with {pair[1]}: it depends on the options."
            )
    more = len(said) - _MOST_SAID
    if more > 0:
        said = [*said[:_MOST_SAID], f"{more:,} more such comparisons are in the grid."]
    return said or ["No two of these cells differ in one thing alone and in whether they fail."]


def _both(found: Mapping[str, _Beside]) -> tuple[str, str] | None:
    bad, good = (
        _few([name for name, (_, _, seen) in found.items() if seen is wanted])
        for wanted in (Seen.HERE, Seen.CLEAN)
    )
    return (bad, good) if bad and good else None


def _few(names: Sequence[str]) -> str:
    names = list(dict.fromkeys(names))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def upstream_links(bug: Bug) -> list[tuple[str, str]]:
    """Words and address of each upstream issue; "" for one that is not an address."""
    found = {}
    if bug.record.url:
        found[bug.record.url] = bug.record.url
    for issue in bug.issues:
        match = _ISSUE.fullmatch(issue)
        found[issue] = f"https://github.com/{match[1]}/issues/{match[2]}" if match else issue
    return [
        (words, url if url.startswith(("https://", "http://")) else "")
        for words, url in found.items()
    ]
