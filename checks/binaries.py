"""Hold `triage binaries` against numbers taken by hand: those of cuobjdump, for random kernels.

    python checks/binaries.py --cuobjdump BIN/cuobjdump WHEEL...

For each wheel 50 kernels are drawn with a seed, and registers, stack and static shared memory are
compared with `cuobjdump -res-usage`, and the accesses to local memory with `cuobjdump -sass`,
where that disassembles the target. `pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm` has
both tools; BIN has to be on the path. Of the reading itself, CPU seconds are printed.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path

from harness.binaries.find_binaries import read_binaries
from harness.values.binary import BinaryKernel

MANY = 50
# The driver's part, which cuobjdump counts from sm_90 on.
RESERVED = 1024
_ARCH = re.compile(r"^arch = (sm_\w+)$", re.MULTILINE)
_USAGE = re.compile(
    r"^ Function (\S+):\n\s+REG:(\d+) STACK:(\d+|UNKNOWN) SHARED:(\d+)", re.MULTILINE
)
_LOCAL = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@(?!!U?PT)\S+\s+)?(STL|LDL)\b", re.MULTILINE)

Place = tuple[str, str]


def printed(words: list[str]) -> str:
    """What a tool prints."""
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def usage(cuobjdump: str, library: Path) -> dict[Place, set[tuple[int | None, ...]]]:
    """Registers, stack and shared memory by kernel and target; more than one of some."""
    text = printed([cuobjdump, "-res-usage", str(library)])
    starts = list(_ARCH.finditer(text))
    found: dict[Place, set[tuple[int | None, ...]]] = {}
    for number, start in enumerate(starts):
        stop = starts[number + 1].start() if number + 1 < len(starts) else len(text)
        for match in _USAGE.finditer(text, start.end(), stop):
            numbers = tuple(None if text == "UNKNOWN" else int(text) for text in match.groups()[1:])
            found.setdefault((match[1], start[1]), set()).add(numbers)
    return found


def local_accesses(cuobjdump: str, library: Path, kernel: BinaryKernel) -> set[int] | None:
    """How many instructions access local memory; None where the target is not disassembled."""
    words = [cuobjdump, "-sass", "-arch", str(kernel.target), "-fun", kernel.name, str(library)]
    parts = printed(words).split("\t\tFunction : ")[1:]
    return {len(_LOCAL.findall(part)) for part in parts if "/*0000*/" in part} or None


def agrees(kernel: BinaryKernel, by_hand: set[tuple[int | None, ...]]) -> bool:
    """Whether registers, stack and shared memory are those of one of its instances."""
    shared = kernel.static_shared or 0
    return any(
        kernel.n_regs == regs and stack in (None, kernel.stack)
        and given in (shared, shared + RESERVED)
        for regs, stack, given in by_hand
    )  # fmt: skip


def check(wheel: Path, cuobjdump: str, rng: random.Random) -> None:
    """Print the result of one wheel, and each kernel that does not agree."""
    began = time.process_time()
    contents = read_binaries(str(wheel))
    seconds = time.process_time() - began
    kernels = [kernel for kernel in contents.kernels if kernel.target]
    drawn = rng.sample(kernels, min(MANY, len(kernels)))
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        tables = {}
        for file in {kernel.file for kernel in drawn}:
            tables[file] = usage(cuobjdump, Path(archive.extract(file, folder)))
        for kernel in drawn:
            by_hand = tables[kernel.file].get((kernel.name, str(kernel.target)), set())
            counts["held"] += bool(by_hand)
            counts["numbers agree"] += bool(by_hand) and agrees(kernel, by_hand)
            if by_hand and not agrees(kernel, by_hand):
                print(f"  {kernel.target} {kernel.name}: {by_hand}, not {kernel}")
            accesses = local_accesses(cuobjdump, Path(folder, kernel.file), kernel)
            if accesses is None or kernel.local_stores is None or kernel.local_loads is None:
                continue
            counts["disassembled"] += 1
            counts["accesses agree"] += kernel.local_stores + kernel.local_loads in accesses
            counts["of them not 0"] += accesses != {0}
    print(
        f"{wheel.name}: {len(kernels):,} kernels in {contents.files} files, {seconds:.1f} CPU s; "
        f"{len(drawn)} drawn, of {len(drawn) - counts['held']} of them cuobjdump prints nothing; "
        f"of {counts['held']} {counts['numbers agree']} agree; of {counts['disassembled']} "
        f"disassembled {counts['accesses agree']} agree ({counts['of them not 0']} are not 0)"
    )


def main() -> None:
    """Check each wheel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--seed", type=int, default=31)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    for wheel in options.wheels:
        check(wheel, options.cuobjdump, rng)


if __name__ == "__main__":
    main()
