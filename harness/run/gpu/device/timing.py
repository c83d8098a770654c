"""Times of several cases, interleaved: one run of each, then the next of each, in one process.

Before each run the L2 cache is overwritten: no run finds what another one left there, and the GPU
is busy until the launch has reached its queue, so that the time is the kernel's and not the
driver's. Events on the GPU tell it. The first run of each case is dropped. Clocks are recorded, and
never set.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from harness.run.gpu.device.clocks import sm_clock
from harness.run.gpu.device.contents import Contents
from harness.run.gpu.device.driver import DriverError, FaultError, GpuDriver
from harness.run.gpu.device.execute import allocate_buffers, arguments_of

_LEAST = 5
"""Runs of a case that is slow: its time is worth less than that of all others."""

_CASE_MS = 1000.0
"""Milliseconds on the GPU for the runs of one case, beyond the least."""

_FLUSHED = 5
"""Sizes of the L2 cache that are written before each run: 0.1 ms or so on the GPU."""

_LEAST_FLUSH = 1 << 28


class _Case:
    """One case that is ready to be launched again and again.

    `held` has the addresses of buffers by what they hold: cases with equal ones share them.
    """

    def __init__(
        self, gpu: GpuDriver, pack: Contents, number: int, held: dict[str, list[int]]
    ) -> None:
        case = pack.cases[number]
        self.number = number
        self.shape = pack.launches[case["launch"]]
        self.module = gpu.load(pack.blob(case["cubin"]))
        self.function = gpu.function(self.module, case["entry"])
        key = str([(buffer.get("file"), buffer["size"]) for buffer in self.shape["buffers"]])
        if key not in held:
            allocate_buffers(gpu, pack, self.shape, 0xC3, held.setdefault(key, []))
        self.arguments = arguments_of(gpu, self.shape, held[key])
        self.samples: list[float] = []
        self.clocks: list[int] = []
        self.wanted = 0


def time_cases(
    gpu: GpuDriver, pack: Contents, numbers: list[int], begin: Callable[[], None]
) -> Iterator[dict[str, Any]]:
    """Time these cases; a message for each, as far as the driver does it.

    `begin` is called before each launch.

    Raises:
        FaultError: a kernel failed; nothing works after it.
    """
    held: dict[str, list[int]] = {}
    cases: list[_Case] = []
    for number in numbers:
        try:
            cases.append(_Case(gpu, pack, number, held))
        except FaultError:
            raise
        except DriverError as error:
            yield {"case": number, "status": "untimed", "words": str(error)}
    clock = sm_clock(gpu.pci_address())
    size = max(_FLUSHED * gpu.l2_bytes(), _LEAST_FLUSH)
    flush = gpu.allocate(size)
    events = gpu.event(), gpu.event()

    def once(case: _Case) -> float:
        begin()
        gpu.fill_behind(flush, 0, size)
        shape = case.shape
        gpu.launch(case.function, shape, shape["shared"], case.arguments, events)
        return gpu.milliseconds(*events)

    for case in cases:
        first = once(case)
        case.wanted = int(min(pack.samples, max(_LEAST, _CASE_MS / max(first, 1e-3))))
    for turn in range(pack.samples):
        for case in cases:
            if turn < case.wanted:
                case.samples.append(once(case))
        mhz = clock()
        for case in cases:
            if turn < case.wanted and mhz is not None:
                case.clocks.append(mhz)
    for address in (flush, *itertools.chain(*held.values())):
        gpu.free(address)
    for case in cases:
        gpu.unload(case.module)
        yield {
            "case": case.number,
            "status": "timed",
            "ms": [round(ms, 6) for ms in case.samples],
            "sm_mhz": case.clocks,
        }
