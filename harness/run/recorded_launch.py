"""One launch of a kernel, whose inputs are recorded once: each of its cells becomes a `Launch`.

All cells get the same inputs, of whichever compiler, target and config they are: so what differs
between two of them is the compiler's, or the config's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs
from packaging.version import Version

from gpu_emulator.values import Budget
from harness.cells.selection import small_launch
from harness.frontends.bench import Kept, Workbench
from harness.frontends.launch_code import fetch_launch_code
from harness.frontends.plan import Plan, PlannedCell, Selection
from harness.frontends.registry import front_end, plan_launch
from harness.frontends.sessions import LaunchCode
from harness.frontends.texts.ir_inputs import IR_SUFFIXES
from harness.run.emulating import emulate
from harness.run.emulator_jobs import Emulated, Emulation, RunTrial
from harness.run.inputs import (
    PLAIN_TARGET,
    find_variant,
    guessed_launch,
    launch_of,
    lower_record,
    recorded,
)
from harness.run.judging import judge
from harness.run.launch import Launch, NotRunError, RunEvidence, evidence_of
from harness.run.references import (
    REFERENCE_FILE,
    Another,
    CellReferences,
    EmulatedSource,
    References,
)
from harness.run.schedules import INSTRUCTIONS, PROGRAMS, default_trials
from harness.values.cell import CellId, same_place
from harness.values.errors import TriageError, UsageError
from harness.values.execution import Inputs, LaunchVariant
from harness.values.kernel import ConfigFilter
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.target import Target
from harness.values.toolchain import Compiler
from harness.values.verdict import VerdictKind


def require_values(selection: Selection) -> None:
    """Launch code is run with values as Triton's launches are.

    Raises:
        UsageError: the kernel is another compiler's.
    """
    repro = selection.repro
    compiler = front_end(repro.front_end)
    if not repro.ptx and not compiler.interprets:
        stage = "ptx" if "ptx" in compiler.stages else "cubin"
        how = "cannot be run with values"
        if compiler.takes_inputs:
            how = "are run with values by `triage run` alone, and on --on emulator"
        raise UsageError(
            f"{repro.name}: launches of {compiler.title} {how}; a cell's "
            f"{stage} can, on inputs that you name: `triage compile` lists the cells, "
            f"`triage show CELL --stage {stage} > k.{stage}`, `triage run k.{stage} --buffer ...`"
        )


def small_selection(selection: Selection) -> Selection:
    """The selection with its launches at the sizes at which they are executed.

    Raises:
        UsageError: it is a file of PTX, whose inputs nothing records, or of another compiler than
            those whose launches can be run.
    """
    require_values(selection)
    if selection.repro.ptx:
        raise UsageError(
            f"{selection.repro.name}: inputs are recorded from launch code; a file of PTX is "
            "executed by `triage run FILE.ptx`"
        )
    launches = tuple(small_launch(selection, launch) for launch in selection.launches)
    return structs.replace(selection, launches=launches)


async def lower_cell(bench: Workbench, cell: PlannedCell) -> Kept[Lowering]:
    """The PTX of a cell.

    Raises:
        NotRunError: there is none.
    """
    if cell.launch is None or cell.record is None:
        raise NotRunError("a file of PTX is run by `triage run FILE.ptx`")
    return await lower_record(bench, cell.launch, cell.record, cell.seen_ptxas)


@dataclass(slots=True, kw_only=True)
class RecordedLaunch(EmulatedSource):
    """The cells of a selection's first launch, at the sizes that it has there.

    Inputs are recorded with the first compiler of the selection, for its first target. References
    are compiled with it, too; `is_voted`: with the compiler of each cell, and the others of the
    selection are asked besides. `is_held`: the launch of a cubin is held to all that the emulation
    of its PTX is held to, and not only to what the repro says. `kernels` are those whose launches
    are interpreted, the selected one by default. With `configs`, inputs are those of these records,
    and not of the launch's own configs.
    """

    bench: Workbench
    selection: Selection
    tell: Callable[[str], None]
    is_voted: bool = False
    is_held: bool = False
    kernels: Sequence[str] = ()
    configs: tuple[LaunchFacts, ...] = ()
    is_interpreted: bool = False
    trials: tuple[RunTrial, ...] = field(default_factory=default_trials)
    budget: Budget = field(
        default_factory=lambda: Budget(max_instructions=INSTRUCTIONS, max_ctas=PROGRAMS)
    )
    _inputs: dict[tuple[Target, ...], Inputs] = field(default_factory=dict)
    _references: dict[tuple[Compiler, Target], References] = field(default_factory=dict)
    _judged: dict[tuple[object, ...], Plan] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def code(self) -> LaunchCode:
        """The launch code, with the configs that it is to have."""
        launch = self.selection.launches[0]
        code = fetch_launch_code(self.selection.repro, launch.spec, launch.overrides)
        if not self.configs:
            return code
        return code.with_configs(self.configs[0].kernel, [record.config for record in self.configs])

    @property
    def recordings(self) -> Iterable[Inputs]:
        """What launch code gave its kernels so far."""
        return self._inputs.values()

    def sessions(self) -> set[str]:
        """The captures that were opened besides: to be closed when all is done."""
        plans = {plan.session for plan in self._judged.values() if plan.session}
        return plans.union(*(references.sessions for references in self._references.values()))

    async def remark(self, cell: PlannedCell, lowering: Kept[Lowering]) -> str:
        """Of code that `triage compile` does not judge for the launch: that it is, in words.

        Parameters that make a launch smaller, the repro's and those of `--set`, may change what the
        compiler sees of its arguments. Empty where the PTX is the same.
        """
        launch, record = self.selection.launches[0], cell.record
        if record is None or not launch.overrides:
            return ""
        place = (cell.compiler, cell.cell.target)
        whole = structs.replace(launch, overrides={}, named=frozenset())
        every = structs.replace(self.selection, launches=(whole,), ptxas=(None,))

        def as_executed(judged: CellId) -> CellId:
            """With the parameters in its label, and its number behind them."""
            number = judged.launch.removeprefix(whole.label)
            return structs.replace(judged, launch=launch.label + number)

        try:
            async with self._lock:
                if place not in self._judged:
                    on = every.place(compiler=cell.compiler, target=cell.cell.target)
                    self._judged[place] = await plan_launch(self.bench, on)
            twins = [
                twin
                for twin in self._judged[place].cells
                if same_place(as_executed(twin.cell), cell.cell)
            ]
            if any(twin.record and twin.record.key == record.key for twin in twins):
                return ""
            judged = [await lower_cell(self.bench, twin) for twin in twins]
        except TriageError:
            judged = []
        if any(twin.artifacts.get("ptx") == lowering.artifacts["ptx"] for twin in judged):
            return ""
        words = ", ".join(f"{name}={value}" for name, value in launch.overrides.items())
        return f"other code than `compile` judges without --set: it was compiled for {words}"

    async def inputs(self, *targets: Target) -> Inputs:
        """What each kernel of the launch is given on the first of these targets that it runs for.

        Raises:
            TriageError: the launch code cannot be run with values.
        """
        async with self._lock:
            if targets not in self._inputs:
                launch = self.selection.launches[0]
                self.tell(f"{self.selection.repro.name}: inputs ({launch.label})")
                self._inputs[targets] = await recorded(
                    self.bench,
                    self.code,
                    self.selection.compilers[0],
                    self.kernels or [self.selection.repro.kernel or "*"],
                    targets,
                    budget=self.budget,
                    tell=self.tell,
                    is_interpreted=self.is_interpreted,
                )
            return self._inputs[targets]

    async def variant(self, record: LaunchFacts, target: Target | None = None) -> LaunchVariant:
        """What the kernel is given with the config of a record.

        The same for all targets, where it is the same launch there. Launch code may choose blocks
        by the device: what it launches on a `target` alone gets its inputs there.

        Raises:
            NotRunError: the launch code does not come to it.
            TriageError: the launch code cannot be run with values.
        """
        spec = self.selection.launches[0].spec
        if spec.file and spec.file.suffix in IR_SUFFIXES:
            return guessed_launch(spec.file.read_text(), self.bench.store.artifacts.put)
        if record.grid is None and not record.views:
            raise NotRunError(
                "the launch code has it compiled (so does a file of Inductor's) and never launches "
                "it: there are no inputs. Executed is what launch code launches: give `triage run` "
                "a file that calls kernel[grid](...)"
            )
        first = target if target and self.is_voted else self.selection.targets[0]
        inputs = await self.inputs(PLAIN_TARGET, first)
        variant = find_variant(inputs, record)
        if variant is None and target and target != PLAIN_TARGET:
            with contextlib.suppress(TriageError):
                inputs = await self.inputs(target)
                variant = find_variant(inputs, record)
        if variant is not None:
            return variant
        if error := inputs.error:
            message = next(iter(error.message.splitlines()), "")[:300]
            raise NotRunError(f"run with values, the launch raised {error.type}: {message}")
        raise NotRunError("run with values, the launch never comes to this kernel with this config")

    async def launch_of(
        self, cell: PlannedCell, lowering: Kept[Lowering], like: LaunchFacts | None = None
    ) -> Launch:
        """As in `EmulatedSource`."""
        record = like or cell.record
        assert record is not None, "what was lowered was captured"
        variant = await self.variant(record, cell.cell.target)
        formal = self.selection.formal
        launch = launch_of(self.bench, lowering, variant)
        return launch.run_as(self.trials, self.budget, formal=formal)

    async def held(
        self, cell: PlannedCell, launch: Launch, like: LaunchFacts | None = None
    ) -> Launch:
        """The launch of a cell, held to what its kernel must compute, as far as that is known.

        Raises:
            TriageError: the launch code cannot be run with values.
        """
        return await (await self.references_of(cell, like)).hold(launch)

    async def launch_for(self, bench: Workbench, cell: PlannedCell) -> Launch:
        """As in `LaunchSource`: held to what the repro's own reference says, if it has one."""
        like = next(iter(self.configs), None)
        launch = await self.launch_of(cell, await lower_cell(bench, cell), like)
        if self.is_held:
            emulated = await emulate(self.bench, launch.emulation)
            return (await self.held_evidence(cell, launch, emulated.value, like)).launch
        references = await self.references_of(cell, like)
        return replace(launch, trusted=tuple(await references.author()))

    async def held_evidence(
        self, cell: PlannedCell, launch: Launch, emulated: Emulated, like: LaunchFacts | None = None
    ) -> RunEvidence:
        """As in `EmulatedSource`."""
        get = self.bench.store.artifacts.get
        evidence = evidence_of(launch, emulated, get)
        hangs = launch.resident == launch.fits
        ended = (ran.ended or (launch.lacks_blocks(ran) and not hangs) for ran in emulated.runs)
        if emulated.problem or not all(ended):
            return evidence
        references = await self.references_of(cell, like)
        launch = replace(await references.hold(launch), baseline=await references.baseline())
        evidence = evidence_of(launch, emulated, get)
        verdict = judge(evidence).verdict
        if verdict in (VerdictKind.WRONG_RESULT, VerdictKind.CONSISTENT, VerdictKind.RAN):
            is_wrong = verdict is VerdictKind.WRONG_RESULT
            launch = await references.hold_to_interpreters(launch, is_wrong=is_wrong)
            evidence = evidence_of(launch, emulated, get)
        return evidence

    async def beside(
        self, cell: PlannedCell, another: Another, like: LaunchFacts | None = None
    ) -> Emulation:
        """As in `EmulatedSource`."""
        return await (await self.references_of(cell, like)).beside(another)

    async def references_of(
        self, cell: PlannedCell, like: LaunchFacts | None = None
    ) -> CellReferences:
        """What a cell is compared with, on its inputs or those of the record `like`.

        Raises:
            TriageError: nothing could be captured, or the launch cannot be run with values.
        """
        assert cell.record is not None, "only a launch is executed"
        variant = await self.variant(like or cell.record, cell.cell.target)
        return CellReferences(
            references=await self._shared_references(cell),
            compiler=cell.compiler,
            target=cell.cell.target,
            record=cell.record,
            variant=variant,
        )

    async def _shared_references(self, cell: PlannedCell) -> References:
        selection = self.selection
        compiler, target = selection.compilers[0], selection.targets[0]
        if self.is_voted:
            compiler, target = cell.compiler, cell.cell.target
        async with self._lock:
            place = (compiler, target)
            if place not in self._references:
                config = selection.config if self.is_voted else ConfigFilter()
                every = structs.replace(selection, config=config, ptxas=(None,))
                plan = await plan_launch(self.bench, every.place(compiler=compiler, target=target))
                records = [planned.record for planned in plan.cells if planned.record]
                others: list[Compiler] = []
                if self.is_voted:
                    others = [rival for rival in selection.compilers if rival != compiler]
                    others.sort(key=lambda rival: Version(rival.version), reverse=True)
                repro = selection.repro
                file = repro.folder / REFERENCE_FILE
                self._references[place] = References(
                    bench=self.bench,
                    budget=self.budget,
                    code=self.code,
                    compiler=compiler,
                    records=records,
                    reference=(file, repro.reference) if repro.reference else None,
                    baseline=repro.baseline,
                    tell=self.tell,
                    interpreter=selection.compilers[0],
                    others=others,
                )
            return self._references[place]
