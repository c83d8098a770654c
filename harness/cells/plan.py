"""From a selection to cells: each launch as each target and compiler would see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.frontends.base import Adapt, Plan, PlannedLaunch, Selection
from harness.frontends.registry import front_end
from harness.values.target import Target
from harness.values.toolchain import Compiler

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench


async def plan_launch(
    bench: Workbench,
    selection: Selection,
    target: Target,
    compiler: Compiler,
    launch: PlannedLaunch,
    *,
    adapt: Adapt | None = None,
) -> Plan:
    """The cells of one launch: one for each config that the filter lets through, and each ptxas.

    `adapt` may give the launch other configs, or other sources, than the repro has. Warnings go to
    the user at once.

    Raises:
        CaptureError: the launch cannot be captured, or never launches the kernel.
        InfrastructureError: this compiler, or a source, cannot be brought here.
    """
    end = front_end(compiler.kind)
    plan = await end.plan(bench, selection, target, compiler, launch, adapt=adapt)
    for words in plan.warnings:
        bench.warn(words)
    return plan


def stored_launch(
    bench: Workbench,
    selection: Selection,
    target: Target,
    compiler: Compiler,
    launch: PlannedLaunch,
    *,
    adapt: Adapt | None = None,
) -> Plan | None:
    """As `plan_launch`, from a stored capture; None where there is none. Nothing is fetched.

    Raises:
        CaptureError: the launch never launches the kernel.
    """
    end = front_end(compiler.kind)
    return end.stored_plan(bench, selection, target, compiler, launch, adapt=adapt)
