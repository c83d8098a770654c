"""What `triage run` found, for people: a line for each group of cells or cubins, and values.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.run.judging import as_document
from harness.tables.rows import config_columns, figure, grid_of, lifted_words, suspect_lines
from harness.tables.said import BLANK, Block, Counted, SaidGrid, SaidLine, Tone, say, verdict_said
from harness.tables.summary import plural
from harness.tables.survivors import common_ground
from harness.values.execution import Agreement, RunRow, TraceFacts, TraceStep
from harness.values.row import SCHEMA
from harness.values.timing import Faster, TimeMs, compare_times
from harness.values.toolchain import EVIDENCE, PTX, SASS, compiler_name
from harness.values.verdict import VerdictKind

_RACES = 3
_PRINTED = 20
_SHOWN = 16
_STEPS = 12


def runs_said(rows: Sequence[RunRow]) -> list[Block]:
    """A heading for each kernel, launch, target and compiler; what came out, the worst first."""
    kernels: dict[tuple[str, ...], list[RunRow]] = {}
    for row in rows:
        by = row.cell.rpartition("@")[2].split("/")[1]  # a kernel's name may be a path
        kernels.setdefault((row.kernel, row.launch, row.target, row.on, by), []).append(row)
    parts: list[Block] = []
    for (kernel, launch, target, on, by), group in kernels.items():
        kind, _, version = by.partition("-")
        named = compiler_name(kind, version)
        compiler = ("cubin" if on == SASS else "PTX") if kind == PTX else named
        count = sum(row.instructions_run or 0 for row in group)
        seconds = sum(row.seconds or 0.0 for row in group)
        effort = f"{EVIDENCE[group[0].on]}: {count:,} instructions in {seconds:.1f} s"
        heading = f"{kernel} · {launch} · {target} · {compiler}, {effort}"
        parts += [say(heading, Tone.HEAD), *_groups(group), *_checks(group)]
        parts += [*_sanitized(group), BLANK]
    return parts


def _groups(rows: Sequence[RunRow]) -> list[Block]:
    lines: list[Block] = []
    for group in _by_verdict(rows):
        first, words = group[0], f"{_where(group, rows)}: {group[0].run_reason}"
        lines.append(Counted(len(group), verdict_said(first.run, [say(words)])))
        lines += _race_lines(first)
        lines += [say(f"        printed: {line}", Tone.FAINT) for line in first.printed[:_PRINTED]]
        if len(first.printed) > _PRINTED:
            more = f"        and {plural(len(first.printed) - _PRINTED, 'more line')} (--json)"
            lines.append(say(more, Tone.FAINT))
    return lines


def _where(group: Sequence[RunRow], rows: Sequence[RunRow]) -> str:
    """What the configs of some rows share, and no other row has; empty for nothing."""
    others = [row.config for row in rows if row not in group]
    where = common_ground([row.config for row in group], others)
    return f" [{where}]" if where else ""


def _by_verdict(rows: Sequence[RunRow]) -> list[list[RunRow]]:
    """Rows of one verdict and signature together, what is wrong first."""
    groups: dict[tuple[VerdictKind, str], list[RunRow]] = {}
    for row in rows:
        groups.setdefault((row.run, row.run_signature or row.run_reason), []).append(row)
    return sorted(groups.values(), key=lambda group: not group[0].run.is_failure)


_DISAGREEMENT = {
    Agreement.DIFFERS: "differs from other configs",
    Agreement.NOT_CHECKED: "not compared with other configs",
}


def _checks(rows: Sequence[RunRow]) -> list[Block]:
    """What the configs of one launch compute against one another; nothing where all agree."""
    groups: dict[tuple[Agreement, object, str], list[RunRow]] = {}
    for row in rows:
        if row.check and row.check.status is not Agreement.AGREES:
            key = (row.check.status, row.check.group, row.check.reason)
            groups.setdefault(key, []).append(row)
    lines: list[Block] = []
    for (status, _, reason), group in groups.items():
        words = f"{_where(group, rows)}: {reason}{_numbers(group)}"
        tone = Tone.BAD if status is Agreement.DIFFERS else Tone.FAINT
        lines.append(Counted(len(group), say(_DISAGREEMENT[status], tone) + say(words)))
    return lines + suspect_lines([row.suspect for row in rows])


def _numbers(rows: Sequence[RunRow]) -> str:
    checks = [row.check for row in rows if row.check and row.check.status is Agreement.DIFFERS]
    if not checks:
        return ""
    worst = max(checks, key=lambda check: check.stable_max_rel or 0.0)
    names = ("rel_err", "stable_max_rel", "bad_frac")
    numbers = [(name, getattr(worst, name)) for name in names]
    return "; " + ", ".join(
        f"{name} {'infinite' if value is None else format(value, '.2g')}" for name, value in numbers
    )


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
            words = "  ".join(map(_spelled, values[start : start + 4]))
            lines.append(say(f"    [{start}]  {words}"))
        if len(values) > _SHOWN:
            more = f"    and {len(values) - _SHOWN:,} more; --out has all"
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


def _trace(trace: TraceFacts) -> list[Block]:
    if trace.reason or not trace.runs or not trace.values:
        return [say(f"{trace.element}: {trace.reason}", Tone.FAINT)]
    (first, second), (left, right) = trace.runs, trace.values
    program = f", program {trace.program}" if trace.program else ""
    heading = f"{trace.element}: {left} under {first}, {right} under {second}{program}"
    lines: list[Block] = [say(heading, Tone.HEAD), say(f"begins: {trace.begins}")]
    steps = [say(_step(step)) for step in trace.steps]
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


# What cubins did on a GPU: for each PTX, its assemblers side by side.


def measured_said(rows: Sequence[RunRow], device: str) -> list[Block]:
    """A heading for each kernel and launch; under it a line for each group of cubins alike."""
    kernels: dict[tuple[str, str, str, str], list[RunRow]] = {}
    for row in rows:
        config = ",".join(f"{name}={value}" for name, value in row.config.items())
        kernels.setdefault((row.kernel, row.launch, config, row.target), []).append(row)
    parts: list[Block] = []
    for place, group in kernels.items():
        heading = " · ".join(filter(None, (*place, device)))
        parts += [say(f"{heading}, {EVIDENCE[group[0].on]}", Tone.HEAD), *_cubins(group), BLANK]
    return parts


def _cubins(rows: Sequence[RunRow]) -> list[Block]:
    lines: list[Block] = []
    for group in _by_verdict(rows):
        tools = ", ".join(dict.fromkeys(map(_tool, group)))
        verdict = verdict_said(group[0].run, [say(f"  {tools}")])
        lines += [say("  ") + verdict, say(f"      {group[0].run_reason}")]
    return [*lines, *_sanitized(rows)]


def _sanitized(rows: Sequence[RunRow]) -> list[Block]:
    """What sanitizers say, those cubins together of which they say the same."""
    groups: dict[tuple[str, int | None, str], list[str]] = {}
    for row in rows:
        for facts in row.sanitizers:
            groups.setdefault((facts.tool, facts.errors, facts.words), []).append(_tool(row))
    lines: list[Block] = []
    for (tool, errors, words), tools in groups.items():
        count = "no answer" if errors is None else f"{errors or 'no'} error{'s' * (errors != 1)}"
        tone = Tone.FAINT if errors is None else Tone.BAD if errors else Tone.GOOD
        more = f"; the first: {words}" if errors else f": {words}" if words else ""
        cubins = f" ({', '.join(tools)})" if any(tools) else ""
        lines.append(say(f"  {tool}", tone) + say(f"  {count}{more}{cubins}"))
    return lines


def _tool(row: RunRow) -> str:
    """`13.0.88 -O3`, as the cell spells it."""
    words = row.cell.rpartition("/")[2].partition("ptxas-")[2]
    return words.replace(",", " ").replace("_", " ")


# Times of cubins, for people: those of one launch side by side, the fastest first.

_WORDS = {Faster.FIRST: "slower", Faster.SECOND: "faster", Faster.AMBIGUOUS: "ambiguous"}


def times_said(rows: Sequence[RunRow], device: str) -> list[Block]:
    """A grid for each kernel and launch: how each compares with the fastest."""
    launches: dict[tuple[str, str, str], list[tuple[RunRow, TimeMs]]] = {}
    for row in rows:
        if row.time_ms:
            key = (row.kernel, row.launch, row.target)
            launches.setdefault(key, []).append((row, row.time_ms))
    parts: list[Block] = []
    for place, times in launches.items():
        config = lifted_words([row.config for row, _ in times])
        heading = " · ".join((*place, *config, device))
        parts += [say(f"{heading}, times measured", Tone.HEAD), _grid(times), BLANK]
    return parts


def _grid(times: list[tuple[RunRow, TimeMs]]) -> SaidGrid:
    """The fastest first; of a config, what the others have in another way."""
    ordered = sorted(times, key=lambda pair: pair[1].median)
    best = ordered[0][1]
    columns: dict[str, Sequence[str]] = dict(config_columns([row.config for row, _ in ordered]))
    columns["cubin"] = [_tool(row) for row, _ in ordered]
    columns["median ms"] = [f"{time.median:.4f}" for _, time in ordered]
    columns["min"] = [f"{time.min:.4f}" for _, time in ordered]
    columns["q3"] = [f"{time.q3:.4f}" for _, time in ordered]
    columns["runs"] = [str(time.samples) for _, time in ordered]
    columns["SM MHz"] = [figure(time.sm_mhz) for _, time in ordered]
    columns["times the best"] = [
        f"{time.median / best.median:.2f}" if best.median else "-" for _, time in ordered
    ]
    columns[""] = ["" if t is best else _WORDS[compare_times(best, t)] for _, t in ordered]
    return grid_of(columns, {"runs": 3, "SM MHz": 3, "q3": 4, "min": 4}, ("cubin", ""))
