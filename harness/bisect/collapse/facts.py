"""A register collapse: ptxas keeps every block resident and spills for it. Pure.

Without `.minnctapersm` ptxas chooses an occupancy by the size of a block (`.reqntid`, `.maxntid`).
Under pressure it may choose the highest one: so few registers that all blocks of an SM can be
resident at once, which the PTX does not ask for, while a block alone could have many more.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from harness.judging.ptxas.occupancy import theoretical_occupancy
from harness.values.limits import limits_of
from harness.values.row import Row
from harness.values.target import Target
from harness.values.timing import Faster, compare_times, time_of
from harness.values.verdict import DEFAULT_THRESHOLDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Collapse:
    """Registers of a thread as they are, what a block alone could have, and the blocks that fit.

    `blocks` of `threads` threads are resident at once, as far as registers decide.
    """

    registers: int
    most: int
    blocks: int
    threads: int


def collapse_of(row: Row) -> Collapse | None:
    """The collapse that a row shows; None where it shows none, or the figures are not known.

    It spills enough to be sick, its registers are the most with which all blocks of an SM are
    resident, and a block alone could have more. A config that limits its registers asked for it.
    """
    limits = limits_of(Target.parse(row.target).capability)
    spills = (row.spill_stores or 0) + (row.spill_loads or 0)
    if limits is None or not row.n_regs or not row.threads:
        return None
    if spills < DEFAULT_THRESHOLDS.spill_bytes or isinstance(row.config.get("maxnreg"), int):
        return None
    unit = limits.register_allocation_unit // limits.warp_size

    def blocks(registers: int) -> int:
        return theoretical_occupancy(
            limits, n_regs=registers, shared=0, threads_per_block=row.threads or 1
        ).blocks_per_sm

    most = limits.registers_of_thread(row.threads)
    is_free = blocks(row.n_regs) == blocks(1)
    is_most = row.n_regs + unit > most or blocks(row.n_regs + unit) < blocks(1)
    if not (is_free and is_most and most >= row.n_regs + unit):
        return None
    return Collapse(registers=row.n_regs, most=most, blocks=blocks(row.n_regs), threads=row.threads)


def is_lifted(before: Row, after: Row) -> bool:
    """Whether the second row has no collapse, and at most half of the first one's spills."""
    if after.spill_stores is None or collapse_of(after) is not None:
        return False
    return 2 * after.spill_stores <= (before.spill_stores or 0)


def collapse_words(
    collapse: Collapse, row: Row, lifts: Sequence[tuple[str, Row]], options: Sequence[str]
) -> tuple[str, ...]:
    """What happened, and which options of ptxas lift it, best known first; `lifts` had its PTX."""
    cause = (
        f"ptxas {row.ptxas} gives {collapse.registers} registers where a block of "
        f"{collapse.threads} threads could have {collapse.most}: the most with which all "
        f"{collapse.blocks} blocks of an SM are resident. The PTX does not ask for that: it has "
        "neither .minnctapersm nor .maxnreg."
    )
    lines = [cause]
    for index, (option, after) in enumerate(lifts):
        begin = "It lifts likewise" if index else "The collapse lifts"
        lines.append(
            f"{begin} with ptxas {option}: {row.n_regs} -> {after.n_regs} registers, "
            f"{row.spill_stores:,} -> {after.spill_stores:,} B of spill stores "
            "(same PTX, byte for byte)."
        )
    if not lifts and options:
        lines.append(f"It does not lift with ptxas {', '.join(options)}.")
    return tuple(lines)


# What is known of a register collapse: what lifts it, with other ptxas, and for other configs.


@dataclass(frozen=True, slots=True, kw_only=True)
class Lift:
    """One PTX without something and with it: an option of ptxas, or a directive in the PTX."""

    words: str
    before: Row
    after: Row

    @property
    def lifts(self) -> bool:
        """Whether the collapse is gone, and half of the spills or more."""
        return is_lifted(self.before, self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollapseEvidence:
    """A collapse and what was compiled around it; every row is one that the store has.

    `options` were tried on the PTX of the case, byte for byte, `directive` in it. `versions` are
    other ptxas on that PTX, and `configs` the kernel's others, both with the first option that
    lifts it.
    """

    collapse: Collapse
    options: tuple[Lift, ...]
    directive: Lift | None = None
    versions: tuple[Lift, ...] = ()
    configs: tuple[Lift, ...] = ()

    @property
    def best(self) -> Lift | None:
        """The first option that lifts it."""
        return next((option for option in self.options if option.lifts), None)

    def healthy(self) -> Sequence[Lift]:
        """The configs that have no collapse."""
        return [lift for lift in self.configs if collapse_of(lift.before) is None]


# What a GPU measured, as a file of raw samples that goes with a report.

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
    fields = json.loads(data)
    if not isinstance(fields, dict):
        raise TypeError("it is not a table of names")
    lines = fields.pop("changes")
    changes = (
        TimedChange(
            **{**line, "ms": tuple(line["ms"]), "memory": line["memory"] and tuple(line["memory"])}
        )
        for line in lines
    )
    return MeasuredTimes(**fields, changes=tuple(changes))


def times_figures(data: bytes, change: str) -> tuple[object, ...] | str:
    """What a report states of one change, computed from the samples in the attached file.

    The change, its registers and spill stores, the median, the fastest run and the third quartile
    in ms, how many runs, how many times as fast as the first by the medians (None where that is
    ambiguous), whether it leaves the same bytes, and on what. Words say what is wrong with the
    file.
    """
    try:
        times = read_times(data)
    except (ValueError, KeyError, TypeError) as error:
        return f"not the samples of a report: {error}"
    timed = next((timed for timed in times.changes if timed.change == change), None)
    before = time_of(times.changes[0].ms) if times.changes else None
    after = time_of(timed.ms) if timed else None
    if timed is None or before is None or after is None:
        return f"no samples of {change or 'no change'}"
    is_apart = compare_times(before, after) is not Faster.AMBIGUOUS
    first = times.changes[0].memory
    return (
        *(change, timed.n_regs, timed.spill_stores),
        *(after.median, after.min, after.q3, after.samples),
        before.median / after.median if is_apart and after.median else None,
        None if first is None or timed.memory is None else first == timed.memory,
        *(times.device, times.driver, times.day, times.target, times.compiler, times.tool),
        *(times.launch, times.config),
    )
