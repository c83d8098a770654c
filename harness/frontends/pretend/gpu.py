"""A CUDA device that is not there, as Python code sees it.

Tensors that the program under capture believes to be on the GPU are torch *meta* tensors: shapes,
strides and dtypes without storage. A function mode answers `.device`, `.is_cuda`, `.data_ptr()`
and their kin as a GPU tensor would, and sends every request for a `cuda` device to meta. Unlike
fake tensors this needs no CUDA build of torch, no device guard, and lets slicing and autograd work.

Where values are needed (Triton's interpreter; launch code that reads values before a launch), CPU
tensors are used instead; those that were never written to hold the same numbers in every run. What
kernels may have written, and what follows from it, has no values unless kernels are executed. A
fact of the product that is not known is an error.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from harness.frontends.pretend.passed_over import (
    Anything,
    NeedsValuesError,
    UnknownNumber,
    asserted,
    pass_over,
    stand_in_for_packages,
)
from harness.frontends.pretend.pointwise import POINTWISE, pointwise
from harness.frontends.pretend.small import Small, address_of, follow, forget, plain_torch

_UNKNOWN = "is not known to triage, and a guess would decide what is launched"


class UnknownFactError(RuntimeError):
    """The launch code asked for a fact of the GPU that is not known."""

    ends_capture = True

    def __init__(self, fact: str, product: str) -> None:
        super().__init__(f"the launch code asks for {fact} of {product}, which {_UNKNOWN}")


class DeviceProperties:
    """As `torch.cuda.get_device_properties` gives them: memory and cache in bytes."""

    def __init__(self, facts: dict[str, Any]) -> None:
        major, minor = divmod(facts["capability"], 10)
        self.name = facts["name"]
        self.major, self.minor = major, minor
        self.warp_size = 32
        self.regs_per_multiprocessor = facts["registers_per_sm"]
        self.shared_memory_per_block = 49152
        self.shared_memory_per_block_optin = facts["max_shared"]
        self.shared_memory_per_multiprocessor = facts["shared_per_sm"]
        self.max_threads_per_multi_processor = facts["threads_per_sm"]
        self.max_threads_per_block = 1024
        self.is_multi_gpu_board = 0
        # ROCm's; torch has it, and empty, for other GPUs too.
        self.gcnArchName = ""
        self._may_be_unknown = {
            "multi_processor_count": facts["multiprocessors"],
            "total_memory": facts["memory"],
            "L2_cache_size": facts["l2_cache"],
            "is_integrated": facts["integrated"],
            "clock_rate": None,
            "memory_clock_rate": None,
            "memory_bus_width": None,
            "pci_bus_id": None,
            "pci_device_id": None,
            "pci_domain_id": None,
            "uuid": None,
        }

    def __getattr__(self, name: str) -> Any:
        """One of the facts that are not known of every product.

        Raises:
            UnknownFactError: not of this one.
        """
        if name not in self.__dict__.get("_may_be_unknown", ()):
            message = f"the properties of a device have no {name!r}"
            raise AttributeError(message)
        value = self._may_be_unknown[name]
        if value is None:
            raise UnknownFactError(name, self.name)
        return value


class DriverProperties(dict[str, Any]):
    """As the utilities of Triton's driver give them."""

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__(
            max_shared_mem=facts["max_shared"], max_num_regs=facts["registers_per_sm"], warpSize=32
        )
        self._product = facts["name"]
        if facts["multiprocessors"] is not None:
            self["multiprocessor_count"] = facts["multiprocessors"]

    def __missing__(self, name: str) -> Any:
        """Clock rates and bus widths, for example.

        Raises:
            UnknownFactError: always.
        """
        raise UnknownFactError(name, self._product)


