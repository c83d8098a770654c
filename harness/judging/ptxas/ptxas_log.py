"""Read what `ptxas -v` printed: what each function uses, and what ptxas complained of.

Source: the output of ptxas 11.7.99, 12.4.99, 12.8.93, 12.9.86, 13.1.115 and 13.5.37,
kept in `tests/data/ptxas_logs`.
A line of ptxas is `TOOL [FILE, line N; ]SEVERITY: TEXT`, the severity padded to eight columns; TOOL
is the name of the executable, so Triton's second one says `ptxas-blackwell`. What differs:

- 12.4 prints the cumulative stack and 12.8 barriers and compile times; 11.7 none of these;
- constant banks are printed below sm_90 only;
- a function that is not an entry gets a stack line, but no "Used N registers", below the entry that
  calls it (12.4 - 13.5).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

# Single spaces and bounded repetition: no line, however long, is scanned more than a few times.
_LINE = re.compile(
    r"(?P<tool>[^\s:;,]+) (?:(?P<file>[^\n]{1,4096}?), line (?P<line>\d{1,9}); )?"
    r"(?P<severity>info|warning|error|fatal) {0,4}: ?(?P<text>.*)"
)
_CODE = re.compile(r"\((C\d{1,9})\) ?")
_COMPILING = re.compile(r"Compiling entry function '(.*)' for '([^']*)'")
_PROPERTIES = "Function properties for "
_STACK = re.compile(
    r"\s+(\d{1,15}) bytes stack frame, (\d{1,15}) bytes spill stores, "
    r"(\d{1,15}) bytes spill loads"
)
_USED = re.compile(r"Used (\d{1,15}) registers")
_BARRIERS = re.compile(r"used (\d{1,15}) barriers")
_CUMULATIVE = re.compile(r"(\d{1,15}) bytes cumulative stack size")
_SHARED = re.compile(r"(\d{1,15})(?:\+\d{1,15})? bytes smem")
_CONSTANT = re.compile(r"(\d{1,15})(?:\+\d{1,15})? bytes cmem\[(\d{1,3})\]")
_COMPILE_TIME = re.compile(r"Compile time = (\d{1,15}(?:\.\d{1,9})?) ms")
_GLOBALS = re.compile(r"\d+ bytes gmem")
_OVERFLOW = re.compile(
    r"Entry function '(.*)' uses too much ([^(']{1,40}) "
    r"\((?:bank \d+, )?0x([0-9a-fA-F]{1,15}) bytes(?: \+ 0x([0-9a-fA-F]{1,15}) bytes system)?, "
    r"0x([0-9a-fA-F]{1,15}) max\)"
)


class FunctionUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What one function uses; None is what ptxas did not print.

    Attributes:
        name: as in the PTX.
        is_entry: a kernel, not a function that kernels call.
        target: as ptxas spells it, entries only.
        n_regs: registers per thread.
        spill_stores, spill_loads: bytes per thread.
        stack: frame of this function, bytes per thread.
        cumulative_stack: with everything that it calls, bytes per thread.
        static_shared: bytes per block.
        constants: pairs of bank and bytes, as printed.
        barriers: named barriers per block.
        compile_ms: milliseconds.
    """

    name: str
    is_entry: bool
    target: str | None = None
    n_regs: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    stack: int | None = None
    cumulative_stack: int | None = None
    static_shared: int | None = None
    constants: tuple[tuple[int, int], ...] = ()
    barriers: int | None = None
    compile_ms: float | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One complaint or remark.

    `severity` is info, warning, error or fatal. `code` (`C7907`) is taken out of `text`. `file` and
    `line` point into the PTX.
    """

    severity: str
    text: str
    code: str | None = None
    file: str | None = None
    line: int | None = None


class PtxasLog(msgspec.Struct, frozen=True, kw_only=True):
    """Functions and messages, each in the order of the log."""

    functions: tuple[FunctionUsage, ...]
    messages: tuple[Message, ...]

    def function(self, name: str) -> FunctionUsage | None:
        """What the log says of the function of that name, None where it says nothing."""
        return next((usage for usage in self.functions if usage.name == name), None)

    def called_by(self, entry: str) -> tuple[FunctionUsage, ...]:
        """The functions that an entry calls, directly or not: ptxas lists them below it."""
        entries = [
            at for at, usage in enumerate(self.functions) if usage.is_entry and usage.name == entry
        ]
        below = self.functions[entries[0] + 1 :] if entries else ()
        return tuple(itertools.takewhile(lambda usage: not usage.is_entry, below))

    @property
    def errors(self) -> tuple[Message, ...]:
        """The messages that made ptxas fail."""
        return tuple(m for m in self.messages if m.severity in {"error", "fatal"})


class Overflow(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that ptxas itself enforces: `resource` in its words (`shared data`), in bytes."""

    function: str
    resource: str
    used: int
    limit: int


