"""Live registers at each instruction, in the text of `nvdisasm -c -lrm count FILE.cubin`.

It appends a column for each kind of register to every line; `GPR` are the 32-bit registers of a
thread. Read here as nvdisasm 12.4.99, 12.8.55, 13.1.80 and 13.5.37 print it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(
    r"// \|(?P<kinds>[^\n]*\bGPR\b[^\n]*)\|"
    r"|^\.text\.(?P<kernel>[^\n]+?):[ \t]*(?://|$)"
    r"|^[ \t]*/\*(?P<address>[0-9a-f]{4,16})\*/[^\n]*// \|(?P<counts>[^\n]*)\|",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class LiveRegisters:
    """How many registers of a thread are live at each instruction of a kernel, in code order.

    `addresses` are bytes from the kernel's begin, `counts` as many numbers.
    """

    addresses: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def peak(self) -> int:
        """The most that are live at once."""
        return max(self.counts)

    @property
    def peak_address(self) -> int:
        """The first instruction at which so many are."""
        return self.addresses[self.counts.index(self.peak)]


def live_registers(text: str) -> dict[str, LiveRegisters]:
    """The counts of each kernel with the functions it calls, by its name.

    A kernel without columns is left out.
    """
    found: dict[str, list[tuple[int, int]]] = {}
    kernel, column = "", 0
    for match in _LINE.finditer(text):
        if match["kinds"]:  # each section has its own
            column = [each.strip() for each in match["kinds"].split("|")].index("GPR")
        elif match["kernel"]:
            kernel = match["kernel"]
        else:
            # A blank column: none of its registers is live.
            words = match["counts"].split("|")[column].strip() or "0"
            found.setdefault(kernel, []).append((int(match["address"], 16), int(words)))
    return {
        name: LiveRegisters(*map(tuple, zip(*lines, strict=True))) for name, lines in found.items()
    }