# Any address aligned far beyond the 16 bytes that Triton specialises on will do.
_BASE_ADDRESS = 0x7F00_0000_0000
_CUDA = torch.device("cuda", 0)
_META = torch.device("meta")
_CPU = torch.device("cpu")
_MOST_SHOWN = 1 << 16
# What Python calls where it stands in launch code.
_SYNTAX = {
    "__bool__": "a condition",
    "__contains__": "`in`",
    "__float__": "float()",
    "__int__": "int()",
    **dict.fromkeys(("__index__", "__getitem__", "__setitem__"), "an index"),
}
# torch says so of tensors without values, whose values it needs.
_OF_META = "meta tensor"
_EMPTIES = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


def _is_cuda_device(value: object) -> bool:
    return isinstance(value, str | torch.device) and str(value).partition(":")[0] == "cuda"


class _Backing:
    """The device that stands behind `cuda`: one for the whole process."""

    device = _META
    allocations = 0
    has_copies = False
    # Hears of memory that was asked for and holds no values of the launch code's.
    on_empty: Callable[[torch.Tensor], None] | None = None
    # A capture describes arguments alike with values and without.
    is_capture = False
    # Storages that kernels wrote, or what follows from those; with true values if it `computes`.
    written: ClassVar[set[int]] = set()
    computes = False


def backing() -> torch.device:
    """The device of the tensors that stand behind those on the GPU."""
    return _Backing.device


def _is_backed(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_meta if _Backing.device is _META else not tensor.is_meta)


def _filled(tensor: Any) -> Any:
    """Small numbers in memory that was only asked for, by the count of such requests.

    Not by a stream of random numbers: what one allocation holds must not depend on the sizes of
    those before it, which may differ between configs.
    """
    _Backing.allocations += 1
    if tensor.dtype.is_floating_point:
        numbers = torch.Generator().manual_seed(_Backing.allocations)
        with torch.no_grad():
            values = torch.randn(tensor.shape, generator=numbers, dtype=torch.float32)
            tensor.copy_(values * 0.1)
        if _Backing.on_empty:
            _Backing.on_empty(tensor)
        return tensor
    return tensor.zero_()


def executes() -> bool:
    """Whether kernels are executed when launch code comes to them."""
    return _Backing.device is _CPU and (_Backing.computes or not _Backing.is_capture)


def compute(*, whether: bool) -> None:
    """Say whether the kernels of a capture are executed from now on."""
    _Backing.computes = whether


def wrote(values: Any) -> None:
    """Note that a kernel may have written these tensors, or those of these descriptors."""
    storages = _storages([getattr(v, "base", v) for v in _leaves(values)])
    _Backing.written.update(storages)
    forget(storages)


def _leaves(values: Any) -> list[Any]:
    """The leaves of a structure of values, those of its slices, too.

    Launch code calls torch any number of times: plain structures are taken apart here, quickly.
    """
    kind = type(values)
    if kind is tuple or kind is list:
        return [leaf for value in values for leaf in _leaves(value)]
    if isinstance(values, torch.Tensor) or kind in _PLAIN:
        return [values]
    if kind is dict:
        return _leaves(list(values.values()))
    if kind is slice:
        return [values.start, values.stop, values.step]
    leaves: list[Any] = tree_leaves(values)
    return leaves


_PLAIN = frozenset({bool, int, float, str, type(None), torch.dtype, torch.device})


def _storages(values: Any) -> set[int]:
    storages: set[int] = set()
    with plain_torch():
        for leaf in _leaves(values):
            if isinstance(leaf, torch.Tensor) and (address := address_of(leaf)):
                storages.add(address)
    return storages


def _needs(values: Any) -> str:
    """How to get the values of these tensors, as in `passed_over.needs`."""
    return "interpreted" if _storages(values) & _Backing.written else "computed"


def _is_unknown(tensor: torch.Tensor) -> bool:
    """Whether it holds no values that the launch code would have on a GPU."""
    with plain_torch():
        is_meta = tensor.is_meta
    return is_meta or not (_Backing.computes or _storages(tensor).isdisjoint(_Backing.written))


