"""The CUDA driver through ctypes: cubins, buffers, launches, tensor maps.

Source: NVIDIA, "CUDA Driver API". What the driver refuses is `RefusedError`; a kernel that faults
is `FaultError`, and after it nothing works in this process any more.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NoReturn

_LIBRARY = "libcuda.so.1"
_SUCCESS = 0
_NO_GPU = 100
_WORDS = 512
_LOG_BYTES = 1 << 12
_ERROR_LOG, _ERROR_LOG_SIZE = 5, 6
_FUNCTION = {"max_threads": 0, "static_shared": 1, "local": 3, "n_regs": 4}
_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTER = 8, 14
_CLUSTER_DIMENSION = 4
_DEVICE = {
    "max_threads": 1,
    "multiprocessors": 16,
    "capability_major": 75,
    "capability_minor": 76,
    "max_shared": 97,
}
_L2_BYTES = 38
_ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32_ftz", "tf32",
    "tf32_ftz",
)  # fmt: skip
_MAP_BYTES, _MAP_ALIGNMENT = 128, 64
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_INTERLEAVES = {0: 0, 16: 1, 32: 2}


class DriverError(Exception):
    """A call that failed: its name, the driver's number for the error, and its words."""

    def __init__(self, call: str, code: int, name: str, words: str) -> None:
        super().__init__(f"{call}: {name} ({code}): {words}")
        self.call, self.code, self.name, self.words = call, code, name, words


class RefusedError(DriverError):
    """The driver does not do it; the process can go on."""


class FaultError(DriverError):
    """The kernel was started and did not come to its end; the process cannot go on."""


