"""A tool that reads a file and prints text, started once for many files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from harness.io.files.writing import scratch_disk
from harness.io.processes.hub import Hub, Peer, PeerGoneError, ResourceLimits, bare_python
from harness.values.errors import InfrastructureError
from harness.values.outcome import ProcessEnd

_INPUT = "input"


class ForkedTool:
    """Forks a tool for each file (`harness.io.children.forked`), one at a time.

    `argv` are the words of the tool but for the file, which comes last. Where this machine does not
    let us trace the tool, it is started for each file.
    """

    def __init__(self, hub: Hub, argv: Sequence[str | Path]) -> None:
        self._hub = hub
        self._argv = [os.fspath(word) for word in argv]
        self._folder = hub.new_folder("forked")
        self._turn = asyncio.Lock()
        self._peer: Peer | None = None
        self.is_forked = True

    async def run(self, content: bytes, limits: ResourceLimits) -> tuple[ProcessEnd, str]:
        """How the tool ended, and what it printed about a file of this content.

        Raises:
            InfrastructureError: it cannot be started, or the disk is full.
        """
        async with self._turn:
            try:
                with scratch_disk():
                    (self._folder / _INPUT).write_bytes(content)
                    (self._folder / "stdout").write_bytes(b"")
                end = await self._forked(limits) if self.is_forked else None
                if end is None:
                    self.is_forked = False
                    argv = [*self._argv, _INPUT]
                    end = await self._hub.execute(argv, folder=self._folder, limits=limits)
                return end, (self._folder / "stdout").read_text(errors="replace")
            except asyncio.CancelledError:
                # Its fork may go on, and write here: the next file is not given to it.
                if self._peer:
                    await self._peer.close()
                self._peer, self._folder = None, self._hub.new_folder("forked")
                raise

    async def _forked(self, limits: ResourceLimits) -> ProcessEnd | None:
        """How a fork ended; None where there is none."""
        try:
            if self._peer is None:
                child = [*bare_python("forked"), str(self._folder), _INPUT, *self._argv, _INPUT]
                log = self._folder / "log"
                self._peer = await self._hub.spawn(child, env=os.environ, log=log)
            end, problem = await self._peer.run({"op": "fork", "limits": limits.message()})
        except (PeerGoneError, InfrastructureError):
            return None
        return None if problem else end
