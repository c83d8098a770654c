"""What the cubins of programs leave on a GPU: launched as `triage run --on gpu` does.

Many programs go in one batch. Where one faults, hangs or ends its process, the launches go on with
the next one in a fresh process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import structs

from gpu_emulator.values import Pointer, Scalar
from harness.hunt.generator import comparable, launch_of
from harness.hunt.voting import HuntAnswer, Vote, Voter, counted
from harness.io.processes.hub import Hub
from harness.io.processes.tasks import Batcher
from harness.run.comparing import Array
from harness.run.emulator_jobs import Emulation, JobBuffer, Passed
from harness.run.gpu.gpu_batch import BatchCase, GpuBatch
from harness.run.gpu.packing import Answers, CubinRunner
from harness.run.launch import Launch
from harness.values.cell import CellId
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import GPU
from harness.values.verdict import VerdictKind

# Seconds for one launch, which takes microseconds: what takes longer hangs.
_LONGEST = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AssembledModule:
    """A module, its cubin by level, and the programs of it that are launched.

    `right` is what each of them must leave, as `comparable` has it. `is_thorough`: they are
    launched twice, with other bytes beside their buffers.
    """

    text: str
    ptxas: str
    cubins: Mapping[int, bytes]
    programs: Sequence[Voter]
    right: Sequence[Array]
    is_thorough: bool


@dataclass(slots=True, kw_only=True)
class Launcher:
    """A GPU as a voter; `device` is what it is, once it was reached, `cpu` seconds for launches."""

    hub: Hub
    target: Target
    destination: CubinRunner
    device: str = ""
    cpu: float = 0.0
    _together: Batcher[AssembledModule, list[HuntAnswer]] = field(init=False)

    def __post_init__(self) -> None:
        """What is asked for together travels together."""
        # Some are always about to ask: no pause.
        self._together = Batcher(answer=self._answered)

    async def ask(self, module: AssembledModule) -> list[HuntAnswer]:
        """The vote on each program: what each level leaves is held to what is right.

        Raises:
            InfrastructureError: there is no GPU, or no results come back.
        """
        return await self._together.ask(module)

    async def _answered(self, modules: Sequence[AssembledModule]) -> list[list[HuntAnswer]]:
        blobs: dict[str, bytes] = {}

        def named(data: bytes) -> str:
            sha256 = hashlib.sha256(data).hexdigest()
            blobs[sha256] = data
            return sha256

        launches, cases = list[Launch](), list[BatchCase]()
        for module in modules:
            ptx = named(module.text.encode())
            for level, data in module.cubins.items():
                cubin, ptxas = named(data), f"{module.ptxas},-O{level}"
                cases += [
                    self._case(voter, ptxas, cubin, launch)
                    for launch, voter in enumerate(module.programs, len(launches))
                ]
            for voter in module.programs:
                launch = launch_of(voter.seed, voter.text)
                emulation = Emulation(
                    ptx=ptx,
                    entry=voter.entry,
                    grid=launch.grid,
                    block=launch.block,
                    cluster=(1, 1, 1),
                    dynamic_shared=0,
                    buffers=tuple(
                        JobBuffer(name=one.name, file=named(one.data.tobytes()), size=len(one.data))
                        for one in launch.allocations
                    ),
                    arguments=tuple(
                        Passed(pointer=one) if isinstance(one, Pointer) else Passed(scalar=one.raw)
                        for one in launch.arguments
                        if isinstance(one, Pointer | Scalar)
                    ),
                )
                launches.append(Launch(emulation=emulation, tensors=()))
        gpu_batch = GpuBatch(
            launches=tuple(launches),
            cases=tuple(cases),
            command="",
            limit=_LONGEST,
            repeats=2 if any(module.is_thorough for module in modules) else 1,
            keeps=True,
        )
        answers = await self.destination.fetch(self.hub, gpu_batch, blobs.__getitem__)
        self.device, self.cpu = answers.gpu.name, self.cpu + answers.cpu
        answers.blobs |= blobs
        votes, number = list[list[HuntAnswer]](), 0
        for module in modules:
            left = list[dict[int, _CubinResults]]({} for _ in module.programs)
            for level in module.cubins:
                for one in left:
                    one[level], number = _read_left(answers, number), number + 1
            votes.append(list(map(_vote, module.right, left)))
        return votes

    def _case(self, voter: Voter, ptxas: str, cubin: str, launch: int) -> BatchCase:
        cell = CellId(
            kernel=f"{voter.seed}::{voter.entry}",
            launch="hunt",
            config=Config(),
            target=self.target,
            compiler="ptx",
            ptxas=ptxas,
            on=GPU,
        )
        row = Row(
            **cell.names,
            triton=None,
            ptxas=ptxas,
            ptxas_origin=None,
            verdict=VerdictKind.OK,
            reason="",
            cubin_sha256=cubin,
        )
        return BatchCase(cell=cell, compiled=row, launch=launch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CubinResults:
    """What the runs of a cubin left; else what it did wrong, or why nothing is known."""

    results: Sequence[Array] = ()
    fault: str = ""
    problem: str = ""


def _read_left(answers: Answers, number: int) -> _CubinResults:
    runs = answers.measured[number].runs
    for run in runs:
        words = " ".join(filter(None, (run.name, run.words)))
        if run.status == "refused":
            return _CubinResults(problem=f"{answers.gpu.name} refuses it: {run.call}: {words}")
        if run.status != "ended":
            return _CubinResults(fault=f"{run.status} {words}".strip())
        if run.guards:
            return _CubinResults(fault=f"it writes {run.guards[0].bytes} bytes beside a buffer")
    if not runs:
        return _CubinResults(problem="no results came back")
    outs = [np.frombuffer(answers.blobs[run.buffers[1]], np.uint8) for run in runs]
    return _CubinResults(results=list(map(comparable, outs)))


def _vote(right: Array, left: Mapping[int, _CubinResults]) -> HuntAnswer:
    results: dict[int, Array] = {}
    for level, one in left.items():
        if one.problem:
            return HuntAnswer(vote=Vote.UNTOLD, words=f"-O{level}: {one.problem}")
        wrong = (result for result in one.results if (result != right).any())
        # A fault leaves what cannot be right.
        results[level] = right ^ 0xFF if one.fault else next(wrong, right)
    answer = counted(right, results)
    faults = "; ".join(
        f"-O{level}: {left[level].fault}" for level in answer.levels if left[level].fault
    )
    return structs.replace(answer, words=faults) if faults else answer
