"""A cell as a module of Triton's IR, reduced operation by operation: for who knows its passes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.effects.lowering import lower
from harness.effects.workbench import Workbench
from harness.logic.ir_module import IrModule
from harness.logic.ir_reduction import reduce_ir
from harness.logic.reduction import Progress, Reduction
from harness.logic.triton_ir import read_triton_ir
from harness.values.errors import UsageError
from harness.values.verdict import Stage
from harness.verbs.cells import PlannedCell
from harness.verbs.minimizing_source import Judged, evaluate_text

__all__ = ["IrText", "ReducedIr", "evaluate_ir", "find_ir", "reduce_module"]

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
# The later one first: what is lower has gone through more passes.
_STAGES = (Stage.TTGIR, Stage.TTIR)


@dataclass(frozen=True, slots=True, kw_only=True)
class IrText:
    """A module, the stage that it is of, and the options that it does not fix by itself."""

    text: str
    stage: Stage
    options: Mapping[str, object]

    @property
    def suffix(self) -> str:
        """As a file of it is named."""
        return f".{self.stage.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedIr:
    """The module as it began and as it ended; operations are counted within functions."""

    original: IrText
    text: str
    original_operations: int
    operations: int
    reduction: Reduction[IrModule]
    final: Judged


async def find_ir(
    bench: Workbench, cell: PlannedCell, interesting: Callable[[Judged], bool]
) -> IrText:
    """The lowest IR of the cell from which what is looked for still comes.

    Raises:
        UsageError: there is no IR, or nothing of interest comes from it.
        InfrastructureError: this machine failed.
    """
    if cell.launch is None or cell.record is None:
        raise UsageError(f"{cell.cell.kernel}: raw PTX has no IR of Triton's")
    lowering = await lower(bench, cell.launch, cell.record, ptxas=cell.ptxas)
    known = {**cell.record.config, **lowering.value.metadata}
    options = {n: known[n] for n in _OPTIONS if known.get(n) is not None}
    told = []
    for stage in _STAGES:
        artifact = lowering.artifacts.get(stage.value)
        if artifact is None:
            continue
        data = bench.store.artifacts.get(artifact).decode(errors="replace")
        facts = read_triton_ir(data)
        fixed = {n for n in _OPTIONS if getattr(facts, n, None) is not None}
        found = IrText(
            text=IrModule.read(data).text,
            stage=stage,
            options={n: value for n, value in options.items() if n not in fixed},
        )
        judged = await evaluate_ir(bench, cell, found, found.text)
        if interesting(judged):
            return found
        told.append(f"from {stage.value}: {judged.verdict.kind.value}: {judged.verdict.reason}")
    raise UsageError("; ".join(told) or f"{cell.cell}: Triton left no IR")


async def evaluate_ir(
    bench: Workbench, cell: PlannedCell, ir: IrText, text: str, *, until: Stage | None = None
) -> Judged:
    """What becomes of a module that is compiled as `ir` is: see `evaluate_source`.

    Raises:
        InfrastructureError: this machine failed.
    """
    return await evaluate_text(bench, cell, text, until=until, suffix=ir.suffix, options=ir.options)


async def reduce_module(
    bench: Workbench,
    cell: PlannedCell,
    original: IrText,
    interesting: Callable[[Judged], bool],
    *,
    until: Stage | None = None,
    jobs: int = 1,
    seed: int = 0,
    max_tests: int | None = None,
    is_time_up: Callable[[], bool] = lambda: False,
    watch: Callable[[Progress[IrModule]], None] = lambda _: None,
) -> ReducedIr:
    """Reduce a module of this cell while what becomes of it stays interesting.

    Raises:
        InfrastructureError: this machine failed.
    """

    async def holds(module: IrModule) -> bool:
        return interesting(await evaluate_ir(bench, cell, original, module.text, until=until))

    begun = IrModule.read(original.text)
    reduction = await reduce_ir(
        begun,
        lambda module: asyncio.ensure_future(holds(module)),
        jobs=jobs,
        seed=seed,
        max_tests=max_tests,
        is_time_up=is_time_up,
        watch=watch,
    )
    best = reduction.document
    return ReducedIr(
        original=original,
        text=best.text,
        original_operations=begun.count(),
        operations=best.count(),
        reduction=reduction,
        final=await evaluate_ir(bench, cell, original, best.text),
    )
