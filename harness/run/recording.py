"""Runs a launch function once with values, and keeps what each kernel was given.

The child of the interpreter hands every launch over; it is compiled for one target and emulated, so
that all cells of a kernel, on whichever target, get the same inputs. What cannot be emulated is
interpreted.
"""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpu_emulator.values import Budget, Schedule
from harness.frontends.bench import Kept, Workbench
from harness.frontends.launch_code import capture_request, is_unchanged
from harness.frontends.registry import front_end, interpreter_for
from harness.frontends.sessions import CapturedLaunch, JobResult, LaunchCode
from harness.io.files.writing import scratch_disk
from harness.io.processes.hub import ResourceLimits
from harness.io.toolchains.install import describe_ptxas
from harness.judging.judge import judge_lowering
from harness.run.emulating import emulate, emulator_sha256
from harness.run.emulator_jobs import RunTrial
from harness.run.launching import NotRunError, launch_of
from harness.values.errors import InfrastructureError, TriageError
from harness.values.execution import Inputs, LaunchInputs, LaunchVariant
from harness.values.kernel import Scalar
from harness.values.outcome import LaunchFacts, Lowering, RaisedError
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, Compiler

PLAIN_TARGET = Target(capability=80)
"""Where values and references come from: asynchronous copies are all that it has of engines."""

_POLL_SECONDS = 0.02
# A launch function waits for each of its launches to be compiled and executed.
_PATIENCE = 10
# A config that does not compile, or not for us, is not a reason to do without values.
_TRIES = 3
_PLAIN = RunTrial(schedule=Schedule(warps="lockstep", completion="early"))
# What of an argument cannot change the code.
_HIDDEN = frozenset({"shape", "value"})


async def recorded(
    bench: Workbench,
    code: LaunchCode,
    compiler: Compiler,
    kernels: Sequence[str],
    places: Sequence[Target],
    *,
    budget: Budget,
    tell: Callable[[str], None],
    is_interpreted: bool = False,
) -> Inputs:
    """What the launch code gives its kernels, on the first of these targets that it runs for.

    The kernels with these names or patterns are interpreted, too; `is_interpreted`: nothing is
    compiled for the values of what comes after a launch either. What came out is kept by content,
    unless the launch code raised.

    Raises:
        TriageError: it can be run with values for none of them.
    """
    failure: TriageError | None = None
    tell = functools.cache(tell)  # launch code may launch one kernel any number of times
    for place in dict.fromkeys(places):
        recording = _Recording(
            bench=bench,
            code=code,
            compiler=compiler,
            target=place,
            budget=budget,
            tell=tell,
            is_interpreted=is_interpreted,
        )
        try:
            inputs = await recording.inputs(kernels)
        except TriageError as error:
            failure = error
            continue
        if not inputs.error or place == places[-1]:
            return inputs
    assert failure is not None
    raise failure


