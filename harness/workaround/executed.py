"""Settings that are executed, each on the inputs of its launch: what they compute is the proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from harness.cells.evaluate import Evaluated
from harness.frontends.base import PlannedCell, Selection
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import front_end
from harness.values.outcome import LaunchFacts
from harness.values.row import Row
from harness.values.verdict import VerdictKind
from harness.workaround.result import Equivalence, Numerics
from harness.workaround.settings import SettingKind

if TYPE_CHECKING:
    from harness.run.executing import Executed
    from harness.run.same_inputs import SameInputs


EXECUTED_KINDS = (SettingKind.CONFIG, SettingKind.LAUNCH, SettingKind.TRITON)
"""What may change what PTX computes when it is executed: it has not seen ptxas yet."""


@dataclass(slots=True, kw_only=True)
class Executions:
    """Executes cells of one kernel: those of one launch and tile get the same inputs.

    Inputs and references are those of the first compiler of the selection.
    """

    bench: Workbench
    selection: Selection
    tell: Callable[[str], None]
    _by_place: dict[object, tuple[SameInputs, LaunchFacts]] = field(default_factory=dict)

    async def evaluate(self, bench: Workbench, cell: PlannedCell) -> Evaluated:
        """As `execute`; what came out as a result like a compile's."""
        return (await self.execute(bench, cell)).done

    async def execute(self, bench: Workbench, cell: PlannedCell) -> Executed:
        """As `harness.run.same_inputs.SameInputs.execute`.

        Raises:
            TriageError: the launch code cannot be run with values.
        """
        from harness.run.same_inputs import SameInputs  # noqa: PLC0415 - the emulator: 0.2 s

        assert cell.launch is not None, "a file of PTX has no inputs that are recorded"
        assert cell.record is not None, "what is launched was captured"
        overrides = dict(cell.launch.request.overrides)
        # Options of the compiler leave the grid and the tiles alone, most often.
        options = front_end(cell.compiler.kind).options
        tiles = {n: v for n, v in cell.record.config.items() if n not in options}
        place = (*sorted(overrides.items()), *sorted(tiles.items()))
        if place not in self._by_place:
            launch = replace(self.selection.launches[0], overrides=overrides)
            same = SameInputs(
                bench=self.bench,
                selection=replace(self.selection, launches=(launch,)),
                tell=self.tell,
                configs=(cell.record,),
            )
            self._by_place[place] = same, cell.record
        same, like = self._by_place[place]
        return await same.execute(bench, cell, like=like)


def emulated_numerics(row: Row) -> Numerics:
    """What a run that is right says."""
    kind = VerdictKind(row.verdict)
    what = "right" if kind is VerdictKind.RIGHT else "nothing is wrong"
    reason = row.reason.removeprefix("emulated: ")
    return Numerics(known=Equivalence.EMULATED, reason=f"{what} on these inputs: {reason}")
