"""Settings that are executed or timed: what they compute is the proof; and what is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from harness.cells.evaluate import Evaluated
from harness.frontends.assemble import kept_times
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import front_end
from harness.store.store import Store
from harness.values.bug import KeptSetting, KeptWorkaround
from harness.values.errors import UsageError
from harness.values.kernel import Config
from harness.values.outcome import LaunchFacts
from harness.values.row import Row
from harness.values.timing import Faster, compare_times
from harness.values.toolchain import EMULATOR, SASS, without_evidence
from harness.values.verdict import VerdictKind
from harness.workaround.result import Candidate, Equivalence, Numerics, Speedup, WorkaroundReport
from harness.workaround.settings import SettingKind

if TYPE_CHECKING:
    from harness.run.executing import Executed, Executor
    from harness.run.gpu.packing import GpuWay
    from harness.run.gpu.timed_launches import TimedLaunch


def keep(store: Store, report: WorkaroundReport, selection: Selection) -> None:
    """With the bugs that it works around, so that every night can say whether it is needed."""
    best = report.candidates[0] if report.candidates else None
    patch, setting = report.patch, None
    if best is None and patch is None:
        return
    left_out = patch.left_out if patch else ()
    overrides = selection.launches[0].overrides
    # What a night compiles again; an edit of a file is the user's to keep.
    if best and not best.setting.edit:
        setting = KeptSetting(
            config=best.setting.config.as_dict(),
            overrides=tuple({**overrides, **dict(best.setting.launch)}.items()),
            options=best.setting.flags.label if best.setting.flags else None,
            ptxas=best.setting.ptxas,
            triton=best.setting.triton,
        )
    signatures = [row.signature for row in (report.baseline, *left_out) if row.signature]
    store.put_workaround(
        KeptWorkaround(
            baseline=report.baseline,
            change=best.change if best else f"patch of {patch.file if patch else ''}",
            proof=best.row if best else None,
            setting=setting,
            signatures=tuple(dict.fromkeys(signatures)),
            diff=patch.diff if patch else "",
            is_patch_proved=bool(patch and patch.is_proved),
            left_out=tuple(row.config for row in left_out),
            overrides=tuple(overrides.items()),
            created=time.time(),
        )
    )


EXECUTED_KINDS = (SettingKind.CONFIG, SettingKind.LAUNCH, SettingKind.TRITON)
"""What may change what PTX computes when it is executed: it has not seen ptxas yet."""


@dataclass(slots=True, kw_only=True)
class Executions:
    """Executes cells of one kernel: those of one launch and tile get the same inputs.

    Inputs and references are those of the first compiler of the selection. `on` names what
    executes: the PTX, or what ptxas makes of it.
    """

    bench: Workbench
    selection: Selection
    tell: Callable[[str], None]
    on: str = EMULATOR
    _by_place: dict[object, tuple[Executor, LaunchFacts | None]] = field(default_factory=dict)

    async def evaluate(self, bench: Workbench, cell: PlannedCell) -> Evaluated:
        """As `execute`; what came out as a result like a compile's."""
        return (await self.execute(bench, cell)).evaluated

    async def execute(self, bench: Workbench, cell: PlannedCell) -> Executed:
        """As `harness.run.executing.Executor.execute`.

        Raises:
            TriageError: the launch code cannot be run with values.
        """
        from harness.run.executing import OnEmulator  # noqa: PLC0415 - the emulator: 0.2 s
        from harness.run.executors import executor_of, executor_on  # noqa: PLC0415 - as above
        from harness.run.launch_sources import RecordedLaunch  # noqa: PLC0415 - as above

        if cell.launch is None or cell.record is None:
            # A file of PTX: one launch.
            if None not in self._by_place:
                executor = executor_of(self.bench, self.selection, self.tell, self.on)
                self._by_place[None] = executor, None
            return await self._by_place[None][0].execute(bench, cell)
        overrides = dict(cell.launch.request.overrides)
        # Options of the compiler leave the grid and the tiles alone, most often.
        options = front_end(cell.compiler.kind).options
        tiles = {n: v for n, v in cell.record.config.items() if n not in options}
        place = (*sorted(overrides.items()), *sorted(tiles.items()))
        if place not in self._by_place:
            launch = structs.replace(self.selection.launches[0], overrides=overrides)
            source = RecordedLaunch(
                bench=self.bench,
                selection=structs.replace(self.selection, launches=(launch,)),
                tell=self.tell,
                is_held=self.on == SASS,
                configs=(cell.record,),
            )
            executor = executor_on(self.on, self.bench, source, self.tell)
            self._by_place[place] = executor, cell.record
        executor, like = self._by_place[place]
        if isinstance(executor, OnEmulator):
            return await executor.execute(bench, cell, like=like)
        return await executor.execute(bench, cell)


