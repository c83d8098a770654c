"""The levels above PTX: the source, Triton's IR, and the launch's settings.

A level is a text with its format (`Level`) and what it is held to (`ToolVersions`): versions of the
compiler, or of its assembler. `minimize_level` does the rest, and `harness.minimize.minimizing` has
the names of all levels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from msgspec import structs

from harness.bisect.axes import plan_cells
from harness.bisect.contrast import other_targets
from harness.cells.selection import for_target
from harness.frontends.base import SyntaxForm
from harness.frontends.bench import Workbench
from harness.frontends.plan import PlannedCell
from harness.frontends.registry import back_end, form_of, front_end
from harness.frontends.texts.ir_inputs import read_triton_ir
from harness.io.packages.versions import newest_of_minor
from harness.minimize.launch_level import open_launch
from harness.minimize.python.python_passes import python_format
from harness.minimize.reduction.fingerprint import Fingerprint
from harness.minimize.reduction.interest import (
    GLANCE_SECONDS,
    CompilerOracle,
    Oracle,
    ToolVersions,
    ask_installed,
    hold_in_place,
    walk_the_index,
)
from harness.minimize.reduction.minimization import Minimization, MinimizedLaunch, NothingToReduce
from harness.minimize.reduction.reducer import TextFormat
from harness.minimize.reduction.work import (
    Level,
    LevelReduction,
    MinimizeTask,
    minimization,
    reduce_level,
)
from harness.minimize.syntax import syntax_format
from harness.minimize.ttgir import IR_FORMAT, IrModule
from harness.values.cell import same_place
from harness.values.errors import InfrastructureError, OfflineError, TriageError, UsageError
from harness.values.standalone import Standalone
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, PTX, Assembler, Compiler
from harness.values.verdict import Stage

# What a cell can be written as: one file of source, or Triton's IR.


def source_format(kind: str, *, keeps_kernel: bool = False) -> tuple[str, TextFormat[Any]]:
    """The suffix and the format of the files that a compiler's kernels are written as.

    Those of Python are reduced as Python, with `keeps_kernel` their launch alone; others by their
    syntax.
    """
    form = front_end(kind).source_form
    if isinstance(form, SyntaxForm):
        return form.suffix, syntax_format(form.syntax)
    return ".py", python_format(form_of(kind), keeps_kernel=keeps_kernel)


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
    settings = {**cell.record.config, **metadata}
    options = {n: settings[n] for n in _OPTIONS if settings.get(n) is not None}
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


# The levels.

T = TypeVar("T", bound=Compiler | Assembler)


async def minimize_source(task: MinimizeTask) -> Minimization | NothingToReduce:
    """Write the subject as one file of source, reduce it, and report.

    Raises:
        UsageError: it has no source, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    bench, cell = task.bench, task.subject.cell
    form = front_end(cell.compiler.kind).source_form
    options: Mapping[str, object] = {}
    if isinstance(form, SyntaxForm) and cell.launch is not None and cell.record is not None:
        text, options = form.write(cell.launch, cell.record)
    else:
        text = form_of(cell.compiler.kind).render(await export_source(bench, cell))
    keeps_kernel = task.options.keeps_kernel
    suffix, text_format = source_format(cell.compiler.kind, keeps_kernel=keeps_kernel)
    level = Level(
        name="source",
        suffix=suffix,
        original=text,
        size_of=text_format.size_of,
        reduce=text_format.reduce_text,
    )
    oracle = CompilerOracle(
        bench=bench, cell=cell, until=_until(task), suffix=suffix, options=options
    )
    back = back_end(cell.compiler.kind, cell.cell.target)
    if _until(task) is Stage.CUBIN and back.takes != PTX:
        # It is not a level of its own: what the assembler takes is only reduced as source.
        assemblers = ToolVersions(
            name=back.title,
            tool=cell.ptxas,
            oracle=oracle,
            installed=[back.install(version) for version in back.installed()],
            available=lambda: newest_of_minor(back.available()),
            install=back.install,
            steps=3,
        )
        return await minimize_level(task, level, assemblers)

    async def elsewhere(target: Target) -> Oracle[Compiler] | None:
        beside = await cell_beside(task, target, cell.compiler)
        return replace(oracle, cell=beside) if beside else None

    targets = other_targets(cell.cell.target)
    held_by = replace(held_by_compilers(task, oracle), targets=targets, for_target=elsewhere)
    return await minimize_level(task, level, held_by)


async def cell_beside(task: MinimizeTask, target: Target, compiler: Compiler) -> PlannedCell | None:
    """The subject for another target, or by another compiler; None where it is not made there."""
    selection = for_target(structs.replace(task.selection, compilers=(compiler,)), target)
    try:
        cells = (await plan_cells(task.bench, selection, None)).cells
    except TriageError:
        return None
    own = task.subject.cell.cell
    return next((cell for cell in cells if same_place(cell.cell, own, across_targets=True)), None)


