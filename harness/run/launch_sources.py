"""One launch of a kernel on the emulator: each of its cells becomes a `Launch`.

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

from gpu_emulator.values import Budget, Checks
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
    EntryError,
    LaunchSource,
    find_variant,
    guessed_launch,
    launch_of,
    lower_record,
    read_entry,
    recorded,
)
from harness.run.judging import judge
from harness.run.launch import Launch, NotRunError, RunEvidence, Trusted, evidence_of
from harness.run.raw import RawInputs, launch_with
from harness.run.references import PLAIN_TRIALS, REFERENCE_FILE, Another, CellReferences, References
from harness.run.schedules import INSTRUCTIONS, PROGRAMS, default_trials
from harness.values.cell import CellId, same_place
from harness.values.errors import TriageError, UsageError
from harness.values.execution import Inputs, LaunchVariant
from harness.values.kernel import ConfigFilter, Repro
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.target import Target
from harness.values.toolchain import Compiler, takes_cubins
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


def small_selection(selection: Selection, on: str | None = None) -> Selection:
    """The selection with its launches at the sizes at which they are executed.

    Raises:
        UsageError: it is a file of PTX, whose inputs nothing records, and what executes it (`on`)
            does not take its cubin; or of another compiler than those whose launches can be run.
    """
    if selection.repro.ptx and takes_cubins(on):
        return selection
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
class RecordedLaunch(LaunchSource):
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
            raise NotRunError(f"run with values, the launch raised {error.words}")
        raise NotRunError("run with values, the launch never comes to this kernel with this config")

    async def launch_of(
        self, cell: PlannedCell, lowering: Kept[Lowering], like: LaunchFacts | None = None
    ) -> Launch:
        """A cell that became this PTX, on its inputs: those of the record `like`, if it is given.

        Raises:
            NotRunError: it cannot be launched so.
            TriageError: the launch code cannot be run with values.
        """
        record = like or cell.record
        assert record is not None, "what was lowered was captured"
        variant = await self.variant(record, cell.cell.target)
        formal = self.selection.formal
        launch = launch_of(self.bench, lowering, variant)
        return launch.run_as(self.trials, self.budget, formal=formal)

    async def held(self, cell: PlannedCell, launch: Launch) -> Launch:
        """The launch of a cell, held to what its kernel must compute, as far as that is known.

        Raises:
            TriageError: the launch code cannot be run with values.
        """
        return await (await self.references_of(cell, None)).hold(launch)

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
        self, cell: PlannedCell, launch: Launch, emulated: Emulated, like: LaunchFacts | None
    ) -> RunEvidence:
        """What the emulator did with the launch of a cell, held to what it must compute.

        `like` is as in `launch_of`.

        Raises:
            TriageError: the launch code cannot be run with values.
        """
        get = self.bench.store.artifacts.get
        hangs = launch.resident == launch.fits
        ended = (ran.ended or (launch.lacks_blocks(ran) and not hangs) for ran in emulated.runs)
        if emulated.problem or not all(ended):
            return evidence_of(launch, emulated, get)
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
        """Another PTX of the launch of a cell, on the same inputs.

        Raises:
            NotRunError: there is none.
        """
        return await (await self.references_of(cell, like)).beside(another)

    async def references_of(self, cell: PlannedCell, like: LaunchFacts | None) -> CellReferences:
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


def takes_inputs(repro: Repro) -> bool:
    """Whether its kernels are executed on inputs that the user names."""
    return not repro.ptx and front_end(repro.front_end).takes_inputs


_ENDS = "ends without a fault"
_PLAIN = tuple(replace(trial, checks=Checks(races=True, validity=True)) for trial in PLAIN_TRIALS)


@dataclass(slots=True, kw_only=True)
class NamedLaunch(LaunchSource):
    """The cells of a file that launches nothing, on the `inputs` that a user names, or on guesses.

    Each is held to what the same source becomes at lower levels of the compiler's own optimiser
    (`-Xcicc -O0`, `-Xcicc -O1`): ptxas and the source are the same, so where these agree with one
    another and the cell does not, the optimiser is what is left. `recordings` are of launch code:
    there is none.
    """

    bench: Workbench
    selection: Selection
    tell: Callable[[str], None]
    inputs: RawInputs
    trials: tuple[RunTrial, ...] = field(default_factory=default_trials)
    budget: Budget = field(default_factory=lambda: Budget(max_instructions=INSTRUCTIONS))
    recordings: Sequence[Inputs] = ()
    notes: tuple[str, ...] = ()
    _said: dict[str, str] = field(default_factory=dict)

    async def launch_of(
        self, cell: PlannedCell, lowering: Kept[Lowering], like: LaunchFacts | None = None
    ) -> Launch:
        """As in `RecordedLaunch`; `like` has no inputs of its own."""
        del like
        sha256 = lowering.artifacts["ptx"]
        text = self.bench.store.artifacts.get(sha256).decode(errors="replace")
        try:
            entry = read_entry(text, str(lowering.value.metadata["entry"]))
        except EntryError as error:
            raise NotRunError(str(error)) from error
        names = front_end(cell.compiler.kind).parameters(self.selection.repro.file, entry.name)
        launch, notes = launch_with(text, entry.named(names), self.inputs, self.bench.store)
        self.notes = tuple(dict.fromkeys((*self.notes, *notes)))
        emulation = replace(launch.emulation, ptx=sha256)
        return replace(launch, emulation=emulation).run_as(
            self.trials, self.budget, formal=self.selection.formal
        )

    async def launch_for(self, bench: Workbench, cell: PlannedCell) -> Launch:  # noqa: ARG002
        """As in `LaunchSource`."""
        return await self.launch_of(cell, await lower_cell(self.bench, cell))

    async def held_evidence(
        self, cell: PlannedCell, launch: Launch, emulated: Emulated, like: LaunchFacts | None
    ) -> RunEvidence:
        """As in `RecordedLaunch`: held to the same source at lower levels."""
        del like
        levels: dict[str, list[str]] = {}
        trusted: list[Trusted] = []
        assert cell.launch is not None, "what was lowered was captured"
        assert cell.record is not None, "as above"
        front = front_end(cell.compiler.kind)
        for words, lowering in (await front.plainer(self.bench, cell.launch, cell.record)).items():
            emulation = replace(launch.emulation, ptx=lowering.artifacts["ptx"])
            plain = replace(launch, emulation=emulation).run_as(_PLAIN, self.budget)
            done = (await emulate(self.bench, plain.emulation)).value
            how = _how(done)
            levels.setdefault(how, []).append(words)
            if how == _ENDS:
                by = f"{cell.compiler.name} with {words}, emulated"
                left = done.runs[0].buffers
                trusted.append(Trusted(words=by, buffers=left, is_emulated=True, is_sampled=True))
        self._said[str(cell.cell)] = "; ".join(
            f"the same source with {' or '.join(words)} {how}"
            for how, words in levels.items()
            if how != _ENDS or any(ran.faults for ran in emulated.runs)
        )
        if len(trusted) < 2 or len({one.buffers for one in trusted}) > 1:
            # Levels contract products in other ways: one alone, or two that differ, prove nothing.
            trusted = [replace(one, may_differ=True) for one in trusted]
        held = replace(launch, trusted=(*launch.trusted, *trusted))
        return evidence_of(held, emulated, self.bench.store.artifacts.get)

    async def remark(self, cell: PlannedCell, lowering: Kept[Lowering]) -> str:  # noqa: ARG002
        """What the same source does at lower levels of the optimiser."""
        return self._said.get(str(cell.cell), "")

    async def beside(
        self,
        cell: PlannedCell,  # noqa: ARG002
        another: Another,
        like: LaunchFacts | None = None,  # noqa: ARG002
    ) -> Emulation:
        """As in `RecordedLaunch`: there is none."""
        raise NotRunError(f"{another.words}: nothing else is compiled of this launch")


def _how(emulated: Emulated) -> str:
    """What came of a lower level: it ends, with the same values whatever garbage there was, or not.

    An order of warps that changes what it computes is the program's own, at every level.
    """
    runs = emulated.runs
    if faults := [fault for ran in runs for fault in ran.faults]:
        return f"has a fault, too: {faults[0].what}"
    if emulated.problem or len(runs) < len(_PLAIN) or not all(ran.ended for ran in runs):
        return "was not executed to its end"
    if any(not race.formal for ran in runs for race in ran.races):
        return "has a race, too"
    return _ENDS if runs[0].buffers == runs[1].buffers else "depends on what nothing wrote, too"


EmulatedSource = RecordedLaunch | NamedLaunch
"""What the emulator executes cells of."""
