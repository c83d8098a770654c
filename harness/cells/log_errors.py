"""What compilers raise, as a log has it: the kernel, the message, and what it needs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

# The classes and codes of what the front ends raise where a kernel does not compile: Triton 3.2 -
# 3.9 (and what its front end says without a class), nvcc and nvlink, CuTe DSL 4.x, NVVM, TVM below
# TileLang, cuTile and Helion. Servers and other libraries write words before them.
COMPILE_ERROR = re.compile(
    r"\b(?:CompilationError\b|CompileTimeAssertionFailure\b|UnsupportedLanguageConstruct\b"
    r"|DSL\w{1,60}Error\b|NVVM_ERROR_\w{1,40}|Tile(?!Lang)\w{1,60}Error\b|helion\.exc\.\w{1,80}"
    r"|InternalError: Check failed\b|error\[[A-Z_]{3,60}\]:"
    r"|\w{1,100}\.(?:cuh?|h|hpp|inl|cpp)\(\d{1,7}\): (?:catastrophic )?error(?: #[\w-]{1,20})?: "
    r"|nvlink (?:error|fatal) {1,4}: "
    r"|Input shapes should have M >= |type \w{1,20} not supported in this architecture)"
)
# The line of a traceback that names an exception.
RAISED = re.compile(
    r"(?:[\w.]{1,200}\.)?\w{0,100}(?:Error|Exception|Failure)\b(?:: (?!Traceback \()|$)"
)
DIRECT_CAUSE = "The above exception was the direct cause"

_AT = re.compile(r"CompilationError: at \d{1,7}:\d{1,7}:")
_CLASSES = re.compile(r"(?:[\w.]{1,200}\.)?(\w{1,100}(?:Error|Exception|Failure))(?:: |\()")
_DEFINED = re.compile(r"\s*def (\w{1,300})\(")
_CARET = re.compile(r"\s*\^\s*")
_ENDS = re.compile(r"\s*$|Traceback \(|\s*File \"|The above exception|During handling")
# As `repr` writes an exception.
_WRITTEN = re.compile(r"(\w{1,100})\((['\"])(.*)\2,?\)")
_TYPE = re.compile(r"type (\w{1,20}) not supported in this architecture")
# From which compute capability on Triton takes a type that it does not take everywhere: PTX ISA,
# `cvt`: "e4m3x2 ... requires sm_89 or higher".
_SINCE: Mapping[str, int] = {"fp8e4nv": 89}
ERROR_LINES = 44
"""What one takes at most: the source, as far as Triton quotes it, and the message below it."""

_LONGEST = 500


class LoggedError(msgspec.Struct, frozen=True, kw_only=True):
    """What a compiler raised: from which line of a log to which, counted from 0."""

    at: int
    end: int
    message: str
    kernel: str | None = None

    @property
    def words(self) -> str:
        """The kernel, the message, and what the message says that it needs."""
        what = f"kernel {self.kernel}" if self.kernel else "a kernel"
        return f"{what} does not compile: {self.message}{needs(self.message)}"


def needs(message: str) -> str:
    """Which GPUs have what the message misses; empty where that is not known."""
    unsupported = _TYPE.search(message)
    since = _SINCE.get(unsupported[1]) if unsupported else None
    return f"; {unsupported[1]} needs sm_{since} or newer" if unsupported and since else ""


def error_at(at: int, lines: Sequence[str]) -> LoggedError:
    """The error that begins in the first of these lines, which is line `at` of the log.

    Triton quotes the kernel's source down to a caret, and says below it what is wrong there.
    """
    first = lines[0]
    begins = RAISED.match(first) or COMPILE_ERROR.search(first)
    quoted = _AT.search(first)
    if quoted is None:
        message = first[begins.start() if begins else 0 :]
        return LoggedError(at=at, end=at, message=_plain(message))
    caret = next((n for n, line in enumerate(lines) if n and _CARET.fullmatch(line)), 0)
    kernel = next((match[1] for line in lines[:caret] if (match := _DEFINED.match(line))), None)
    said = lines[caret + 1] if caret and len(lines) > caret + 1 else ""
    said = "" if _ENDS.match(said) else said
    end = at + caret + bool(said)
    return LoggedError(at=at, end=end, message=_plain(said), kernel=kernel)


def _plain(message: str) -> str:
    """A message with one class of exception before it, as `repr` and chains do not write it."""
    text = message.strip()
    while (outer := _CLASSES.match(text)) and _CLASSES.match(text[outer.end() :]):
        text = text[outer.end() :]
    if written := _WRITTEN.fullmatch(text):
        text = f"{written[1]}: {written[3]}"
    if named := _CLASSES.match(text):
        text = text[named.start(1) :]
    return text[:_LONGEST]
