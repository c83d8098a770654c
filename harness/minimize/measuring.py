"""`triage minimize --run --on gpu`: the least PTX whose cubin goes wrong on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from gpu_emulator.values import Budget
from harness.cells.evaluate import Evaluated, with_flags
from harness.frontends.base import PlannedCell, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import plan_launch
from harness.judging.ptxas.flags import level_change
from harness.minimize.executed.measured import MeasuredPtx
from harness.minimize.executed.oracle import reaction_of_run
from harness.minimize.executing_ptx import launch_files, written_launch
from harness.minimize.ptx.defined import count_unwritten
from harness.minimize.ptx.predicate import minimize_by
from harness.minimize.reduction.folder import MinimizedFolder
from harness.minimize.reduction.progress import MinimizeOptions, Reducing
from harness.minimize.reduction.result import Minimization, Uninteresting
from harness.run.executing import Executed
from harness.run.gpu.gathering import leveled, raw_trip_launch
from harness.run.gpu.places import place_of
from harness.run.gpu.standalone import PROGRAM
from harness.run.judging import Judgement
from harness.run.ptx_launch import LAUNCH_INPUTS
from harness.run.raw_ptx import RawInputs
from harness.run.schedules import DEFAULT, INSTRUCTIONS, read_schedules, trials_of
from harness.store.store import Store
from harness.values.errors import UsageError
from harness.values.toolchain import GPU, Assembler


@dataclass(slots=True, kw_only=True)
class MeasuredCase:
    """A file of PTX whose cubin goes wrong on a GPU: the first ptxas at one level is accused.

    The same ptxas at another level, and the other ptxas at the same, hold what is reduced in place.
    """

    bench: Workbench
    selection: Selection
    inputs: RawInputs
    guards: Sequence[Assembler]
    level: int
    runner: str | None
    predicate: MeasuredPtx | None = None
    seen: tuple[Executed, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, bench: Workbench, selection: Selection, options: MinimizeOptions) -> MeasuredCase:
        """The file of a selection; its first ptxas is accused.

        Raises:
            UsageError: it is not PTX.
        """
        if selection.repro.ptx is None:
            raise UsageError(
                f"{selection.repro.name}: --on gpu reduces a file of PTX; `triage show --stage "
                "ptx` prints that of a kernel"
            )
        accused, *guards = selection.ptxas
        return cls(
            bench=bench,
            selection=replace(selection, ptxas=(accused,)),
            inputs=options.inputs or RawInputs(),
            guards=[each for each in guards if each is not None],
            level=options.gpu_level,
            runner=options.runner,
        )

    async def evaluate(self, bench: Workbench, cell: PlannedCell) -> Evaluated:
        """Launch the accused cubin and those that hold it, and judge them.

        Raises:
            UsageError: the inputs do not fit its parameters.
            InfrastructureError: there is no GPU, or no results came back.
        """
        destination = place_of(self.runner)
        trials = trials_of(read_schedules(DEFAULT), races=True)
        budget = Budget(max_instructions=INSTRUCTIONS)
        given = raw_trip_launch(bench, self.selection, self.inputs, trials, budget)
        self.notes = given.notes
        named = replace(cell, cell=given.named(cell.cell), nvdisasms=())
        cells = [each for each, _ in leveled(named, (self.level,))]
        for guard in self.guards:
            other = replace(self.selection, ptxas=(guard,))
            plan = await plan_launch(bench, other.place(target=cell.cell.target))
            [beside] = [each for each in plan.cells if each.entry == cell.entry]
            beside = replace(beside, cell=given.named(beside.cell), nvdisasms=())
            cells.append(with_flags(beside, level_change(self.level)))
        text = bench.store.artifacts.get(given.launch.emulation.ptx).decode()
        self.predicate = MeasuredPtx(
            bench=bench,
            cells=tuple(cells),
            given=given.launch,
            launch=written_launch(text, given.launch.emulation),
            destination=destination,
            unwritten=count_unwritten(text),
        )
        self.seen = await self.predicate.observe(bench, text)
        self.predicate.wanted = tuple((each.row.run, each.row.run_signature) for each in self.seen)
        return self.seen[0].done

    async def minimize(self, reducing: Reducing) -> Minimization | Uninteresting:
        """Reduce the PTX; the launch goes with what is left.

        Raises:
            UsageError: the folder is taken.
            TriageError: the machine failed before the reduction began.
        """
        predicate = self.predicate
        assert predicate is not None, "it was launched to be the subject"
        row = self.seen[0].row
        assert row.run_signature is not None, "it goes wrong"
        emulation = predicate.given.emulation
        contents = {
            each.file: self.bench.store.artifacts.get(each.file)
            for each in emulation.buffers
            if each.file
        }
        text = self.bench.store.artifacts.get(emulation.ptx).decode()
        launch = replace(predicate.launch, tensors=predicate.given.tensors)
        files = launch_files(launch, [each.file for each in emulation.buffers], contents)
        folder = self.bench.hub.new_folder("candidates")
        try:
            with Store.open(folder) as candidates:
                for data in contents.values():
                    candidates.artifacts.put(data)
                for trusted in predicate.given.trusted:
                    for sha256 in filter(None, trusted.buffers):
                        candidates.artifacts.put(self.bench.store.artifacts.get(sha256))
                predicate.bench = self.bench.apart(limits=None, uncached=False)
                predicate.bench.store, predicate.bench.use_cache = candidates, True
                found = await minimize_by(
                    reducing,
                    predicate,
                    text,
                    signature=row.run_signature,
                    by=f"{GPU}:{_tool(self.seen[0])}",
                    is_defined=True,
                    is_always=True,
                    terms={"launch": msgspec.to_builtins(launch), "held": self._held()},
                )
                if isinstance(found, Minimization):
                    who = _tool(self.seen[0]).replace("-", " ", 1).replace(",", " ")
                    headline = f"{who} on {found.target}: {predicate.same[found.text].run_reason}"
                    program = await predicate.program(found.text, headline)
                    files = {**files, **({PROGRAM: program.encode()} if program else {})}
        finally:
            self.bench.hub.drop_folder(folder)
        if isinstance(found, Uninteresting):
            return found
        written = MinimizedFolder(path=Path(found.path))
        for name, data in files.items():
            written.write_bytes(name, data)
        shown = predicate.same[found.text]
        reason = shown.run_reason
        judgement = Judgement(verdict=row.run, reason=reason)
        return replace(
            found,
            reason=reason,
            reaction=reaction_of_run(judgement),
            notes=(
                f"what is held: {', '.join(self._held())}; the emulator ends, and finds no race",
                f"{predicate.trips} trips to {row.device} by {predicate.destination.name}",
                *found.notes,
                *self.notes,
            ),
            run_command=self._command(),
            run_files=files,
            shown=shown,
            on_gpu=_tool(self.seen[0]).replace(",", " "),
        )

    def _held(self) -> list[str]:
        return [f"{_tool(each)}: {each.row.run.value}" for each in self.seen]

    def _command(self) -> str:
        accused = self.selection.ptxas[0]
        assert accused is not None
        tools = " ".join(f"--ptxas {each.version}" for each in (accused, *self.guards))
        levels = ",".join(sorted({_tool(each).rpartition("-O")[2] for each in self.seen}))
        target = self.selection.targets[0]
        return (
            f"triage run min.ptx --inputs {LAUNCH_INPUTS} --sm {str(target).removeprefix('sm_')} "
            f"{tools} -O {levels} --on gpu"
        )


def _tool(executed: Executed) -> str:
    """`ptxas-13.0.88,-O3`, as the cell spells it."""
    return executed.row.cell.rpartition(f"/{GPU}:")[2]
