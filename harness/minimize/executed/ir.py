"""`triage minimize --run --level ttgir`: the least IR of Triton's whose PTX goes wrong.

A wrong result needs something that is right, made of the same IR: what another Triton makes of it;
of IR that has no layouts yet, also what is made of it without pipelining, or for another target.
So a candidate may compute anything, as long as the two should agree.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.version import Version

from harness.bisect.axes import plan_cells
from harness.bisect.variations import other_targets
from harness.cells.selection import for_target
from harness.frontends.registry import front_end
from harness.minimize.executed.oracle import ExecutedOracle, oracle_of
from harness.minimize.executed.ptx import hold, launch_files
from harness.minimize.levels import held_by_compilers, ir_level, minimize_level
from harness.minimize.reduction.fingerprint import Reaction
from harness.minimize.reduction.result import Minimization, Uninteresting
from harness.minimize.reduction.work import MinimizedFolder, MinimizeTask
from harness.minimize.texts import IrText, ir_texts
from harness.minimize.ttgir.passes import IrModule, argument_names
from harness.run.ptx_launch import LAUNCH_INPUTS
from harness.run.same_inputs import SameInputs
from harness.values.errors import TriageError
from harness.values.execution import RunRow, RunVerdict
from harness.values.verdict import Stage

_PTX = "min.ptx"
_SAID_OF_ARGUMENTS = ("signature", "constants")


@dataclass(frozen=True, slots=True, kw_only=True)
class IrForm:
    """Modules of Triton's IR: see `harness.minimize.executed.oracle.Form`.

    `arguments` are those of the original, `known` is what Triton said when it lowered the source:
    of a file of IR it does not know what its arguments are called.
    """

    suffix: str
    options: Mapping[str, object]
    arguments: tuple[str, ...]
    known: Mapping[str, object]

    @classmethod
    def of(cls, ir: IrText) -> IrForm:
        """That of a cell's own IR."""
        return cls(
            suffix=ir.suffix,
            options=ir.options,
            arguments=argument_names(IrModule.read(ir.text)),
            known={name: ir.metadata.get(name) for name in _SAID_OF_ARGUMENTS},
        )

    def is_possible(self, text: str) -> bool:
        """Whether it takes what the launch gives."""
        return argument_names(IrModule.read(text)) == self.arguments

    def described(self, metadata: Mapping[str, object]) -> Mapping[str, object]:
        """With the arguments by the names that the launch has for them."""
        return {**metadata, **self.known}


async def minimize_executed_ir(
    task: MinimizeTask, same: SameInputs
) -> Minimization | Uninteresting:
    """Reduce the lowest IR of the subject that goes wrong, beside something that is right.

    What its PTX is launched with goes with what is left.

    Raises:
        UsageError: it never was IR, or the folder is taken.
        TriageError: the machine failed before the reduction began.
    """
    bench, cell, reason = task.bench, task.subject.cell, task.subject.row.reason
    seen: list[str] = []
    for ir in await ir_texts(bench, cell):
        task.watch.stage(f"executing what the {ir.role} becomes")
        oracle, row = await oracle_of(bench, cell, same, IrForm.of(ir))
        held = await _held_to(task, same, oracle, ir, row) if _is_compared(row.run) else oracle
        if isinstance(held, str):
            seen.append(f"the {ir.role}: {held}")
            continue
        first = await held.react(ir.text, cell.compiler)
        if first.verdict.value == row.run.value and first.key is not None:
            break
        seen.append(f"the {ir.role} gives {first.verdict.value}: {first.reason}")
    else:
        return Uninteresting(reason="; ".join((reason, *seen)))
    # A fault says in which line of the source it is, and this has none.
    mine = replace(task.subject.row, signature=first.key)
    task = replace(task, subject=replace(task.subject, row=mine))
    found = await minimize_level(task, ir_level(ir), held_by_compilers(task, held))
    if isinstance(found, Uninteresting):
        return found
    words = [f"what is held: it differs from {held.words}"] if _is_compared(row.run) else []
    return await _with_ptx(task, replace(found, notes=(*words, *found.notes)), held)


