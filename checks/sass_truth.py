"""Hold the emulator of cubins against what a GPU gave for random programs.

    python checks/sass_truth.py TRUTH_FILE [--ptxas 13.5.37] [--sm 90] [--first N] [--count N]
                                    [--forms]

The file (.json or .json.xz) is a list of [PTX, input, output after -O0, output after -O3]: an entry
`k(.param .u64 in, .param .u64 out)` of one block of 32 threads, buffers in hex, `out` filled with
0xa5. Many entries go into one file for ptxas, which makes the same code of them as of each alone.
Each cubin runs with parted lanes in either order. Prints how many leave the same bytes, how many
others, and what is refused. `--forms` adds the opcodes of cubins that agree, with their modifiers,
to `sass_measured.txt` beside this file, of which `sass_opcodes.py` counts what was measured. Exit
code 1: any cubin that leaves other bytes.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from gpu_emulator.api import Allocation, Cubin, Launch, Pointer, Schedule, run
from gpu_emulator.sass.listing import code_sections, read_instruction, read_section
from harness.io.files.locations import cache_dir

FORMS = Path(__file__).with_name("results") / "sass_measured.txt"
_TOGETHER = 100
_LEVELS = (0, 3)


def assembled(tools: Path, ptxas: str, target: str, texts: list[str], level: int) -> Cubin:
    """One cubin of many programs: the entry of number N is `kN`."""
    head = texts[0].split(".visible", 1)[0].replace("sm_90", f"sm_{target}")
    bodies = [
        re.sub(r"\.entry\s+k\(", f".entry k{number}(", ".visible" + text.split(".visible", 1)[1])
        for number, text in enumerate(texts)
    ]
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = Path(folder, "all.ptx"), Path(folder, "all.cubin")
        source.write_text(head + "\n".join(bodies))
        program = tools / f"ptxas-{ptxas}" / "bin" / "ptxas"
        command = [program, f"-O{level}", f"--gpu-name=sm_{target}", source, "-o", cubin]
        subprocess.run(list(map(str, command)), check=True)
        nvdisasm = max(tools.glob("nvdisasm-*/bin/nvdisasm"))
        listing = subprocess.run(
            [nvdisasm, "-c", "-hex", cubin], check=True, capture_output=True, text=True
        ).stdout
        return Cubin(elf=cubin.read_bytes(), listing=listing)


def executed(cubin: Cubin, entry: str, values: bytes, expected: bytes) -> str:
    """`equal`, `other bytes`, or why it was not executed, in both orders of lanes."""
    for warps in ("first", "last"):
        launch = Launch(
            cubin=cubin, entry=entry, grid=(1, 1, 1), block=(32, 1, 1),
            allocations=(
                Allocation(name="in", data=np.frombuffer(values, np.uint8)),
                Allocation(name="out", data=np.full(len(expected), 0xA5, np.uint8)),
            ),
            arguments=(Pointer(allocation=0), Pointer(allocation=1)),
        )  # fmt: skip
        outcome = run(launch, Schedule(warps=warps))
        if outcome.not_run or outcome.faults:
            return outcome.not_run or outcome.faults[0].what
        if outcome.allocations[1].data.tobytes() != expected:
            return f"other bytes, {warps} order of lanes"
    return "equal"


def forms_of(cubin: Cubin, entry: str) -> set[str]:
    """The opcodes of an entry, with their modifiers."""
    lines, _ = read_section(code_sections(cubin.listing)[entry])
    return {read_instruction(line.text).opcode for line in lines}


def main() -> int:
    """Run all programs, and say how many agree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("truth", type=Path)
    parser.add_argument("--ptxas", default="13.5.37")
    parser.add_argument("--sm", default="90")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--forms", action="store_true")
    options = parser.parse_args()
    opener = lzma.open if options.truth.suffix == ".xz" else open
    with opener(options.truth, "rt") as file:
        programs = json.load(file)
    stop = len(programs) if options.count is None else options.first + options.count
    chosen = list(enumerate(programs))[options.first : stop]
    tools = cache_dir() / "toolchains"
    said: Counter[str] = Counter()
    spent = 0.0
    measured = set(FORMS.read_text().split()) if options.forms and FORMS.is_file() else set()
    for start in range(0, len(chosen), _TOGETHER):
        batch = chosen[start : start + _TOGETHER]
        for column, level in enumerate(_LEVELS, 2):
            texts = [program[0] for _, program in batch]
            cubin = assembled(tools, options.ptxas, options.sm, texts, level)
            began = time.process_time()
            for place, (number, program) in enumerate(batch):
                expected = bytes.fromhex(program[column])
                answer = executed(cubin, f"k{place}", bytes.fromhex(program[1]), expected)
                said[answer] += 1
                if answer == "equal":
                    measured |= forms_of(cubin, f"k{place}")
                else:
                    print(f"{number} -O{level}: {answer}", flush=True)
            spent += time.process_time() - began
    if options.forms:
        FORMS.write_text("\n".join([*sorted(measured), ""]))
    print(f"{len(chosen)} programs, {sum(said.values())} cubins, {spent:.1f} s of CPU")
    for answer, count in said.most_common():
        print(f"{count:6} {answer}")
    return int(any(answer.startswith("other bytes") for answer in said))


if __name__ == "__main__":
    sys.exit(main())
