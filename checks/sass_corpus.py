"""Which cubins of a store the emulator decodes, and which opcodes stand in the way of the others.

    TRIAGE_HOME=... triage compile --kernel mamba2_bmm_chunk_fwd --sm 80,90a
    python checks/sass_corpus.py [STORE ...] [--sm 80,90] [--show N]

Every cubin among the artifacts of the stores (by default that of TRIAGE_HOME) is disassembled, and
each of its entries decoded, not executed. Prints for each target how many entries decode, then the
opcodes and forms that are not known, by the number of entries that have them, and by the number
of which they are the only reason.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpu_emulator.sass.cubin import entry_names
from gpu_emulator.sass.decoding import decode_cubin
from gpu_emulator.values import Cubin, NotExecutable
from harness.io.files.locations import cache_dir, home_dir
from harness.judging.ptxas.cubin import read_cubin

_ELF = b"\x7fELF"


def cubins(stores: Sequence[Path]) -> Iterator[tuple[Path, bytes]]:
    """The cubins among the artifacts of some stores, each once."""
    names = set()
    for store in stores:
        for file in sorted((store / "artifacts").glob("*/*.z")):
            packed = file.read_bytes()
            if file.name in names or zlib.decompressobj().decompress(packed, 4) != _ELF:
                continue
            names.add(file.name)
            data = zlib.decompress(packed)
            if data[18:20] == b"\xbe\0":
                yield file, data


def main() -> None:
    """Decode all, and say what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stores", nargs="*", type=Path)
    parser.add_argument("--sm", default="", help="80,90: these alone")
    parser.add_argument("--show", type=int, default=40, help="so many opcodes")
    options = parser.parse_args()
    wanted = {int(word.rstrip("af")) for word in options.sm.split(",") if word}
    nvdisasm = max((cache_dir() / "toolchains").glob("nvdisasm-*/bin/nvdisasm"))
    total: Counter[int | None] = Counter()
    decoded: Counter[int | None] = Counter()
    having: dict[int | None, Counter[str]] = defaultdict(Counter)
    alone: dict[int | None, Counter[str]] = defaultdict(Counter)
    for file, data in cubins(options.stores or [home_dir()]):
        target = read_cubin(data).target
        if wanted and target not in wanted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "k.cubin").write_bytes(data)
            command = [str(nvdisasm), "-c", "-hex", "-ndf", str(Path(folder, "k.cubin"))]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{file.name}: {done.stderr.strip()}")
            continue
        for entry in entry_names(data):
            total[target] += 1
            try:
                decode_cubin(Cubin(elf=data, listing=done.stdout), entry)
                decoded[target] += 1
            except NotExecutable as reason:
                unknown = reason.unknown or (str(reason),)
                having[target].update(unknown)
                if len(unknown) == 1:
                    alone[target].update(unknown)
    for target in sorted(total, key=str):
        print(f"sm_{target}: {decoded[target]} of {total[target]} entries decode")
        for name, count in having[target].most_common(options.show):
            print(f"{count:6} {alone[target][name]:6} {name}")


if __name__ == "__main__":
    main()
