"""`triage rank`: configs are compiled, timed where asked, and ordered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec.structs import replace

from harness.cells.evaluate import evaluate
from harness.cells.places import CompileOptions, record_of, work
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import plan_launch
from harness.io.processes.tasks import in_parallel
from harness.store.store import Store
from harness.values.errors import EmptySelectionError, TriageError
from harness.values.row import Row
from harness.workaround.rank.order import (
    KeptConfig,
    KeptRank,
    RankedConfig,
    RankedLaunch,
    RankReport,
)

if TYPE_CHECKING:
    from harness.run.gpu.packing import GpuWay
    from harness.run.gpu.timed_launches import TimedLaunch


# Orders of what was measured before: the documents of `triage rank --measure --json`.


class MeasuredError(ValueError):
    """The text is not such a document; one line that says why."""


class _Launch(msgspec.Struct):
    kernel: str
    launch: str
    target: str
    configs: list[Row]


class _Document(msgspec.Struct):
    launches: list[_Launch]
    device: str | None = None


def rank_again(texts: Sequence[bytes]) -> RankReport:
    """Order the configs of these documents again, with their times.

    Raises:
        MeasuredError: one of them is not a document of `triage rank`.
    """
    launches: list[RankedLaunch] = []
    devices: set[str] = set()
    for text in texts:
        try:
            document = msgspec.json.decode(text, type=_Document)
            launches += [
                RankedLaunch.ordered(
                    (launch.kernel, launch.launch, launch.target),
                    [RankedConfig(row=row) for row in launch.configs],
                )
                for launch in document.launches
            ]
        except (msgspec.MsgspecError, ValueError) as error:
            raise MeasuredError(str(error)) from error
        devices |= {document.device} if document.device else set()
    launches.sort(key=lambda launch: (launch.kernel, launch.launch))
    return RankReport(launches=launches, device=", ".join(sorted(devices)) or None)


_KIND = "rank"
"""The kind of record: a GPU may have measured it."""


def keep_ranks(store: Store, report: RankReport) -> None:
    """Keep the order of each launch in place of an older one, unless only that one was measured.

    Raises:
        StorageError: the store cannot be read or written.
    """
    keys = {_key(ranked.kernel, ranked.launch, ranked.target): ranked for ranked in report.launches}
    for key, launch in keys.items():
        rows = [ranked.row for ranked in launch.configs]
        order = KeptRank(
            toolchains=tuple(dict.fromkeys(f"{row.compiler_name}, {row.tool}" for row in rows)),
            device=report.device,
            configs=tuple(
                KeptConfig(
                    label=ranked.row.config_label,
                    verdict=ranked.row.verdict,
                    time=ranked.time.median if ranked.time else None,
                )
                for ranked in launch.configs
            ),
        )
        store.change_record(
            _KIND,
            key,
            KeptRank,
            lambda kept, order=order: (  # type: ignore[misc]
                None if kept and kept.is_measured and not order.is_measured else order
            ),
        )


def ranks_of(
    store: Store, kernel: str, target: str, launches: Sequence[str]
) -> dict[str, KeptRank]:
    """What is kept of these launches of a kernel, by launch.

    Raises:
        StorageError: the store cannot be read.
    """
    keys = {_key(kernel, launch, target): launch for launch in launches}
    return {keys[key]: order for key, order in store.records(_KIND, KeptRank, keys).items()}


def _key(kernel: str, launch: str, target: str) -> str:
    return f"{kernel}\n{launch}\n{target}"


_Place: TypeAlias = tuple[str, str, str]
_Compiled: TypeAlias = tuple[PlannedCell, Row]


async def rank(
    selections: Sequence[Selection],
    store: Store,
    how: CompileOptions,
    way: GpuWay | None,
    tell: Callable[[str], None],
) -> RankReport:
    """Order the configs of every launch that is selected; time them where a GPU is named.

    Raises:
        EmptySelectionError: nothing is selected.
        InfrastructureError: there is no GPU, or no results came back.
        TriageError: the only launch cannot be captured.
    """
    notes: list[str] = []
    groups: list[tuple[_Place, list[_Compiled]]] = []
    async with work(store, how) as (bench, run):
        for selection in selections:
            try:
                groups += await _compiled(bench, selection, run, tell)
            except TriageError as error:
                if len(selections) == 1:
                    raise
                notes.append(f"{selection.repro.name}: left out: {error}")
        if not groups:
            raise EmptySelectionError("--config matches none of the configs")
        timed: Mapping[str, TimedLaunch] = {}
        if way:
            from harness.run.gpu.timed_launches import time_by  # noqa: PLC0415 - numpy: 0.1 s

            times = await time_by(bench, way, [g for _, g in groups], how.command, "windows", tell)
            if isinstance(times, str):
                notes.append(f"{way.pack}: nothing is measured yet")
            else:
                timed = times
    launches = []
    for place, group in groups:
        configs = []
        for _, row in group:
            measured = timed.get(row.cubin_sha256 or "")
            configs.append(
                RankedConfig(
                    row=replace(row, time_ms=measured.time if measured else None),
                    untimed=measured.problem if measured else None,
                    samples=measured.samples if measured else (),
                )
            )
        launches.append(RankedLaunch.ordered(place, configs))
    devices = {result.device for result in timed.values()}
    report = RankReport(
        launches=launches, device=", ".join(sorted(devices)) or None, notes=tuple(notes)
    )
    keep_ranks(store, report)
    return report


async def _compiled(
    bench: Workbench, selection: Selection, run: int, tell: Callable[[str], None]
) -> list[tuple[_Place, list[_Compiled]]]:
    groups: dict[_Place, list[_Compiled]] = {}
    for launch in selection.launches:
        for target in selection.targets:
            for compiler in selection.compilers:
                plan = await plan_launch(
                    bench, selection.place(target=target, compiler=compiler, launch=launch)
                )
                tell(f"{selection.repro.name}: {len(plan.cells)} configs on {target}")
                async with bench.closing(plan.session):
                    evaluated = await in_parallel(evaluate(bench, cell) for cell in plan.cells)
                    for cell, result in zip(plan.cells, evaluated, strict=True):
                        bench.store.put_result(run, record_of(result))
                        place = cell.cell.kernel, cell.cell.launch, str(cell.cell.target)
                        groups.setdefault(place, []).append((cell, result.row))
    return list(groups.items())
