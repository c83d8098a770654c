"""What a PTX text says of itself: header, entry, and whether the entry does anything.

A reading of the surface, not a document model. Every pass is linear in the size of the text,
whatever the text. Source: PTX ISA manual, chapters "Syntax" and "Directives".
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpu_emulator.ptx.text.held_numbers import held_numbers

MAX_BYTES = 32 << 20

# No pattern here repeats a group without a bound, or has two ways to match the same blanks: that
# keeps them linear.
_OPAQUE = re.compile(r'"|//|/\*')
_STRING_ENDS = re.compile(r'["\n]')
_LINE_ENDS = re.compile(r"\n")
_VERSION = re.compile(r"\s*\.version\s+([0-9]{1,4}\.[0-9]{1,4})")
_TARGET = re.compile(r"\s*\.target\s+([A-Za-z]\w{0,31})")
_TOP_LEVEL = re.compile(r"\.entry\s+([A-Za-z_$%][A-Za-z0-9_$]*)|\{|;")
_BRACES = re.compile(r"\{+|\}+")
_REQNTID = re.compile(r"\.reqntid\s+([0-9]{1,9})(?:\s*,\s*([0-9]{1,9}))?(?:\s*,\s*([0-9]{1,9}))?")
_REGISTERS = re.compile(r"\.(?:maxnreg|minnctapersm)\s+[0-9]{1,9}\s*")
_LOC = re.compile(
    r"\.loc\s+[0-9]+\s+[0-9]+\s+[0-9]+"
    r"(?:\s*,\s*function_name\s+[\w$]+(?:\s*\+\s*[0-9]+)?"
    r"\s*,\s*inlined_at\s+[0-9]+\s+[0-9]+\s+[0-9]+)?"
)
_FILE = re.compile(r'\.file\s+[0-9]+\s*"[^"\n]*"?(?:\s*,\s*[0-9]+\s*,\s*[0-9]+)?')
_DEBUG_SECTION = re.compile(r"\.section\s+\.debug\w*\s*\{[^}]*\}?")
_LOCAL_LABEL = re.compile(r"(?<![\w$])\$L__(?:tmp|func_begin|func_end)[0-9]+:")
_BLANK_LINES = re.compile(r"\n\s+")
_STATEMENT = re.compile(r"[^;]+")
_LABEL = re.compile(r"[\s{}]*[\w$%]+:(?!:)")
_INSTRUCTION = re.compile(r"[\s{}]*(@!?[\w$%]+\s+)?([a-z][\w.]*(?:::[\w.]+){0,9})(?![\w.:])")

# Opcodes whose result can be seen outside the block, unless the first state space that they name is
# one of `_PRIVATE`. `wmma` and `cp` have other forms, which the state space tells apart.
_WRITERS = frozenset(
    {"st", "atom", "red", "call", "cp", "sust", "sured", "multimem", "tensormap", "wmma"}
)
_PRIVATE = frozenset({"shared", "shared::cta", "shared::cluster", "local", "param"})
_LEAVES = frozenset({"bra", "brx", "ret", "exit"})


class PtxError(ValueError):
    """The text is not PTX that this module can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxFacts:
    """Facts of one PTX module and one entry of it.

    `threads` is the product of `.reqntid`, `tmem_columns` the most that a `tcgen05.alloc` takes, as
    a number or from a register that holds one; None where the text does not say. `effects` counts
    the entry's instructions whose result can be seen outside the block (stores to global memory,
    atomics, calls); `traps` its `trap` instructions; `instructions` all of them. `always_traps`: no
    way leads past the first `trap`.
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
    always_traps: bool = False

    @property
    def is_trap_stub(self) -> bool:
        """The entry can only trap: it has a `trap` and nothing that could be observed."""
        return self.traps > 0 and self.effects == 0

    @property
    def does_nothing(self) -> bool:
        """Nothing that the entry does can be observed, except that it traps."""
        return self.effects == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """Where an entry is: its directives from `head` to `opening`, its body up to `end`."""

    name: str
    head: int
    opening: int
    end: int


def read_ptx(text: str, entry: str | None = None) -> PtxFacts:
    """Read the header and one entry (the first, unless named).

    Raises:
        PtxError: no `.version` or `.target` at the start, binary data, or no such entry.
    """
    # Some compilers write the end of a string of C, and ptxas takes it (`CUTE_DSL_KEEP=ptx`).
    if "\0" in text.removesuffix("\0"):
        raise PtxError("not PTX: it holds binary data")
    clean = blank_opaque(text)
    version, target = _header(clean)
    entries = tuple(_entries(clean))
    if not entries:
        raise PtxError("no .entry: nothing that can be launched")
    names = tuple(dict.fromkeys(found.name for found in entries))
    if entry is not None and entry not in names:
        more = ", ..." if len(names) > 8 else ""
        raise PtxError(f"no entry {entry!r}; the file has {', '.join(names[:8])}{more}")
    chosen = next(found for found in entries if entry in (None, found.name))
    body = _LOC.sub(" ", _FILE.sub(" ", clean[chosen.opening : chosen.end]))
    counts, columns, always_traps = _survey(body)
    return PtxFacts(
        version=version[1],
        target=target[1],
        entry=chosen.name,
        entries=names,
        threads=_threads(clean[chosen.head : chosen.opening]),
        tmem_columns=columns,
        instructions=sum(counts.values()),
        effects=sum(count for opcode, count in counts.items() if writes_outside(opcode)),
        traps=counts["trap"],
        always_traps=always_traps,
    )


def writes_outside(opcode: str) -> bool:
    """Whether what this instruction does can be seen outside the block that runs it.

    A call counts, whatever it calls; a store to shared, local or parameter memory does not.
    """
    name, *modifiers = opcode.split(".")
    if name not in _WRITERS:
        return False
    if name == "call":
        return True
    spaces = [word for word in modifiers if word == "global" or word in _PRIVATE]
    if name == "cp":
        # The destination is named first; `cp.async.bulk.commit_group` and its kin name none.
        return spaces[:1] == ["global"] and "prefetch" not in modifiers
    if name == "wmma":
        return modifiers[:1] == ["store"] and spaces[:1] in ([], ["global"])
    if name == "multimem":
        return modifiers[:1] != ["ld_reduce"]
    return spaces[:1] in ([], ["global"])


def opcodes(code: str) -> Iterator[tuple[str, bool]]:
    """Each instruction of PTX without comments: its opcode, and whether it is guarded."""
    for opcode, guarded, _ in _instructions(code):
        yield opcode, guarded


def _instructions(code: str) -> Iterator[tuple[str, bool, str]]:
    for found in _STATEMENT.finditer(code):
        statement = found[0].strip()
        instruction = _INSTRUCTION.match(statement)
        if not instruction:
            position = 0
            while label := _LABEL.match(statement, position):
                position = label.end()
            instruction = _INSTRUCTION.match(statement, position)
        if instruction:
            guarded = instruction[1] is not None
            yield instruction[2], guarded, statement[instruction.start(1 if guarded else 2) :]


def _survey(body: str) -> tuple[Counter[str], int | None, bool]:
    """Count the opcodes; the most columns that `tcgen05.alloc` takes; whether all ways trap."""
    counts: Counter[str] = Counter()
    allocated: set[str] = set()
    always_traps: bool | None = None
    for opcode, guarded, statement in _instructions(body):
        counts[opcode] += 1
        if opcode.startswith("tcgen05.alloc."):
            allocated.add(statement.rpartition(",")[2].strip())
        if always_traps is None:
            if opcode.split(".", 1)[0] in _LEAVES:
                always_traps = False
            elif opcode == "trap" and not guarded:
                always_traps = True
    numbers = held_numbers(allocated, lambda: _instructions(body))
    columns = max(filter(None, numbers), default=None) if None not in numbers else None
    return counts, columns, bool(always_traps)


def blank_opaque(text: str) -> str:
    """The text with comments and the insides of strings blanked: every position stays true."""
    return _replace_opaque(text, _blank)


def uncomment(text: str) -> str:
    """The text with each comment as one blank, strings as they are."""
    return _replace_opaque(text, _uncomment)


def _replace_opaque(text: str, replacement: Callable[[str], str]) -> str:
    """The text with comments and strings replaced.

    Comments do not nest, one that is not closed reaches to the end; a string ends with its line.
    """
    pieces, position = [], 0
    while found := _OPAQUE.search(text, position):
        pieces.append(text[position : found.start()])
        position = _end_of_opaque(text, found)
        pieces.append(replacement(text[found.start() : position]))
    pieces.append(text[position:])
    return "".join(pieces)


def _end_of_opaque(text: str, opening: re.Match[str]) -> int:
    if opening[0] == "/*":
        closing = text.find("*/", opening.end())
        return closing + 2 if closing >= 0 else len(text)
    # The nearer of the two at once: to look for each alone reads the rest again for every quote.
    ends = _STRING_ENDS if opening[0] == '"' else _LINE_ENDS
    found = ends.search(text, opening.end())
    if not found:
        return len(text)
    return found.end() if found[0] == '"' else found.start()


def _blank(opaque: str) -> str:
    """Blanks of the same length, so that positions stay true; a string keeps its quotes."""
    length = len(opaque)
    if opaque[0] == '"' and length > 1:
        return '"' + " " * (length - 2) + '"'
    return " " * length


def _uncomment(opaque: str) -> str:
    return opaque if opaque[0] == '"' else " "


def _header(clean: str) -> tuple[re.Match[str], re.Match[str]]:
    """The two directives that must open a module, in this order, as ptxas demands it."""
    version = _VERSION.match(clean)
    if not version:
        raise PtxError("no .version directive at the start: not PTX")
    target = _TARGET.match(clean, version.end())
    if not target:
        raise PtxError("no .target directive after .version: not PTX")
    return version, target


def _entries(clean: str) -> Iterator[_Entry]:
    """Every entry with a body; a declaration, which ends in a semicolon, has none."""
    position, pending = 0, None
    while found := _TOP_LEVEL.search(clean, position):
        position = found.end()
        if found[1]:
            pending = found
        elif found[0] == ";":
            pending = None
        else:
            position = _end_of_scope(clean, position)
            if pending:
                yield _Entry(name=pending[1], head=pending.end(), opening=found.end(), end=position)
            pending = None


def _end_of_scope(clean: str, position: int) -> int:
    """Where the scope that was just opened is closed; the end of the text where it is not."""
    depth = 1
    for braces in _BRACES.finditer(clean, position):
        length = len(braces[0])
        if braces[0][0] == "{":
            depth += length
        elif length >= depth:
            return braces.start() + depth
        else:
            depth -= length
    return len(clean)


def _threads(head: str) -> int | None:
    match = _REQNTID.search(head)
    if not match:
        return None
    x, y, z = (int(size) if size else 1 for size in match.groups())
    return x * y * z


def without_debug(text: str) -> str:
    """The text without comments, line tables, debug sections and the labels that only they use."""
    text = _FILE.sub(" ", uncomment(text))
    text = _LOC.sub(" ", _DEBUG_SECTION.sub(" ", text))
    text = _BLANK_LINES.sub("\n", _LOCAL_LABEL.sub(" ", text))
    lines = (line.strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def body_sha256(text: str) -> str:
    """Hash of what ptxas compiles: no debug information, no paths, no `.version` line.

    Two toolchains with equal body hashes hand ptxas the same program.
    """
    body = without_debug(text)
    version = _VERSION.match(body)
    body = body[version.end() :] if version else body
    return hashlib.sha256(body.encode(errors="backslashreplace")).hexdigest()


def instructions_sha256(text: str) -> str:
    """Hash of what is executed: as `body_sha256`, without the target and the hints for registers.

    Executed on the same inputs, two texts with equal hashes do the same.
    """
    body = without_debug(text)
    for header in (_VERSION, _TARGET):
        found = header.match(body)
        body = body[found.end() :] if found else body
    body = _REGISTERS.sub("", body)
    return hashlib.sha256(body.encode(errors="backslashreplace")).hexdigest()


def header_value(name: str, value: str) -> str:
    """`value`, if it can stand after the directive of that name (`version`, `target`).

    Raises:
        PtxError: it cannot.
    """
    pattern = {"version": _VERSION, "target": _TARGET}[name]
    if not pattern.fullmatch(f".{name} {value}"):
        example = {"version": "8.8", "target": "sm_90a"}[name]
        raise PtxError(f"{value[:40]!r} is not a .{name}; write it like {example}")
    return value


def retarget(text: str, *, target: str | None = None, version: str | None = None) -> str:
    """The text with another `.target` or `.version`; the rest is byte for byte the same.

    Raises:
        PtxError: no `.version` or `.target` at the start, or a value that cannot stand there.
    """
    old_version, old_target = _header(blank_opaque(text))
    # From the back, so that the positions before stay true.
    if target:
        text = (
            text[: old_target.start(1)] + header_value("target", target) + text[old_target.end(1) :]
        )
    if version:
        text = (
            text[: old_version.start(1)]
            + header_value("version", version)
            + text[old_version.end(1) :]
        )
    return text
