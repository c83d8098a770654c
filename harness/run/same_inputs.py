"""Executes cells of one launch on the same inputs, of whichever Triton, target and config they are.

So what differs between two of them is the compiler's, or the config's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from gpu_emulator.values import Budget
from harness.cells.evaluate import Evaluated
from harness.cells.selection import small_launch
from harness.frontends.base import LaunchCode, PlannedCell, Selection
from harness.frontends.bench.bench import Kept, Workbench
from harness.frontends.launch_code import fetch_launch_code
from harness.frontends.registry import front_end, plan_launch
from harness.run.executing import Executed, Execution, execute
from harness.run.jobs import RunTrial
from harness.run.judging import Trusted
from harness.run.matching import find_variant
from harness.run.recording import PLAIN_TARGET, recorded
from harness.run.references import Found, References, reference_of
from harness.run.schedules import DEFAULT, INSTRUCTIONS, PROGRAMS, read_schedules, trials_of
from harness.values.errors import UsageError
from harness.values.execution import Inputs, LaunchVariant
from harness.values.kernel import ConfigFilter
from harness.values.outcome import LaunchFacts, Lowering


def require_values(selection: Selection) -> None:
    """Launch code is run with values as Triton's launches are.

    Raises:
        UsageError: the kernel is another compiler's.
    """
    repro = selection.repro
    end = front_end(repro.front_end)
    if not repro.ptx and end.interpreter is None:
        raise UsageError(f"{repro.name}: launches of {end.title} cannot be run with values")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """What was recorded once for all cells."""

    code: LaunchCode
    inputs: Inputs
    references: References


@dataclass(slots=True, kw_only=True)
class SameInputs:
    """The cells of a selection's one launch, at small shapes.

    Inputs are recorded, and references compiled, with the first compiler of the selection. With
    `configs`, they are those of these records, and not of the launch's own configs.
    """

    bench: Workbench
    selection: Selection
    tell: Callable[[str], None]
    configs: tuple[LaunchFacts, ...] = ()
    trials: tuple[RunTrial, ...] = field(
        default_factory=lambda: trials_of(read_schedules(DEFAULT), races=True)
    )
    budget: Budget = field(
        default_factory=lambda: Budget(max_instructions=INSTRUCTIONS, max_ctas=PROGRAMS)
    )
    _held: _Held | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @staticmethod
    def small(selection: Selection) -> Selection:
        """The selection with its launches at the sizes at which they are executed.

        Raises:
            UsageError: it is a file of PTX, whose inputs nothing records, or of another compiler
                than those whose launches can be run.
        """
        require_values(selection)
        if selection.repro.ptx:
            raise UsageError(
                f"{selection.repro.name}: inputs are recorded from launch code; a file of PTX is "
                "executed by `triage run FILE.ptx`"
            )
        launches = tuple(small_launch(selection, launch) for launch in selection.launches)
        return replace(selection, launches=launches)

    async def variant(self, record: LaunchFacts) -> LaunchVariant:
        """What the kernel is given with the config of a record.

        Raises:
            TriageError: the launch code cannot be run with values, or never comes to it.
        """
        found = find_variant((await self._recorded()).inputs, record)
        if found is None:
            raise UsageError(f"run with values, the launch never comes to {record.kernel}")
        return found

    async def author(self, variant: LaunchVariant) -> list[Trusted]:
        """What the repro's own reference says of a launch, if it has one."""
        return await (await self._recorded()).references.author(variant)

    async def trusted(self, cell: PlannedCell, variant: LaunchVariant, ptx: str) -> Found:
        """What a cell that became this PTX is compared with.

        Raises:
            TriageError: the launch code cannot be run with values.
        """
        assert cell.record is not None, "only a launch is executed"
        references = await self._references_of(cell)
        return await references.of(cell.cell.target, cell.record, variant, ptx)

    async def _references_of(self, cell: PlannedCell) -> References:
        held = await self._recorded()
        references = held.references
        if cell.record and cell.record.config not in [each.config for each in references.records]:
            return self._references(held.code, [cell.record])
        return references

    def sessions(self) -> set[str]:
        """The captures that references opened: to be closed when all is done."""
        return self._held.references.sessions if self._held else set()

    async def evaluate(
        self,
        bench: Workbench,
        cell: PlannedCell,
        *,
        like: LaunchFacts | None = None,
        instead: Kept[Lowering] | None = None,
    ) -> Evaluated:
        """As `execute`; what came out as a result like a compile's."""
        return (await self.execute(bench, cell, like=like, instead=instead)).done

    async def execute(
        self,
        bench: Workbench,
        cell: PlannedCell,
        *,
        like: LaunchFacts | None = None,
        instead: Kept[Lowering] | None = None,
    ) -> Executed:
        """Lower a cell on `bench`, execute it and judge it.

        `like` and `instead` are as in `harness.run.executing.execute`.

        Raises:
            TriageError: the launch code cannot be run with values.
        """
        held = await self._recorded()
        references = await self._references_of(cell)
        how = Execution(
            bench=self.bench,
            lowering=bench,
            trials=self.trials,
            budget=self.budget,
            tell=self.tell,
            formal=self.selection.formal,
        )
        return await execute(how, cell, held.inputs, references, like=like, instead=instead)

    async def _recorded(self) -> _Held:
        async with self._lock:
            if self._held is None:
                launch, triton = self.selection.launches[0], self.selection.compilers[0]
                code = fetch_launch_code(self.selection.repro, launch.spec, launch.overrides)
                if self.configs:
                    kernel = self.configs[0].kernel
                    code = code.with_configs(kernel, [each.config for each in self.configs])
                target = self.selection.targets[0]
                self.tell(f"{self.selection.repro.name}: inputs ({launch.label})")
                inputs = await recorded(
                    self.bench,
                    code,
                    triton,
                    [self.selection.repro.kernel or "*"],
                    (PLAIN_TARGET, target),
                    budget=self.budget,
                    tell=self.tell,
                )
                every = replace(self.selection, config=ConfigFilter(), ptxas=(None,))
                plan = await plan_launch(self.bench, every.place())
                records = [cell.record for cell in plan.cells if cell.record]
                references = self._references(code, records)
                self._held = _Held(code=code, inputs=inputs, references=references)
        return self._held

    def _references(self, code: LaunchCode, records: list[LaunchFacts]) -> References:
        return References(
            bench=self.bench,
            budget=self.budget,
            code=code,
            target=PLAIN_TARGET,
            triton=self.selection.compilers[0],
            records=records,
            reference=reference_of(self.selection.repro),
            tell=self.tell,
            interpreter=self.selection.compilers[0],
        )
