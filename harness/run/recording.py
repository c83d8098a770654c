"""Runs a launch function once with values, and keeps what each kernel was given.

The child of the interpreter hands every launch over; the caller says what its result is.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpu_emulator.values import Budget, Schedule
from harness.frontends.base import LaunchCode
from harness.frontends.bench.bench import Kept, Workbench
from harness.frontends.launch_code import capture_request, is_unchanged
from harness.frontends.registry import front_end, interpreter_for
from harness.frontends.sessions import CapturedLaunch, JobResult
from harness.io.files.whole_folders import scratch_disk
from harness.io.processes.hub import ResourceLimits
from harness.io.toolchains.bundled import describe_ptxas
from harness.judging.judge import judge_lowering
from harness.run.emulating import emulate, emulator_sha256
from harness.run.jobs import Emulated, RunTrial
from harness.run.launching import NotRunError, launch_of
from harness.run.matching import same_arguments
from harness.values.errors import InfrastructureError, TriageError
from harness.values.execution import Buffer, Inputs, LaunchInputs, LaunchVariant
from harness.values.outcome import LaunchFacts, Lowering, RaisedError
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, Compiler

_POLL_SECONDS = 0.02
# A launch function waits for each of its launches to be compiled and executed.
_PATIENCE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAnswer:
    """What a launch leaves in its buffers (sha256, artifacts); None: interpret it.

    `variant` is the config to go on with; `values` says what computed them, or why nothing did.
    A launch that does not end (`hangs`) is not interpreted either: that would not end. `is_whole`:
    all of its programs were executed, to their end.
    """

    variant: int = 0
    buffers: tuple[str, ...] | None = None
    values: str = ""
    hangs: bool = False
    is_whole: bool = False


Compute = Callable[[LaunchInputs], Awaitable[LaunchAnswer]]
"""Says what the result of a launch is; its buffers are artifacts by then."""


async def record_inputs(
    bench: Workbench,
    code: LaunchCode,
    *,
    kernels: Sequence[str],
    target: Target,
    triton: Compiler,
    compute: Compute,
) -> Inputs:
    """All launches of a launch function, as `target` would see them, with real seeded values.

    The kernels with these names or patterns are interpreted, too. What was found is kept by
    content, unless the launch code raised.

    Raises:
        InfrastructureError: this Triton cannot be started here.
    """
    interpreter = interpreter_for(triton)
    sent = {**capture_request(code, target).message(), "kernels": sorted(kernels)}
    message = {**sent, "emulator": emulator_sha256()}
    key = interpreter.launch_key("inputs", code, message, triton)
    async with bench.once(key):
        kept = bench.find("inputs", key, Inputs)
        if kept is None or not is_unchanged(kept.value.reads, interpreter.environment(triton)):
            kept = await _Recording(bench=bench, compute=compute).record(key, sent, triton)
    return kept.value


@dataclass(slots=True, kw_only=True)
class _Recording:
    """A child at work."""

    bench: Workbench
    compute: Compute

    async def record(self, key: str, sent: dict[str, Any], triton: Compiler) -> Kept[Inputs]:
        timeout = self.bench.limits.timeout
        folder = self.bench.hub.new_folder("inputs")
        try:
            with scratch_disk():
                request = {**sent, "timeout": timeout}
                (folder / "request.json").write_text(json.dumps(request))
            limits = ResourceLimits(timeout=timeout * _PATIENCE, memory=self.bench.limits.memory)
            work = interpreter_for(triton).run_with_values(self.bench, triton, folder, limits)
            ended = asyncio.ensure_future(work)
            try:
                await self._answer(folder, ended)
                done = await ended
            finally:
                ended.cancel()
                # Until the child is gone, the folder is in use.
                await asyncio.wait({ended})
            self.bench.cpu_seconds += done.end.cpu
            words = done.words
            self.bench.hub.drop_folder(done.folder)
            return self._keep(key, folder, words)
        finally:
            self.bench.hub.drop_folder(folder)

    async def _answer(self, folder: Path, ended: asyncio.Future[JobResult]) -> None:
        """Answer each launch in its turn, until the child ends."""
        number = 1
        while not ended.done():
            handed = folder / f"launch-{number}.json"
            if not handed.exists():
                await asyncio.wait({ended}, timeout=_POLL_SECONDS)
                continue
            launch = msgspec.json.decode(handed.read_bytes(), type=LaunchInputs)
            for buffer in _buffers(launch):
                self._put(folder, buffer)
            answer = await self.compute(launch)
            for sha256 in answer.buffers or ():
                path = folder / f"{sha256}.bin"
                if not path.exists():
                    path.write_bytes(self.bench.store.artifacts.get(sha256))
            names = None if answer.buffers is None else [f"{name}.bin" for name in answer.buffers]
            said = {
                "variant": answer.variant,
                "buffers": names,
                "values": answer.values,
                "hangs": answer.hangs,
                "is_whole": answer.is_whole,
            }
            unfinished = folder / f"answer-{number}.tmp"
            unfinished.write_text(json.dumps(said))
            unfinished.rename(folder / f"answer-{number}.json")
            number += 1

    def _put(self, folder: Path, buffer: Buffer) -> None:
        if not self.bench.store.artifacts.has(buffer.sha256):
            self.bench.store.artifacts.put_file(folder / f"{buffer.sha256}.bin")

    def _keep(self, key: str, folder: Path, words: str) -> Kept[Inputs]:
        try:
            found = msgspec.json.decode((folder / "result.json").read_bytes(), type=Inputs)
        except (OSError, msgspec.MsgspecError):
            error = RaisedError(type="LaunchCode", kinds=(), message=f"its process {words}")
            return Kept(value=Inputs(error=error), key=key, artifacts={}, cached=False)
        names = {}
        for launch in found.launches:
            for buffer in _buffers(launch):
                self._put(folder, buffer)
                names[buffer.sha256] = buffer.sha256
            asserted = launch.variants[0].asserted if launch.variants else ()
            names.update({name: name for each in asserted for name in each.buffers if name})
        if found.error:
            return Kept(value=found, key=key, artifacts={}, cached=False)
        return self.bench.keep("inputs", key, found, names)


def _buffers(launch: LaunchInputs) -> list[Buffer]:
    return [
        buffer for variant in launch.variants for buffer in (*variant.buffers, *variant.interpreted)
    ]


# Real values for every kernel of a launch: each is compiled and emulated, else interpreted.

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
        launch = launch_of(self.bench, lowering, variant, (_PLAIN,), self.budget)
        return (await emulate(self.bench, launch.emulation)).value


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
