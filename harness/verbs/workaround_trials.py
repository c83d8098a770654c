"""Settings compiled: each is made into a cell, evaluated, and kept in the history."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from harness.effects import toolchains
from harness.effects.lowering import LaunchCode, lowering_key
from harness.effects.process import ResourceLimits
from harness.effects.workbench import TimeIsUpError, Workbench
from harness.logic.workarounds import OPTIONS, Origin, Setting, Step
from harness.values.errors import TriageError
from harness.values.kernel import Config, ConfigFilter, Scalar
from harness.values.outcome import Lowering
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import Triton
from harness.values.verdict import VerdictKind
from harness.verbs.cells import Evaluated, PlannedCell, evaluate
from harness.verbs.planning import plan_launch
from harness.verbs.selection import PlannedLaunch, Selection
from harness.verbs.work import record_of

__all__ = ["Attempt", "Trials"]

_Launch = tuple[tuple[str, Scalar | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A setting with its cell and what became of it."""

    setting: Setting
    cell: PlannedCell
    done: Evaluated

    @property
    def row(self) -> Row:
        """What became of it."""
        return self.done.row


@dataclass(slots=True, kw_only=True)
class Trials:
    """What was tried so far; `home` is the cell at the origin.

    `refused` says why a setting could not be made into a cell, or was given up. `tell` hears what
    is tried. `patience` is how many seconds one compiler run of a trial may take.
    """

    bench: Workbench
    selection: Selection
    run: int
    home: PlannedCell
    origin: Origin
    tell: Callable[[str], None]
    done: dict[object, Attempt] = field(default_factory=dict)
    refused: dict[object, str] = field(default_factory=dict)
    patience: float = math.inf
    is_time_up: bool = False
    _turns: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        # Few at once, so that the first are through all stages while others wait: what the time
        # does not suffice for is not begun. One more than there are workers keeps these busy.
        self._turns = asyncio.Semaphore(self.bench.jobs + 1)

    @property
    def target(self) -> Target:
        """The one GPU that it is about."""
        return self.selection.targets[0]

    def pairs(self) -> list[tuple[Setting, Row]]:
        """Everything that was tried, with its row."""
        return [(each.setting, each.row) for each in self.done.values()]

    def steps(self, setting: Setting) -> tuple[Step, ...]:
        """What is different from the origin."""
        return self.origin.steps_to(setting)

    async def attempt(self, settings: Iterable[Setting]) -> list[Attempt]:
        """Compile those that were not tried yet, first ones first; all that came to an end.

        What the store knows comes first. Nothing is begun any more when the time is up, and what
        was begun goes on to its end.
        """
        wanted = list({each.key: each for each in settings}.values())
        new = [
            each for each in wanted if each.key not in self.done and each.key not in self.refused
        ]
        groups: dict[tuple[str | None, _Launch], list[Setting]] = {}
        for setting in new:
            groups.setdefault((setting.triton, setting.launch), []).append(setting)
        await asyncio.gather(*(self._group(*where, group) for where, group in groups.items()))
        return [self.done[each.key] for each in wanted if each.key in self.done]

    async def _group(
        self, triton: str | None, launch: _Launch, settings: Sequence[Setting]
    ) -> None:
        """Settings that one capture serves."""
        try:
            cells, session = await self.cells(triton, launch, settings)
        except TimeIsUpError:
            self.is_time_up = True
            return
        except TriageError as error:
            # A Triton that cannot be asked, or had, says nothing of the others.
            for each in settings:
                self._refuse(each, str(error))
            return
        try:
            known = sorted(zip(settings, cells, strict=True), key=self._is_unknown)
            await asyncio.gather(*(self._one(*each) for each in known))
        finally:
            if session:
                await self.bench.sessions.close(session)

    async def _one(self, setting: Setting, cell: PlannedCell | None) -> None:
        if cell is None:
            self._refuse(setting, "the launch does not make this config")
            return
        limits = self.bench.limits
        seconds = min(limits.timeout, self.patience)
        try:
            done = await self._evaluated(cell, replace(limits, timeout=seconds), afresh=False)
        except TimeIsUpError:
            self.is_time_up = True
            return
        if done.row.verdict == VerdictKind.TIMEOUT.value and seconds < limits.timeout:
            # No verdict on the cell: a user might have waited.
            self._refuse(setting, f"a compiler took more than {seconds:.0f} s")
            return
        self.done[setting.key] = Attempt(setting=setting, cell=cell, done=done)
        self.bench.store.put_result(self.run, record_of(done))
        words = ", ".join(step.words for step in self.steps(setting)) or "as it is"
        self.tell(f"{words}: {done.row.verdict}: {done.row.reason[:90]}")

    async def _evaluated(
        self, cell: PlannedCell, limits: ResourceLimits | None, *, afresh: bool
    ) -> Evaluated:
        """The cell, if there is time to begin with it.

        Raises:
            TimeIsUpError: there is none left.
        """
        async with self._turns:
            deadline = self.bench.deadline
            if deadline is not None and time.monotonic() > deadline:
                raise TimeIsUpError
            bench = self.bench.apart(limits=limits, afresh=afresh)
            bench.deadline = None
            try:
                return await evaluate(bench, cell)
            finally:
                self.bench.cpu_seconds += bench.cpu_seconds

    def _refuse(self, setting: Setting, why: str) -> None:
        self.refused[setting.key] = why
        self.tell(f"{', '.join(step.words for step in self.steps(setting))}: not told: {why}")

    def _is_unknown(self, pair: tuple[Setting, PlannedCell | None]) -> bool:
        cell = pair[1]
        if cell is None or cell.launch is None or cell.record is None:
            return False
        sees = cell.bundled if cell.freeze_ptx and cell.bundled else cell.ptxas
        key = lowering_key(cell.launch, cell.record, sees)
        return self.bench.find("lower", key, Lowering) is None

    # --- cells --------------------------------------------------------------------------------

    async def cells(
        self,
        triton: str | None,
        launch: _Launch,
        settings: Sequence[Setting],
        *,
        frozen: bool = True,
        adapt: Callable[[LaunchCode], LaunchCode] = lambda code: code,
    ) -> tuple[list[PlannedCell | None], str | None]:
        """The cell of each setting on one Triton and launch, and the session that serves them.

        With `frozen`, another ptxas gets the PTX that was made for the bundled one.

        Raises:
            TriageError: the launch cannot be captured so, or a toolchain cannot be had.
        """
        planned, session = await self._planned(triton, launch, settings, adapt)
        return [
            await self._tooled(cell, setting, frozen=frozen) if cell else None
            for cell, setting in zip(planned, settings, strict=True)
        ], session

    async def _planned(
        self,
        triton: str | None,
        launch: _Launch,
        settings: Sequence[Setting],
        adapt: Callable[[LaunchCode], LaunchCode],
    ) -> tuple[list[PlannedCell | None], str | None]:
        home = self.home
        if home.launch is None or home.record is None:
            return [home for _ in settings], None
        own = home.launch.triton
        chosen = await asyncio.to_thread(toolchains.install_triton, triton) if triton else own
        kernel = home.record.kernel
        configs = [each.config.as_dict() for each in settings]
        plan = await plan_launch(
            self.bench,
            self._everything(chosen),
            self.target,
            chosen,
            self._launch(launch),
            adapt=lambda code: adapt(code.with_configs(kernel, configs)),
        )
        is_tuned = home.record.autotuned
        by_key: dict[object, PlannedCell] = {}
        for cell in plan.cells:
            if cell.record and cell.record.kernel == kernel and _nth(cell) == _nth(home):
                by_key.setdefault(_name(cell.cell.config, is_tuned=is_tuned), cell)
        found = [by_key.get(_name(each.config, is_tuned=is_tuned)) for each in settings]
        return found, plan.session

    def _everything(self, triton: Triton) -> Selection:
        """The selection without its filter of configs."""
        return replace(self.selection, config=ConfigFilter(), tritons=(triton,))

    def _launch(self, overrides: _Launch) -> PlannedLaunch:
        """The launch with these overrides in the order in which cells spell them."""
        spec = self.selection.launches[0].spec
        given = {**self.selection.launches[0].overrides, **dict(overrides)}
        return PlannedLaunch(
            spec=spec,
            overrides={
                parameter.name: given[parameter.name]
                for parameter in spec.parameters
                if parameter.name in given and given[parameter.name] != parameter.default
            },
        )

    async def _tooled(self, cell: PlannedCell, setting: Setting, *, frozen: bool) -> PlannedCell:
        """The cell with the ptxas and the flags of a setting."""
        if setting.ptxas:
            ptxas = await asyncio.to_thread(toolchains.install_ptxas, setting.ptxas)
            freeze = frozen and cell.launch is not None
            label = f"{ptxas.label}-frozen" if freeze else ptxas.label
            name = replace(cell.cell, ptxas=label)
            cell = replace(cell, ptxas=ptxas, freeze_ptx=freeze, cell=name)
        if setting.flags:
            words = setting.flags.label.replace(" ", "_")
            name = replace(cell.cell, ptxas=f"{cell.cell.ptxas},{words}")
            cell = replace(cell, change=setting.flags, cell=name)
        return cell

    async def prove(self, setting: Setting) -> Attempt | None:
        """Compile a setting again, from nothing, as a user would: None where the launch is gone.

        Raises:
            TriageError: it cannot be captured, or a toolchain cannot be had.
        """
        cells, session = await self.cells(setting.triton, setting.launch, [setting], frozen=False)
        if cells[0] is None:
            return None
        try:
            done = await self._evaluated(cells[0], None, afresh=True)
        finally:
            if session:
                await self.bench.sessions.close(session)
        self.bench.store.put_result(self.run, record_of(done))
        return Attempt(setting=setting, cell=cells[0], done=done)


def _name(config: Config, *, is_tuned: bool) -> object:
    """By what a config is found again among the cells of a launch.

    Without a tuner the launch itself chooses the meta-parameters: they may differ with it.
    """
    items = [(n, v) for n, v in config.items if is_tuned or n in OPTIONS]
    return Setting(config=Config.of(dict(items))).key


def _nth(cell: PlannedCell) -> str:
    """Which of several launches of one kernel and config it is."""
    return cell.cell.launch.rpartition("#")[2] if "#" in cell.cell.launch else ""
