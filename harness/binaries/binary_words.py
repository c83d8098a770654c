"""What finished binaries hold and what changed between two: words, tables and documents. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from harness.binaries.builds import BuildChange, BuildChanges
from harness.tables.rows import figure
from harness.tables.said import Block, Counted, GridColumn, SaidGrid, Tone, say
from harness.values.binary import BinaryKernel, ReassembledKernel
from harness.values.row import SCHEMA

_MOST_ROWS = 20
_MOST_FILES = 20
_MOST_NAME = 100
_METRICS = {
    "n_regs": "registers",
    "spills": "local accesses",
    "stack": "stack",
    "shared": "static shared memory",
}


def kernels_said(kernels: Sequence[BinaryKernel], *, whole: bool) -> list[Block]:
    """A line for each file and target; then the kernels: all, or those with the most spills."""
    names = {kernel.file for kernel in kernels}
    together = f"all {len(names):,}" if len(names) > _MOST_FILES else ""
    groups: dict[tuple[str, str], list[BinaryKernel]] = {}
    for kernel in kernels:
        place = together or kernel.file, kernel.target or "PTX alone"
        groups.setdefault(place, []).append(kernel)
    files = _grid(
        ("file", "target", "#kernels", "#most regs", "#may spill", "#with PTX", "made by"),
        [
            (
                file,
                target,
                figure(len(some)),
                figure(max((k.n_regs for k in some if k.n_regs), default=None)),
                figure(sum(k.spills != 0 for k in some)),
                figure(sum(bool(k.ptx) for k in some)),
                ", ".join(sorted({k.made_by for k in some if k.made_by})) or "-",
            )
            for (file, target), some in groups.items()
        ],
    )
    heaviest = sorted(kernels, key=lambda k: -(k.local_accesses or 0))
    if not whole:
        heaviest = [kernel for kernel in heaviest if kernel.local_accesses][:_MOST_ROWS]
    shown = _grid(
        ("target", "#regs", "#spills", "#local st", "#local ld", "#stack", "#shared", "PTX",
         "kernel", *(["file"] if len(names) > 1 else ())),
        [
            (
                kernel.target or "-",
                figure(kernel.n_regs),
                figure(kernel.spills),
                figure(kernel.local_stores),
                figure(kernel.local_loads),
                figure(kernel.stack),
                figure(kernel.static_shared),
                " ".join(kernel.ptx) or "-",
                _short(kernel.demangled),
                *([kernel.file] if len(names) > 1 else ()),
            )
            for kernel in heaviest
        ],
    )  # fmt: skip
    head = f"kernels: {len(kernels):,}, files: {len(names):,}"
    blocks: list[Block] = [say(head, Tone.HEAD), files]
    if heaviest:
        more = "" if whole else " with the most accesses to local memory"
        blocks += [say(f"kernels{more}: {len(heaviest):,}", Tone.HEAD), shown]
    if len(heaviest) < len(kernels):
        blocks.append(say("--all shows each kernel, --kernel some, --json everything", Tone.FAINT))
    return blocks


def _short(name: str) -> str:
    """A function without its parameters; of a long one without its middle."""
    depth, end = 0, len(name)
    while end and name.endswith(")"):
        end -= 1
        depth += {")": 1, "(": -1}.get(name[end], 0)
        if depth == 0:
            break
    name = (name[:end] or name).removeprefix("void ")
    half = (_MOST_NAME - 3) // 2
    return name if len(name) <= _MOST_NAME else f"{name[:half]}...{name[-half:]}"


def _grid(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> SaidGrid:
    """Titles that begin with `#` are those of numbers."""
    columns = (
        GridColumn(title=t.lstrip("#"), is_number=t[0] == "#", wraps=t[0] != "#", folds=True)
        for t in titles
    )
    return SaidGrid(columns=tuple(columns), rows=tuple(tuple(map(say, row)) for row in rows))


class BinaryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `triage binaries PATH --json` prints; `again` is there with `--ptxas`."""

    schema: Literal[1]
    path: str
    kernels: Sequence[BinaryKernel]
    problems: Sequence[str]
    again: Sequence[ReassembledKernel] | UnsetType = UNSET


class ListedStep(msgspec.Struct, frozen=True):
    """A number that is not what it was."""

    metric: str
    older: int | float | str
    newer: int | float | str


class ListedChange(msgspec.Struct, frozen=True):
    """A kernel of two builds: `worse`, `better`, `other code`, `new` or `gone`."""

    kind: str
    older: BinaryKernel | None
    newer: BinaryKernel | None
    steps: Sequence[ListedStep]


class BuildsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `triage binaries PATH PATH2 --json` prints; `same` counts kernels with equal code."""

    schema: Literal[1]
    older: str
    newer: str
    same: int
    changes: Sequence[ListedChange]
    problems: Sequence[str]


def kernels_document(
    path: str,
    kernels: Sequence[BinaryKernel],
    problems: Sequence[str],
    again: Sequence[ReassembledKernel] | None = None,
) -> BinaryDocument:
    """The document of one binary; `again` are the kernels that were assembled again."""
    return BinaryDocument(
        schema=SCHEMA,
        path=path,
        kernels=kernels,
        problems=problems,
        again=UNSET if again is None else again,
    )


def again_said(rows: Sequence[ReassembledKernel]) -> list[Block]:
    """The kernels whose PTX was assembled again, each beside what was shipped for that target."""
    if not rows:
        return [say("nothing was assembled: there is no PTX of these kernels", Tone.POOR)]
    grid = _grid(
        ("target", "ptxas", "#regs", "#shipped", "#spills", "#local", "#shipped", "kernel"),
        [
            (
                row.target,
                row.ptxas,
                figure(row.n_regs),
                figure(row.shipped.n_regs if row.shipped else None),
                figure(row.spills),
                figure(row.local_accesses),
                figure((row.shipped.local_accesses or 0) if row.shipped else None),
                _short(row.demangled) + (f": {row.problem}" if row.problem else ""),
            )
            for row in rows
        ],
    )
    paired = [row for row in rows if row.shipped and row.local_accesses is not None]
    lines: list[Block] = [say("embedded PTX, assembled again", Tone.HEAD), grid]
    for what, sign in (("fewer", -1), ("more", 1)):
        count = sum((_more(row) > 0) - (_more(row) < 0) == sign for row in paired)
        if count:
            lines.append(
                Counted(count, say(f"{what} accesses to local memory than what was shipped"))
            )
    return lines


def _more(row: ReassembledKernel) -> int:
    return (row.local_accesses or 0) - ((row.shipped and row.shipped.local_accesses) or 0)


def builds_said(result: BuildChanges, older: str, newer: str, *, whole: bool) -> list[Block]:
    """First what got worse, then what got better, then the rest, counted."""
    kinds = {kind: [c for c in result.changes if _kind(c) == kind] for kind in _KINDS}
    blocks: list[Block] = [say(f"{older} -> {newer}", Tone.HEAD)]
    for kind, tone in _KINDS.items():
        changes = kinds[kind]
        rows = changes if whole or kind in ("worse", "better") else []
        if not whole:
            rows = rows[:_MOST_ROWS]
        if rows:
            blocks += [say(f"{kind}: {len(changes):,}", tone), _changes(rows)]
    blocks += [Counted(len(some), say(kind, _KINDS[kind])) for kind, some in kinds.items() if some]
    blocks.append(Counted(result.same, say("the same machine code")))
    tools = Counter((c.older.made_by, c.newer.made_by) for c in result.changes
                    if c.older and c.newer)  # fmt: skip
    for (before, after), count in tools.items():
        if before and after and before != after:
            blocks.append(Counted(count, say(f"made by {after} instead of {before}")))
    return blocks


_KINDS = {
    "worse": Tone.BAD,
    "better": Tone.GOOD,
    "other code": Tone.PLAIN,
    "new": Tone.PLAIN,
    "gone": Tone.PLAIN,
}


def _kind(change: BuildChange) -> str:
    if change.newer is None or change.older is None:
        return "gone" if change.newer is None else "new"
    return {True: "worse", False: "better", None: "other code"}[change.worse]


def _changes(changes: Sequence[BuildChange]) -> SaidGrid:
    return _grid(
        ("target", "what", "kernel", "file"),
        [
            (
                change.kernel.target or "-",
                "; ".join(
                    f"{_METRICS[step.metric]} {step.older:,} -> {step.newer:,}"
                    for step in change.steps
                    if not isinstance(step.older, str) and not isinstance(step.newer, str)
                ),
                _short(change.kernel.demangled),
                change.kernel.file,
            )
            for change in changes
        ],
    )


def builds_document(
    result: BuildChanges, paths: tuple[str, str], problems: Sequence[str]
) -> BuildsDocument:
    """The document of two builds."""
    return BuildsDocument(
        schema=SCHEMA,
        older=paths[0],
        newer=paths[1],
        same=result.same,
        changes=[
            ListedChange(
                kind=_kind(change),
                older=change.older,
                newer=change.newer,
                steps=[
                    ListedStep(_METRICS[step.metric], step.older, step.newer)
                    for step in change.steps
                ],
            )
            for change in result.changes
        ],
        problems=problems,
    )
