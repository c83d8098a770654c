"""The clock of the GPU's multiprocessors, never set, and the driver's version.

Both are read through NVIDIA's management library.
Source: NVIDIA, "NVML API Reference". Where the library is missing, nothing is known of either.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_LIBRARY = "libnvidia-ml.so.1"
_SM = 1
_LONGEST = 80


def driver_version() -> str | None:
    """Of the driver, as `580.159.04`; None where that cannot be read."""
    text = ctypes.create_string_buffer(_LONGEST)
    nvml = _opened()
    if nvml is None or nvml.nvmlSystemGetDriverVersion(text, _LONGEST):
        return None
    return text.value.decode(errors="replace")


def sm_clock(address: str) -> Callable[[], int | None]:
    """What reads the clock (MHz) of the GPU at a PCI address (`0000:0f:00.0`); None: it cannot."""
    nvml, device = _opened(), ctypes.c_void_p()
    name, found = address.encode(), ctypes.byref(device)
    if nvml is None or nvml.nvmlDeviceGetHandleByPciBusId_v2(name, found):
        return lambda: None

    def mhz() -> int | None:
        value = ctypes.c_uint()
        status = nvml.nvmlDeviceGetClockInfo(device, _SM, ctypes.byref(value))
        return None if status else value.value

    return mhz


def _opened() -> ctypes.CDLL | None:
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    return None if nvml.nvmlInit_v2() else nvml
