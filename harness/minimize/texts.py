"""What a cell can be written as, so that it can be reduced: one file of source, or Triton's IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.frontends.base import PlannedCell
from harness.frontends.bench.bench import Workbench
from harness.frontends.registry import form_of, front_end
from harness.frontends.source_form import FileForm, SyntaxForm
from harness.frontends.texts.ir_text import read_triton_ir
from harness.minimize.python.passes import python_format
from harness.minimize.reduction.driver import TextFormat
from harness.minimize.reduction.fingerprint import Reaction
from harness.minimize.reduction.oracles import CompilerOracle
from harness.minimize.reduction.result import NothingToReduce
from harness.minimize.syntax import syntax_format
from harness.minimize.ttgir import IrModule
from harness.values.errors import UsageError
from harness.values.standalone import Standalone
from harness.values.verdict import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """A cell as one file of source, how it is reduced, and the options that it is compiled with."""

    text: str
    suffix: str
    format: TextFormat[Any]
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
        text, options = written.text, written.options
    else:
        form = form_of(cell.compiler.kind)
        text, options = form.render(await export_source(bench, cell)), {}
    suffix, text_format = source_format(form)
    return SourceText(text=text, suffix=suffix, format=text_format, options=options)


def source_format(form: FileForm | SyntaxForm) -> tuple[str, TextFormat[Any]]:
    """The suffix and the format of the files that a compiler's kernels are written as.

    Those of Python are reduced as Python, others by their syntax.
    """
    if isinstance(form, SyntaxForm):
        return form.suffix, syntax_format(form.syntax)
    return ".py", python_format(form)


async def export_source(bench: Workbench, cell: PlannedCell) -> Standalone:
    """The cell's launch and config as a file that needs nothing but its compiler.

    Raises:
        UsageError: the cell has no source, or something of it cannot be written down.
        InfrastructureError: the child could not be kept alive.
    """
    if cell.launch is None or cell.record is None:
        raise UsageError(f"{cell.cell.kernel}: raw PTX has no source to write as one file")
    return await form_of(cell.compiler.kind).export(bench, cell.launch, cell.record)


_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
# The later one first: what is lower has gone through more passes. `source` is TTIR before any.
_STAGES = (("ttgir", Stage.TTGIR), ("ttir", Stage.TTIR), ("source", Stage.TTIR))


@dataclass(frozen=True, slots=True, kw_only=True)
class IrText:
    """A module, the stage that it is of, and the options that it does not fix by itself.

    `role` is what the lowering calls it, `metadata` what Triton said of that lowering.
    """

    text: str
    role: str
    stage: Stage
    options: Mapping[str, object]
    metadata: Mapping[str, object]

    @property
    def suffix(self) -> str:
        """As a file of it is named."""
        return f".{self.stage.value}"

    @property
    def set_options(self) -> str:
        """The options as `triage compile` takes them."""
        return " ".join(f"--set {name}={value}" for name, value in self.options.items())


async def find_ir(
    bench: Workbench,
    cell: PlannedCell,
    interesting: Callable[[Reaction], bool],
    *,
    until: Stage | None = None,
) -> IrText | NothingToReduce:
    """The lowest IR of the cell from which what is looked for still comes.

    Raises:
        UsageError: the cell never was IR.
        InfrastructureError: this machine failed.
    """
    seen = []
    for found in await ir_texts(bench, cell):
        oracle = ir_oracle(bench, cell, found, until=until)
        reaction = await oracle.react(found.text, cell.compiler)
        if interesting(reaction):
            return found
        seen.append(f"the {found.role} gives {reaction.verdict.value}: {reaction.reason}")
    if not seen:
        return NothingToReduce(reason=f"{cell.cell}: it fails before Triton has any IR")
    return NothingToReduce(reason=f"no IR of this cell shows the failure: {'; '.join(seen)}")


async def ir_texts(bench: Workbench, cell: PlannedCell) -> list[IrText]:
    """The IR of a cell as far as its Triton reads files of it, the lowest first.

    Raises:
        UsageError: the cell never was IR.
        InfrastructureError: this machine failed.
    """
    if cell.launch is None or cell.record is None:
        raise UsageError(f"{cell.cell.kernel}: raw PTX has no IR of Triton's")
    lowering = await front_end(cell.compiler.kind).lower(
        bench, cell.launch, cell.record, ptxas=cell.ptxas
    )
    metadata = lowering.value.metadata
    known = {**cell.record.config, **metadata}
    options = {n: known[n] for n in _OPTIONS if known.get(n) is not None}
    texts = []
    for role, stage in _STAGES:
        artifact = lowering.artifacts.get(role)
        # What another dialect becomes first is not TTIR, and Triton reads no file of it.
        if artifact is None or (role == "source" and "glir" in lowering.artifacts):
            continue
        data = bench.store.artifacts.get(artifact).decode(errors="replace")
        facts = read_triton_ir(data)
        fixed = {n for n in _OPTIONS if getattr(facts, n, None) is not None}
        texts.append(
            IrText(
                text=IrModule.read(data).text,
                role=role,
                stage=stage,
                options={n: value for n, value in options.items() if n not in fixed},
                metadata=metadata,
            )
        )
    return texts


def ir_oracle(
    bench: Workbench, cell: PlannedCell, ir: IrText, *, until: Stage | None = None
) -> CompilerOracle:
    """Compiles modules as `ir` is compiled."""
    return CompilerOracle(
        bench=bench, cell=cell, until=until, suffix=ir.suffix, is_ir=True, options=ir.options
    )
