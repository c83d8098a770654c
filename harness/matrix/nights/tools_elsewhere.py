"""A hub whose tools run on other machines: ptxas, what reads its code, and the emulator.

Each run is one task. What it is given and what it leaves travel as content; everything else is done
here as without them, in the same order, so that the same comes out.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.io.files.own_code import program_sha256
from harness.io.files.scratch import scratch_disk
from harness.io.machines.seam import MachinesGoneError
from harness.io.processes.hub import Hub
from harness.io.processes.machine import cores
from harness.io.toolchains.by_name import name_tool
from harness.matrix.nights.at_worker import run_tool_task
from harness.matrix.nights.tool_tasks import ToolAnswer, ToolTask
from harness.run.jobs import EMULATE
from harness.values.errors import InfrastructureError
from harness.values.outcome import ProcessEnd

if TYPE_CHECKING:
    from harness.cells.places import CompileOptions
    from harness.io.machines.seam import Machines
    from harness.io.processes.hub import ResourceLimits
    from harness.io.toolchains.by_name import NamedTool


def at_once(machines: Machines, how: CompileOptions) -> CompileOptions:
    """How to work with so many machines: on this one as much at once as it has cores for."""
    jobs = machines.at_once
    return replace(how, jobs=jobs, here=0 if machines.are_here else min(cores(), jobs))


class ToolsElsewhere(Hub):
    """As `Hub`. What a machine cannot do is said once, by `tell`, and done here."""

    def __init__(
        self, machines: Machines, how: CompileOptions, tell: Callable[[str], None]
    ) -> None:
        super().__init__()
        self._machines = machines
        # Each machine has its own share, unless the user has named one.
        self._limits_memory = machines.are_here or bool(how.memory)
        self._tell = tell
        self._told: set[str] = set()
        self._code = program_sha256()
        self._ranks = itertools.count()
        self._here = asyncio.Semaphore(how.here or how.workers)

    async def execute(
        self,
        argv: Sequence[str | Path],
        *,
        folder: Path,
        limits: ResourceLimits,
        env: Mapping[str, str] | None = None,
        writable: Sequence[Path] | None = None,
    ) -> ProcessEnd:
        """See `Hub`.

        Raises:
            InfrastructureError: as there.
            MachinesGoneError: the machines are lost, or the scheduler is.
        """
        tool = name_tool(Path(argv[0])) if env is None and writable is None else None
        if tool:
            words = [os.fspath(word) for word in argv[1:]]
            if end := await self._sent(self._task(tool, words, folder, limits), folder):
                return end
        async with self._here:
            return await super().execute(
                argv, folder=folder, limits=limits, env=env, writable=writable
            )

    async def do(
        self,
        job: str,
        folder: Path,
        limits: ResourceLimits,
        here: Callable[[], Awaitable[ProcessEnd]],
    ) -> ProcessEnd:
        """See `Hub`.

        Raises:
            InfrastructureError: as `here`.
            MachinesGoneError: the machines are lost, or the scheduler is.
        """
        if job == EMULATE and (
            end := await self._sent(self._task(None, (), folder, limits), folder)
        ):
            return end
        async with self._here:
            return await here()

    def _task(
        self, tool: NamedTool | None, words: Sequence[str], folder: Path, limits: ResourceLimits
    ) -> ToolTask | None:
        """None for what another machine could not do by names and content alone."""
        files = list(folder.iterdir())
        if not all(file.is_file() for file in files):
            return None
        return ToolTask(
            tool=tool,
            words=tuple(words),
            files={file.name: file.read_bytes() for file in files},
            timeout=limits.timeout,
            memory=limits.memory if self._limits_memory else 0,
            file_size=limits.file_size,
        )

    async def _sent(self, task: ToolTask | None, folder: Path) -> ProcessEnd | None:
        """How it ended there; None where it did not run."""
        if task is None:
            return None
        name, rank = task.name, next(self._ranks)
        message = task.encode(self._code)
        try:
            said = await self._machines.run(run_tool_task, message, name=name, rank=rank)
        except InfrastructureError as error:
            raise MachinesGoneError(str(error)) from error
        try:
            answer = ToolAnswer.decode(said)
        except (ValueError, zlib.error):
            answer = ToolAnswer(host=self._machines.words, failure="its answer cannot be read")
        if any(Path(name).name != name for name in answer.files):
            answer = ToolAnswer(host=answer.host, failure="it names files of other folders")
        if answer.end is None:
            self._say(f"{answer.host}: {answer.failure}; {name} runs here")
            return None
        with scratch_disk():
            for each, data in answer.files.items():
                (folder / each).write_bytes(data)
        return answer.end

    def _say(self, said: str) -> None:
        if said not in self._told:
            self._told.add(said)
            self._tell(said)