async def minimize_ttgir(task: MinimizeTask) -> Minimization | NothingToReduce:
    """Take the lowest IR of the subject that still shows it, reduce it, and report.

    Raises:
        UsageError: it never was IR, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    bench, cell = task.bench, task.subject.cell
    fingerprint, reasons = _fingerprint(task, _compiler(task).version), []
    for ir in await ir_texts(bench, cell):
        oracle = CompilerOracle(
            bench=bench,
            cell=cell,
            until=_until(task),
            suffix=ir.suffix,
            is_ir=True,
            options=ir.options,
        )
        reaction = await oracle.react(ir.text, cell.compiler)
        if fingerprint.shows(reaction):
            return await minimize_level(task, ir_level(ir), held_by_compilers(task, oracle))
        reasons.append(f"the {ir.role} gives {reaction.verdict.value}: {reaction.reason}")
    if not reasons:
        return NothingToReduce(reason=f"{cell.cell}: it fails before Triton has any IR")
    return NothingToReduce(reason=f"no IR of this cell shows the failure: {'; '.join(reasons)}")


def ir_level(ir: IrText) -> Level:
    """The level of a module of Triton's IR."""
    return Level(
        name="ttgir",
        suffix=ir.suffix,
        original=ir.text,
        size_of=IR_FORMAT.size_of,
        reduce=IR_FORMAT.reduce_text,
        options=" ".join(f"--set {name}={value}" for name, value in ir.options.items()),
    )


async def minimize_config(task: MinimizeTask) -> Minimization | NothingToReduce:
    """Find the smallest shapes, config and flags that still show it; what is left is a command.

    Raises:
        UsageError: there is no launch to make smaller, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    task.folder(".sh")
    launch = await open_launch(task.bench, task.selection, task.subject)
    commands = launch.format()
    level = Level(
        name="config",
        suffix=".sh",
        original=launch.command(launch.begun),
        size_of=commands.size_of,
        reduce=commands.reduce_text,
        remarks=launch.changes,
    )
    return await minimize_level(task, level, held_by_compilers(task, launch))


def held_by_compilers(task: MinimizeTask, oracle: Oracle[Compiler]) -> ToolVersions[Compiler]:
    """The subject's compiler and its other versions.

    Raises:
        UsageError: it is raw PTX.
        StorageError: the cache cannot be read.
    """
    tool = _compiler(task)
    compiler = front_end(tool.kind)
    return ToolVersions(
        name=compiler.title,
        tool=tool,
        oracle=oracle,
        installed=compiler.installed(),
        available=lambda: newest_of_minor(compiler.available()),
        install=compiler.install,
        steps=3,
        # Starting one takes seconds.
        glance=4 * GLANCE_SECONDS,
    )


def _fingerprint(task: MinimizeTask, bad: str) -> Fingerprint:
    subject = task.subject
    if task.options.script is not None:
        raise UsageError("--script is asked about PTX: give a PTX file, or --level ptx")
    return Fingerprint(
        bad=bad,
        signature=None if subject.condition else subject.row.signature,
        condition=subject.condition,
    )


def _compiler(task: MinimizeTask) -> Compiler:
    launch = task.subject.cell.launch
    if launch is None:
        kernel = task.subject.row.kernel
        raise UsageError(f"{kernel}: raw PTX comes from no compiler here; use --level ptx")
    return launch.compiler


def _until(task: MinimizeTask) -> Stage | None:
    stage = task.subject.row.stage
    return Stage(stage) if task.subject.condition is None and stage else None


async def minimize_level(
    task: MinimizeTask, level: Level, held_by: ToolVersions[T]
) -> Minimization | NothingToReduce:
    """Reduce a level as `reduce_held` does, and report."""
    work = await reduce_held(task, level, held_by)
    return work if isinstance(work, NothingToReduce) else held_minimization(task, work)


async def reduce_held(
    task: MinimizeTask, level: Level, held_by: ToolVersions[T]
) -> LevelReduction[T] | NothingToReduce:
    """Ask every version about the original, reduce, and keep the best whatever happens.

    Raises:
        UsageError: the folder is taken, or what it holds cannot be read.
        TriageError: the machine failed before the reduction began.
    """
    task.folder(level.suffix)
    watch, limits, bad = task.watch, task.bench.limits, held_by.tool.version
    fingerprint = _fingerprint(task, bad)
    watch.stage(f"asking every installed {held_by.name} about the original")
    versions = await ask_installed(held_by, level.original, limits)
    first = versions.reactions[bad]
    if not fingerprint.shows(first):
        gives = f"{first.verdict.value}: {first.reason}"
        return NothingToReduce(reason=f"the {level.name} alone does not reproduce it, but {gives}")
    if fingerprint.condition is None:
        await walk_the_index(held_by, versions, fingerprint, limits, watch.stage)
    own = task.subject.cell.cell.target
    interest = await hold_in_place(held_by, versions, fingerprint, own, keeps_refusals=True)
    return await reduce_level(task, level, interest)


def held_minimization(
    task: MinimizeTask,
    work: LevelReduction[T],
    *,
    launch: MinimizedLaunch | None = None,
    first_notes: Sequence[str] = (),
    last_notes: Sequence[str] = (),
) -> Minimization:
    """What a reduction that versions of a compiler hold in place came to."""
    cell, bad = task.subject.cell, work.interest.fingerprint.bad
    compiler, ptxas = cell.compiler, cell.ptxas
    form, install = front_end(compiler.kind).source_form, None
    with contextlib.suppress(InfrastructureError, OfflineError, UsageError):
        install = form.install(compiler.version, ptxas) if form else None
    return minimization(
        task,
        work,
        task.toolchain(
            install=install,
            assembler=ptxas.kind,
            is_of_assemblers=isinstance(work.interest.versions.tools[bad], Assembler),
            packages={} if ptxas.origin == BUNDLED else {ptxas.version: ptxas.origin},
        ),
        # What the failing version says of the result; of the original where it was not asked.
        reason=next((line.minimized_words for line in work.versions if line.version == bad), ""),
        launch=launch,
        first_notes=first_notes,
        last_notes=last_notes,
    )
