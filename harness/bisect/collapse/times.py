"""What a GPU measured, as a file of raw samples that goes with a report. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from harness.values.row import Row
from harness.values.timing import Faster, compare_times, time_of

TIMES_FILE = "times.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedChange:
    """One cubin: what was given to ptxas besides (empty: nothing), and every sample in ms.

    `memory` are the sha256 of all memory that the launch was given, after it; None where its runs
    differ.
    """

    change: str
    cubin_sha256: str
    n_regs: int | None
    spill_stores: int | None
    ms: tuple[float, ...]
    memory: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTimes:
    """Cubins of one PTX, timed in turns on one GPU; the first is that without a change.

    `driver` and `day` are None where the GPU's machine did not tell.
    """

    device: str
    driver: str | None
    day: str | None
    kernel: str
    launch: str
    config: str
    target: str
    compiler: str
    tool: str
    changes: tuple[TimedChange, ...]


def timed_change(
    change: str, row: Row, samples: Sequence[float], memory: tuple[str, ...] | None
) -> TimedChange:
    """What is kept of a cubin that was timed."""
    return TimedChange(
        change=change,
        cubin_sha256=row.cubin_sha256 or "",
        n_regs=row.n_regs,
        spill_stores=row.spill_stores,
        ms=tuple(samples),
        memory=memory,
    )


def times_file(times: MeasuredTimes) -> bytes:
    """The file that goes with a report."""
    return json.dumps(asdict(times), indent=1).encode() + b"\n"


def read_times(data: bytes) -> MeasuredTimes:
    """What such a file holds.

    Raises:
        ValueError: it is not JSON.
        KeyError: it has no changes.
        TypeError: something else is missing, is too much, or is not of its kind.
    """
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError("it is not a table of names")
    lines = found.pop("changes")
    changes = (
        TimedChange(
            **{**each, "ms": tuple(each["ms"]), "memory": each["memory"] and tuple(each["memory"])}
        )
        for each in lines
    )
    return MeasuredTimes(**found, changes=tuple(changes))


def times_figures(data: bytes, change: str) -> tuple[object, ...] | str:
    """What a report states of one change, computed from the samples in the attached file.

    The change, its registers and spill stores, the median, the fastest run and the third quartile
    in ms, how many runs, how many times as fast as the first by the medians (None where that is
    ambiguous), whether it leaves the same bytes, and on what. Words say what is wrong with the
    file.
    """
    try:
        found = read_times(data)
    except (ValueError, KeyError, TypeError) as error:
        return f"not the samples of a report: {error}"
    each = next((one for one in found.changes if one.change == change), None)
    before = time_of(found.changes[0].ms) if found.changes else None
    after = time_of(each.ms) if each else None
    if each is None or before is None or after is None:
        return f"no samples of {change or 'no change'}"
    is_apart = compare_times(before, after) is not Faster.AMBIGUOUS
    first = found.changes[0].memory
    return (
        *(change, each.n_regs, each.spill_stores),
        *(after.median, after.min, after.q3, after.samples),
        before.median / after.median if is_apart and after.median else None,
        None if first is None or each.memory is None else first == each.memory,
        *(found.device, found.driver, found.day, found.target, found.compiler, found.tool),
        *(found.launch, found.config),
    )
