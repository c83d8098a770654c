"""Launches of a compiler whose files launch nothing: kernels of CUDA C++, on named inputs.

A cell is held to what the same source becomes at lower levels of the compiler's own optimiser
(`-Xcicc -O0`, `-Xcicc -O1`): ptxas and the source are the same, so where these agree with one
another and the cell does not, the optimiser is what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from gpu_emulator.values import Budget, Checks
from harness.frontends.bench import Kept, Workbench
from harness.frontends.plan import PlannedCell, Selection
from harness.frontends.registry import front_end
from harness.run.emulating import emulate
from harness.run.emulator_jobs import Emulated, RunTrial
from harness.run.inputs import EntryError, read_entry
from harness.run.launch import Launch, NotRunError, RunEvidence, Trusted, evidence_of
from harness.run.raw import RawInputs, launch_with
from harness.run.recorded_launch import lower_cell
from harness.run.references import PLAIN_TRIALS, EmulatedSource
from harness.run.schedules import INSTRUCTIONS, default_trials
from harness.values.execution import Inputs
from harness.values.kernel import Repro
from harness.values.outcome import LaunchFacts, Lowering


def takes_inputs(repro: Repro) -> bool:
    """Whether its kernels are executed on inputs that the user names."""
    return not repro.ptx and front_end(repro.front_end).takes_inputs


_ENDS = "ends without a fault"
_PLAIN = tuple(replace(trial, checks=Checks(races=True, validity=True)) for trial in PLAIN_TRIALS)


@dataclass(slots=True, kw_only=True)
class NamedLaunch(EmulatedSource):
    """The cells of a file that launches nothing, on the `inputs` that a user names, or on guesses.

    `recordings` are of launch code: there is none.
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
        """As in `EmulatedSource`; `like` has no inputs of its own."""
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
        self, cell: PlannedCell, launch: Launch, emulated: Emulated, like: LaunchFacts | None = None
    ) -> RunEvidence:
        """As in `EmulatedSource`: held to the same source at lower levels."""
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
