"""Hold the emulator of cubins against a GPU, by programs that `triage hunt ptxas` makes.

    PYTHONPATH=.:emulator:tests/gpu python3 checks/sass_against_gpu.py --ptxas V [V ...]
                                    [--sm 90] [--count N] [--seed S] [--jobs N] [--forms]

One warp or two each: integers, floats, packed halves, carries, branches, loops, calls, local and
shared memory, barriers, operations of a warp, as `docs/hunting.md` has them. Each program is
assembled at -O0 and at -O3, and each cubin is executed and launched on the same inputs. The ptxas
and an nvdisasm are those of the cache (`triage toolchain install`). Needs a CUDA driver of the
target. Prints how many cubins leave the same bytes (which NaN it is, is left open), and each other
one with why. Not launched is what the PTX leaves open, what is refused, and what faults or does not
end when it is emulated. `--forms` adds opcodes as in `sass_truth.py`. Exit code 1: any cubin that
leaves other bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import numpy as np
from cuda_driver import Device, DriverError
from sass_truth import FORMS, assembled, forms_of

from gpu_emulator.api import run
from gpu_emulator.steps import Array
from gpu_emulator.values import Budget, Launch, Pointer, Scalar
from harness.cells.places import CompileOptions
from harness.hunt.generator import Generator, comparable, launch_of, some_forms
from harness.hunt.oracles import LEVELS, Oracles
from harness.hunt.voting import emulated_ptx
from harness.io.files.locations import cache_dir
from harness.io.processes.hub import Hub
from harness.io.toolchains.install import find_nvdisasm, install_ptxas
from harness.values.target import Target

_TOGETHER = 64
# Thread-instructions of a cubin: what takes more is not launched, for it may not end.
_MOST = 5_000_000
_FAULTED = "the GPU: "

Said = tuple[int, int, str]
"""The seed of a program, a level, and what came of its cubin."""


async def generator(version: str, target: Target, seed: int) -> Generator:
    """A generator of programs that a ptxas takes and whose opcodes the emulator knows."""
    how = CompileOptions(jobs=2)
    async with Hub() as hub:
        oracles = Oracles(
            hub=hub, ptxas=install_ptxas(version), target=target, nvdisasm=find_nvdisasm(),
            limits=how.limits, jobs=2, slots=asyncio.Semaphore(2),
        )  # fmt: skip
        head = await oracles.head()
        return Generator(head, await oracles.usable(head, some_forms(seed)))


def launched(device: Device, module: ctypes.c_void_p, launch: Launch) -> Array:
    """What the GPU leaves in the second buffer."""
    pointers = [device.upload(buffer.data) for buffer in launch.allocations]
    arguments = [
        pointers[given.allocation] if isinstance(given, Pointer)
        else int.from_bytes(given.raw, "little") if isinstance(given, Scalar) else 0
        for given in launch.arguments
    ]  # fmt: skip
    device.launch(device.function(module, launch.entry or ""), 1, launch.block[0], arguments)
    out = device.download(pointers[1], launch.allocations[1].data)
    device.free(*pointers)
    return out


def held(version: str, sm: str, programs: list[tuple[int, str]]) -> tuple[list[Said], set[str]]:
    """What came of the cubins of some programs; behind a fault of the GPU nothing is launched."""
    tools, texts = cache_dir() / "toolchains", [text for _, text in programs]
    try:
        cubins = {level: assembled(tools, version, sm, texts, level) for level in LEVELS}
    except subprocess.CalledProcessError:
        if len(programs) == 1:
            return [(programs[0][0], level, "not launched: ptxas fails") for level in LEVELS], set()
        middle = len(programs) // 2
        first, forms = held(version, sm, programs[:middle])
        if first[-1][2].startswith(_FAULTED):
            return first, forms
        second, more = held(version, sm, programs[middle:])
        return first + second, forms | more
    said: list[Said] = []
    measured: set[str] = set()
    device = Device()
    modules = {level: device.module(cubin.elf) for level, cubin in cubins.items()}
    for number, (seed, text) in enumerate(programs):
        launch = launch_of(seed, text)
        right = emulated_ptx(launch)
        if right.not_run or right.faults or right.races or right.uninitialised:
            said += [(seed, level, "not launched: open in the PTX") for level in LEVELS]
            continue
        for level, cubin in cubins.items():
            own = replace(launch, ptx="", cubin=cubin, entry=f"k{number}")
            outcome = run(own, None, Budget(max_instructions=_MOST))
            if outcome.not_run or outcome.faults:
                said.append((seed, level, f"not launched: {outcome.not_run or 'faults'}"))
                continue
            try:
                gpu = comparable(launched(device, modules[level], own))
            except DriverError as error:
                return [*said, (seed, level, f"{_FAULTED}{error}")], measured
            emulated = comparable(outcome.allocations[1].data)
            if (gpu == emulated).all():
                is_right = (gpu == comparable(right.allocations[1].data)).all()
                said.append((seed, level, "equal" if is_right else "equal: and not as the PTX"))
                measured |= forms_of(cubin, f"k{number}")
                continue
            thread, at = map(int, np.argwhere(gpu != emulated)[0])
            values = f"{emulated[thread, at]:#04x}, on the GPU {gpu[thread, at]:#04x}"
            said.append((seed, level, f"other bytes: byte {at} of thread {thread} is {values}"))
    return said, measured


def main() -> int:
    """Hold all programs, and say how many agree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ptxas", nargs="+", required=True)
    parser.add_argument("--sm", default="90")
    parser.add_argument("--count", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--forms", action="store_true")
    options = parser.parse_args()
    measured = set(FORMS.read_text().split())
    is_wrong = False
    for version in options.ptxas:
        make = asyncio.run(generator(version, Target.parse(f"sm_{options.sm}"), options.seed))
        first = options.seed * 1_000_000_000
        programs = [(first + n, make.program(first + n).text) for n in range(options.count)]
        batches = [programs[n : n + _TOGETHER] for n in range(0, len(programs), _TOGETHER)]
        said: Counter[str] = Counter()
        context = multiprocessing.get_context("spawn")
        while batches:
            # A process for each batch: what faults ends its context.
            with ProcessPoolExecutor(options.jobs, context, max_tasks_per_child=1) as pool:
                asked = [pool.submit(held, version, options.sm, batch) for batch in batches]
                answers = [each.result() for each in asked]
            left = []
            for batch, (rows, forms) in zip(batches, answers, strict=True):
                measured |= forms
                for seed, level, words in rows:
                    said[words if words.startswith("not") else words.partition(":")[0]] += 1
                    if words.startswith(("other", _FAULTED, "equal:")):
                        print(f"{version} -O{level} {seed}: {words}", flush=True)
                if rows[-1][2].startswith(_FAULTED):
                    left.append([one for one in batch if one[0] > rows[-1][0]])
            batches = [batch for batch in left if batch]
        print(f"ptxas {version}: {len(programs)} programs, {sum(said.values())} cubins")
        for words, count in said.most_common():
            print(f"{count:6} {words}")
        is_wrong |= any(words in ("other bytes", "the GPU") for words in said)
    if options.forms:
        FORMS.write_text("\n".join([*sorted(measured), ""]))
    return int(is_wrong)


if __name__ == "__main__":
    sys.exit(main())
