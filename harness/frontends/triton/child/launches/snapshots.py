"""Arguments of a launch as data: each storage once, and tensors as views of storages.

A storage is written to a file of its bytes, named by their sha256: what two launches share is
written once. Shapes, strides and dtypes are in the description of the arguments.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Snapshots", "TooLargeError", "storages_of"]

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
                places[_identity(storage)] = len(buffers)
                buffers.append(self.keep(storage))
            described = [
                _constexpr(name, value) if name in constexprs else _argument(name, value, places)
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


def storages_of(values: Any) -> list[Any]:
    """The storages behind arguments, each once, in the order in which they first appear."""
    found: dict[int, Any] = {}

    def visit(value: Any) -> None:
        tensor = _tensor(value)
        if tensor is not None:
            storage = tensor.untyped_storage()
            found.setdefault(_identity(storage), storage)
        elif hasattr(value, "block_shape"):
            visit(value.base)
        elif isinstance(value, tuple | list):
            for item in value:
                visit(item)

    with torch._C.DisableTorchFunction():  # noqa: SLF001 - there is no other way
        for value in values:
            visit(value)
    return list(found.values())


def _tensor(value: Any) -> torch.Tensor | None:
    """A tensor, or the one that Triton's `reinterpret` wraps."""
    if not isinstance(value, torch.Tensor) and hasattr(value, "data_ptr"):
        value = getattr(value, "base", None)
    return value.detach() if isinstance(value, torch.Tensor) else None


def _identity(storage: Any) -> int:
    """Storages of nothing have no address of their own."""
    return int(storage.data_ptr()) or -id(storage)


def _bytes(storage: Any) -> bytes:
    view: bytes = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes()
    return view


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _constexpr(name: str, value: Any) -> dict[str, Any]:
    """The value of one, where it is plain."""
    value = getattr(value, "value", value)
    plain = _argument(name, value, {}) if isinstance(value, bool | int | float) else {}
    if isinstance(value, str):
        plain = {"type": "str", "value": value}
    return {**plain, "name": name, "kind": "constexpr"}


def _argument(name: str, value: Any, places: Mapping[int, int]) -> dict[str, Any]:
    tensor = _tensor(value)
    if tensor is not None:
        wrapped = str(value.dtype) if not isinstance(value, torch.Tensor) else str(tensor.dtype)
        return {
            "name": name,
            "kind": "tensor",
            "dtype": wrapped.removeprefix("torch."),
            "shape": list(tensor.shape),
            "strides": list(tensor.stride()),
            **_place(tensor, places),
        }
    value = getattr(value, "value", value)
    if value is None:
        return {"name": name, "kind": "none"}
    if isinstance(value, bool | int):
        return {
            "name": name,
            "kind": "scalar",
            "type": type(value).__name__,
            "value": str(int(value)),
        }
    if isinstance(value, float):
        return {"name": name, "kind": "scalar", "type": "float", "value": value.hex()}
    if isinstance(value, tuple | list):
        items = [_argument(f"{name}.{n}", item, places) for n, item in enumerate(value)]
        return {"name": name, "kind": "tuple", "items": items}
    if hasattr(value, "block_shape"):
        return _descriptor(name, value, places)
    return {"name": name, "kind": "object", "type": type(value).__name__}


def _descriptor(name: str, value: Any, places: Mapping[int, int]) -> dict[str, Any]:
    base = _tensor(value.base)
    assert base is not None
    return {
        "name": name,
        "kind": "descriptor",
        "dtype": str(value.base.dtype).removeprefix("torch."),
        "shape": [int(size) for size in value.shape],
        "strides": [int(stride) for stride in value.strides],
        "block": [int(size) for size in value.block_shape],
        "nan_padding": getattr(value, "padding", "zero") == "nan",
        "round_to_tf32": bool(getattr(value, "round_f32_to_tf32", False)),
        **_place(base, places),
    }


def _place(tensor: torch.Tensor, places: Mapping[int, int]) -> dict[str, Any]:
    return {
        "buffer": places[_identity(tensor.untyped_storage())],
        "offset": tensor.storage_offset() * tensor.element_size(),
    }
