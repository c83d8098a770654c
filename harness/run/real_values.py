"""Real values for every kernel of a launch: each is compiled and emulated, else interpreted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_emulator.values import Budget, Schedule
from harness.frontends.base import LaunchCode
from harness.frontends.bench.bench import Kept, Workbench
from harness.frontends.captured_launch import CapturedLaunch
from harness.frontends.registry import front_end, interpreter_for
from harness.io.toolchains.bundled import describe_ptxas
from harness.judging.judge import judge_lowering
from harness.run.emulating import Emulated, emulate
from harness.run.jobs import RunTrial
from harness.run.launching import NotRunError, emulation_of
from harness.run.matching import same_arguments
from harness.run.recording import LaunchAnswer, record_inputs
from harness.values.errors import InfrastructureError, TriageError
from harness.values.execution import Inputs, LaunchInputs, LaunchVariant
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, Compiler

PLAIN_TARGET = Target(capability=80)
"""Where values and references come from: asynchronous copies are all that it has of engines."""

# A config that does not compile, or not for us, is not a reason to do without values.
_TRIES = 3
_PLAIN = RunTrial(schedule=Schedule(warps="lockstep", completion="early"))


@dataclass(slots=True, kw_only=True)
class RealValues:
    """Runs launch functions with values; what computes them is one target for all cells.

    So all cells of a kernel, on whichever target, get the same inputs.
    """

    bench: Workbench
    target: Target
    budget: Budget
    tell: Callable[[str], None]

    async def inputs(self, code: LaunchCode, triton: Compiler, kernels: Sequence[str]) -> Inputs:
        """All launches of the code with their arguments; the kernels named are interpreted, too.

        Raises:
            CaptureError: the launch code cannot be run for this target.
            InfrastructureError: this Triton cannot be started here.
        """
        interpreter = interpreter_for(triton)
        captured = await interpreter.capture(self.bench, code, self.target, triton)

        async def compute(launch: LaunchInputs) -> LaunchAnswer:
            return await self._compute(captured, launch)

        try:
            return await record_inputs(
                self.bench,
                code,
                kernels=kernels,
                target=self.target,
                triton=triton,
                compute=compute,
            )
        finally:
            await self.bench.sessions.close(captured.capture.key)

    async def _compute(self, captured: CapturedLaunch, launch: LaunchInputs) -> LaunchAnswer:
        """The launch with the first of its configs that compiles and can be executed."""
        why = "no launch of the capture is like it"
        tried = 0
        for number, variant in enumerate(launch.variants):
            record = _record_of(captured, launch.kernel, variant)
            if record is None:
                continue
            if tried == _TRIES:
                break
            tried += 1
            self.tell(f"{launch.kernel} on {self.target}, for its values")
            try:
                emulated = await self._emulated(captured, record, variant)
            except (NotRunError, InfrastructureError) as error:
                why = str(error)
                continue
            [ran] = emulated.runs or [None]
            if ran and ran.faults:
                # The interpreter would fall into the same hole, or loop for as long as it may.
                unchanged = tuple(each.sha256 for each in variant.buffers)
                return LaunchAnswer(
                    variant=number,
                    buffers=unchanged,
                    values=f"as they were: {ran.faults[0].what}",
                    hangs=any(fault.kind == "hang" for fault in ran.faults),
                )
            if ran is None or ran.not_run:
                why = emulated.problem or (ran and ran.not_run) or why
                continue
            buffers = ran.buffers[: len(variant.buffers)]
            return LaunchAnswer(
                variant=number,
                buffers=buffers,
                values=f"emulated on {self.target}",
                is_whole=not ran.is_sample,
            )
        self.tell(f"{launch.kernel} is interpreted, for its values: {why}")
        return LaunchAnswer(values=why)

    async def _emulated(
        self, captured: CapturedLaunch, record: LaunchFacts, variant: LaunchVariant
    ) -> Emulated:
        lowering = await lower_record(self.bench, captured, record)
        wanted = emulation_of(self.bench, lowering, variant, (_PLAIN,), self.budget)
        return (await emulate(self.bench, wanted)).value


async def recorded(
    bench: Workbench,
    code: LaunchCode,
    triton: Compiler,
    kernels: Sequence[str],
    places: Sequence[Target],
    *,
    budget: Budget,
    tell: Callable[[str], None],
) -> Inputs:
    """What the launch code gives its kernels, on the first of these targets that it runs for.

    Raises:
        TriageError: it can be run with values for none of them.
    """
    failure: TriageError | None = None
    tell = functools.cache(tell)  # launch code may launch one kernel any number of times
    for place in dict.fromkeys(places):
        upstream = RealValues(bench=bench, target=place, budget=budget, tell=tell)
        try:
            found = await upstream.inputs(code, triton, kernels)
        except TriageError as error:
            failure = error
            continue
        if not found.error or place == places[-1]:
            return found
    assert failure is not None
    raise failure


async def lower_record(
    bench: Workbench, captured: CapturedLaunch, record: LaunchFacts
) -> Kept[Lowering]:
    """Lower a record with the ptxas that its Triton bundles in sight.

    Raises:
        NotRunError: it does not compile.
        InfrastructureError: the child could not be kept alive.
    """
    bundled = describe_ptxas(Path(captured.capture.value.ptxas), BUNDLED)
    end = front_end(captured.compiler.kind)
    lowering = await end.lower(bench, captured, record, ptxas=bundled)
    if lowering.value.error or not lowering.value.end.ok:
        found = judge_lowering(lowering.value)
        raise NotRunError(f"it does not compile: {found.kind.value}, {found.reason[:300]}")
    return lowering


def _record_of(captured: CapturedLaunch, kernel: str, variant: LaunchVariant) -> LaunchFacts | None:
    for record in captured.capture.value.records:
        same = record.kernel == kernel and record.config == variant.config
        if same and same_arguments(record.arguments, variant.described):
            return record
    return None
