"""What watches the accesses of a batch: see `harness.emulator.races`."""

from __future__ import annotations

from typing import Protocol

from harness.emulator.program.types import Array
from harness.emulator.state.frame import Frame
from harness.emulator.state.memory import Memory
from harness.emulator.values import Place

__all__ = ["AccessWatch"]


class AccessWatch(Protocol):
    """Is called at every access: offsets into the data of a memory, and the threads that count."""

    def read(
        self,
        frame: Frame,
        memory: Memory,
        index: Array,
        size: int,
        active: Array | None,
        place: Place,
    ) -> None:
        """Bytes are read."""

    def write(
        self,
        frame: Frame,
        memory: Memory,
        index: Array,
        size: int,
        active: Array | None,
        place: Place,
    ) -> None:
        """Bytes are written."""

    def atomic(
        self,
        frame: Frame,
        memory: Memory,
        index: Array,
        size: int,
        active: Array | None,
        place: Place,
    ) -> None:
        """Bytes are changed by atomic operations."""
