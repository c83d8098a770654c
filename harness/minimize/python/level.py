"""The level of the source: the cell's launch as one file of Python, and how that is reduced."""

from __future__ import annotations

from collections.abc import Callable

from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import form_of
from harness.frontends.source_form import FileForm
from harness.minimize.python.passes import reduce_source
from harness.minimize.python.tree import PythonFile
from harness.minimize.reduction.result import Size
from harness.minimize.reduction.texts import DocumentDriver
from harness.values.errors import UsageError
from harness.values.standalone import Standalone


async def export_source(bench: Workbench, cell: PlannedCell) -> Standalone:
    """The cell's launch and config as a file that needs nothing but its compiler.

    Raises:
        UsageError: the cell has no source, or something of it cannot be written down.
        InfrastructureError: the child could not be kept alive.
    """
    if cell.launch is None or cell.record is None:
        raise UsageError(f"{cell.cell.kernel}: raw PTX has no source to write as one file")
    return await form_of(cell.compiler.kind).export(bench, cell.launch, cell.record)


def source_driver(form: FileForm) -> DocumentDriver[PythonFile]:
    """Reduces a standalone file as Python."""
    return DocumentDriver(
        read=lambda text: PythonFile.of(form.read(text), form),
        text_of=lambda source: source.text,
        reduce=reduce_source,
    )


def source_sizes(form: FileForm) -> Callable[[str], Size]:
    """The size of a standalone file; lines are those of functions, without comments and blanks."""

    def size_of(text: str) -> Size:
        source = PythonFile.of(form.read(text), form)
        return Size(bytes=len(text.encode()), lines=source.kernel_lines)

    return size_of