# They write to their first argument.
_IN_PLACE = re.compile(r"__setitem__|__i[a-z]+__|[a-z]\w*_|_foreach_\w+_")
# They run functions that no mode sees.
_BACKWARD = frozenset({"backward", "grad"})


# Calls whose results have sizes that follow from sizes alone, as `_kind` tells them apart.
_SIZED: set[Any] = set()


def _kind(value: Any) -> Any:
    """What decides whether the size of a result follows from values: no number does."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.dim()
    if isinstance(value, list | tuple):
        return (*map(_kind, value),)
    if isinstance(value, dict):
        return (*((name, _kind(item)) for name, item in value.items()),)
    if isinstance(value, slice):
        return (*map(_kind, (value.start, value.stop, value.step)),)
    return value if value is None or isinstance(value, bool | str) else type(value)


def _check_sizes(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> None:
    """Try a function without values, as it would be in a capture that has none.

    Once for each kind of call: torch computes many sizes in Python.

    Raises:
        NeedsValuesError: what kernels leave decides the size of its result.
    """
    if name == "__get__" or name in _METHODS or name in _BACKWARD:
        return
    kind = func, _kind(args), _kind(kwargs)
    if kind in _SIZED:
        return

    def without(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.detach().to(_META)
        if isinstance(value, slice):
            return slice(*map(without, (value.start, value.stop, value.step)))
        return _META if _is_cuda_device(value) else value

    with torch.no_grad(), contextlib.suppress(TypeError, ValueError, IndexError):
        try:
            func(*tree_map(without, args), **tree_map(without, kwargs))
            _SIZED.add(kind)
        except RuntimeError as error:
            if isinstance(error, NotImplementedError) or _OF_META in str(error):
                action = _SYNTAX.get(name, f"torch's {name}")
                raise NeedsValuesError.of(action, "interpreted") from error


class _CudaMode(TorchFunctionMode):  # type: ignore[misc]
    """Answers for the tensors that stand behind as if they were on `cuda:0`."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__" and not isinstance(fact := _getter(func, args), torch.Tensor):
            return fact
        had = len(_Backing.written)
        inputs = _storages([args, kwargs]) if had else set()
        is_result = bool(had) and (name in _BACKWARD or not inputs.isdisjoint(_Backing.written))
        is_unknown = is_result and _Backing.device is _CPU and not _Backing.computes
        if is_unknown:
            _check_sizes(func, name, args, kwargs)
        try:
            if Small.are_kept and name != "__get__" and name not in _BACKWARD:
                written = [kwargs.get("out"), *(args[:1] if _IN_PLACE.fullmatch(name) else ())]
                answer = partial(self._answer, func, name, args, kwargs)
                result = follow(func, args, kwargs, written, answer)
            else:
                result = self._answer(func, name, args, kwargs)
        except (IndexError, RuntimeError, ValueError) as error:
            if not is_unknown or isinstance(error, NeedsValuesError):
                raise
            # Of numbers that no kernel has written: an index, say.
            message = f"torch's {name} fails on what no kernel has written here"
            raise NeedsValuesError(message, "interpreted") from error
        if is_result or len(_Backing.written) > had:
            changed = [result, kwargs.get("out")]
            changed += args[:1] if _IN_PLACE.fullmatch(name) else []
            _Backing.written.update(_storages(changed))
        elif had and name != "__get__":
            # What lay at this address before is gone.
            _Backing.written.difference_update(_storages(result) - inputs)
        return result

    def _answer(self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if name == "__get__":
            return _getter(func, args)
        handler = _METHODS.get(name)
        if handler and args and isinstance(args[0], torch.Tensor):
            return handler(func, args, kwargs)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _device_argument(kwargs["device"])}
        if kwargs.get("generator") is not None:
            kwargs = {name: value for name, value in kwargs.items() if name != "generator"}
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        leaves = _leaves([args, kwargs]) if _Backing.has_copies else []
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        has_copies = any(map(_is_copy, tensors))
        if has_copies:
            here = _Backing.device
            args, kwargs = tree_map(
                lambda v: v.to(here) if isinstance(v, torch.Tensor) else v, (args, kwargs)
            )
        is_quick = name in POINTWISE and not kwargs and _Backing.device is _META
        try:
            result = pointwise(func, args) if is_quick else func(*args, **kwargs)
        except (RuntimeError, TypeError) as error:
            leaves = tree_leaves([args, kwargs])
            if unknown := [value for value in leaves if isinstance(value, UnknownNumber)]:
                raise NeedsValuesError.of(unknown[0].action, unknown[0].needs) from error
            # Where the values of a meta tensor decide the result's shape, leave it, or are asked
            # for in C (an index, a size), torch has no kernel for it or says so.
            if isinstance(error, NotImplementedError) or _OF_META in str(error):
                action = _SYNTAX.get(name, f"torch's {name or func}")
                raise NeedsValuesError.of(action, _needs([args, kwargs])) from error
            raise
        if has_copies and not any(_is_backed(t) and not _is_copy(t) for t in tensors):
            return tree_map(_as_copy, result)
        return _filled(result) if name in _EMPTIES and _Backing.device is _CPU else result


