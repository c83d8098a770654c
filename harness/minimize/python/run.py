"""The level of the source: the cell's launch as one file of Python, and how that is reduced."""

from __future__ import annotations

from harness.bench.bench import Workbench
from harness.frontends.base import PlannedCell
from harness.frontends.triton.compile_file import export_launch
from harness.frontends.triton.one_file import read_standalone
from harness.minimize.python.order import reduce_source
from harness.minimize.python.tree import PythonFile
from harness.minimize.reduction.result import Size
from harness.minimize.reduction.texts import DocumentDriver
from harness.values.errors import UsageError
from harness.values.standalone import Standalone

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


def source_driver() -> DocumentDriver[PythonFile]:
    """Reduces a standalone file as Python."""
    return DocumentDriver(
        read=lambda text: PythonFile.of(read_standalone(text)),
        text_of=lambda source: source.text,
        reduce=reduce_source,
    )


def size_of_source(text: str) -> Size:
    """Lines are those of functions, without comments and blank ones."""
    source = PythonFile.of(read_standalone(text))
    return Size(bytes=len(text.encode()), lines=source.kernel_lines)
