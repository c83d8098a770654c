"""DLPack of tensors without storage, read back as another library reads it."""

from __future__ import annotations

import ctypes
import importlib
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import torch

from harness.frontends.pretend.gpu import _Managed, as_capsule


@pytest.fixture(autouse=True, scope="module")
def _imported() -> None:
    """Every worker of the suite collects this file, and one runs it: torch takes seconds."""
    globals()["torch"] = importlib.import_module("torch")


def read(capsule: object) -> _Managed:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype = ctypes.c_void_p
    get.argtypes = (ctypes.py_object, ctypes.c_char_p)
    return _Managed.from_address(get(capsule, b"dltensor"))


@pytest.mark.parametrize(
    ("dtype", "code", "bits"),
    [
        ("float16", 2, 16),
        ("bfloat16", 4, 16),
        ("float8_e4m3fn", 10, 8),
        ("int64", 0, 64),
        ("uint8", 1, 8),
        ("bool", 6, 8),
    ],
)
def test_a_tensor_on_the_gpu_that_is_not_there(dtype: str, code: int, bits: int) -> None:
    tensor = torch.empty(4, 6, dtype=getattr(torch, dtype), device="meta").t()
    found = read(as_capsule(tensor, 0x1000))
    assert list(found.device) == [2, 0]
    assert found.data == 0x1000
    assert [found.shape[i] for i in range(found.ndim)] == [6, 4]
    assert [found.strides[i] for i in range(found.ndim)] == [1, 6]
    assert (found.code, found.bits, found.lanes) == (code, bits, 1)


def test_torch_reads_values_through_it() -> None:
    """The structure is DLPack's: torch reads its own tensor's data back through it."""
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    capsule = as_capsule(tensor, tensor.data_ptr())
    read(capsule).device[0] = 1  # of the CPU, which can be read here
    assert torch.equal(torch.utils.dlpack.from_dlpack(capsule), tensor)


def test_a_type_that_dlpack_lacks() -> None:
    with pytest.raises(BufferError, match="DLPack has no type for bits8"):
        as_capsule(torch.empty(1, dtype=torch.bits8, device="meta"), 0)
