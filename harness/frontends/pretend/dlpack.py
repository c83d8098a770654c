"""DLPack of tensors on a GPU that is not there: what a compiler reads off them, and no memory."""

# ruff: noqa: ANN401 - values of torch have types that we cannot name

from __future__ import annotations

import ctypes
import re
from typing import Any

CUDA_DEVICE = (2, 0)
"""`kDLCUDA` and the number of the device."""

_CODES = {
    "int": 0,
    "uint": 1,
    "float": 2,
    "bfloat": 4,
    "complex": 5,
    "bool": 6,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
# The consumer never frees them: they are as long-lived as the capture, and small.
_KEPT: list[Any] = []


class _Device(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


def as_capsule(tensor: Any, address: int) -> Any:
    """A capsule `dltensor` of a tensor that is said to lie at this address of the GPU."""
    sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
    strides = (ctypes.c_int64 * tensor.dim())(*tensor.stride())
    managed = _Managed(
        tensor=_Tensor(
            data=address,
            device=_Device(*CUDA_DEVICE),
            ndim=tensor.dim(),
            dtype=_data_type(str(tensor.dtype).removeprefix("torch."), tensor.element_size()),
            shape=ctypes.cast(sizes, ctypes.POINTER(ctypes.c_int64)),
            strides=ctypes.cast(strides, ctypes.POINTER(ctypes.c_int64)),
        )
    )
    _KEPT.append((managed, sizes, strides))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(managed), b"dltensor", None)


def _data_type(name: str, size: int) -> _DataType:
    plain = name if name in _CODES else re.sub(r"\d+$", "", name)
    if plain not in _CODES:
        message = f"DLPack has no type for {name}"
        raise BufferError(message)
    return _DataType(_CODES[plain], 8 * size, 1)
