"""Cases under NVIDIA's compute-sanitizer: each of its tools, each case in a process of its own.

Buffers have no guard zones here, and what the launch leaves unwritten stays so: the tools see any
access beyond, and any read of it. Source: NVIDIA, "Compute Sanitizer".
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from harness.run.gpu.device.contents import Contents
from harness.run.gpu.device.driver import DriverError, GpuDriver
from harness.run.gpu.device.execute import GUARD, arguments_of

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_PROGRAM = "compute-sanitizer"
# Where the toolkit lies on most machines, for those that do not name it in their PATH.
_USUAL = "/usr/local/cuda/bin/compute-sanitizer"
_SLOWER, _STARTING = 100.0, 60.0
_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) errors?|SUMMARY: (\d+) hazards? displayed)")
_PREFIX = "========="
_WORDS = 400


def check_cases(pack: Contents, tell: Callable[[dict[str, Any]], None]) -> None:
    """What each tool says of each case; `tell` gets an answer for each of them."""
    program = shutil.which(_PROGRAM) or (_USUAL if os.access(_USUAL, os.X_OK) else None)
    for number in range(len(pack.cases)):
        for tool in TOOLS:
            answer: dict[str, Any] = {"errors": None, "words": f"no {_PROGRAM} on this machine"}
            if program:
                answer = _check(program, tool, pack, number)
            tell({"case": number, "status": "sanitized", "tool": tool, **answer})


def _check(program: str, tool: str, pack: Contents, number: int) -> dict[str, Any]:
    alone = [sys.executable, pack.path, "--alone", str(number)]
    try:
        process = subprocess.run(
            [program, "--tool", tool, "--print-limit", "1", *alone],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_STARTING + _SLOWER * pack.limit,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return {"errors": None, "words": f"no end within {error.timeout:.0f} s"}
    except OSError as error:
        return {"errors": None, "words": f"{program}: {error.strerror}"}
    lines = [
        line.removeprefix(_PREFIX).strip()
        for line in process.stdout.splitlines()
        if line.startswith(_PREFIX)
    ]
    summary = next((match for line in lines if (match := _SUMMARY.search(line))), None)
    if summary is None:
        last = (process.stderr or process.stdout).strip().splitlines()[-1:] or ["it says nothing"]
        return {"errors": None, "words": f"{tool} came to no end: {last[0]}"[:_WORDS]}
    errors = int(summary[1] or summary[2])
    # The first finding: what it is, and where.
    words = ", ".join(lines[1:3]) if errors else ""
    return {"errors": errors, "words": words[:_WORDS]}


def launch_alone(pack: Contents, number: int) -> None:
    """Launch one case once, in this process; a sanitizer watches.

    Raises:
        DriverError: the driver refuses it, or it faults.
        PackError: the pack is damaged.
    """
    case = pack.cases[number]
    launch = pack.launches[case["launch"]]
    gpu = GpuDriver()
    function = gpu.function(gpu.load(pack.blob(case["cubin"])), case["entry"])
    addresses: list[int] = []
    for buffer in launch["buffers"]:
        size = buffer["size"]
        addresses.append(gpu.allocate(size) - GUARD)
        if buffer.get("file") and size:
            data = pack.blob(buffer["file"])
            for at in range(0, size, max(1, len(data))):
                gpu.write(addresses[-1] + GUARD + at, data[: size - at])
    try:
        gpu.launch(function, launch, launch["shared"], arguments_of(gpu, launch, addresses))
    except DriverError as error:
        # What the tool reports comes before this; that it faults is known without it.
        print(f"pack: {error}", file=sys.stderr)  # noqa: T201 - a program of its own
