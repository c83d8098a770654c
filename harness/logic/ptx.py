"""What a PTX text says of itself: header, entry, and whether the entry does anything.

A reading of the surface, not a document model. Source: PTX ISA manual, chapters "Syntax" and
"Directives".
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass

__all__ = ["PtxError", "PtxFacts", "body_sha256", "read_ptx", "retarget"]

MAX_BYTES = 64 << 20

_VERSION = re.compile(r"^\s*\.version\s+(\d+\.\d+)", re.MULTILINE)
_TARGET = re.compile(r"^\s*\.target\s+([\w, ]+)", re.MULTILINE)
_ENTRY = re.compile(r"\.entry\s+([A-Za-z_$%][\w$]*)")
_REQNTID = re.compile(r"\.reqntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")
_TMEM_ALLOC = re.compile(r"tcgen05\.alloc\b[^;]*?,\s*(\d+)\s*;")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEBUG_LINE = re.compile(r"^\s*\.(?:loc|file)\b[^\n]*$", re.MULTILINE)
_DEBUG_SECTION = re.compile(r"^\s*\.section\s+\.debug\w*\s*\{.*?\}", re.MULTILINE | re.DOTALL)
_LOCAL_LABEL = re.compile(r"^\s*\$L__(?:tmp|func_begin|func_end)\d+:\s*$", re.MULTILINE)
_OPCODE = re.compile(r"^\s*(?:@!?[%\w$]+\s+)?([a-z][\w]*(?:[.:]+\w+)*)")

# Opcodes after which memory, or something outside the thread, is different.
_EFFECTS = ("st", "atom", "red", "call", "cp", "stmatrix", "sust", "vprintf", "multimem", "tensormap")


class PtxError(ValueError):
    """The text is not PTX that this module can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxFacts:
    """Facts of one PTX module and one entry of it.

    `threads` is the product of `.reqntid`, `tmem_columns` the largest constant `tcgen05.alloc`;
    None where the text does not say. `effects` counts the entry's instructions that write memory or
    call out; `traps` its `trap` instructions; `instructions` all of them.
    """

    version: str
    target: str
    entry: str
    entries: tuple[str, ...]
    threads: int | None
    tmem_columns: int | None
    instructions: int
    effects: int
    traps: int

    @property
    def is_trap_stub(self) -> bool:
        """The entry can only trap: it has a `trap` and nothing that could be observed."""
        return self.traps > 0 and self.effects == 0

    @property
    def does_nothing(self) -> bool:
        return self.effects == 0


def read_ptx(text: str, entry: str | None = None) -> PtxFacts:
    """Read the header and one entry (the first, unless named).

    Raises:
        PtxError: no `.version`, no `.target`, or no such entry.
    """
    clean = _COMMENT.sub("", text)
    version, target = _VERSION.search(clean), _TARGET.search(clean)
    if not version or not target:
        missing = ".version" if not version else ".target"
        raise PtxError(f"no {missing} directive: not PTX")
    found = list(_ENTRY.finditer(clean))
    if not found:
        raise PtxError("no .entry: nothing that can be launched")
    names = tuple(match[1] for match in found)
    if entry is not None and entry not in names:
        raise PtxError(f"no entry {entry!r}; the file has {', '.join(names[:8])}")
    match = found[names.index(entry) if entry else 0]
    head, body = _entry_parts(clean, match.end())
    counts = _opcodes(body)
    return PtxFacts(
        version=version[1],
        target=target[1].split(",")[0].strip(),
        entry=match[1],
        entries=names,
        threads=_threads(head),
        tmem_columns=max((int(n) for n in _TMEM_ALLOC.findall(body)), default=None),
        instructions=sum(counts.values()),
        effects=sum(n for opcode, n in counts.items() if opcode.split(".")[0] in _EFFECTS),
        traps=counts["trap"],
    )


def _entry_parts(text: str, start: int) -> tuple[str, str]:
    """The entry's directives and its body, braces matched (strings hold no braces in PTX code)."""
    opening = text.find("{", start)
    if opening < 0:
        return text[start:], ""
    depth = 0
    for brace in re.finditer(r"[{}]", text[opening:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[start:opening], text[opening + 1 : opening + brace.start()]
    return text[start:opening], text[opening + 1 :]


def _threads(head: str) -> int | None:
    match = _REQNTID.search(head)
    if not match:
        return None
    x, y, z = (int(size) if size else 1 for size in match.groups())
    return x * y * z


def _opcodes(body: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for statement in re.split(r"[;{}\n]|(?<=\w):(?=\s)", body):
        match = _OPCODE.match(statement)
        if match:
            counts[match[1]] += 1
    return counts


def without_debug(text: str) -> str:
    """The text without comments, line tables, debug sections and the labels that only they use."""
    text = _DEBUG_SECTION.sub("", _COMMENT.sub("", text))
    text = _LOCAL_LABEL.sub("", _DEBUG_LINE.sub("", text))
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def body_sha256(text: str) -> str:
    """Hash of what ptxas compiles: no debug information, no paths, no `.version` line.

    Two toolchains with equal body hashes hand ptxas the same program.
    """
    return hashlib.sha256(_VERSION.sub("", without_debug(text)).encode()).hexdigest()


def retarget(text: str, *, target: str | None = None, version: str | None = None) -> str:
    """The text with another `.target` or `.version`; the rest is byte for byte the same."""
    if target:
        text = re.sub(r"(^\s*\.target\s+)sm_\w+", rf"\g<1>{target}", text, count=1, flags=re.M)
    if version:
        text = re.sub(r"(^\s*\.version\s+)\d+\.\d+", rf"\g<1>{version}", text, count=1, flags=re.M)
    return text