def emulated_numerics(row: Row) -> Numerics:
    """What a run that is right says."""
    kind = row.verdict
    words = "right" if kind is VerdictKind.RIGHT else "nothing is wrong"
    reason = without_evidence(row.reason)
    return Numerics(known=Equivalence.EMULATED, reason=f"{words} on these inputs: {reason}")


# Candidates on a GPU: launched as the user launches the kernel, timed in turns with what there is.
# What is measured decides the order. A candidate that is not faster is none; one that faults is
# none either. That the bits are those of today's config, on the same memory, is said where it is
# so; where they are not, what was known of the numerics before stands.


async def measure_candidates(
    bench: Workbench,
    way: GpuWay,
    today: tuple[PlannedCell, Row],
    candidates: Sequence[tuple[PlannedCell, Candidate]],
    command: str,
    tell: Callable[[str], None],
) -> tuple[Row, list[Candidate], list[str]] | str:
    """Today's row and the candidates with their times, the fastest first; and what to say besides.

    The name of the pack, where they went into one: nothing is measured then.

    Raises:
        EmptySelectionError: nothing can be launched.
        InfrastructureError: there is no GPU, or no results came back.
    """
    from harness.run.gpu.timed_launches import time_by  # noqa: PLC0415 - numpy: 0.1 s

    cells = [today, *((cell, candidate.row) for cell, candidate in candidates)]
    timed = await time_by(bench, way, [cells], command, "whole", tell)
    if isinstance(timed, str):
        return timed
    return judge_timed(today[1], [candidate for _, candidate in candidates], timed)


def judge_kept(
    store: Store, today: Row, candidates: Sequence[Candidate]
) -> tuple[Row, list[Candidate], list[str]]:
    """As `judge_timed`, of what one GPU measured before of today's cubin and of a candidate's.

    Without such times nothing is judged.

    Raises:
        StorageError: the store cannot be read.
    """
    cubins = {candidate.row.cubin_sha256 for candidate in candidates}
    for device, times in kept_times(store, today).items():
        if today.cubin_sha256 in times and cubins & times.keys():
            from harness.run.gpu.timed_launches import TimedLaunch  # noqa: PLC0415 - numpy: 0.1 s

            timed = {cubin: TimedLaunch(device=device, time=times[cubin]) for cubin in times}
            return judge_timed(today, candidates, timed)
    return today, list(candidates), []


def judge_timed(
    today: Row, candidates: Sequence[Candidate], timed: Mapping[str, TimedLaunch]
) -> tuple[Row, list[Candidate], list[str]]:
    """As `measure_candidates`, of what a GPU said of each cubin by its sha256."""
    before = timed.get(today.cubin_sha256 or "")
    notes = [] if before is None or before.time else [f"today's config: {before.problem}"]
    shown: list[Candidate] = []
    by_cubin: dict[str | None, Candidate] = {}
    for candidate in candidates:
        after = timed.get(candidate.row.cubin_sha256 or "")
        same = by_cubin.setdefault(candidate.row.cubin_sha256, candidate)
        if candidate.row.cubin_sha256 and same is not candidate:
            notes.append(f"{candidate.change}: not shown: the same cubin as {same.change}")
            continue
        if after is None:
            notes.append(f"{candidate.change}: not measured")
            shown.append(candidate)
        elif after.time is None:
            notes.append(f"{candidate.change}: not shown: on {after.device}, {after.problem}")
        elif before and before.time and compare_times(before.time, after.time) is Faster.FIRST:
            ratio = after.time.median / before.time.median
            notes.append(
                f"{candidate.change}: not shown: {ratio:.2f} times as slow on {after.device}"
            )
        else:
            shown.append(_with_time(candidate, before, after))
    shown.sort(
        key=lambda candidate: (
            not candidate.is_for_today,
            candidate.row.time_ms.median if candidate.row.time_ms else float("inf"),
        )
    )
    if before is not None:
        today = structs.replace(today, time_ms=before.time)
    return today, shown, notes