class _Attribute(ctypes.Structure):
    """`CUlaunchAttribute` with the value of a cluster's dimensions."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("padding", ctypes.c_int),
        ("x", ctypes.c_uint),
        ("y", ctypes.c_uint),
        ("z", ctypes.c_uint),
        ("rest", ctypes.c_char * 52),
    )


class _Launch(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


class GpuDriver:
    """The first GPU of this machine, with its primary context current in this process.

    Raises:
        DriverError: there is no driver, no GPU, or it takes no process.
    """

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise DriverError(_LIBRARY, _NO_GPU, "no NVIDIA driver", str(error)) from error
        self.check("cuInit", ctypes.c_uint(0))
        device = ctypes.c_int()
        self.check("cuDeviceGet", ctypes.byref(device), 0)
        self._device = device
        context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.check("cuCtxSetCurrent", context)

    def facts(self) -> dict[str, object]:
        """Name, compute capability (`90`), driver version, and limits of a block."""
        name = ctypes.create_string_buffer(128)
        self.check("cuDeviceGetName", name, 128, self._device)
        version = ctypes.c_int()
        self.check("cuDriverGetVersion", ctypes.byref(version))
        memory = ctypes.c_size_t()
        self.check("cuDeviceTotalMem_v2", ctypes.byref(memory), self._device)
        limits = {word: self._attribute(number) for word, number in _DEVICE.items()}
        major, minor = limits.pop("capability_major"), limits.pop("capability_minor")
        return {
            "name": name.value.decode(errors="replace"),
            "capability": 10 * major + minor,
            "cuda": f"{version.value // 1000}.{version.value % 1000 // 10}",
            "memory": memory.value,
            **limits,
        }

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.check("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def check(self, call: str, *arguments: object) -> None:
        """Call a function of the driver.

        Raises:
            RefusedError: it fails.
        """
        status = getattr(self._cuda, call)(*arguments)
        if status != _SUCCESS:
            self._fail(RefusedError, call, status)

    def _fail(self, kind: type[DriverError], call: str, status: int, more: str = "") -> NoReturn:
        name, words = ctypes.c_char_p(), ctypes.c_char_p()
        self._cuda.cuGetErrorName(status, ctypes.byref(name))
        self._cuda.cuGetErrorString(status, ctypes.byref(words))
        texts = [(text.value or b"").decode(errors="replace") for text in (name, words)]
        raise kind(call, status, texts[0], f"{texts[1]}{more}"[:_WORDS])

    def load(self, cubin: bytes) -> ctypes.c_void_p:
        """A module from a cubin.

        Raises:
            RefusedError: the driver does not take it; with its log.
        """
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(_ERROR_LOG, _ERROR_LOG_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        module = ctypes.c_void_p()
        status = self._cuda.cuModuleLoadDataEx(ctypes.byref(module), cubin, 2, options, values)
        if status != _SUCCESS:
            words = log.value.decode(errors="replace").strip()
            self._fail(RefusedError, "cuModuleLoadDataEx", status, f"; {words}" if words else "")
        return module

    def unload(self, module: ctypes.c_void_p) -> None:
        """Give a module back."""
        self.check("cuModuleUnload", module)

    def function(self, module: ctypes.c_void_p, entry: str) -> ctypes.c_void_p:
        """An entry of a module."""
        function = ctypes.c_void_p()
        self.check("cuModuleGetFunction", ctypes.byref(function), module, entry.encode())
        return function

    def needs(self, function: ctypes.c_void_p) -> dict[str, int]:
        """What the driver says of an entry: registers, local and shared memory, threads."""
        needs = {}
        for word, number in _FUNCTION.items():
            value = ctypes.c_int()
            self.check("cuFuncGetAttribute", ctypes.byref(value), number, function)
            needs[word] = value.value
        return needs

    def allocate(self, size: int) -> int:
        """The address of so many bytes of the GPU's memory."""
        address = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address: int) -> None:
        """Give memory back."""
        self.check("cuMemFree_v2", ctypes.c_uint64(address))

    def fill(self, address: int, byte: int, size: int) -> None:
        """Set so many bytes of the GPU's memory to one value."""
        value = ctypes.c_ubyte(byte)
        self.check("cuMemsetD8_v2", ctypes.c_uint64(address), value, ctypes.c_size_t(size))

    def write(self, address: int, data: bytes) -> None:
        """Copy bytes to the GPU."""
        if data:
            size = ctypes.c_size_t(len(data))
            self.check("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, size)

    def read(self, address: int, size: int) -> bytes:
        """Copy bytes from the GPU."""
        data = ctypes.create_string_buffer(max(size, 1))
        if size:
            self.check("cuMemcpyDtoH_v2", data, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return data.raw[:size]

    def copy(self, to: int, address: int, size: int) -> None:
        """Copy bytes within the GPU's memory."""
        places = ctypes.c_uint64(to), ctypes.c_uint64(address)
        self.check("cuMemcpyDtoD_v2", *places, ctypes.c_size_t(size))

    def fill_behind(self, address: int, byte: int, size: int) -> None:
        """As `fill`, in the order of launches: this process does not wait for it."""
        value = ctypes.c_ubyte(byte)
        self.check("cuMemsetD8Async", ctypes.c_uint64(address), value, ctypes.c_size_t(size), None)

    def l2_bytes(self) -> int:
        """The size of the L2 cache."""
        return self._attribute(_L2_BYTES)

    def pci_address(self) -> str:
        """Where the GPU is, as `0000:0f:00.0`."""
        address = ctypes.create_string_buffer(64)
        self.check("cuDeviceGetPCIBusId", address, 64, self._device)
        return address.value.decode(errors="replace")

    def event(self) -> ctypes.c_void_p:
        """A mark that the GPU sets when it comes to it, with the time."""
        event = ctypes.c_void_p()
        self.check("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        return event

    def milliseconds(self, start: ctypes.c_void_p, stop: ctypes.c_void_p) -> float:
        """The time from one mark that the GPU has come to until another."""
        milliseconds = ctypes.c_float()
        self.check("cuEventElapsedTime", ctypes.byref(milliseconds), start, stop)
        return milliseconds.value

    def tensor_map(self, address: int, description: dict[str, object]) -> bytes:
        """The 128 bytes of `cuTensorMapEncodeTiled`; `description` is that of a pack."""

        def numbers(name: str) -> list[int]:
            values = description.get(name)
            assert isinstance(values, list)
            return [int(value) for value in values]

        sizes, strides, box = numbers("sizes"), numbers("strides"), numbers("box")
        steps, rank = numbers("element_strides"), len(sizes)
        room = ctypes.create_string_buffer(_MAP_BYTES + _MAP_ALIGNMENT)
        start = -(-ctypes.addressof(room) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
        self.check(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(start),
            _ELEMENTS.index(str(description["element"])),
            ctypes.c_uint(rank),
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*sizes),
            (ctypes.c_uint64 * max(1, rank - 1))(*strides),
            (ctypes.c_uint32 * rank)(*box),
            (ctypes.c_uint32 * rank)(*steps),
            _INTERLEAVES[int(str(description["interleave"]))],
            _SWIZZLES[int(str(description["swizzle"]))],
            0,
            int(bool(description["nan_fill"])),
        )
        return ctypes.string_at(start, _MAP_BYTES)

    def launch(
        self,
        function: ctypes.c_void_p,
        shape: dict[str, Sequence[int]],
        shared: int,
        arguments: Sequence[bytes],
        events: tuple[ctypes.c_void_p, ...] = (),
    ) -> None:
        """Launch an entry and wait for its end; `shape` has `grid`, `block` and `cluster`.

        The first of two `events` is a mark right before the launch, the other one right behind it.

        Raises:
            RefusedError: the driver does not start it.
            FaultError: it was started, and failed.
        """
        if shared:
            self.check("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared)
        room, addresses = _in_place(arguments)
        launch = _Launch(shared=shared)
        launch.grid[:], launch.block[:] = list(shape["grid"]), list(shape["block"])
        cluster = tuple(shape["cluster"])
        if cluster != (1, 1, 1):
            x, y, z = cluster
            attribute = _Attribute(id=_CLUSTER_DIMENSION, x=x, y=y, z=z)
            launch.attributes, launch.count = ctypes.pointer(attribute), 1
            self.check("cuFuncSetAttribute", function, _NON_PORTABLE_CLUSTER, 1)
        sizes = [ctypes.c_uint(size) for size in (*launch.grid, *launch.block, shared)]
        for start in events[:1]:
            self.check("cuEventRecord", start, None)
        if cluster != (1, 1, 1):
            self.check("cuLaunchKernelEx", ctypes.byref(launch), function, addresses, None)
        else:
            self.check("cuLaunchKernel", function, *sizes, None, addresses, None)
        for stop in events[1:]:
            self.check("cuEventRecord", stop, None)
        status = self._cuda.cuCtxSynchronize()
        del room
        if status != _SUCCESS:
            self._fail(FaultError, "cuCtxSynchronize", status)


def _in_place(arguments: Sequence[bytes]) -> tuple[list[object], ctypes.Array[ctypes.c_void_p]]:
    """Arguments in memory that is aligned as tensor maps have to be, and their addresses."""
    rooms: list[object] = []
    addresses = []
    for argument in arguments:
        room = ctypes.create_string_buffer(len(argument) + _MAP_ALIGNMENT)
        start = -(-ctypes.addressof(room) // _MAP_ALIGNMENT) * _MAP_ALIGNMENT
        ctypes.memmove(start, argument, len(argument))
        rooms.append(room)
        addresses.append(start)
    return rooms, (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
