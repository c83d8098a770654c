"""`triage package`: every kernel of a package that launches reach, compiled for each target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.cells.compile import compile_selections
from harness.cells.places import CompileOptions, RunProgress, Steering
from harness.frontends.base import CapturePlace, Plan, PlannedCell, Selection
from harness.frontends.launch_code import import_root
from harness.frontends.texts.source_copy import read_source
from harness.store.store import Store
from harness.values.errors import TriageError
from harness.values.kernel import Repro
from harness.values.outcome import LaunchFacts
from harness.workaround.package.functions import count_functions
from harness.workaround.package.losses import tuning_lists
from harness.workaround.package.result import PackageReport, Reached

_CELLS_A_WORKER = 4


@dataclass(slots=True, kw_only=True)
class _InPackage(Steering):
    """Takes the kernels that are written below `folder`, and keeps how each cell was captured."""

    folder: Path
    at_once: int
    records: dict[str, LaunchFacts] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    elsewhere: dict[str, None] = field(default_factory=dict)

    def choose(self, place: CapturePlace, plan: Plan) -> Sequence[PlannedCell]:  # noqa: ARG002
        """See `Steering`."""
        chosen = []
        for cell in plan.cells:
            assert cell.record is not None, "what is captured has a record"
            file = Path(cell.record.file).resolve()
            if not file.is_relative_to(self.folder):
                self.elsewhere[cell.record.kernel] = None
                continue
            self.files[cell.record.file] = file.relative_to(self.folder.parent).as_posix()
            self.records[str(cell.cell)] = cell.record
            chosen.append(cell)
        return chosen


async def survey_package(
    reached: Reached,
    selections: Sequence[Selection],
    store: Store,
    how: CompileOptions,
    progress: RunProgress,
) -> PackageReport:
    """Compile what the selections (of `reached`) launch, and look at what is left.

    Raises:
        CaptureError: no launch could be captured.
        EmptySelectionError: no kernel of the package is launched.
        TriageError: the source cannot be fetched, or results cannot be kept.
    """
    from harness.workaround.package.pruning import pruning_of  # noqa: PLC0415 - libcst: 0.3 s

    folder = _folder(reached.launches[0])
    mine = _InPackage(folder=folder, at_once=_CELLS_A_WORKER * how.workers)
    compiled = await compile_selections(selections, store, how, progress, mine)
    lists = tuning_lists(compiled.rows, mine.records, mine.files)
    launched = {(one.file, one.kernel) for one in lists}
    return PackageReport(
        surroundings=selections[0].surroundings,
        reached=reached,
        compiled=compiled,
        lists=tuple((one, pruning_of(one)) for one in lists),
        functions=count_functions(_texts(folder), launched),
        elsewhere=tuple(mine.elsewhere),
    )


def _folder(repro: Repro) -> Path:
    """The folder of the package that is imported, in its source."""
    assert repro.source is not None
    return (import_root(repro) / repro.source.module.partition(".")[0]).resolve()


def _texts(folder: Path) -> dict[str, str]:
    """The Python files of the package; one that is not text counts as empty."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        try:
            found[path.relative_to(folder.parent).as_posix()] = read_source(path)
        except TriageError:
            found[path.relative_to(folder.parent).as_posix()] = "\0"
    return found
