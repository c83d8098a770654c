"""What `triage check` found, for people: a line for each group of configs that agree. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from harness.tables.rows import suspect_lines
from harness.tables.said import BLANK, Block, Counted, Tone, say
from harness.tables.survivors import common_ground
from harness.values.check import Agreement, CheckRow

_TONES = {
    Agreement.AGREES: Tone.GOOD,
    Agreement.DIFFERS: Tone.BAD,
    Agreement.NOT_CHECKED: Tone.FAINT,
}


def checks_said(rows: Sequence[CheckRow]) -> list[Block]:
    """A heading for each kernel and launch, and under it its groups, the differing ones first."""
    kernels: dict[tuple[str, ...], list[CheckRow]] = {}
    for row in rows:
        kernels.setdefault((row.kernel, row.launch, row.target, row.triton), []).append(row)
    parts: list[Block] = []
    for (kernel, launch, target, triton), found in kernels.items():
        heading = f"{kernel} · {launch} · as {target} would see it · Triton {triton}, interpreted"
        parts += [
            say(heading, Tone.HEAD),
            *_groups(found),
            *suspect_lines([row.suspect for row in found]),
        ]
        parts.append(BLANK)
    return parts


def _groups(rows: Sequence[CheckRow]) -> list[Block]:
    groups: dict[tuple[Agreement, object, str], list[CheckRow]] = {}
    for row in rows:
        groups.setdefault((row.status, row.group, row.reason), []).append(row)
    order = list(reversed(Agreement))
    lines: list[Block] = []
    for (status, _, reason), found in sorted(groups.items(), key=lambda x: order.index(x[0][0])):
        others = [row.config for row in rows if row not in found]
        where = common_ground([row.config for row in found], others)
        words = f"{f' [{where}]' if where else ''}: {reason}{_numbers(found)}"
        lines.append(Counted(len(found), say(status.value, _TONES[status]) + say(words)))
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
