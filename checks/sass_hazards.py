"""Hold the check of schedules against cubins that are right, and against ones that are not.

    TRIAGE_HOME=... triage compile --kernel 'mamba2_*' --sm 80 --sm 90a --ptxas 13.5.37
    python checks/sass_hazards.py [STORE ...] [--truth FILE [--ptxas 13.5.37]] [--mutations N]

Every entry of the cubins of the stores (by default that of TRIAGE_HOME) is checked, or of those
that `sass_truth.py` makes of its file, at -O0 and -O3. Each hazard is printed: a false alarm, until
it was followed to its end. `--mutations` then takes away, in N places of each entry, one bit of a
wait mask, in N the scoreboard of a result, and in N that of operands, one at a time, and says how
many of these a new hazard shows. Which places is drawn with the seed `SEED`. Exit code 1: any
hazard.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sass_corpus import cubins
from sass_truth import assembled

from gpu_emulator.sass.cubin import entry_names
from gpu_emulator.sass.decoding import SERIAL, code_of
from gpu_emulator.sass.hazards import hazards_of
from gpu_emulator.sass.listing import SassLine
from gpu_emulator.values import Cubin, NotExecutable
from harness.io.files.locations import cache_dir, home_dir
from harness.judging.ptxas.cubin import read_cubin

SEED = 29
_TOGETHER = 100
_LOST_WRITE, _LOST_READ, _LOST_WAIT = "scoreboard of a result", "scoreboard of operands", "wait"


def chosen(options: argparse.Namespace) -> Iterator[tuple[str, Cubin]]:
    """What is checked, each with a name of its group."""
    tools = cache_dir() / "toolchains"
    if options.truth:
        with lzma.open(options.truth, "rt") as file:
            texts = [program[0] for program in json.load(file)]
        for start in range(0, len(texts), _TOGETHER):
            for level in (0, 3):
                batch = texts[start : start + _TOGETHER]
                name = f"truth, ptxas {options.ptxas} -O{level}"
                yield name, assembled(tools, options.ptxas, "90", batch, level)
        return
    nvdisasm = max(tools.glob("nvdisasm-*/bin/nvdisasm"))
    wanted = {int(word.rstrip("af")) for word in options.sm.split(",") if word}
    for _, data in cubins(options.stores or [home_dir()]):
        target = read_cubin(data).target
        if wanted and target not in wanted:
            continue
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(data)
            file.flush()
            command = [str(nvdisasm), "-c", "-hex", "-ndf", file.name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            yield f"sm_{target}", Cubin(elf=data, listing=done.stdout)


def mutations(lines: list[SassLine]) -> dict[str, list[tuple[int, int]]]:
    """By what is lost: the number of an instruction, and its control bits without that."""
    places: dict[str, list[tuple[int, int]]] = {_LOST_WRITE: [], _LOST_READ: [], _LOST_WAIT: []}
    for number, line in enumerate(lines):
        bits = line.control or 0
        if bits == SERIAL:
            continue
        for what, at in ((_LOST_WRITE, 5), (_LOST_READ, 8)):
            if bits >> at & 7 != 7:
                places[what].append((number, bits | 7 << at))
        waits = (board for board in range(11, 17) if bits >> board & 1)
        places[_LOST_WAIT] += [(number, bits & ~(1 << board)) for board in waits]
    return places


def main() -> int:
    """Check all, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stores", nargs="*", type=Path)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--ptxas", default="13.5.37")
    parser.add_argument("--sm", default="", help="80,90: these alone")
    parser.add_argument("--mutations", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(SEED)
    checked: Counter[str] = Counter()
    alarms: Counter[str] = Counter()
    tried: Counter[tuple[str, str]] = Counter()
    seen: Counter[tuple[str, str]] = Counter()
    for group, cubin in chosen(options):
        for entry in entry_names(cubin.elf):
            try:
                header, lines, labels = code_of(cubin, entry)
                found = hazards_of(header, lines, labels)
            except NotExecutable as error:
                checked[f"{group}: not checked: {error}"] += 1
                continue
            checked[group] += 1
            alarms[group] += len(found)
            for hazard in found:
                print(f"{group} {entry}: {hazard}", flush=True)
            for what, places in mutations(lines).items():
                for number, bits in draw.sample(places, min(options.mutations, len(places))):
                    other = [*lines]
                    other[number] = replace(lines[number], control=bits)
                    tried[group, what] += 1
                    seen[group, what] += len(hazards_of(header, other, labels)) > len(found)
    for group, count in sorted(checked.items()):
        print(f"{group}: {count} entries, {alarms[group]} hazards")
    for (group, what), count in sorted(tried.items()):
        print(f"{group}: {what} lost: {seen[group, what]} of {count} seen")
    return int(any(alarms.values()))


if __name__ == "__main__":
    sys.exit(main())
