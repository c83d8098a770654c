"""What `triage run` found, for people: a line for each group of cells, and values of raw PTX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Group, RenderableType
from rich.text import Text

from harness.tables.survivors import common_ground
from harness.tables.terminal import counted
from harness.values.run import RunRow, RunVerdict

__all__ = ["render_runs", "render_values"]

_STYLES = {RunVerdict.RIGHT: "green", RunVerdict.RAN: "green", RunVerdict.NOT_RUN: "dim"}
_FOUND = "red"
_RACES = 3
_SHOWN = 16


def render_runs(rows: Sequence[RunRow]) -> RenderableType:
    """A heading for each kernel, launch, target and Triton; under it what came out, worst first."""
    kernels: dict[tuple[str | None, ...], list[RunRow]] = {}
    for row in rows:
        kernels.setdefault((row.kernel, row.launch, row.target, row.triton), []).append(row)
    parts: list[RenderableType] = []
    for (kernel, launch, target, triton), found in kernels.items():
        by = f"Triton {triton}" if triton else "PTX"
        heading = f"{kernel} · {launch} · {target} · {by}, {_effort(found)}"
        parts += [Text(heading, style="bold"), *_groups(found), Text("")]
    return Group(*parts)


def _effort(rows: Sequence[RunRow]) -> str:
    executed = sum(row.instructions_run or 0 for row in rows)
    seconds = sum(row.seconds or 0.0 for row in rows)
    return f"emulated: {executed:,} instructions in {seconds:.1f} s"


def _groups(rows: Sequence[RunRow]) -> list[RenderableType]:
    groups: dict[tuple[RunVerdict, str], list[RunRow]] = {}
    for row in rows:
        groups.setdefault((row.run, row.run_signature or row.run_reason), []).append(row)
    lines: list[RenderableType] = []
    order = sorted(groups.items(), key=lambda each: not each[0][0].is_wrong)
    for (verdict, _), found in order:
        others = [row.config for row in rows if row not in found]
        where = common_ground([row.config for row in found], others)
        style = _STYLES.get(verdict, _FOUND)
        words = f"{f' [{where}]' if where else ''}: {found[0].run_reason}"
        lines.append(counted(len(found), Text(verdict.value, style=style).append(words, "default")))
        lines += _race_lines(found[0])
    return lines


def _race_lines(row: RunRow) -> list[RenderableType]:
    lines: list[RenderableType] = []
    serious = [race for race in row.races if not race.formal]
    for race in serious[:_RACES]:
        places = " and ".join(
            f"PTX line {line}" + (f" ({source})" if source else "")
            for line, source in zip(race.ptx_lines, race.source_lines, strict=True)
        )
        lines.append(Text(f"        {race.kind}, {race.space}: {places}", style="dim"))
    if len(serious) > _RACES:
        lines.append(Text(f"        and {len(serious) - _RACES} more", style="dim"))
    return lines


def render_values(
    before: Mapping[str, npt.NDArray[Any]], after: Mapping[str, npt.NDArray[Any]]
) -> RenderableType:
    """The buffers that a run changed, with their first elements."""
    lines: list[RenderableType] = []
    for name, values in after.items():
        changed = values.view(np.uint8) != before[name].view(np.uint8)
        count = int(changed.reshape(len(values), -1).any(axis=1).sum()) if len(values) else 0
        if not count:
            lines.append(Text(f"  {name}: unchanged", style="dim"))
            continue
        lines.append(Text(f"  {name}: {count:,} of {len(values):,} elements changed"))
        for start in range(0, min(len(values), _SHOWN), 4):
            words = "  ".join(_spelled(each) for each in values[start : start + 4])
            lines.append(Text(f"    [{start}]  {words}"))
        if len(values) > _SHOWN:
            lines.append(
                Text(f"    and {len(values) - _SHOWN:,} more; --dump has all", style="dim")
            )
    return Group(*lines)


def _spelled(value: Any) -> str:  # noqa: ANN401 - an element of any array
    """Integers as bits too: what they mean is the reader's to say."""
    kind = np.asarray(value).dtype
    if kind.kind in "iu":
        bits = int(value) % (1 << 8 * kind.itemsize)
        return f"{int(value)} (0x{bits:0{2 * kind.itemsize}x})"
    return f"{float(value):.8g}" if kind.kind != "b" else str(bool(value))
