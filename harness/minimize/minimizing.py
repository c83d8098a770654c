"""`triage minimize`: from a failure to the least input that shows the same one."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from harness.cells.evaluate import evaluate
from harness.cells.places import CompileOptions, work
from harness.frontends.base import FrontEnd
from harness.frontends.bench import Workbench
from harness.frontends.plan import Selection
from harness.frontends.registry import front_end
from harness.frontends.texts.ir_inputs import IR_SUFFIXES
from harness.io.processes.hub import Hub
from harness.minimize.levels import minimize_config, minimize_source, minimize_ttgir
from harness.minimize.ptx.level import minimize_ptx
from harness.minimize.reduction.fingerprint import Answer
from harness.minimize.reduction.minimization import Minimization, NothingToReduce
from harness.minimize.reduction.subject import Subject, SubjectSearch, find_subject, is_before_ptxas
from harness.minimize.reduction.work import MinimizeOptions, MinimizeTask, Watch
from harness.store.store import Store
from harness.values.bug import REPRODUCER, KeptReproducer, reproducer_key
from harness.values.errors import UsageError
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import PTX, PTXAS, compiler_name, takes_cubins
from harness.values.verdict import Stage

if TYPE_CHECKING:
    from harness.minimize.executed.kernel_level import ExecutedKernel
    from harness.minimize.executed.on_gpu_level import MeasuredCase
    from harness.minimize.executed.ptx_level import RawCase

_LONGEST = 200_000


def keep_reproducer(store: Store, result: Minimization, command: str) -> None:
    """Keep what is left, unless something smaller is known; a condition is not of a bug.

    Raises:
        StorageError: the store cannot be read or written.
    """
    signature = result.fingerprint.signature
    subject, tools, left = result.subject, result.toolchain, result.left
    text = result.shown_text
    if signature is None or len(text) > _LONGEST:
        return
    before, after = subject.size, left.size
    sizes = [
        ("instructions", before.instructions, after.instructions),
        ("lines", before.lines, after.lines),
        ("bytes", before.bytes, after.bytes),
    ]
    is_ptxas = result.level == "ptx" and not subject.is_executed
    # A module of IR and a launch need more than their text to be compiled.
    is_compiled = is_ptxas or (result.level == "source" and not subject.is_executed)
    reproducer = KeptReproducer(
        kernel=subject.kernel,
        target=subject.target,
        tool=f"{PTXAS} {tools.ptxas}" if is_ptxas else compiler_name(tools.kind, tools.version),
        level=result.level,
        name=result.shown_file,
        text=text,
        sizes=tuple((n, a, b) for n, a, b in sizes if a is not None and b is not None),
        ablation=tuple((piece.instruction, piece.words) for piece in left.ablation),
        not_ablated=left.not_ablated,
        is_minimal=left.is_minimal,
        command=command,
        kind=result.tool_kind if is_compiled else "",
        flags=subject.flags if is_ptxas else (),
        accepted_by=tuple(
            line.version for line in result.versions if line.minimized is Answer.ACCEPTS
        ),
    )
    store.change_record(
        REPRODUCER,
        reproducer_key(signature, subject.kernel),
        KeptReproducer,
        lambda kept: None if kept and len(kept.text) < len(text) else reproducer,
    )


_LEVELS: Mapping[str, Callable[[MinimizeTask], Awaitable[Minimization | NothingToReduce]]] = {
    "config": minimize_config,
    "source": minimize_source,
    "ttgir": minimize_ttgir,
    "ptx": minimize_ptx,
}
LEVELS = ("auto", *_LEVELS)


def can_be_reduced(compiler: FrontEnd, target: Target) -> bool:
    """Whether there is a level at which what a compiler generates there can be reduced."""
    return bool(_levels_of(compiler, target))


def _levels_of(compiler: FrontEnd, target: Target) -> tuple[str, ...]:
    return (*compiler.levels, *((PTX,) if compiler.back_end(target).takes == PTX else ()))


async def minimize(
    selection: Selection,
    store: Store,
    how: CompileOptions,
    options: MinimizeOptions,
    watch: Watch,
    open_hub: Callable[[], Hub] = Hub,
) -> Minimization | NothingToReduce:
    """Reduce the first config that shows it, and keep the best on disk at any moment.

    Ctrl-C, a budget and a machine that fails end the reduction, not its result.

    Raises:
        MachinesGoneError: those that the hub runs tools on are gone before the reduction began.
        UsageError: the level does not apply, or the folder is taken.
        EmptySelectionError: no config matches.
        TriageError: nothing could be tried at all.
    """
    started, repro = time.monotonic(), selection.repro
    compiler = front_end(repro.front_end)
    levels = _levels_of(compiler, selection.targets[0])
    is_named = repro.ptx is None and not options.run
    if not levels:
        raise UsageError(
            f"{repro.name}: what {compiler.title} generates is not PTX, which is all that can be "
            "reduced of it"
        )
    if is_named and options.level not in ("auto", *levels):
        are = f"a kernel of {compiler.title} is reduced at {', '.join(levels)}"
        raise UsageError(f"--level {options.level}: {are}")
    if is_named and options.script is not None and PTX not in levels:
        raise UsageError(
            f"--script is asked about PTX, and a kernel of {compiler.title} comes to none"
        )
    async with work(store, how, open_hub) as (bench, run):
        executing = _executing(bench, selection, options, watch)
        selection = executing.selection if executing else selection
        is_of_ptx = options.level == "ptx" or options.script is not None
        search = SubjectSearch(
            condition=options.condition,
            any_will_do=options.script is not None,
            at_ptxas=executing is None and is_of_ptx,
        )
        how_it_is = executing.evaluate if executing else evaluate
        subject = await find_subject(bench, selection, run, search, watch.tell, how_it_is)
        if isinstance(subject, NothingToReduce):
            return subject
        task = MinimizeTask(
            bench=bench,
            selection=selection,
            subject=subject,
            how=how,
            options=options,
            watch=watch,
            started=started,
        )
        level = options.level
        if level == "auto" and executing is None:
            level = _best_level(subject, selection)
        if executing:
            result = await executing.minimize(task)
        elif level == "ptx" and subject.text is None:
            words = f"there is no PTX, and a kernel of {compiler.title} is reduced at "
            words += ", ".join(_levels_of(compiler, subject.cell.cell.target))
            result = NothingToReduce(reason=f"{subject.row.reason}: {words}")
        else:
            result = await _LEVELS[level](task)
    if isinstance(result, Minimization):
        keep_reproducer(store, result, how.command)
    return result


def _executing(
    bench: Workbench, selection: Selection, options: MinimizeOptions, watch: Watch
) -> MeasuredCase | RawCase | ExecutedKernel | None:
    """What executes candidates, where they are executed.

    Raises:
        UsageError: it is not PTX where it has to be, or the inputs do not fit its parameters.
    """
    if takes_cubins(options.on):
        from harness.minimize.executed.on_gpu_level import MeasuredCase  # noqa: PLC0415 - it takes 0.2 s

        return MeasuredCase.of(bench, selection, options)
    if options.run and selection.repro.ptx:
        from harness.minimize.executed.ptx_level import RawCase  # noqa: PLC0415 - as above

        if options.level not in ("auto", "ptx"):
            raise UsageError(f"--level {options.level}: a file of PTX is reduced at ptx")
        return RawCase.of(bench, selection, options.inputs)
    if options.run:
        from harness.minimize.executed.kernel_level import ExecutedKernel  # noqa: PLC0415 - as above

        return ExecutedKernel.of(bench, selection, watch)
    return None


def compilers_level(selection: Selection, row: Row) -> str | None:
    """The level of what the row's compiler is given: a module of IR, or source; None: neither."""
    files = (launch.spec.file for launch in selection.launches if launch.label == row.launch)
    level = "ttgir" if any(file and file.suffix in IR_SUFFIXES for file in files) else "source"
    return level if level in front_end(selection.repro.front_end).levels else None


def _best_level(subject: Subject, selection: Selection) -> str:
    """What ptxas does not see is in the source; the rest is in the PTX too, which is quicker."""
    row = subject.row
    is_unseen = subject.text is None or is_before_ptxas(row) or row.stage == Stage.LAUNCH.value
    return (compilers_level(selection, row) if is_unseen else None) or "ptx"