def _is_compared(verdict: RunVerdict) -> bool:
    return verdict is RunVerdict.WRONG_RESULT


async def _held_to(
    task: MinimizeTask, same: SameInputs, oracle: ExecutedOracle, ir: IrText, row: RunRow
) -> ExecutedOracle | str:
    """The oracle that compares with the first place where this IR is right; else why none does."""
    cell = oracle.cell
    assert cell.record is not None
    assert row.ptx_sha256 is not None, "it was executed"
    ptx = task.bench.store.artifacts.get(row.ptx_sha256).decode(errors="replace")
    trusted = (await same.trusted(cell, oracle.variant, ptx)).trusted
    plain = replace(oracle, trusted=trusted)
    alone = await plain.react(ir.text, cell.compiler)
    if alone.verdict.value != RunVerdict.WRONG_RESULT.value:
        return f"it gives {alone.verdict.value}: {alone.reason}"
    task.watch.stage(f"looking for what is right, made of the same {ir.role}")
    async for held in _besides(task, oracle, ir):
        assert held.beside is not None
        tool = held.beside_compiler or cell.compiler
        there = replace(
            plain,
            cell=replace(cell, launch=held.beside),
            form=replace(IrForm.of(ir), options=held.beside_options or ir.options),
        )
        if (await there.react(ir.text, tool)).is_accepted:
            return held
    return "it is right with no installed Triton, nor in another way: what is right?"


async def _besides(
    task: MinimizeTask, oracle: ExecutedOracle, ir: IrText
) -> AsyncIterator[ExecutedOracle]:
    """What the IR could be held to, the nearest first."""
    cell, mine = oracle.cell, oracle.cell.compiler
    assert cell.launch is not None
    same_launch = replace(oracle, beside=cell.launch)
    if ir.stage is Stage.TTIR:
        options = {**ir.options, "num_stages": 1}
        if options != ir.options:
            words = "what is made of it with num_stages=1"
            yield replace(same_launch, beside_options=options, words=words)
        for target in other_targets(cell.cell.target):
            try:
                plan = await plan_cells(task.bench, for_target(task.selection, target), None)
            except TriageError:
                continue
            beside = next((c for c in plan.cells if c.cell.config == cell.cell.config), None)
            if beside:
                yield replace(
                    oracle, beside=beside.launch, words=f"what is made of it for {target}"
                )
    tritons = sorted(
        front_end(mine.kind).installed(), key=lambda each: Version(each.version), reverse=True
    )
    for triton in tritons:
        if triton.version != mine.version:
            words = f"what {triton.name} makes of it"
            yield replace(same_launch, beside_compiler=triton, words=words)


async def _with_ptx(
    task: MinimizeTask, found: Minimization, oracle: ExecutedOracle
) -> Minimization:
    """The result with its PTX beside it, and what that is launched with."""
    task.watch.stage("writing its PTX, and what that is launched with")
    case = await oracle.execute(found.text, oracle.cell.compiler)
    if isinstance(case, Reaction):
        why = case.reason
    elif isinstance(held := await hold(task.bench, case), str):
        why = held
    else:
        predicate, _ = held
        assert predicate.wanted is not None
        signature = predicate.wanted.judgement.signature
        if signature and signature.key == found.fingerprint.signature:
            given = launch_files(predicate.launch, predicate.files, predicate.contents)
            files = {_PTX: case.text.encode(), **given}
            folder = MinimizedFolder(path=Path(found.path))
            for name, data in files.items():
                folder.write_bytes(name, data)
            command = f"triage run {_PTX} --inputs {LAUNCH_INPUTS}"
            return replace(found, run_command=command, run_files=files)
        why = predicate.wanted.judgement.reason
    return replace(found, notes=(*found.notes, f"its PTX alone does not show the same: {why}"))
