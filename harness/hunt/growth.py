"""What a compiler takes out of proportion: ptxas spills, registers and time, Triton time. Pure.

A program is held to its own text, so that it can be reduced and given to other versions like any
other. The limits are far from what 143 PTX files of real kernels take (Triton for sm_90a and
sm_100a, ptxas 13.5.37 -O3, see docs/measured/hunting-results.md): each that spills has 1.14 or more
of the registers that it may have live at one place of the text; none of 64 registers or more takes
above 1.17 for each that is live; from 100 instructions on ptxas takes up to 1.4 ms of CPU for each,
and up to 3.9 ms for double-precision divisions.
"""

from __future__ import annotations

import math
import re

from gpu_emulator.ptx.text.document import parse
from gpu_emulator.ptx.text.registers import most_live, without_scopes
from harness.judging.ptxas.ptxas_log import FunctionUsage
from harness.minimize.ptx.reduce import count_instructions
from harness.values.limits import limits_of
from harness.values.target import Target

SPILLS, REGISTERS, TIME = "spills", "registers", "time"

SECONDS = 2.0
"""A time of ptxas that is never out of proportion: seconds of CPU."""

# A quarter of the registers is enough for pairs that must be aligned, for addresses, and for what
# is computed ahead of its use; four times what is live, to keep loads in flight.
_ENOUGH, _PLENTY = 0.75, 4
_SPILLED, _MANY_REGISTERS = 64, 128
_SECONDS_EACH = 0.014
_TRITON_SECONDS, _TRITON_SECONDS_EACH = 10.0, 0.008
# Columns of seconds, of which the last is of the clock, and a pass; not what is in passes itself.
_TIMED = re.compile(
    r"^ +(?:-?[\d.]+ \( *-?[\d.]+%\) +)*(-?[\d.]+) \( *-?[\d.]+%\) +"
    r"(?!-?[\d.]+ \(|Total$|Rest$|\(A\)|'\S+' Pipeline$)(\S.*?)(?: #\d+)?$",
    re.MULTILINE,
)
_BLOCK = re.compile(r"\.(?:req|max)ntid\s+(\d{1,18})(?:\s*,\s*(\d{1,18}))?(?:\s*,\s*(\d{1,18}))?")
_BLOCKS = re.compile(r"\.minnctapersm\s+(\d{1,18})")
_REGISTERS = re.compile(r"\.maxnreg\s+(\d{1,18})")
_SHARES = re.compile(r"\b(?:setmaxnreg|call)\b")


def growth_of(text: str, usage: FunctionUsage, target: Target) -> tuple[str, str] | None:
    """What of spills and registers is out of proportion to a module's entry, and in which words.

    None where nothing is: ptxas spills less than 64 bytes, or more is live at once than three
    quarters of the registers that a thread may have; and it takes less than four registers for each
    that is live. What shares out registers among warps (`setmaxnreg`) is left out, and what calls.
    """
    spilled = (usage.spill_stores or 0) + (usage.spill_loads or 0)
    registers = usage.n_regs or 0
    spills = spilled >= _SPILLED
    if not (spills or registers >= _MANY_REGISTERS) or _SHARES.search(text):
        return None
    flat = without_scopes(parse(text))
    live = max((most_live(flat, function) for function in flat.functions), default=0)
    words = f"{registers} registers, where at most {live} are live at once in the PTX"
    if spills and live <= _ENOUGH * _allowed(text, target):
        return SPILLS, f"{spilled:,} bytes of spill stores and loads with {words}"
    if registers >= max(_MANY_REGISTERS, live * _PLENTY):
        return REGISTERS, words
    return None


def seconds_allowed(text: str) -> float:
    """Seconds of CPU beyond which the time of ptxas is out of proportion to a program.

    Ten times what real kernels take, and two more.
    """
    return SECONDS + _SECONDS_EACH * count_instructions(text)


def triton_seconds_allowed(count: int) -> float:
    """Seconds of CPU beyond which the time of Triton is out of proportion.

    `count` are the instructions of the PTX that it writes; or the operations of a module of IR,
    where it is lowered as far as LLVM's IR alone. Ten times what generated kernels take.
    """
    return _TRITON_SECONDS + _TRITON_SECONDS_EACH * count


def slowest_pass(log: str) -> str:
    """The pass that takes the longest, by what MLIR and LLVM print of each; empty: they do not."""
    seconds: dict[str, float] = {}
    for line in _TIMED.finditer(log):
        seconds[line[2]] = seconds.get(line[2], 0.0) + float(line[1])
    return max(seconds, key=seconds.__getitem__, default="")


def _allowed(text: str, target: Target) -> int:
    """How many registers a thread may have, by the directives of the entry."""
    limits = limits_of(target.capability)
    asked = [int(match[1]) for match in _REGISTERS.finditer(text)]
    if limits is None:
        return min(asked, default=0)
    block, blocks = _BLOCK.search(text), _BLOCKS.search(text)
    threads = math.prod(int(size) for size in block.groups("1")) if block else 1
    most = limits.registers_of_thread(threads * (int(blocks[1]) if blocks else 1))
    return min([most, *asked])
