"""The level of the source: files of Python are reduced as Python, others by their syntax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import form_of, front_end
from harness.frontends.source_form import FileForm, SyntaxForm
from harness.minimize.python.level import export_source, source_driver, source_sizes
from harness.minimize.reduction.result import Size
from harness.minimize.reduction.work import Driver
from harness.minimize.syntax.drive import syntax_driver, syntax_sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """A cell as one file of source, the options that it is compiled with, and how it is reduced."""

    text: str
    suffix: str
    size_of: Callable[[str], Size]
    driver: Driver
    options: Mapping[str, object] = field(default_factory=dict)


async def read_source_of(bench: Workbench, cell: PlannedCell) -> SourceText:
    """The cell as a file that needs nothing but its compiler.

    Raises:
        UsageError: the cell has no source, or something of it cannot be written down.
        InfrastructureError: the child could not be kept alive, or what reads it is missing.
    """
    form = front_end(cell.compiler.kind).source_form
    if isinstance(form, SyntaxForm) and cell.launch is not None and cell.record is not None:
        written = await form.write(bench, cell.launch, cell.record)
        return SourceText(
            text=written.text,
            suffix=form.suffix,
            size_of=syntax_sizes(form.syntax),
            driver=syntax_driver(form.syntax),
            options=written.options,
        )
    python = form_of(cell.compiler.kind)
    return SourceText(
        text=python.render(await export_source(bench, cell)),
        suffix=".py",
        size_of=source_sizes(python),
        driver=source_driver(python),
    )


def sizes_of_source(form: FileForm | SyntaxForm) -> tuple[str, Callable[[str], Size]]:
    """The suffix of the files that a compiler's kernels are written as, and what measures them."""
    if isinstance(form, SyntaxForm):
        return form.suffix, syntax_sizes(form.syntax)
    return ".py", source_sizes(form)
