"""The CUDA driver through ctypes: modules from PTX, buffers, launches, tensor maps."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["Device", "DriverError"]

_LOG_BYTES = 1 << 16
_INFO_LOG, _INFO_SIZE, _ERROR_LOG, _ERROR_SIZE = 3, 4, 5, 6
_DYNAMIC_SHARED = 8


class DriverError(Exception):
    """A call of the driver that failed, with its name and what the driver says."""


class Device:
    """The first GPU, with its primary context current.

    Raises:
        DriverError: there is no driver or no GPU.
    """

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise DriverError("no CUDA driver on this machine") from error
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        name = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", name, 128, device)
        self.name = name.value.decode()
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)

    def _call(self, name: str, *args: object) -> None:
        status = getattr(self._cuda, name)(*args)
        if status:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(status, ctypes.byref(text))
            raise DriverError(f"{name}: {status} {(text.value or b'').decode()}")

    def module(self, code: str | bytes) -> ctypes.c_void_p:
        """Load a cubin, or PTX that the driver compiles."""
        image = code if isinstance(code, bytes) else code.encode() + b"\0"
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        handle = ctypes.c_void_p()
        try:
            self._call("cuModuleLoadDataEx", ctypes.byref(handle), image, 2, options, values)
        except DriverError as error:
            raise DriverError(f"{error}\n{log.value.decode()}") from error
        return handle

    def function(self, module: ctypes.c_void_p, name: str, shared: int = 0) -> ctypes.c_void_p:
        """An entry; `shared` is its dynamic shared memory in bytes."""
        handle = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(handle), module, name.encode())
        if shared:
            self._call("cuFuncSetAttribute", handle, _DYNAMIC_SHARED, shared)
        return handle

    def upload(self, array: np.ndarray[Any, Any]) -> int:
        """The device address of a copy of an array."""
        data = np.ascontiguousarray(array)
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(data.nbytes, 16)))
        self._call("cuMemcpyHtoD_v2", pointer, data.ctypes.data_as(ctypes.c_void_p), data.nbytes)
        return pointer.value

    def download(self, pointer: int, like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """What lies at a device address, as an array of the same type and shape as another."""
        found = np.empty_like(like)
        address = found.ctypes.data_as(ctypes.c_void_p)
        self._call("cuMemcpyDtoH_v2", address, ctypes.c_uint64(pointer), found.nbytes)
        return found

    def free(self, *pointers: int) -> None:
        """Give device memory back."""
        for pointer in pointers:
            self._call("cuMemFree_v2", ctypes.c_uint64(pointer))

    def launch(
        self,
        function: ctypes.c_void_p,
        grid: int,
        block: int,
        arguments: Sequence[int | bytes],
        *,
        shared: int = 0,
    ) -> None:
        """Launch and wait. An argument is 64 bits, or the bytes of a parameter (a tensor map)."""
        held: list[tuple[object, int]] = []
        for argument in arguments:
            if isinstance(argument, bytes):
                # Tensor maps are aligned to 64 bytes.
                room = ctypes.create_string_buffer(len(argument) + 64)
                start = (ctypes.addressof(room) + 63) & ~63
                ctypes.memmove(start, argument, len(argument))
                held.append((room, start))
            else:
                value = ctypes.c_uint64(argument)
                held.append((value, ctypes.addressof(value)))
        pointers = (ctypes.c_void_p * len(held))(*(address for _, address in held))
        self._call(
            "cuLaunchKernel", function, grid, 1, 1, block, 1, 1, shared, None, pointers, None
        )
        self._call("cuCtxSynchronize")

    def tensor_map(
        self,
        address: int,
        element: int,
        sizes: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        steps: Sequence[int],
        *,
        swizzle: int = 0,
        nan_fill: bool = False,
    ) -> bytes:
        """The 128 bytes of `cuTensorMapEncodeTiled`, by the codes of the driver's enumerations."""
        rank = len(sizes)
        room = ctypes.create_string_buffer(256)
        start = (ctypes.addressof(room) + 63) & ~63
        self._call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(start),
            element,
            rank,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*sizes),
            (ctypes.c_uint64 * max(1, rank - 1))(*strides),
            (ctypes.c_uint32 * rank)(*box),
            (ctypes.c_uint32 * rank)(*steps),
            0,
            swizzle,
            0,
            int(nan_fill),
        )
        return ctypes.string_at(start, 128)
