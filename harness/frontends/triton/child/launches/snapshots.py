"""Arguments of a launch as data: each storage once, and tensors as views of storages.

A storage is written to a file of its bytes, named by their sha256: what two launches share is
written once. Shapes, strides and dtypes are in the description of the arguments.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from harness.frontends.triton.child.describing import (
    describe_argument,
    describe_constexpr,
    identity,
    storages_of,
)

_LARGEST = 128 << 20
"""Bytes of the largest storage that is kept: a file that a job writes may have 256 MiB."""


class TooLargeError(Exception):
    """An argument is more than can be kept; the message is for the user."""


class Snapshots:
    """Writes what launches are given into `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # What memory held when the launch code asked for it, by address.
        self._empty: dict[int, str] = {}

    def heard_of(self, tensor: torch.Tensor) -> None:
        """Remember what a tensor holds before anything is written to it."""
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - there is no other way
            storage = tensor.detach().untyped_storage()
            if 0 < storage.nbytes() <= _LARGEST:
                self._empty[storage.data_ptr()] = _sha256(_bytes(storage))

    def take(self, arguments: Mapping[str, Any], constexprs: set[str]) -> dict[str, Any]:
        """Arguments by name and the buffers behind them, for JSON.

        Raises:
            TooLargeError: a storage is too large to be kept.
        """
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - there is no other way
            places: dict[int, int] = {}
            buffers: list[dict[str, Any]] = []
            for storage in storages_of(arguments.values()):
                places[identity(storage)] = len(buffers)
                buffers.append(self.keep(storage))
            described = [
                describe_constexpr(name, value)
                if name in constexprs
                else describe_argument(name, value, places)
                for name, value in arguments.items()
            ]
        return {"arguments": described, "buffers": buffers}

    def keep(self, storage: Any) -> dict[str, Any]:
        """Write one storage, unless its bytes are written already."""
        if storage.nbytes() > _LARGEST:
            raise TooLargeError(
                f"an argument of {storage.nbytes():,} bytes is too large to be executed on a CPU; "
                "make the launch smaller with --set"
            )
        data = _bytes(storage)
        sha256 = _sha256(data)
        path = self._folder / f"{sha256}.bin"
        if not path.exists():
            path.write_bytes(data)
        unwritten = self._empty.get(storage.data_ptr()) == sha256 and storage.nbytes() > 0
        return {"sha256": sha256, "size": len(data), "unwritten": unwritten}


def _bytes(storage: Any) -> bytes:
    view: bytes = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes()
    return view


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
