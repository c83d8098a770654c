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
            places = list[dict[int, int]]({} for _ in module.programs)
            for level in module.cubins:
                for one in places:
                    one[level], number = number, number + 1
            pairs = zip(module.right, places, strict=True)
            votes.append([_vote(right, answers, place) for right, place in pairs])
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


def _problem_of(answers: Answers, place: int) -> tuple[str, str]:
    """What a cubin did wrong, or why nothing is known of it; both are empty where it ended."""
    runs = answers.measured[place].runs
    for run in runs:
        words = " ".join(filter(None, (run.name, run.words)))
        if run.status == "refused":
            return "", f"{answers.gpu.name} refuses it: {run.call}: {words}"
        if run.status != "ended":
            return f"{run.status} {words}".strip(), ""
        if run.guards:
            return f"it writes {run.guards[0].bytes} bytes beside a buffer", ""
    return "", "" if runs else "no results came back"


def _vote(right: Array, answers: Answers, places: Mapping[int, int]) -> HuntAnswer:
    """The vote on a program, whose cubin of each level has a place among the answers."""
    results: dict[int, Array] = {}
    faults: dict[int, str] = {}
    for level, place in places.items():
        faults[level], problem = _problem_of(answers, place)
        if problem:
            return HuntAnswer(vote=Vote.UNTOLD, words=f"-O{level}: {problem}")
        if faults[level]:
            results[level] = right ^ 0xFF  # a fault leaves what cannot be right
            continue
        outs = (answers.blobs[run.buffers[1]] for run in answers.measured[place].runs)
        left = (comparable(np.frombuffer(out, np.uint8)) for out in outs)
        results[level] = next((one for one in left if (one != right).any()), right)
    answer = counted(right, results)
    words = "; ".join(f"-O{level}: {faults[level]}" for level in answer.levels if faults[level])
    return structs.replace(answer, words=words) if words else answer
