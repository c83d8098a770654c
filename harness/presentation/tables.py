"""Rows as a table for people: one line a config, the numbers that decide first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.logic.survivorship import Fate, survivors
from harness.values.row import Row
from harness.values.toolchain import BUNDLED
from harness.values.verdict import VerdictKind

__all__ = ["render_rows", "verdict_text"]

_STYLES = {VerdictKind.OK: "green", VerdictKind.SICK: "yellow"}
_SHORT_NAMES = {"num_warps": "warps", "num_stages": "stages", "num_ctas": "ctas"}
_CLASSES = ("tensor", "vector", "special", "memory", "local")


def verdict_text(verdict: str) -> Text:
    """A verdict in its colour."""
    kind = VerdictKind(verdict)
    style = _STYLES.get(kind, "dim" if kind.tells_nothing else "red")
    return Text(verdict, style=style)


def render_rows(rows: Sequence[Row]) -> RenderableType:
    """A table and its survivorship for each launch, target and toolchain, in order."""
    parts: list[RenderableType] = []
    for heading, found in groupby(rows, key=_heading):
        group = list(found)
        parts += [Text(heading, style="bold"), _table(group), _survivorship(group), Text("")]
    return Group(*parts)


def _heading(row: Row) -> str:
    origin = " (bundled)" if row.ptxas_origin == BUNDLED else ""
    triton = f"Triton {row.triton}" if row.triton else "raw PTX"
    return f"{row.kernel} · {row.launch} · {row.target} · {triton} · ptxas {row.ptxas}{origin}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _occupancy(row: Row) -> str:
    return "-" if row.occupancy is None else f"{row.occupancy:.1%} {row.occupancy_limiter}"


def _mix(row: Row) -> str:
    if row.instructions is None:
        return "-"
    return ":".join(str(row.instructions[name]) for name in _CLASSES)


def _seconds(row: Row) -> str:
    if row.seconds is None:
        return "-"
    return f"{row.seconds:.1f}{'*' if row.cached else ''}"


_COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("regs", lambda row: _number(row.n_regs)),
    ("spill st", lambda row: _number(row.spill_stores)),
    ("spill ld", lambda row: _number(row.spill_loads)),
    ("stack", lambda row: _number(row.stack)),
    ("shared", lambda row: _number(row.shared)),
    ("tmem", lambda row: _number(row.tmem_size)),
    ("occupancy", _occupancy),
    ("tens:vec:sfu:mem:local", _mix),
    ("s", _seconds),
)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("cell", style="dim", no_wrap=True)
    names = list(dict.fromkeys(name for row in rows for name in row.config))
    for name in names:
        table.add_column(_SHORT_NAMES.get(name, name), justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for title, _ in _COLUMNS:
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        config = [str(row.config.get(name, "-")) for name in names]
        numbers = [show(row) for _, show in _COLUMNS]
        table.add_row(row.short, *config, verdict_text(row.verdict), *numbers)
    return table


def _survivorship(rows: Sequence[Row]) -> Text:
    found = survivors(rows)
    lines = [Text(found.headline, style="bold")]
    lines += [_fate_line(fate) for fate in found.fates if fate.verdict is not VerdictKind.OK]
    return Text("\n").join(lines)


def _fate_line(fate: Fate) -> Text:
    line = Text.assemble(f"  {len(fate.rows)} ", verdict_text(fate.verdict.value))
    if fate.where:
        line.append(f" [{fate.where}]")
    line.append(f": {fate.reason}")
    if fate.at_fault:
        line.append(f" (at fault: {fate.at_fault})")
    return line


def bullet_list(lines: Iterable[str]) -> Text:
    """Lines with a bullet each."""
    return Text("\n".join(f"  {line}" for line in lines))
