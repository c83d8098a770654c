"""The smallest launch that still shows a failure: shapes, config, overrides, ptxas' flags."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from harness.effects.workbench import Workbench
from harness.logic.config_reduction import Settings, differences, reduce_settings
from harness.logic.ptxas_flags import FlagChange
from harness.logic.reduction import Progress, Reduction
from harness.values.errors import CaptureError, UsageError
from harness.values.kernel import ConfigFilter
from harness.values.verdict import Stage
from harness.verbs.cells import Evaluated, PlannedCell, evaluate
from harness.verbs.planning import Plan, plan_launch
from harness.verbs.selection import PlannedLaunch, Selection

__all__ = ["ReducedConfig", "reduce_config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedConfig:
    """The smallest launch that was found: its cell, which other levels go on from.

    `changes` say in words what was made smaller, `overrides` what `--set` has to say now.
    """

    cell: PlannedCell
    changes: tuple[str, ...]
    overrides: tuple[str, ...]
    reduction: Reduction[Settings]
    final: Evaluated


@dataclass(slots=True, kw_only=True)
class _Launcher:
    """Launches with other settings, and follows the one cell: `number` is which of those alike."""

    bench: Workbench
    selection: Selection
    launch: PlannedLaunch
    cell: PlannedCell
    number: str
    flags: tuple[str, ...] = ()
    _users: Counter[str] = field(default_factory=Counter)

    async def plan(self, settings: Settings) -> Plan:
        """All cells of the launch with these settings.

        Raises:
            CaptureError: it cannot be launched so.
        """
        assert self.cell.launch is not None
        return await plan_launch(
            self.bench,
            self.selection,
            self.cell.cell.target,
            self.cell.launch.triton,
            replace(self.launch, overrides=settings.overrides),
        )

    def pick(self, plan: Plan, settings: Settings) -> PlannedCell | None:
        """The cell of these settings; None where there is none."""
        for cell in plan.cells:
            name = cell.cell
            is_followed = (name.ptxas, _number(name.launch)) == (self.cell.cell.ptxas, self.number)
            if is_followed and settings.config in (None, name.config):
                gone = tuple(flag for flag in self.flags if flag not in settings.flags)
                label = f"without {' '.join(gone)}"
                return replace(cell, change=FlagChange(label=label, dropped=gone)) if gone else cell
        return None

    async def evaluate(self, settings: Settings) -> Evaluated | None:
        """What becomes of the cell with these settings; None where there is no such launch."""
        try:
            plan = await self.plan(settings)
        except CaptureError:
            return None
        key = plan.session or ""
        self._users[key] += 1
        try:
            cell = self.pick(plan, settings)
            return await evaluate(self.bench, cell) if cell else None
        finally:
            self._users[key] -= 1
            # An open session holds memory; the one that was there before us is not ours to close.
            mine = self.cell.launch is not None and key != self.cell.launch.capture.key
            if mine and not self._users[key]:
                await self.bench.sessions.close(key)


def _number(launch: str) -> str:
    """The `2` of `name#2`, a launch's second time with one config."""
    return launch.rpartition("#")[2] if "#" in launch else ""


async def reduce_config(
    bench: Workbench,
    selection: Selection,
    cell: PlannedCell,
    interesting: Callable[[Evaluated], bool],
    *,
    jobs: int = 1,
    seed: int = 0,
    max_tests: int | None = None,
    is_time_up: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress[Settings]], None] = lambda _: None,
) -> ReducedConfig:
    """Reduce the launch of a cell while what becomes of it stays interesting.

    Raises:
        UsageError: there is no launch (raw PTX, a file of Triton's IR), or it is not interesting.
        InfrastructureError: this machine failed.
    """
    launch = _launch_of(selection, cell)
    first = await evaluate(bench, cell)
    if not interesting(first):
        raise UsageError(f"{cell.cell}: {first.row.verdict}: {first.row.reason}")
    launcher = _Launcher(
        bench=bench,
        # Any config of the tuner may be the smallest.
        selection=replace(selection, config=ConfigFilter()),
        launch=launch,
        cell=cell,
        number=_number(cell.cell.launch),
        flags=_flags(first, cell),
    )
    begun = _settings(launch, cell, launcher.flags)
    configs = {each.cell.config: None for each in (await launcher.plan(begun)).cells}

    async def holds(settings: Settings) -> bool:
        found = await launcher.evaluate(settings)
        return found is not None and interesting(found)

    reduction = await reduce_settings(
        begun,
        list(configs),
        lambda settings: asyncio.ensure_future(holds(settings)),
        jobs=jobs,
        seed=seed,
        max_tests=max_tests,
        is_time_up=is_time_up,
        watch=watch,
    )
    return await _result(launcher, begun, reduction)


def _launch_of(selection: Selection, cell: PlannedCell) -> PlannedLaunch:
    if cell.launch is not None and cell.launch.request.function is not None:
        wanted = cell.cell.launch.partition("#")[0]
        for launch in selection.launches:
            if launch.label == wanted:
                return launch
    raise UsageError(f"{cell.cell.kernel}: there is no launch function to make smaller")


def _flags(first: Evaluated, cell: PlannedCell) -> tuple[str, ...]:
    """Ptxas' flags, where they can matter."""
    is_late = first.row.stage in (None, Stage.CUBIN.value, Stage.LAUNCH.value)
    return first.row.ptxas_flags if is_late and cell.change is None else ()


def _settings(launch: PlannedLaunch, cell: PlannedCell, flags: tuple[str, ...]) -> Settings:
    assert cell.record is not None
    parameters = launch.spec.parameters
    return Settings(
        parameters=parameters,
        values={each.name: each.default for each in parameters} | dict(launch.overrides),
        config=cell.cell.config if cell.record.autotuned else None,
        flags=flags,
    )


async def _result(
    launcher: _Launcher, begun: Settings, reduction: Reduction[Settings]
) -> ReducedConfig:
    best = reduction.document
    plan = await launcher.plan(best)
    cell = launcher.pick(plan, best)
    assert cell is not None, "it was found before"
    return ReducedConfig(
        cell=cell,
        changes=tuple(differences(begun, best)),
        overrides=tuple(f"{name}={value}" for name, value in best.overrides.items()),
        reduction=reduction,
        final=await evaluate(launcher.bench, cell),
    )