@dataclass(slots=True, kw_only=True)
class _Recording:
    """A launch function that runs with values, as `target` would see it."""

    bench: Workbench
    code: LaunchCode
    compiler: Compiler
    target: Target
    budget: Budget
    tell: Callable[[str], None]
    is_interpreted: bool

    async def inputs(self, kernels: Sequence[str]) -> Inputs:
        interpreter = interpreter_for(self.compiler)
        request = {**capture_request(self.code, self.target).message(), "kernels": sorted(kernels)}
        by: dict[str, object] = {"interpreted": True}
        if not self.is_interpreted:
            # What is not finished within it leaves other values for the launches behind it.
            by = {"emulator": emulator_sha256(), "budget": msgspec.to_builtins(self.budget)}
        message = {**request, **by}
        key = interpreter.launch_key("inputs", self.code, message, self.compiler)
        async with self.bench.once(key):
            stored = self.bench.find("inputs", key, Inputs)
            if stored and is_unchanged(
                stored.value.reads, interpreter.interpreter_environment(self.compiler)
            ):
                return stored.value
            if self.is_interpreted:
                return await self._record(None, key, request)
            captured = await interpreter.capture(self.bench, self.code, self.target, self.compiler)
            async with self.bench.closing(captured.capture.key):
                return await self._record(captured, key, request)

    async def _record(
        self, captured: CapturedLaunch | None, key: str, request: Mapping[str, object]
    ) -> Inputs:
        timeout = self.bench.limits.timeout
        folder = self.bench.hub.new_folder("inputs")
        try:
            with scratch_disk():
                text = json.dumps({**request, "timeout": timeout})
                (folder / "request.json").write_text(text)
            limits = ResourceLimits(timeout=timeout * _PATIENCE, memory=self.bench.limits.memory)
            interpreter = interpreter_for(self.compiler)
            work = interpreter.run_with_values(self.bench, self.compiler, folder, limits)
            child = asyncio.ensure_future(work)
            try:
                await self._answer(captured, folder, child)
                job = await child
            finally:
                child.cancel()
                # Until the child is gone, the folder is in use.
                await asyncio.wait({child})
            self.bench.cpu_seconds += job.end.cpu
            words = job.words
            self.bench.hub.drop_folder(job.folder)
            return self._keep(key, folder, words)
        finally:
            self.bench.hub.drop_folder(folder)

    async def _answer(
        self, captured: CapturedLaunch | None, folder: Path, child: asyncio.Future[JobResult]
    ) -> None:
        """Answer each launch in its turn, until the child ends."""
        number = 1
        while not child.done():
            path = folder / f"launch-{number}.json"
            if not path.exists():
                await asyncio.wait({child}, timeout=_POLL_SECONDS)
                continue
            launch = msgspec.json.decode(path.read_bytes(), type=LaunchInputs)
            self._put(folder, launch)
            answer = await self._computed(captured, launch)
            if names := answer["buffers"]:
                for sha256 in names:
                    file = folder / f"{sha256}.bin"
                    if not file.exists():
                        content = self.bench.store.artifacts.get(sha256)
                        with scratch_disk():
                            file.write_bytes(content)
                answer["buffers"] = [f"{sha256}.bin" for sha256 in names]
            unfinished = folder / f"answer-{number}.tmp"
            with scratch_disk():
                unfinished.write_text(json.dumps(answer))
                unfinished.rename(folder / f"answer-{number}.json")
            number += 1

    async def _computed(
        self, captured: CapturedLaunch | None, launch: LaunchInputs
    ) -> dict[str, Any]:
        """What a launch leaves, by the first of its configs that compiles and can be executed.

        `buffers` are sha256 of artifacts, None: interpret it; `variant` is the config to go on
        with; `values` says what computed them, or why nothing did. A launch that does not end, or
        takes its whole budget (`hangs`), is not interpreted either. `is_whole`: all of its programs
        were executed, to their end.
        """
        answer: dict[str, Any] = {"variant": 0, "buffers": None, "hangs": False, "is_whole": False}
        if captured is None:
            return {**answer, "values": "nothing is compiled for them"}
        why, tries = "no launch of the capture is like it", 0
        for number, variant in enumerate(launch.variants):
            records = captured.capture.value.records
            record = record_like(records, launch.kernel, variant.described, variant.config)
            if record is None:
                continue
            if tries == _TRIES:
                break
            tries += 1
            self.tell(f"{launch.kernel} on {self.target}, for its values")
            try:
                lowering = await lower_record(self.bench, captured, record)
                bound = launch_of(self.bench, lowering, variant).run_as((_PLAIN,), self.budget)
                emulated = (await emulate(self.bench, bound.emulation)).value
            except (NotRunError, InfrastructureError) as error:
                why = str(error)
                continue
            [ran] = emulated.runs or [None]
            if ran and (ran.faults or ran.is_out_of_budget):
                # The interpreter would fall into the same hole, or take as long as it may.
                return {
                    **answer,
                    "variant": number,
                    "buffers": [buffer.sha256 for buffer in variant.buffers],
                    "values": f"as they were: {ran.refusal or ran.faults[0].what}",
                    "hangs": any(fault.kind == "hang" for fault in ran.faults) or bool(ran.refusal),
                }
            if ran is None or ran.refusal:
                why = emulated.problem or (ran and ran.refusal) or why
                continue
            return {
                **answer,
                "variant": number,
                "buffers": list(ran.buffers[: len(variant.buffers)]),
                "values": f"emulated on {self.target}"
                + (f", {ran.ctas:,} of {ran.ctas_of:,} programs" if ran.is_sample else ""),
                "is_whole": not ran.is_sample,
            }
        self.tell(f"{launch.kernel} is interpreted, for its values: {why}")
        return {**answer, "values": why}

    def _put(self, folder: Path, launch: LaunchInputs) -> set[str]:
        """Keep the buffers of a launch; their sha256."""
        buffers = (buffer for v in launch.variants for buffer in (*v.buffers, *v.interpreted))
        names = {buffer.sha256 for buffer in buffers}
        for sha256 in names:
            if not self.bench.store.artifacts.has(sha256):
                self.bench.store.artifacts.put_file(folder / f"{sha256}.bin")
        return names

    def _keep(self, key: str, folder: Path, words: str) -> Inputs:
        try:
            inputs = msgspec.json.decode((folder / "result.json").read_bytes(), type=Inputs)
        except (OSError, msgspec.MsgspecError):
            error = RaisedError(type="LaunchCode", kinds=(), message=f"its process {words}")
            return Inputs(error=error)
        names: set[str] = set()
        for launch in inputs.launches:
            names |= self._put(folder, launch)
            asserted = launch.variants[0].asserted if launch.variants else ()
            names.update(name for assertion in asserted for name in assertion.buffers if name)
        if not inputs.error:
            self.bench.keep("inputs", key, inputs, {name: name for name in names})
        return inputs