def parse_ptxas_log(text: str) -> PtxasLog:
    """Read a log; anything that is not ptxas's is skipped, and nothing raises.

    Args:
        text: as ptxas wrote it, not stripped. A last line without its line feed may be cut off,
            so no usage is taken from it.
    """
    functions: list[FunctionUsage] = []
    messages: list[Message] = []
    for line, whole in _lines(text):
        stack = _STACK.fullmatch(line)
        if stack:
            if functions and whole:
                functions[-1] = replace(
                    functions[-1],
                    stack=int(stack[1]),
                    spill_stores=int(stack[2]),
                    spill_loads=int(stack[3]),
                )
            continue
        match = _LINE.fullmatch(line)
        if not match:
            continue
        # Of a line that is cut off, no number is kept.
        kept = functions if whole else [*functions]
        if match["severity"] == "info" and _take_usage(match["text"], kept):
            continue
        messages.append(_message(match))
    return PtxasLog(functions=tuple(functions), messages=tuple(messages))


def overflow_of(message: Message) -> Overflow | None:
    """The limit that this message says was exceeded, None where it says something else."""
    match = _OVERFLOW.match(message.text)
    if not match:
        return None
    used = int(match[3], 16) + int(match[4] or "0", 16)
    return Overflow(function=match[1], resource=match[2], used=used, limit=int(match[5], 16))


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether its line feed is there; `splitlines` also splits at form feeds."""
    *whole, last = text.split("\n")
    for line in whole:
        yield line.removesuffix("\r"), True
    if last:
        yield last, False


def _message(match: re.Match[str]) -> Message:
    text = match["text"].rstrip()
    code = _CODE.match(text)
    return Message(
        severity=match["severity"],
        text=text[code.end() :] if code else text,
        code=code[1] if code else None,
        file=match["file"],
        line=int(match["line"]) if match["line"] else None,
    )


def _take_usage(text: str, functions: list[FunctionUsage]) -> bool:
    """Take in one info line; False where it is a remark rather than usage."""
    compiling = _COMPILING.fullmatch(text)
    if compiling:
        functions.append(FunctionUsage(name=compiling[1], is_entry=True, target=compiling[2]))
        return True
    if text.startswith(_PROPERTIES):
        name = text.removeprefix(_PROPERTIES)
        if not functions or functions[-1].name != name or functions[-1].stack is not None:
            functions.append(FunctionUsage(name=name, is_entry=False))
        return True
    if text.startswith("Used "):
        if functions:
            functions[-1] = _with_used(functions[-1], text)
        return True
    time = _COMPILE_TIME.fullmatch(text)
    if time:
        if functions:
            functions[-1] = replace(functions[-1], compile_ms=float(time[1]))
        return True
    return _GLOBALS.match(text) is not None


def _with_used(usage: FunctionUsage, text: str) -> FunctionUsage:
    registers = _USED.match(text)
    if not registers:
        return usage
    barriers = _BARRIERS.search(text)
    cumulative = _CUMULATIVE.search(text)
    shared = _SHARED.search(text)
    return replace(
        usage,
        n_regs=int(registers[1]),
        barriers=int(barriers[1]) if barriers else None,
        cumulative_stack=int(cumulative[1]) if cumulative else None,
        # Every ptxas from 11.7 to 13.5 leaves smem out of this line when there is none: entries
        # that declare no shared memory print no smem and have no `.nv.shared` section in the
        # cubin, those that do print its size (tests/data/ptx/two_entries.ptx has one of each).
        # So here, and only here, silence is a zero.
        static_shared=int(shared[1]) if shared else 0,
        constants=tuple((int(m[2]), int(m[1])) for m in _CONSTANT.finditer(text)),
    )
