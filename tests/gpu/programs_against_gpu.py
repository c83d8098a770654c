"""Hold the emulator against a GPU of sm_90 with generated programs over every scalar opcode.

    export PYTHONPATH=.:emulator:emulator/tests:checks
    python3 tests/gpu/programs_against_gpu.py --ptxas PTXAS [PTXAS ...]

Each program is executed by the emulator, assembled by each ptxas at -O0 and at -O3, and launched.
`--out` gets a line of JSON for each program that does not agree up to the bits of a NaN. The exit
code is 1 if there is one whose cause is not known.

With `--nvdisasm` the emulator executes each cubin, too, and is held against what the GPU makes of
the same cubin; `--measured checks/results/sass_measured.txt` adds the opcodes of those that agree,
of which `sass_opcodes.py` counts what was measured. `--keep FILE` keeps what the GPU left; with
`--given FILE` that takes the place of a GPU, for the same seed, forms and ptxas.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import zipfile
from base64 import b64decode, b64encode
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from zlib import compress, decompress

import numpy as np
from bands import BANDS
from cuda_driver import Device
from sass_truth import forms_of
from scalar_forms import Form, all_forms
from scalar_programs import LANES, SLOT_BYTES, SLOTS, Generated, accepted_by, generate, inputs

from gpu_emulator.api import run
from gpu_emulator.numbers.formats import FORMATS, to_float64
from gpu_emulator.values import Allocation, Checks, Cubin, Launch, Pointer

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
_OUT_BYTES = SLOTS * SLOT_BYTES + 32 * LANES
_FILL = 0xA5
_IN_ONE_FILE = 20

_SIGNED = r"v(add|sub|absdiff|min|max|shl|shr)\.[us]32"
# What ptxas 13.0.88 and 13.5.37 make of PTX at -O0 and at -O3 alike, and the PTX ISA does not say.
# Each was read in the SASS or by the operands of several cases. The instruction, then the words.
CAUSES = (
    (
        r"@!?%p\d+ set\.",
        "set under a guard converts what its destination held where the guard is false",
    ),
    (r"@!?%p\d+ testp\.", "testp under a guard writes its predicate where the guard is false"),
    (
        r"(@\S+ )?bf[ei]\.[bus]64 .*%r",
        "64-bit bfe and bfi take all bits of a position or length in a register, not the lowest 8",
    ),
    (
        r"(@\S+ )?sh[lr]\.[bus]16 .*0x80000000",
        "a 16-bit shift by a constant of more than 16 bits shifts by its lowest 16",
    ),
    (
        r"(@\S+ )?cvt\.r[mpz]\.ftz\S*\.f16\.f32",
        "cvt to f16 with a directed rounding does not flush",
    ),
    (
        rf"(@\S+ )?{_SIGNED}\S*\.(min|max) ",
        "the second operation of a video instruction compares signed numbers",
    ),
    (
        r"(@\S+ )?vset\S*\.(min|max) ",
        "the second operation of a video instruction compares signed numbers",
    ),
    (
        rf"(@\S+ )?{_SIGNED}\S*\.sat",
        "saturation of a video instruction by the wrong signs or width",
    ),
    (r"(@\S+ )?vmad\.", "vmad extends its operands by other signs than their types"),
    (
        r"(@\S+ )?v\w+\.\S+ %r\d+\.h1",
        "13.0.88 loses what a video instruction puts into the upper half of its result",
    ),
    (
        r"@!?%p\d+ v\w+[24]\.\S*\.add ",
        "a video instruction of parts that adds writes its result where its guard is false",
    ),
    (
        r"(@\S+ )?bfe\.s32 \S+, \S+, \d+, ",
        "13.0.88 folds bfe.s32 wrongly at -O3 where the position lies past the end",
    ),
)


def programs(
    forms: list[Form], seed: int, numbers: range, *, traced: bool = False
) -> list[Generated]:
    """Programs of these numbers: five of the forms in turn, five by base opcode."""
    by_base = defaultdict(list)
    for form in forms:
        by_base[form.opcode.split(".")[0]].append(form)
    bases = sorted(by_base)
    found = []
    for number in numbers:
        rng = random.Random(f"forms {seed} {number}")
        turn, place = divmod(5 * number, len(forms))
        order = list(forms)
        random.Random(f"order {seed} {turn}").shuffle(order)
        some = (order + order)[place : place + 5]
        some += [rng.choice(by_base[rng.choice(bases)]) for _ in range(5)]
        rng.shuffle(some)
        found.append(generate(f"k{number}", f"{seed} {number}", some, traced=traced))
    return found


def emulate(
    program: Generated, data: bytes, cubin: Cubin | None = None
) -> tuple[bytes | None, str]:
    """What the emulator leaves in the output of the PTX or of a cubin, or why it does not."""
    launch = Launch(
        ptx="" if cubin else HEAD + program.text, cubin=cubin, entry=program.name,
        grid=(1, 1, 1), block=(LANES, 1, 1),
        allocations=(
            Allocation(name="in", data=np.frombuffer(data, np.uint8)),
            Allocation(name="out", data=np.full(_OUT_BYTES, _FILL, np.uint8)),
        ),
        arguments=(Pointer(allocation=0), Pointer(allocation=1)),
    )  # fmt: skip
    try:
        outcome = run(launch, check=Checks(validity=True))
    except Exception as error:  # noqa: BLE001 - what the emulator must never do is a result here
        return None, f"{type(error).__name__}: {error}"
    if outcome.not_run or outcome.faults:
        return None, outcome.not_run or outcome.faults[0].what
    if outcome.uninitialised:
        return None, f"uninitialised: {outcome.uninitialised[0].what}"
    return outcome.allocations[1].data.tobytes(), ""


def differing(program: Generated, one: bytes, other: bytes) -> list[tuple[int, int]]:
    """(slot, lane) of each result that two runs do not share."""
    found = []
    for slot, kind in enumerate(program.kinds):
        kind, _, opcode = kind.partition(":")
        piece = slice(slot * SLOT_BYTES, (slot + 1) * SLOT_BYTES)
        a, b = (np.frombuffer(each[piece], np.uint64) for each in (one, other))
        found += [
            (slot, int(lane))
            for lane in np.flatnonzero(a != b)
            if not _alike(int(a[lane]), int(b[lane]), kind, opcode)
        ]
    return found


def _alike(a: int, b: int, kind: str, opcode: str) -> bool:
    """Whether two results differ in the bits of a NaN only, or by what an approximation may."""
    element = {"tf32": "f32"}.get(kind, kind.removesuffix("x2"))
    if element not in FORMATS:
        return False
    width = FORMATS[element].width
    if (a ^ b) >> (width * (2 if kind.endswith("x2") else 1)):
        return False  # beside the result
    for part in range(2 if kind.endswith("x2") else 1):
        pair = [
            np.array([each >> (part * width) & ((1 << width) - 1)], f"u{width // 8}")
            for each in (a, b)
        ]
        x, y = (float(to_float64(each, element)[0]) for each in pair)
        if pair[0][0] == pair[1][0] or (np.isnan(x) and np.isnan(y)):
            continue
        if not opcode or np.isnan(x) or np.isnan(y):
            return False
        band = BANDS[opcode.split(".", maxsplit=1)[0], element]
        unit = 2.0 ** (
            max(np.floor(np.log2(abs(y) or 1e-300)), FORMATS[element].exponent_min)
            - FORMATS[element].mantissa
        )
        room = max(band.ulp * unit, band.relative * abs(y), band.absolute) + unit
        if not abs(x - y) <= room:
            return False
    return True


def launch(
    device: Device, cubin: bytes, some: list[Generated], data: list[bytes]
) -> dict[str, bytes]:
    """What each entry of a cubin leaves in its output."""
    module = device.module(cubin)
    found = {}
    for program, each in zip(some, data, strict=True):
        given = np.frombuffer(each, np.uint8)
        out = np.full(_OUT_BYTES, _FILL, np.uint8)
        pointers = [device.upload(given), device.upload(out)]
        device.launch(device.function(module, program.name), 1, LANES, pointers)
        found[program.name] = device.download(pointers[1], out).tobytes()
        device.free(*pointers)
    return found


def part(
    options: argparse.Namespace, numbers: range, *, traced: bool = False
) -> list[dict[str, Any]]:
    """Run programs: a row for each. Where one differs, its traced variant is run, too."""
    known = set(json.loads(Path(options.forms).read_text()))
    forms = [form for form in all_forms() if form.opcode in known]
    some = programs(forms, options.seed, numbers, traced=traced)
    data = [np.array(inputs(options.seed * 100_003 + n), np.uint32).tobytes() for n in numbers]
    left: dict[str, dict[str, bytes]] = {program.name: {} for program in some}
    said: dict[str, dict[str, str]] = {program.name: {} for program in some}
    sass: dict[str, dict[str, Any]] = {program.name: {} for program in some}
    measured: dict[str, set[str]] = {program.name: set() for program in some}
    kept = zipfile.ZipFile(options.given) if options.given else None
    device = None if options.no_gpu or kept else Device()
    for number, ptxas in enumerate(options.ptxas):
        for level in ("0", "3"):
            with tempfile.TemporaryDirectory() as folder:
                source, cubin = Path(folder) / "p.ptx", Path(folder) / "p.cubin"
                source.write_text(HEAD + "".join(program.text for program in some))
                command = [ptxas, "-arch=sm_90a", f"-O{level}", str(source), "-o", str(cubin)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                name = f"{number}:O{level}"
                if done.returncode and len(some) > 1:
                    return [row for each in numbers for row in part(options, range(each, each + 1))]
                if done.returncode:
                    said[some[0].name][name] = done.stderr[:300]
                    continue
                if kept is not None:
                    for program in some:
                        entry = f"{program.name}/{name}"
                        first = f"{program.name}/0:O0"
                        own = entry if entry in kept.namelist() else first
                        left[program.name][name] = kept.read(own)
                elif device is not None:
                    for key, value in launch(device, cubin.read_bytes(), some, data).items():
                        left[key][name] = value
                if options.nvdisasm:
                    words = [options.nvdisasm, "-c", "-hex", str(cubin)]
                    text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
                    code = Cubin(elf=cubin.read_bytes(), listing=text)
                    for program, each in zip(some, data, strict=True):
                        expected = left[program.name].get(name) or emulate(program, each)[0]
                        held = sass[program.name][name] = _held(program, each, code, expected)
                        if held == [] and name in left[program.name]:
                            measured[program.name] |= forms_of(code, program.name)
    rows = []
    for number, program, each in zip(numbers, some, data, strict=True):
        emulated, why = emulate(program, each)
        row: dict[str, Any] = {"name": program.name, "opcodes": program.opcodes, "not_run": why,
                               "ptxas": said[program.name], "differs": {}}  # fmt: skip
        for name, value in left[program.name].items():
            places = differing(program, value, emulated) if emulated is not None else []
            if places:
                firsts = dict(reversed(places))
                row["differs"][name] = [
                    _place(program, slot, firsts[slot], value, emulated or b"")
                    for slot in sorted(firsts)[:40]
                ]
        row["runs"] = len(left[program.name])
        row["sass"], row["measured"] = sass[program.name], sorted(measured[program.name])
        if options.keep and not traced:
            row["left"] = {
                name: b64encode(compress(value[: len(program.kinds) * SLOT_BYTES])).decode()
                for name, value in left[program.name].items()
            }
        if why or row["ptxas"] or row["differs"] or _is_bad(row):
            row["text"] = HEAD + program.text
            row["input"] = each.hex()
        if row["differs"] and not traced and kept is None:
            row["traced"] = part(options, range(number, number + 1), traced=True)[0]["differs"]
        rows.append(row)
    return rows


def _held(
    program: Generated, data: bytes, cubin: Cubin, expected: bytes | None
) -> str | list[dict[str, Any]]:
    """What the emulator makes of a cubin: why it does not execute it, or where it differs."""
    value, why = emulate(program, data, cubin)
    if value is None or expected is None:
        return why
    firsts = dict(reversed(differing(program, expected, value)))
    return [_place(program, slot, firsts[slot], expected, value) for slot in sorted(firsts)[:40]]


def _is_bad(row: dict[str, Any]) -> bool:
    """Whether a cubin is executed otherwise than it should be."""
    return any(not isinstance(held, str) and held for held in row.get("sass", {}).values())


def _place(program: Generated, slot: int, lane: int, gpu: bytes, emulated: bytes) -> dict[str, Any]:
    """A slot in which they differ, with the instruction that is stored there and what it read."""

    def held(data: bytes, slot: int) -> str:
        at = slot * SLOT_BYTES + 8 * lane
        return data[at : at + 8][::-1].hex()

    lines = program.text.splitlines()
    at = next(n for n, line in enumerate(lines) if f"[%out+{slot * SLOT_BYTES}]" in line)
    return {
        "slot": slot, "kind": program.kinds[slot], "lane": lane,
        "gpu": held(gpu, slot), "emulator": held(emulated, slot),
        "lines": [
            line.strip() + (f" // {held(emulated, int(found[1]) // SLOT_BYTES)}" if found else "")
            for line in lines[max(at - 9, 0) : at + 1]
            for found in [re.search(r"%out\+(\d+)", line)]
        ],
    }  # fmt: skip


def main() -> int:
    """Generate, run and compare; print a summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ptxas", nargs="+", required=True)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("programs.jsonl"))
    parser.add_argument("--no-gpu", action="store_true")
    parser.add_argument("--nvdisasm", help="execute the cubins on the emulator, too")
    parser.add_argument("--measured", type=Path, help="add opcodes of cubins that agree to it")
    parser.add_argument("--keep", type=Path, help="keep what the GPU left in this file")
    parser.add_argument("--given", type=Path, help="what a GPU left before, instead of a GPU")
    parser.add_argument("--limit", type=float, default=60, help="seconds for twenty programs")
    parser.add_argument("--without", default="$^", help="forms to leave out, a regular expression")
    parser.add_argument("--forms", help=argparse.SUPPRESS)
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        print(json.dumps(part(options, range(*map(int, options.part.split(":"))))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        forms = accepted_by(options.ptxas[0], HEAD, Path(folder))
        known = Path(folder) / "forms.json"
        forms = [form for form in forms if not re.match(options.without, form.opcode)]
        known.write_text(json.dumps(sorted({form.opcode for form in forms})))

        def ask(first: int, last: int) -> list[dict[str, Any]]:
            words = [sys.executable, __file__, "--part", f"{first}:{last}", "--forms", str(known),
                     "--seed", str(options.seed), "--ptxas", *options.ptxas]  # fmt: skip
            words += ["--no-gpu"] * options.no_gpu
            for name in ("nvdisasm", "keep", "given"):
                if value := getattr(options, name):
                    words += [f"--{name}", str(value)]
            try:
                done = subprocess.run(
                    words, capture_output=True, text=True, check=True, timeout=options.limit
                )
                sys.stderr.write(done.stderr)
                return list(json.loads(done.stdout))
            except (subprocess.SubprocessError, ValueError) as error:
                print(f"{first}:{last} {type(error).__name__}", file=sys.stderr)
                if last - first > 1:
                    return [row for each in range(first, last) for row in ask(each, each + 1)]
                why = getattr(error, "stderr", "") or str(error)
                return [
                    {
                        "name": f"k{first}",
                        "not_run": str(why).strip()[-300:],
                        "ptxas": {},
                        "differs": {},
                        "measured": [],
                        "runs": 0,
                    }
                ]

        starts = range(0, options.count, _IN_ONE_FILE)
        with ThreadPoolExecutor(options.jobs) as pool:
            parts = pool.map(lambda n: ask(n, min(n + _IN_ONE_FILE, options.count)), starts)
            rows = [row for each in parts for row in each]
    if options.keep:
        with zipfile.ZipFile(options.keep, "w", zipfile.ZIP_LZMA) as kept:
            for row in rows:
                left = row.pop("left", {})
                for name, value in left.items():
                    if name == "0:O0" or value != left.get("0:O0"):
                        kept.writestr(f"{row['name']}/{name}", decompress(b64decode(value)))
    if options.measured:
        found = set(options.measured.read_text().split()).union(*(row["measured"] for row in rows))
        options.measured.write_text("\n".join([*sorted(found), ""]))
    if options.nvdisasm:
        _print_cubins(rows)
    bad = [row for row in rows if row["not_run"] or row["ptxas"] or row["differs"] or _is_bad(row)]
    options.out.write_text("".join(json.dumps(row) + "\n" for row in bad))
    used = Counter(opcode for row in rows for opcode in row.get("opcodes", ()))
    refused = Counter(
        re.sub(r"[%$\w]*\d\w*", "#", row["not_run"])[:90] for row in rows if row["not_run"]
    )
    print(f"{len(rows)} programs, {len(used)} of {len(forms)} forms, "
          f"{sum(r['runs'] for r in rows)} launches: "
          f"{len(rows) - len(bad)} agree, {sum(bool(r['differs']) for r in rows)} differ, "
          f"{sum(bool(r['not_run']) for r in rows)} are not emulated, "
          f"{sum(bool(r['ptxas']) for r in rows)} are refused by ptxas")  # fmt: skip
    for why, count in refused.most_common(40):
        print(f"  {count} {why}")
    causes = Counter(_cause(row) for row in rows if row["differs"])
    for (levels, what), count in sorted(causes.items(), key=lambda each: -each[1]):
        print(f"  {count} at {levels}: {what}")
    named = {words for _, words in CAUSES}
    unknown = [
        row for row in bad if _is_bad(row) or not row["differs"] or _cause(row)[1] not in named
    ]
    print(f"{len(unknown)} of them have no known cause: {[row['name'] for row in unknown[:20]]}")
    return 1 if unknown else 0


def _print_cubins(rows: list[dict[str, Any]]) -> None:
    """How many cubins the emulator executes, what it does not know, and where it differs."""
    cubins = [held for row in rows for held in row.get("sass", {}).values()]
    refused = [held for held in cubins if isinstance(held, str) and held]
    places = [held for held in cubins if not isinstance(held, str) and held]
    print(f"{len(cubins)} cubins: {len(cubins) - len(refused)} are executed, {len(places)} differ")
    unknown = Counter(
        word
        for why in refused
        for word in (
            why.partition(": ")[2].split(", ") if why.startswith("unknown") else [why[:100]]
        )
    )
    for why, count in unknown.most_common(60):
        print(f"  {count} {why}")
    lines = Counter(_writer(held[0]["lines"]) or held[0]["lines"][-1] for held in places)
    for line, count in lines.most_common(40):
        print(f"  {count} differ at {line}")


def _cause(row: dict[str, Any]) -> tuple[str, str]:
    """Which cubins differ, and by which cause; its instruction where none is known."""
    places = row.get("traced") or row["differs"]
    written = [_writer(place["lines"]) for place in next(iter(places.values()))]
    known = [
        next((words for form, words in CAUSES if re.match(form, each)), None) for each in written
    ]
    # What a loop hands on differs before the instruction that made it so.
    loops = any(line.startswith("$L") for line in row["text"].splitlines())
    at = next((n for n, each in enumerate(known) if each), 0) if loops else 0
    return ", ".join(sorted(row["differs"])), known[at] or written[at] or "unknown"


def _writer(lines: list[str]) -> str:
    """The instruction whose result the last line stores; "" where it stands further away."""
    stored = re.findall(r", (%\w+);", lines[-1])[-1]
    before = [line for line in lines[:-1] if not line.startswith("mov.b32")]
    if before and before[-1].startswith("selp.b32") and stored in before[-1].split(",")[0]:
        predicate = before[-1].split("%p")[-1].rstrip(";")
        stored, before = f"%p{predicate}", before[:-1]
    form = rf"(@!?%p\d+ )?[\w.:]+ [{{%\w.|, ]*{stored}\b"
    return before[-1] if before and re.match(form, before[-1]) and before[-1][:3] != "st." else ""


if __name__ == "__main__":
    sys.exit(main())
