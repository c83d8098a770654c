"""Small cubins, written as SASS: an ELF file with what the emulator reads, and its listing."""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np

from gpu_emulator.api import Allocation, Checks, Cubin, Launch, Outcome, Pointer, Schedule, run

OUT = 512


def sass(
    code: str,
    sizes: tuple[int, ...] = (8, 8),
    *,
    shared: int = 0,
    stack: int = 0,
    base: int = 0x210,
) -> Cubin:
    """An entry `k` of these lines (`NAME:` is a label), with parameters of such sizes."""
    lines, at = [], 0
    for line in filter(None, map(str.strip, code.splitlines())):
        if line.endswith(":"):
            lines.append(line)
        else:
            lines.append(f"        /*{at:04x}*/                   {line.rstrip(' ;')} ;")
            at += 16
    text = ".text.k:\n" + "\n".join(lines)
    return Cubin(elf=_elf(sizes, at, shared, stack, base), listing=text)


def _elf(sizes: tuple[int, ...], code: int, shared: int, stack: int, base: int) -> bytes:
    offsets, end = [], 0
    for size in sizes:
        end = -(-end // size) * size
        offsets.append(end)
        end += size
    own = b"".join(
        struct.pack("<BBHIHHI", 4, 0x17, 12, 0, number, at, size << 18 | 0x1F000)
        for number, (at, size) in enumerate(zip(offsets, sizes, strict=True))
    )
    own += struct.pack("<BBHIHH", 4, 0x0A, 8, 0, base, end)
    names = b"\0k\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0x10, 5, 0, code)
    sections = [
        ("", 0, b""), (".shstrtab", 3, b""), (".strtab", 3, names), (".symtab", 2, symbols),
        (".nv.info", 1, struct.pack("<BBHII", 4, 0x11, 8, 1, stack)),
        (".text.k", 1, bytes(code)), (".nv.info.k", 1, own),
        (".nv.constant0.k", 1, bytes(base + end)),
        (".nv.shared.k", 8, bytes(shared + (1024 if base > 0x160 else 0))),
    ]  # fmt: skip
    table = b"\0" + b"".join(name.encode() + b"\0" for name, *_ in sections[1:])
    sections[1] = (".shstrtab", 3, table)
    rows, body, at = b"", b"", 64
    for name, kind, data in sections:
        where = table.index(name.encode() + b"\0") if name else 0
        rows += struct.pack("<IIQQQQIIQQ", where, kind, 0, 0, at, len(data), 0, 0, 8, 0)
        if kind != 8:
            body += data
            at += len(data)
    head = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 190, 1, 0, 0, at, 0, 64, 0, 0, 64,
        len(sections), 1,
    )  # fmt: skip
    return head + body + rows


PROLOGUE = """
    LDC R1, c[0x0][0x28]
    S2R R0, SR_TID.X
    LDC.64 R2, c[0x0][0x210]
    LDC.64 R4, c[0x0][0x218]
    ULDC.64 UR4, c[0x0][0x208]
    IMAD.WIDE.U32 R2, R0, 0x4, R2
    IMAD.WIDE.U32 R4, R0, 0x4, R4
    LDG.E R6, desc[UR4][R2.64]
"""
EPILOGUE = """
    STG.E desc[UR4][R4.64], R7
    EXIT
"""


def run_sass(
    code: str, values: Any, *, schedule: Schedule | None = None, check: Checks | None = None,
    grid: int = 1, **options: Any,
) -> Outcome:  # fmt: skip
    """Execute lines between a prologue (R6 is a thread's number of the input) and R7's store."""
    data = np.asarray(values, dtype=np.uint32)
    whole = code if re.search(r"\bEXIT\b", code) else PROLOGUE + code + EPILOGUE
    launch = Launch(
        cubin=sass(whole, **options),
        grid=(grid, 1, 1),
        block=(len(data), 1, 1),
        allocations=(
            Allocation(name="in", data=data.view(np.uint8)),
            Allocation(name="out", data=np.zeros(4 * len(data), np.uint8)),
        ),
        arguments=(Pointer(allocation=0), Pointer(allocation=1)),
    )
    return run(launch, schedule, check=check)


def results(code: str, values: Any, **options: Any) -> list[int]:
    """What each thread leaves in R7."""
    outcome = run_sass(code, values, **options)
    assert outcome.not_run is None, outcome.not_run
    assert not outcome.faults, outcome.faults
    return [int(value) for value in outcome.allocations[1].data.view(np.uint32)]