async def lower_record(
    bench: Workbench, captured: CapturedLaunch, record: LaunchFacts
) -> Kept[Lowering]:
    """Lower a record with the ptxas that its Triton bundles in sight.

    Raises:
        NotRunError: it does not compile.
        InfrastructureError: the child could not be kept alive.
    """
    bundled = describe_ptxas(Path(captured.capture.value.ptxas), BUNDLED)
    compiler = front_end(captured.compiler.kind)
    lowering = await compiler.lower(bench, captured, record, ptxas=bundled)
    if lowering.value.error or not lowering.value.end.ok:
        verdict = judge_lowering(lowering.value)
        raise NotRunError(f"it does not compile: {verdict.kind.value}, {verdict.reason[:300]}")
    return lowering


def find_variant(inputs: Inputs, record: LaunchFacts) -> LaunchVariant | None:
    """What the launch of this record is given, if the launch code came to it with values.

    Of the launches that compile to the same code, one whose values the launch code refuses, else
    one with the same shapes, else the first.
    """
    variants = [
        variant
        for launch in inputs.launches
        if launch.kernel == record.kernel
        for variant in launch.variants
        if variant.config == record.config
        and visible(variant.described) == visible(record.arguments)
    ]

    def rank(variant: LaunchVariant) -> tuple[bool, bool]:
        is_accepted = all(assertion.holds for assertion in variant.asserted)
        return is_accepted, variant.described != record.arguments

    return min(variants, key=rank, default=None)


def visible(described: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """What a compiler sees of arguments: where it is equal, it compiles the same code."""
    return [{name: fact for name, fact in a.items() if name not in _HIDDEN} for a in described]


def record_like(
    records: Sequence[LaunchFacts],
    kernel: str,
    described: Sequence[Mapping[str, object]],
    config: Mapping[str, Scalar],
) -> LaunchFacts | None:
    """The record of a launch of a kernel with these arguments, and this config."""
    for record in records:
        is_same = record.kernel == kernel and record.config == config
        if is_same and visible(record.arguments) == visible(described):
            return record
    return None
