"""The functions of a CUDA driver that cuTile asks before it compiles what is launched.

cuTile reads a launch in C, and finds the driver through one module of its own that loads `libcuda`.
Another module stands in its place: every function is there, few do anything, and none needs a GPU.
"""

from __future__ import annotations

import ctypes
import sys
import types
from typing import Any

# What loads the driver, in cuTile 1.3.0 to 1.7.0.
_LOADER = "cuda.tile._load_libcuda"
_NOT_SUPPORTED = 801
_INVALID_VALUE = 1
_VERSION = 13040
# Any but null.
_CONTEXT = 16
_MAJOR, _MINOR = 75, 76
_WORD = ctypes.c_size_t
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, _WORD, _WORD, _WORD, _WORD)
_FIND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, _WORD, ctypes.c_int, _WORD, _WORD)


def pretend() -> None:
    """Put the stand-in where cuTile will look for the driver, for as long as the process lives."""
    answers: dict[str, Any] = {
        "cuInit": _FUNCTION(lambda *_: 0),
        "cuDriverGetVersion": _FUNCTION(lambda result, *_: _number(result, _VERSION)),
        "cuPointerGetAttribute": _FUNCTION(lambda result, *_: _answer(result, _CONTEXT)),
        "cuStreamGetCtx": _FUNCTION(lambda _, result, *__: _answer(result, _CONTEXT)),
        "cuCtxGetCurrent": _FUNCTION(lambda result, *_: _answer(result, _CONTEXT)),
        "cuCtxGetDevice": _FUNCTION(lambda result, *_: _number(result, 0)),
        "cuDeviceGet": _FUNCTION(lambda result, *_: _number(result, 0)),
        "cuDeviceGetCount": _FUNCTION(lambda result, *_: _number(result, 1)),
        "cuDeviceGetAttribute": _FUNCTION(_device_attribute),
    }
    unknown = _FUNCTION(lambda *_: _NOT_SUPPORTED)

    def find(name: bytes, result: int, *_: int) -> int:
        function = answers.get(name.decode(), unknown)
        ctypes.c_void_p.from_address(result).value = ctypes.cast(function, ctypes.c_void_p).value
        return 0

    finder = _FIND(find)
    place = ctypes.c_void_p(ctypes.cast(finder, ctypes.c_void_p).value)
    module: Any = types.ModuleType(_LOADER)
    module.cuGetProcAddress_v2_ptrptr = ctypes.addressof(place)
    module.kept = (answers, unknown, finder, place)
    sys.modules[_LOADER] = module


def set_capability(capability: int) -> None:
    """Set what the one GPU is, as ten times its compute capability."""
    _capability[:] = divmod(capability, 10)


_capability = [0, 0]


def _number(result: int, value: int) -> int:
    ctypes.c_int.from_address(result).value = value
    return 0


def _answer(result: int, value: int) -> int:
    ctypes.c_size_t.from_address(result).value = value
    return 0


def _device_attribute(result: int, attribute: int, *_: int) -> int:
    # An argument of 32 bits: what is above them is not of it.
    attribute &= 0xFFFFFFFF
    if attribute not in (_MAJOR, _MINOR):
        return _INVALID_VALUE
    return _number(result, _capability[attribute == _MINOR])
