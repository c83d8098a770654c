"""A launch that goes with a file of PTX: what its entry is given, and what is held.

`triage minimize --run` writes it as `launch.json`, with the bytes of the buffers beside it, and
`triage run FILE.ptx --inputs launch.json` executes it. Arguments are by their place among the
entry's parameters, so that any name will do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import msgspec

from gpu_emulator.values import Budget
from harness.run.emulating import Emulation
from harness.run.entry import Entry
from harness.run.evidence import RunEvidence, Trusted
from harness.run.jobs import JobBuffer, Passed, Ran, RunTrial
from harness.values.errors import UsageError
from harness.values.execution import Argument

LAUNCH_INPUTS = "launch.json"
_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchBuffer:
    """A buffer of so many bytes: those of `file` (`.npy`); without one nothing wrote them.

    `unwritten`: it has bytes, and the kernel must not read them before it writes them.
    """

    name: str
    size: int
    file: str | None = None
    unwritten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxLaunch:
    """What an entry with `parameters` (PTX types) is launched with; sizes as in `Emulation`.

    `tensors` are what is judged: views of buffers. `types` are those that the PTX computes with,
    which decide how far a result may be off. `expected` are the bytes (hexadecimal) of the only one
    of `tensors`, as `expected_by` has them; None where nothing says what is right.
    """

    parameters: tuple[str, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    buffers: tuple[LaunchBuffer, ...]
    arguments: tuple[Passed, ...]
    tensors: tuple[Argument, ...]
    types: tuple[str, ...] = ()
    expected: str | None = None
    expected_by: str = ""
    schema: int = _SCHEMA

    def fits(self, entry: Entry) -> bool:
        """Whether an entry takes these arguments."""
        block = entry.block
        is_block = block is None or prod(block) == prod(self.block)
        return is_block and tuple(each.type for each in entry.parameters) == self.parameters

    def emulation(
        self, entry: str, files: Sequence[str | None], trials: Sequence[RunTrial], budget: Budget
    ) -> Emulation:
        """The launch for the emulator; `files` are the sha256 of the buffers' bytes."""
        return Emulation(
            ptx="",
            entry=entry,
            grid=self.grid,
            block=self.block,
            cluster=self.cluster,
            dynamic_shared=self.shared,
            buffers=tuple(
                JobBuffer(name=each.name, file=file, size=each.size, unwritten=each.unwritten)
                for each, file in zip(self.buffers, files, strict=True)
            ),
            arguments=self.arguments,
            trials=tuple(trials),
            budget=budget,
        )

    def evidence(
        self,
        files: Sequence[str | None],
        ran: Sequence[Ran],
        contents: Mapping[str, bytes],
        problem: str | None,
    ) -> RunEvidence:
        """What came of runs, as it is judged; `contents` are bytes by their sha256."""
        return RunEvidence(
            arguments=self.tensors,
            before=tuple(each or "" for each in files),
            runs=tuple(each for each in ran if not each.trial.schedule.garbage),
            garbage=tuple(each for each in ran if each.trial.schedule.garbage),
            contents=contents,
            trusted=self.trusted(),
            types=frozenset(self.types),
            unwritten=frozenset(n for n, each in enumerate(self.buffers) if each.unwritten),
            problem=problem,
        )

    def trusted(self) -> tuple[Trusted, ...]:
        """What is right, where something says so."""
        if self.expected is None:
            return ()
        [tensor] = self.tensors
        must = bytearray(self.buffers[tensor.buffer].size)
        value = bytes.fromhex(self.expected)
        must[tensor.offset : tensor.offset + len(value)] = value
        buffers = [bytes(must) if n == tensor.buffer else None for n in range(len(self.buffers))]
        return (Trusted(words=self.expected_by, buffers=tuple(buffers), is_final=True),)


def read_launch(data: bytes, name: str) -> PtxLaunch:
    """Read a launch that was written as JSON; `name` is that of the file.

    Raises:
        UsageError: it is none.
    """
    try:
        found = msgspec.json.decode(data, type=PtxLaunch)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"--inputs {name}: no launch of `triage minimize --run`: {error}"
        ) from error
    if found.schema != _SCHEMA:
        raise UsageError(f"--inputs {name}: schema {found.schema} is not known, only {_SCHEMA} is")
    return found
