"""The clock of the GPU's multiprocessors, never set, and the driver's version.

Both are read through NVIDIA's management library.
Source: NVIDIA, "NVML API Reference". Where the library is missing, nothing is known of either.
"""

from __future__ import annotations

import ctypes

_LIBRARY = "libnvidia-ml.so.1"
_SM = 1
_LONGEST = 80


def driver_version() -> str | None:
    """Of the driver, as `580.159.04`; None where that cannot be read."""
    try:
        nvml = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    text = ctypes.create_string_buffer(_LONGEST)
    if nvml.nvmlInit_v2() or nvml.nvmlSystemGetDriverVersion(text, _LONGEST):
        return None
    return text.value.decode(errors="replace")


class SmClock:
    """The clock of the GPU at a PCI address (`0000:0f:00.0`)."""

    def __init__(self, address: str) -> None:
        self._nvml: ctypes.CDLL | None = None
        self._device = ctypes.c_void_p()
        try:
            nvml = ctypes.CDLL(_LIBRARY)
        except OSError:
            return
        if nvml.nvmlInit_v2() == 0:
            find = nvml.nvmlDeviceGetHandleByPciBusId_v2
            if find(address.encode(), ctypes.byref(self._device)) == 0:
                self._nvml = nvml

    def mhz(self) -> int | None:
        """What it is now; None where that cannot be read."""
        if self._nvml is None:
            return None
        value = ctypes.c_uint()
        status = self._nvml.nvmlDeviceGetClockInfo(self._device, _SM, ctypes.byref(value))
        return None if status else value.value