def _is_copy(value: Any) -> bool:
    """Whether it stands for a copy on the CPU."""
    return isinstance(value, torch.Tensor) and hasattr(value, "is_said_to_be_on_cpu")


def _as_copy(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and _is_backed(value):
        value.is_said_to_be_on_cpu = _Backing.has_copies = True
    return value


def _is_index(value: Any) -> bool:
    """A bare index means "that CUDA device" to torch."""
    return isinstance(value, int) and not isinstance(value, bool)


def _device_argument(value: Any, *, stands: bool = False) -> Any:
    """A device as torch gets it; what `stands` for a GPU's tensor stays where it is."""
    is_there = _is_index(value) or _is_cuda_device(value) or (stands and _is_device(value))
    return _Backing.device if is_there else value


def _getter(func: Any, args: tuple[Any, ...]) -> Any:
    value = func(*args)
    owner = getattr(func.__self__, "__name__", "")
    if _is_copy(args[0]) and owner in {"device", "is_cuda", "is_cpu"}:
        return {"device": _CPU, "is_cuda": False, "is_cpu": True}[owner]
    if owner == "device":
        return _CUDA if value.type == _Backing.device.type else value
    if owner == "is_cuda":
        return value or _is_backed(args[0])
    if owner == "is_meta":
        return False
    if owner == "grad" and value is not None:
        # No mode sees what `backward` writes.
        forget(_storages(value))
        if _Backing.written:
            _Backing.written.update(_storages(value))
    return value


def _to(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor, *values = args
    devices = [v for v in (*values[:1], kwargs.get("device")) if _is_device(v)]
    stands = _is_backed(tensor)
    values = [_device_argument(value, stands=stands) for value in values]
    if "device" in kwargs:
        kwargs = {**kwargs, "device": _device_argument(kwargs["device"], stands=stands)}
    result = func(tensor, *values, **kwargs)
    if not stands:
        return result
    is_copy = str(devices[-1]).startswith("cpu") if devices else _is_copy(tensor)
    if result is tensor and is_copy != _is_copy(tensor):
        result = tensor.clone()
    return _as_copy(result) if is_copy else result


def _is_device(value: Any) -> bool:
    return _is_index(value) or isinstance(value, str | torch.device)


def _type(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # `x.type("torch.cuda.HalfTensor")` names the device too.
    if len(args) > 1 and isinstance(args[1], str) and args[1].startswith("torch.cuda."):
        plain = func(args[0].new_empty(0, device="cpu"), args[1].replace(".cuda", ""))
        return args[0].to(_Backing.device, plain.dtype)
    return func(*args, **kwargs)


def _if(
    condition: Callable[[torch.Tensor], bool], answer: Callable[[Any, str], Any]
) -> Callable[..., Any]:
    """What a method, which has a name, answers for tensors on which the condition holds."""

    def method(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return answer(args[0], func.__name__) if condition(args[0]) else func(*args, **kwargs)

    return method


def _is_at_address(tensor: torch.Tensor) -> bool:
    """Whether it lies where no tensor of this process does."""
    return tensor.is_meta or _Backing.is_capture


def _is_open(tensor: torch.Tensor) -> bool:
    """Whether a comparison with it decides nothing here: it is for the launch code's own end."""
    return _is_unknown(tensor) or not _storages(tensor).isdisjoint(_Backing.written)


def _value(tensor: torch.Tensor, name: str) -> bool:
    truth = asserted()
    if name != "__bool__" or truth is None:
        raise NeedsValuesError.of(_SYNTAX.get(name, f".{name}()"), _needs(tensor))
    pass_over("assert")
    return truth


def _numbers(tensor: torch.Tensor, name: str) -> Any:
    if tensor.numel() > _MOST_SHOWN:
        raise NeedsValuesError.of(f".{name}()", _needs(tensor))
    # The default device may be that of the GPU.
    numbers = torch.zeros(() if name == "item" else tensor.shape, device=_CPU).tolist()
    return tree_map(lambda _: UnknownNumber(f".{name}()", _needs(tensor)), numbers)


def _shown(tensor: torch.Tensor, _: str) -> str:
    pass_over("showing values")
    return f"tensor(..., size={tuple(tensor.shape)}, dtype={tensor.dtype})"


def _compared(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not any(_is_open(value) for value in args if isinstance(value, torch.Tensor)):
        return func(*args, **kwargs)
    pass_over(func.__name__)
    return asserted() is not False


_METHODS: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    "to": _to,
    "cuda": lambda func, args, kwargs: _to(torch.Tensor.to, (args[0], _CUDA), {}),  # noqa: ARG005
    "cpu": lambda func, args, kwargs: _to(torch.Tensor.to, (args[0], _CPU), {}),  # noqa: ARG005
    "data_ptr": _if(
        _is_at_address, lambda x, _: _BASE_ADDRESS + x.storage_offset() * x.element_size()
    ),
    "__dlpack__": _if(_is_at_address, lambda x, _: as_capsule(x, x.data_ptr())),
    "__dlpack_device__": _if(_is_at_address, lambda *_: CUDA_DEVICE),
    "get_device": _if(_is_backed, lambda *_: 0),
    "pin_memory": lambda func, args, kwargs: args[0],  # noqa: ARG005
    "type": _type,
    **dict.fromkeys(("allclose", "equal"), _compared),
    **dict.fromkeys(("item", "tolist"), _if(_is_unknown, _numbers)),
    **dict.fromkeys(("__repr__", "__format__"), _if(_is_unknown, _shown)),
    **dict.fromkeys(
        ("numpy", "__int__", "__float__", "__index__", "__array__"), _if(_is_unknown, _value)
    ),
    "__bool__": _if(lambda x: _is_unknown(x) or (_is_open(x) and asserted() is not None), _value),
}


def idle() -> Callable[..., None]:
    """A function for any call that only matters to real hardware.

    A new one each time: torch's compiler keeps a table by function, and no two names may share one.
    """

    def nothing(*_: Any, **__: Any) -> None:
        pass

    return nothing


NOT_TIMED = float("nan")
"""What anything takes that is not executed."""


class _Event:
    """A CUDA event that has always happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.cuda_event = 0

    def record(self, *_: Any) -> None: ...
    def wait(self, *_: Any) -> None: ...
    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        pass_over("elapsed_time")
        return NOT_TIMED


class _Stream(_Event):
    """The one stream; also its own context manager."""

    cuda_stream = 0
    stream_id = 0
    device = _CUDA
    device_index = 0

    def is_capturing(self) -> bool:
        return False

    def wait_stream(self, *_: Any) -> None: ...
    def wait_event(self, *_: Any) -> None: ...

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...


_NO_OPS = """
    _lazy_init empty_cache init ipc_collect manual_seed manual_seed_all reset_max_memory_allocated
    reset_peak_memory_stats seed seed_all set_device set_per_process_memory_fraction set_stream
    set_sync_debug_mode synchronize
    """.split()  # noqa: SIM905 - a list would be half a page
_MEMORY = ("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved")


def _patch_torch_cuda(properties: dict[str, Any]) -> None:
    stream = _Stream()
    facts = DeviceProperties(properties)
    capability = divmod(properties["capability"], 10)
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: capability >= (8, 0),
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_, **__: facts.name,
        "get_device_capability": lambda *_, **__: capability,
        "get_device_properties": lambda *_, **__: facts,
        "current_stream": lambda *_, **__: stream,
        "default_stream": lambda *_, **__: stream,
        "stream": lambda *_, **__: stream,
        "is_current_stream_capturing": lambda: False,
        "Stream": _Stream,
        "Event": _Event,
        # `torch.cuda.device(...)` and `device_of(tensor)`: there is one.
        **dict.fromkeys(("device", "device_of"), Anything),
        **dict.fromkeys((*_MEMORY, "get_sync_debug_mode"), lambda *_, **__: 0),
        "mem_get_info": lambda *_, **__: (facts.total_memory, facts.total_memory),
    }
    answers.update({name: idle() for name in _NO_OPS})
    answers.update(dict.fromkeys(("CUDAGraph", "graph", "nvtx"), Anything()))
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
        if hasattr(torch.cuda.memory, name):
            setattr(torch.cuda.memory, name, answer)
    torch.version.cuda = torch.version.cuda or "12.8"
    _patch_torch()


class _Generator(torch.Generator):  # type: ignore[misc]
    """One of a GPU draws nothing here: on the meta device there is nothing to draw."""

    def __new__(cls, device: Any = "cpu") -> Any:
        is_on_gpu = _device_argument(device) == _Backing.device
        return super().__new__(cls, _CPU if is_on_gpu else device)


def _uncompiled(model: Any = None, **_: Any) -> Any:
    """`torch.compile` without Inductor, which generates for the GPU of its machine only."""
    pass_over("torch.compile")
    return _uncompiled if model is None else model


def _patch_torch() -> None:
    """Functions outside `torch.cuda` that know of devices and that no function mode sees."""
    set_default_device = torch.set_default_device
    torch.set_default_device = lambda device: set_default_device(_device_argument(device))
    torch.get_default_device = lambda: _CUDA if torch.empty(0).device.type == "cuda" else _CPU
    torch.Generator = _Generator
    # Torch looks at the stream before it asks a mode.
    torch.Tensor.record_stream = idle()
    # Of `DataParallel`, forward and backward, on one GPU: builds of torch for CPUs have none.
    torch.nn.parallel.comm.scatter = lambda tensor, *_, **__: (tensor.cuda(),)
    torch.nn.parallel.comm.gather = lambda tensors, *_, **__: tensors[0]
    # What it wraps is for torch's compiler to see; on meta tensors it would launch nothing.
    torch.library.wrap_triton = lambda kernel: kernel
    torch.compile = _uncompiled
    torch.nn.Module.compile = idle()
    assert_close = torch.testing.assert_close

    def compare(actual: Any, expected: Any, *args: Any, **kwargs: Any) -> None:
        values = tree_leaves([actual, expected])
        if any(isinstance(value, torch.Tensor) and _is_open(value) for value in values):
            pass_over("assert_close")
        else:
            assert_close(actual, expected, *args, **kwargs)

    torch.testing.assert_close = compare
    if hasattr(torch, "accelerator"):
        torch.accelerator.is_available = lambda: True
        torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
        torch.accelerator.device_count = lambda: 1
        torch.accelerator.current_device_index = lambda: 0
        torch.accelerator.current_stream = torch.cuda.current_stream
        torch.accelerator.synchronize = idle()


def pretend_cuda(
    properties: dict[str, Any],
    *,
    values: str = "",
    is_capture: bool = False,
    on_empty: Callable[[torch.Tensor], None] | None = None,
) -> Any:
    """Make this process believe in the GPU that `properties` describes, for good.

    Returns a context manager; tensors are translated inside it. `values` says whose values are
    kept: none (empty), those of `small` tensors beside them, or all, in storage of their own.
    `on_empty` hears of each floating-point tensor that was asked for without values. In a capture,
    they are described as if they had none.
    """
    _Backing.device = _META if values in ("", "small") else _CPU
    _Backing.on_empty, _Backing.is_capture = on_empty, is_capture
    Small.are_kept = values == "small"
    _patch_torch_cuda(properties)
    stand_in_for_packages()
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))
    mode = _CudaMode()
    node = torch.autograd.function.BackwardCFunction
    original = node.apply

    def apply(self: Any, *args: Any) -> Any:
        # Torch turns the mode off while it runs `.backward()`.
        with mode:
            return original(self, *args)

    node.apply = apply
    _run_operators_of_gpu(mode)
    return mode


def _run_operators_of_gpu(mode: _CudaMode) -> None:
    """Run the GPU's implementation of an operator of `torch.library` where one is registered.

    Of a meta tensor, torch asks the operator's fake implementation, which launches nothing; and it
    turns the mode off while it runs an operator.
    """
    behind = "Meta" if _Backing.device is _META else "CPU"
    implemented: set[str] = set()
    places: dict[str, Any] = {}
    implement = torch.library.Library.impl

    def implement_behind(
        library: Any, operator: Any, function: Any, dispatch_key: str = "", **options: Any
    ) -> None:
        key = dispatch_key or library.dispatch_key
        name = f"{library.ns}::{str(operator).rpartition('::')[2]}"
        if key == behind and name in implemented:
            return
        # Those of torch's own operators compute on any device, and launch nothing.
        is_known = key == "CUDA" or (key in _COMPOSITE and library.ns not in ("aten", "prims"))
        if not is_known or function is torch.library.fallthrough_kernel:
            implement(library, operator, function, dispatch_key, **options)
            return

        def run(*args: Any, **kwargs: Any) -> Any:
            with mode:
                return function(*args, **kwargs)

        implement(library, operator, run, dispatch_key, **options)
        if key:
            # Libraries of one key take no other.
            if library.ns not in places:
                places[library.ns] = torch.library.Library(library.ns, "FRAGMENT")
            options.pop("allow_override", None)
            implement(places[library.ns], operator, run, behind, **options)
            implemented.add(name)

    torch.library.Library.impl = implement_behind


# Of implementations for any device, and of those that torch takes apart.
_COMPOSITE = ("CompositeExplicitAutograd", "")


CUDA_DEVICE: tuple[int, int] = (2, 0)
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


class _Managed(ctypes.Structure):
    """`DLManagedTensor` of DLPack, with the structures inside of it written out."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


def as_capsule(tensor: Any, address: int) -> Any:
    """A capsule `dltensor` of a tensor that is said to lie at this address of the GPU."""
    sizes = (ctypes.c_int64 * tensor.dim())(*tensor.shape)
    strides = (ctypes.c_int64 * tensor.dim())(*tensor.stride())
    name = str(tensor.dtype).removeprefix("torch.")
    plain = name if name in _CODES else re.sub(r"\d+$", "", name)
    if plain not in _CODES:
        message = f"DLPack has no type for {name}"
        raise BufferError(message)
    managed = _Managed(
        data=address,
        device=CUDA_DEVICE,
        ndim=tensor.dim(),
        code=_CODES[plain],
        bits=8 * tensor.element_size(),
        lanes=1,
        shape=sizes,
        strides=strides,
    )
    _KEPT.append((managed, sizes, strides))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(ctypes.addressof(managed), b"dltensor", None)
