"""The clock of the GPU's multiprocessors, read through NVIDIA's management library; never set.

Source: NVIDIA, "NVML API Reference". Where the library is missing, nothing is known of the clock.
"""

from __future__ import annotations

import ctypes

__all__ = ["SmClock"]

_LIBRARY = "libnvidia-ml.so.1"
_SM = 1


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
