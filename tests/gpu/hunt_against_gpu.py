"""Launch the least programs of a hunt on a GPU, and say whether it agrees with the vote.

    PYTHONPATH=.:emulator python3 tests/gpu/hunt_against_gpu.py HUNT.json --ptxas PTXAS

`HUNT.json` is what `triage hunt ptxas --json` printed, `PTXAS` the one that was hunted in. Needs a
CUDA driver of the target. Prints a line for each cause of wrong code: the levels that lost the
vote, the levels at which the GPU leaves something else than the emulated PTX. Exit code 1 if they
are not the same for one.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cuda_driver import Device, DriverError

from gpu_emulator.api import run
from gpu_emulator.values import Pointer
from harness.hunt.generator import comparable, launch_of

_RIGHT, _WRONG = 10, 11
# Launches at a time, and seconds for one: it starts a process and emulates the PTX.
_AT_ONCE, _LONGEST = 4, 60.0


def is_wrong(ptxas: str, target: str, cause: dict[str, Any], level: int) -> bool:
    """Whether the GPU leaves something else than the emulated PTX, or ends the launch."""
    launch = launch_of(cause["inputs_seed"], cause["ptx"])
    right = comparable(run(launch).allocations[1].data)
    device = Device()
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder) / "k.ptx", Path(folder) / "k.cubin"
        source.write_text(cause["ptx"])
        words = [ptxas, f"-arch={target}", f"-O{level}", str(source), "-o", str(cubin)]
        subprocess.run(words, check=True, capture_output=True)
        module = device.module(cubin.read_bytes())
    buffers = [device.upload(buffer.data) for buffer in launch.allocations]
    arguments = [
        buffers[argument.allocation]
        if isinstance(argument, Pointer)
        else int.from_bytes(getattr(argument, "raw", b""), "little")
        for argument in launch.arguments
    ]
    entry = re.search(r"\.entry\s+([\w$]+)", cause["ptx"])
    assert entry is not None
    function = device.function(module, entry[1])
    try:
        device.launch(function, launch.grid[0], launch.block[0], arguments)
    except DriverError:
        return True
    out = device.download(buffers[1], launch.allocations[1].data)
    return bool((comparable(out) != right).any())


def answer_of(words: list[str]) -> bool:
    """`is_wrong` in a process of its own: a launch that faults ends its context, some never end."""
    try:
        end = subprocess.run([sys.executable, __file__, *words], timeout=_LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return True
    if end.returncode not in (_RIGHT, _WRONG):
        raise SystemExit(f"{' '.join(words)}: no answer")
    return end.returncode == _WRONG


def main() -> int:
    """Check every cause of wrong code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hunt", type=Path)
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--one", type=int, nargs=2, help="one cause, by its number, at one level")
    options = parser.parse_args()
    document = json.loads(options.hunt.read_text())
    target, causes = document["hunt"]["target"], document["causes"]
    if options.one:
        number, level = options.one
        return _WRONG if is_wrong(options.ptxas, target, causes[number], level) else _RIGHT
    numbers = [number for number, cause in enumerate(causes) if cause["vote"] == "wrong"]
    asked = [(number, level) for number in numbers for level in (0, 3)]
    given = [str(options.hunt), "--ptxas", options.ptxas, "--one"]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = list(pool.map(lambda one: answer_of([*given, *map(str, one)]), asked))
    wrong = [one for one, is_one in zip(asked, answers, strict=True) if is_one]
    contradicted = 0
    for number in numbers:
        cause = causes[number]
        measured = [level for other, level in wrong if other == number]
        agrees = measured == sorted(cause["levels"])
        contradicted += not agrees
        levels = [
            ", ".join(f"-O{n}" for n in some) or "none" for some in (cause["levels"], measured)
        ]
        print(f"{cause['name']}: vote {levels[0]}, measured {levels[1]}"
              f"{'' if agrees else ' CONTRADICTED'}")  # fmt: skip
    print(f"{contradicted} of {len(numbers)} contradicted")
    return 1 if contradicted else 0


if __name__ == "__main__":
    sys.exit(main())