def _with_time(candidate: Candidate, before: TimedLaunch | None, after: TimedLaunch) -> Candidate:
    assert after.time is not None
    row = structs.replace(candidate.row, time_ms=after.time)
    if before is None or before.time is None:
        return replace(candidate, row=row, speedup=Speedup(device=after.device))
    faster = compare_times(before.time, after.time)
    digests = (before.digest, after.digest)
    is_same = None if None in digests else digests[0] == digests[1]
    speedup = Speedup(
        device=after.device,
        times=before.time.median / after.time.median if after.time.median else None,
        is_ambiguous=faster is Faster.AMBIGUOUS,
        is_bit_identical=is_same,
    )
    numerics = candidate.numerics
    if is_same and after.finite:
        numerics = Numerics(
            known=Equivalence.MEASURED,
            reason=f"bit-identical to today's config on {after.device}: all {after.bytes:,} bytes "
            f"that the launch was given, filled with a pattern before; {after.finite:.0%} of the "
            "numbers looked at are finite",
        )
    return replace(candidate, row=row, speedup=speedup, numerics=numerics)


# What went into a pack, kept with it: its results are read without a second search. What a search
# finds depends on the time that it gets; the cubins of a pack are those of one search.

_KIND = "packed_workarounds"
_NOT_YET = "the pack is written; the order below is not measured yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWorkarounds:
    """The report of the search, as nothing was measured yet, and what was asked for."""

    asked: tuple[str, ...]
    report: WorkaroundReport


def keep_packed(
    store: Store, pack: str, selection: Selection, report: WorkaroundReport
) -> WorkaroundReport:
    """Keep what was found and proved with the pack of this name, which has its cubins.

    It comes back with a note that nothing is measured yet.

    Raises:
        StorageError: the database cannot be written.
    """
    packed = PackedWorkarounds(asked=_asked(selection), report=report)
    store.keep_record(_KIND, pack, packed)
    return replace(report, notes=(*report.notes, _NOT_YET))


def import_workarounds(
    paths: Sequence[Path], selection: Selection, store: Store
) -> WorkaroundReport:
    """The report of the search whose pack gave these results, with what was measured.

    Raises:
        UsageError: they are not results, of several packs, or of none that was written for what
            is selected.
        StorageError: the database cannot be written.
    """
    from harness.run.gpu.packing import head_of_file, read_kept  # noqa: PLC0415 - numpy: 0.1 s
    from harness.run.gpu.timed_launches import imported_times  # noqa: PLC0415 - as above

    timed = imported_times(paths, store)
    names = {head_of_file(path) for path in paths}
    if len(names) > 1:
        raise UsageError(f"the results are of {len(names)} packs: cubins of one are timed in turns")
    otherwise = (
        "which `triage workaround --pack` did not write, or not to the end: write a pack again"
    )
    packed = read_kept(store, _KIND, names.pop(), PackedWorkarounds, otherwise)
    report = packed.report
    now = Config.of(report.baseline.config)
    if packed.asked != _asked(selection) or not selection.config.matches(now):
        theirs = ", ".join((*packed.asked, now.label))
        raise UsageError(f"the results are of workarounds for {theirs}: select what was packed")
    baseline, candidates, notes = judge_timed(report.baseline, report.candidates, timed)
    measured = replace(
        report, baseline=baseline, candidates=tuple(candidates), notes=(*report.notes, *notes)
    )
    keep(store, measured, selection)
    return measured


def _asked(selection: Selection) -> tuple[str, ...]:
    return selection.repro.name, selection.launches[0].label, str(selection.targets[0])
