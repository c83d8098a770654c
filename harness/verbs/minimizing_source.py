"""The level of the source: the cell's launch as one file of Python, and how that is reduced."""

from __future__ import annotations

from harness.effects.standalone_files import export_launch
from harness.effects.workbench import Workbench
from harness.logic.minimization import Size
from harness.logic.source_reduction import reduce_source
from harness.logic.source_tree import Source
from harness.logic.standalone import read_standalone
from harness.values.errors import UsageError
from harness.values.standalone import Standalone
from harness.verbs.cells import PlannedCell
from harness.verbs.minimizing_driver import DocumentDriver

__all__ = ["export_source", "size_of_source", "source_driver"]


async def export_source(bench: Workbench, cell: PlannedCell) -> Standalone:
    """The cell's launch and config as a file that needs nothing but Triton.

    Raises:
        UsageError: the cell has no source, or something of it cannot be written down.
        InfrastructureError: the child could not be kept alive.
    """
    if cell.launch is None or cell.record is None:
        raise UsageError(f"{cell.cell.kernel}: raw PTX has no source to write as one file")
    return await export_launch(bench, cell.launch, cell.record)


def source_driver(*, jobs: int, seed: int) -> DocumentDriver[Source]:
    """Reduces a standalone file as Python."""
    return DocumentDriver(
        read=lambda text: Source.of(read_standalone(text)),
        text_of=lambda source: source.text,
        reduce=reduce_source,
        jobs=jobs,
        seed=seed,
    )


def size_of_source(text: str) -> Size:
    """Lines are those of functions, without comments and blank ones."""
    source = Source.of(read_standalone(text))
    return Size(bytes=len(text.encode()), lines=source.kernel_lines)
