"""What `triage run` found, for people: a line for each group of cells, and values of raw PTX.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.run.judging import as_document
from harness.tables.said import BLANK, Block, Counted, SaidLine, Tone, say
from harness.tables.survivors import common_ground
from harness.values.execution import RunRow, RunVerdict, TraceFacts, TraceStep
from harness.values.row import SCHEMA

_TONES = {RunVerdict.RIGHT: Tone.GOOD, RunVerdict.RAN: Tone.GOOD, RunVerdict.NOT_RUN: Tone.FAINT}
_RACES = 3
_PRINTED = 20
_SHOWN = 16
_STEPS = 12


def runs_said(rows: Sequence[RunRow]) -> list[Block]:
    """A heading for each kernel, launch, target and Triton; under it what came out, worst first."""
    kernels: dict[tuple[str | None, ...], list[RunRow]] = {}
    for row in rows:
        kernels.setdefault((row.kernel, row.launch, row.target, row.triton), []).append(row)
    parts: list[Block] = []
    for (kernel, launch, target, triton), found in kernels.items():
        by = f"Triton {triton}" if triton else "PTX"
        heading = f"{kernel} · {launch} · {target} · {by}, {_effort(found)}"
        parts += [say(heading, Tone.HEAD), *_groups(found), BLANK]
    return parts


def _effort(rows: Sequence[RunRow]) -> str:
    executed = sum(row.instructions_run or 0 for row in rows)
    seconds = sum(row.seconds or 0.0 for row in rows)
    return f"emulated: {executed:,} instructions in {seconds:.1f} s"


def _groups(rows: Sequence[RunRow]) -> list[Block]:
    groups: dict[tuple[RunVerdict, str], list[RunRow]] = {}
    for row in rows:
        groups.setdefault((row.run, row.run_signature or row.run_reason), []).append(row)
    lines: list[Block] = []
    order = sorted(groups.items(), key=lambda each: not each[0][0].is_wrong)
    for (verdict, _), found in order:
        others = [row.config for row in rows if row not in found]
        where = common_ground([row.config for row in found], others)
        words = f"{f' [{where}]' if where else ''}: {found[0].run_reason}"
        said = say(verdict.value, _TONES.get(verdict, Tone.BAD)) + say(words)
        lines.append(Counted(len(found), said))
        lines += _race_lines(found[0])
        lines += _printed_lines(found[0])
    return lines


def _printed_lines(row: RunRow) -> list[SaidLine]:
    """What the kernel's threads printed."""
    lines = [say(f"        printed: {each}", Tone.FAINT) for each in row.printed[:_PRINTED]]
    if len(row.printed) > _PRINTED:
        words = f"        and {len(row.printed) - _PRINTED} more lines (--json)"
        lines.append(say(words, Tone.FAINT))
    return lines


def _race_lines(row: RunRow) -> list[SaidLine]:
    lines = []
    serious = [race for race in row.races if not race.formal]
    for race in serious[:_RACES]:
        places = " and ".join(
            f"PTX line {line}" + (f" ({source})" if source else "")
            for line, source in zip(race.ptx_lines, race.source_lines, strict=True)
        )
        lines.append(say(f"        {race.kind}, {race.space}: {places}", Tone.FAINT))
    if len(serious) > _RACES:
        lines.append(say(f"        and {len(serious) - _RACES} more", Tone.FAINT))
    return lines


def values_said(
    before: Mapping[str, npt.NDArray[Any]], after: Mapping[str, npt.NDArray[Any]]
) -> list[SaidLine]:
    """The buffers that a run changed, with their first elements."""
    lines = []
    for name, values in after.items():
        changed = values.view(np.uint8) != before[name].view(np.uint8)
        count = int(changed.reshape(len(values), -1).any(axis=1).sum()) if len(values) else 0
        if not count:
            lines.append(say(f"  {name}: unchanged", Tone.FAINT))
            continue
        lines.append(say(f"  {name}: {count:,} of {len(values):,} elements changed"))
        for start in range(0, min(len(values), _SHOWN), 4):
            words = "  ".join(_spelled(each) for each in values[start : start + 4])
            lines.append(say(f"    [{start}]  {words}"))
        if len(values) > _SHOWN:
            more = f"    and {len(values) - _SHOWN:,} more; --dump has all"
            lines.append(say(more, Tone.FAINT))
    return lines


def _spelled(value: Any) -> str:  # noqa: ANN401 - an element of any array
    """Integers as bits too: what they mean is the reader's to say."""
    kind = np.asarray(value).dtype
    if kind.kind in "iu":
        bits = int(value) % (1 << 8 * kind.itemsize)
        return f"{int(value)} (0x{bits:0{2 * kind.itemsize}x})"
    return f"{float(value):.8g}" if kind.kind != "b" else str(bool(value))


def traces_said(rows: Sequence[RunRow]) -> list[Block]:
    """The way of each value that was followed, from where two runs first differ."""
    return [line for row in rows if row.trace for line in _trace(row.trace)]


def _trace(found: TraceFacts) -> list[Block]:
    if found.reason or not found.runs or not found.values:
        return [say(f"{found.element}: {found.reason}", Tone.FAINT)]
    (one, other), (left, right) = found.runs, found.values
    program = f", program {found.program}" if found.program else ""
    heading = f"{found.element}: {left} under {one}, {right} under {other}{program}"
    lines: list[Block] = [say(heading, Tone.HEAD), say(f"begins: {found.begins}")]
    steps = [say(_step(each)) for each in found.steps]
    if len(steps) > 2 * _STEPS:
        left_out = say(f"... {len(steps) - 2 * _STEPS} more (--json)", Tone.FAINT)
        steps = [*steps[:_STEPS], left_out, *steps[-_STEPS:]]
    return [*lines, *steps, BLANK]


def _step(step: TraceStep) -> str:
    source = f" ({step.source_line})" if step.source_line else ""
    who = f"warp {step.warp}" if step.thread is None else f"thread {step.thread}"
    values = f": {' / '.join(filter(None, step.values))}" if any(step.values) else ""
    return f"PTX line {step.ptx_line}, {who}: {step.instruction.rstrip(';')}{source}{values}"


def runs_document(rows: Sequence[RunRow], **summary: object) -> dict[str, Any]:
    """As `--json` prints it; `summary` is said of all of them, beside their verdicts."""
    verdicts = Counter(row.run.value for row in rows)
    return {
        "schema": SCHEMA,
        "runs": [as_document(row) for row in rows],
        "summary": {"verdicts": verdicts, **summary},
    }
