"""One run of a tool as a message to another machine, and the answer that comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from harness.io.toolchains.by_name import NamedTool
from harness.matrix.nights.tasks import seal, unseal
from harness.values.outcome import ProcessEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTask:
    """A tool with its arguments, and the files of the folder that it is run in.

    Without a tool it is a job of the emulator. `timeout` is in seconds, `memory` (0: a share of the
    worker's) and `file_size` in bytes.
    """

    tool: NamedTool | None
    words: tuple[str, ...] = ()
    files: Mapping[str, bytes]
    timeout: float
    memory: int
    file_size: int

    @property
    def name(self) -> str:
        """For people: `ptxas 13.1.115`, or `emulator`."""
        return self.tool.words if self.tool else "emulator"

    def encode(self, code: str) -> bytes:
        """As a message to a machine that has this code."""
        return seal(msgspec.msgpack.encode(self), code)

    @classmethod
    def decode(cls, message: bytes, code: str) -> ToolTask | None:
        """What `encode` made; None where it was made by other code."""
        body = unseal(message, code)
        return None if body is None else msgspec.msgpack.decode(body, type=cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """How it ended, and the files that it left; else what is the matter with its `host`."""

    host: str
    end: ProcessEnd | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    failure: str = ""

    def encode(self) -> bytes:
        """As a message."""
        return seal(msgspec.msgpack.encode(self), "")

    @classmethod
    def decode(cls, message: bytes) -> ToolAnswer:
        """What `encode` made.

        Raises:
            ValueError: it was not made by `encode`.
        """
        body = unseal(message, "")
        if body is None:
            raise ValueError
        return msgspec.msgpack.decode(body, type=cls)
