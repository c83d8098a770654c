"""What `triage check` found, for people: a line for each group of configs that agree."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from harness.tables.rows import counted, suspect_lines
from harness.tables.survivors import common_ground
from harness.values.check import Agreement, CheckRow

__all__ = ["render_checks"]

_STYLES = {Agreement.AGREES: "green", Agreement.DIFFERS: "red", Agreement.NOT_CHECKED: "dim"}


def render_checks(rows: Sequence[CheckRow]) -> RenderableType:
    """A heading for each kernel and launch, and under it its groups, the differing ones first."""
    kernels: dict[tuple[str, ...], list[CheckRow]] = {}
    for row in rows:
        kernels.setdefault((row.kernel, row.launch, row.target, row.triton), []).append(row)
    parts: list[RenderableType] = []
    for (kernel, launch, target, triton), found in kernels.items():
        heading = f"{kernel} · {launch} · as {target} would see it · Triton {triton}, interpreted"
        parts += [
            Text(heading, style="bold"),
            *_groups(found),
            *suspect_lines([row.suspect for row in found]),
        ]
        parts.append(Text(""))
    return Group(*parts)


def _groups(rows: Sequence[CheckRow]) -> list[RenderableType]:
    groups: dict[tuple[Agreement, object, str], list[CheckRow]] = {}
    for row in rows:
        groups.setdefault((row.status, row.group, row.reason), []).append(row)
    order = list(reversed(Agreement))
    lines = []
    for (status, _, reason), found in sorted(groups.items(), key=lambda x: order.index(x[0][0])):
        others = [row.config for row in rows if row not in found]
        where = common_ground([row.config for row in found], others)
        words = f"{f' [{where}]' if where else ''}: {reason}{_numbers(found)}"
        lines.append(counted(len(found), Text(status.value, style=_STYLES[status]), words))
    return lines


def _numbers(rows: Sequence[CheckRow]) -> str:
    worst = max(rows, key=lambda row: row.stable_max_rel or 0.0)
    if worst.status is not Agreement.DIFFERS:
        return ""
    names = ("rel_err", "stable_max_rel", "bad_frac")
    found = {name: getattr(worst, name) for name in names}
    return "; " + ", ".join(
        f"{name} {'infinite' if value is None else format(value, '.2g')}"
        for name, value in found.items()
    )
