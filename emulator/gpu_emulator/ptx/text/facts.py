"""What a PTX text says of itself, and changes of it that leave its meaning alone. Pure.

A reading of the surface, not a document model: what ptxas would refuse is read as well as it goes,
and every pass is linear in the size of the text, whatever the text. Sources: PTX ISA manual,
"Syntax", "Directives", "Instruction Operands", "Instruction Set", "Performance-Tuning Directives".
That ptxas compiles an entry whose name contains `cutlass` otherwise was observed, and is used by
kernels in the field. A failure that comes or goes with a harmless variation depends on what must
not matter.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

# A register, variable, label or special register, whole: `%r1`, `$L__BB0_1`, `%tid.x` as `%tid`.
NAME = re.compile(r"(?<![\w$%.])[A-Za-z_$%][\w$]*")
_INSTRUCTION = re.compile(r"(?:@\s*(!?)\s*([\w$%]+)\s+)?([a-z]\w*(?:(?:\.|::)\w+)*)(?![\w.:])\s*")
_BRACKETS = re.compile(r"[\[\](){},]")
_OPERAND = re.compile(r"[^][(){},]*(?:(?:\[[^][(){}]*]|\{[^][(){}]*}|\([^][(){}]*\))[^][(){},]*)*")
# Opcodes whose first operand, where it is a register, is read and not written.
_ONLY_READ = (
    "bar.arrive bar.sync bar.cta.arrive bar.cta.sync bar.warp.sync barrier.arrive barrier.sync"
    " barrier.cta.arrive barrier.cta.sync bra brx call nanosleep pmevent setmaxnreg stackrestore"
    " tcgen05.dealloc"
)
_READS_FIRST = re.compile("(?:" + "|".join(map(re.escape, _ONLY_READ.split())) + r")(?![\w])")
# Adds to its first operand.
_READS_AND_WRITES = re.compile(r"wgmma\.mma_async\b")
_ENDS = frozenset({"ret", "exit", "trap"})


@dataclass(frozen=True)
class Instruction:
    """Guard (`@%p1`, `@!%p1` or nothing), opcode with its modifiers, operands as written."""

    guard: str
    opcode: str
    operands: tuple[str, ...]

    def __str__(self) -> str:
        head = f"{self.guard} {self.opcode}" if self.guard else self.opcode
        return f"{head} {', '.join(self.operands)};" if self.operands else f"{head};"

    @cached_property
    def base(self) -> str:
        return self.opcode.split(".", 1)[0]

    @cached_property
    def modifiers(self) -> list[str]:
        return self.opcode.split(".")[1:]

    @cached_property
    def results(self) -> int:
        """How many of the first operands it writes: 0 or 1. A call's are in its parentheses."""
        if not self.operands or self.operands[0].startswith("["):
            return 0
        if self.base == "call":
            return int(self.operands[0].startswith("("))
        return int(not _READS_FIRST.match(self.opcode))

    @cached_property
    def writes(self) -> list[str]:
        """The names that it writes, if its guard holds."""
        return [name for operand in self.operands[: self.results] for name in names_in(operand)]

    @cached_property
    def reads(self) -> list[str]:
        """The names that it reads: registers, variables, labels, special registers."""
        first = 0 if _READS_AND_WRITES.match(self.opcode) else self.results
        guard = [self.guard.lstrip("@!")] if self.guard else []
        return guard + [name for operand in self.operands[first:] for name in names_in(operand)]

    @cached_property
    def ends(self) -> bool:
        """Whether control never goes on to the next instruction."""
        return not self.guard and (self.base in _ENDS or self.base in ("bra", "brx"))


def names_in(operand: str) -> list[str]:
    """Every name in an operand; `_`, which throws a result away, is none."""
    return [name for name in NAME.findall(operand) if name != "_"]


@lru_cache(maxsize=1 << 16)
def read_instruction(code: str) -> Instruction | None:
    """Read a statement without comments, with its semicolon; None if it is not an instruction."""
    match = _INSTRUCTION.match(code)
    if not match or not code.endswith(";"):
        return None
    negation, guard, opcode = match.groups()
    operands = split_operands(code[match.end() : -1])
    return Instruction(f"@{negation}{guard}" if guard else "", opcode, operands)


def split_operands(text: str) -> tuple[str, ...]:
    """Split at the commas that are in no bracket."""
    pieces, start = list[str](), 0
    while operand := _OPERAND.match(text, start):
        pieces.append(operand[0].strip())
        start = operand.end() + 1
        if start > len(text):
            return tuple(pieces) if pieces != [""] else ()
        if text[start - 1] != ",":
            break
    # Brackets in brackets.
    depth, start, pieces = 0, 0, []
    for mark in _BRACKETS.finditer(text):
        if mark[0] in "[({":
            depth += 1
        elif mark[0] in "])}":
            depth -= 1
        elif depth == 0:
            pieces.append(text[start : mark.start()].strip())
            start = mark.end()
    last = text[start:].strip()
    return (*pieces, last) if pieces or last else ()


_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,8}|0[xX][0-9a-fA-F]{1,8})U?")
_MOVE = re.compile(r"mov\.[bus]32")
# How many moves a number may go through.
_MOVES = 4


def _held_numbers(
    operands: set[str], code: Callable[[], Iterable[tuple[str, bool, str]]]
) -> set[int | None]:
    """The numbers that operands are, or hold wherever they are read; None for another.

    `code` begins again with the instructions of a body: opcode, whether it is guarded, and all of
    it without the semicolon.
    """
    for _ in range(_MOVES):
        names = {operand for operand in operands if not _NUMBER.fullmatch(operand)}
        if not names:
            break
        operands = (operands - names) | _moved_to(code(), names)
    numbers = map(_NUMBER.fullmatch, operands)
    return {int(number[0].rstrip("U"), 0) if number else None for number in numbers}


def _moved_to(code: Iterable[tuple[str, bool, str]], names: set[str]) -> set[str]:
    """What each register is set to, if by one move alone; an empty operand stands for another."""
    written: dict[str, list[str]] = {name: [] for name in names}
    for opcode, guarded, statement in code:
        if not any(name in statement for name in names):
            continue
        read = read_instruction(f"{statement};")
        is_move = not guarded and _MOVE.fullmatch(opcode) and read and len(read.operands) == 2
        for name in names.intersection(read.writes if read else names):
            written[name].append(read.operands[1] if is_move and read else "")
    return {values[0] if len(values) == 1 else "" for values in written.values()}


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
LOC = re.compile(
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
_FACTS_INSTRUCTION = re.compile(r"[\s{}]*(@!?[\w$%]+\s+)?([a-z][\w.]*(?:::[\w.]+){0,9})(?![\w.:])")

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
    way leads past the first `trap`. `waits`: a loop ends only by what it reads of global memory, as
    `waits_for_others` finds it.
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
    waits: bool = False

    @property
    def is_trap_stub(self) -> bool:
        """The entry can only trap: it has a `trap` and nothing that could be observed."""
        return self.traps > 0 and self.effects == 0

    @property
    def does_nothing(self) -> bool:
        """Nothing that the entry does can be observed, except that it traps."""
        return self.effects == 0


def read_ptx(text: str, entry: str | None = None) -> PtxFacts:
    """Read the header and one entry (the first, unless named).

    Raises `PtxError`: no `.version` or `.target` at the start, binary data, or no such entry.
    """
    # Some compilers write the end of a string of C, and ptxas takes it (`CUTE_DSL_KEEP=ptx`).
    if "\0" in text.removesuffix("\0"):
        raise PtxError("not PTX: it holds binary data")
    clean = blank_opaque(text)
    version, target = _header(clean)
    entries: dict[str, tuple[str, str]] = {}
    for name, head, body in _entries(clean):
        entries.setdefault(name, (head, body))
    if not entries:
        raise PtxError("no .entry: nothing that can be launched")
    names = tuple(entries)
    if entry is not None and entry not in names:
        more = ", ..." if len(names) > 8 else ""
        raise PtxError(f"no entry {entry!r}; the file has {', '.join(names[:8])}{more}")
    chosen = names[0] if entry is None else entry
    head, body = entries[chosen]
    block = _REQNTID.search(head)
    body = LOC.sub(" ", _FILE.sub(" ", body))
    counts, columns, always_traps = _survey(body)
    return PtxFacts(
        version=version[1], target=target[1], entry=chosen, entries=names,
        threads=math.prod(map(int, block.groups("1"))) if block else None, tmem_columns=columns,
        instructions=sum(counts.values()),
        effects=sum(count for opcode, count in counts.items() if writes_outside(opcode)),
        traps=counts["trap"], always_traps=always_traps, waits=waits_for_others(body),
    )  # fmt: skip


def waits_for_others(body: str) -> bool:
    """Whether a loop of an entry ends only when another block writes to global memory.

    Such a loop reads memory by a load that sees what others write (acquire, relaxed, volatile; or a
    compare-and-swap with what it compares to), writes none, and carries no register from one turn
    to the next. Not after a ticket (an atomic addition whose result is used): such a block can wait
    for those alone that began before it.
    """
    if not _POLLS.search(body):
        return False
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    for match in _STATEMENT.finditer(body):
        statement, at = match[0].strip(), 0
        while label := _LABEL.match(statement, at):
            labels[label[0].strip("{} \n\t:")] = len(code)
            at = label.end()
        code_only = statement[at:].lstrip("{} \n\t")
        if instruction := read_instruction(f"{code_only};"):
            code.append(instruction)
    reads = Counter(name for instruction in code for name in instruction.reads)
    for end, branch in enumerate(code):
        begin = labels.get(branch.operands[-1], end) if branch.base == "bra" else end
        if begin < end and branch.guard and _only_polls(code[begin:end]):
            tickets = (one.writes for one in code[:begin] if _ADDS.match(one.opcode))
            return not any(reads[name] for names in tickets for name in names)
    return False


def _only_polls(turn: Sequence[Instruction]) -> bool:
    written: set[str] = set()
    carried: set[str] = set()
    polls = False
    for one in turn:
        is_poll = _POLLS.match(one.opcode) is not None
        if one.base == "atom":
            is_poll = is_poll and one.operands[-1] == one.operands[-2]
        if not is_poll and writes_outside(one.opcode):
            return False
        polls = polls or is_poll
        carried |= {*one.reads} - written
        written |= {*one.writes}
    return polls and not carried & written


_POLLS = re.compile(
    r"ld\.(?:global\.|gpu\.|sys\.|cluster\.)*(?:acquire|relaxed|volatile|mmio)\b[\w.]*"
    r"|atom\.[\w.]*\bcas\b[\w.]*"
)
_ADDS = re.compile(r"atom\.(?:\w+\.)*(?:add|inc)\b")


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
    for match in _STATEMENT.finditer(code):
        statement = match[0].strip()
        instruction = _FACTS_INSTRUCTION.match(statement)
        if not instruction:
            position = 0
            while label := _LABEL.match(statement, position):
                position = label.end()
            instruction = _FACTS_INSTRUCTION.match(statement, position)
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
    numbers = _held_numbers(allocated, lambda: _instructions(body))
    columns = max(filter(None, numbers), default=None) if None not in numbers else None
    return counts, columns, bool(always_traps)


def blank_opaque(text: str) -> str:
    """The text with comments and the insides of strings blanked: every position stays true."""
    return _replace_opaque(text, _blank)


def uncomment(text: str) -> str:
    """The text with each comment as one blank, strings as they are."""
    return _replace_opaque(text, lambda opaque: opaque if opaque[0] == '"' else " ")


def _replace_opaque(text: str, replacement: Callable[[str], str]) -> str:
    """The text with comments and strings replaced.

    Comments do not nest, one that is not closed reaches to the end; a string ends with its line.
    """
    pieces, position = [], 0
    while opening := _OPAQUE.search(text, position):
        pieces.append(text[position : opening.start()])
        position = _end_of_opaque(text, opening)
        pieces.append(replacement(text[opening.start() : position]))
    pieces.append(text[position:])
    return "".join(pieces)


def _end_of_opaque(text: str, opening: re.Match[str]) -> int:
    if opening[0] == "/*":
        closing = text.find("*/", opening.end())
        return closing + 2 if closing >= 0 else len(text)
    # The nearer of the two at once: to look for each alone reads the rest again for every quote.
    ends = _STRING_ENDS if opening[0] == '"' else _LINE_ENDS
    closing_mark = ends.search(text, opening.end())
    if not closing_mark:
        return len(text)
    return closing_mark.end() if closing_mark[0] == '"' else closing_mark.start()


def _blank(opaque: str) -> str:
    length = len(opaque)
    if opaque[0] == '"' and length > 1:
        return '"' + " " * (length - 2) + '"'
    return " " * length


def _header(clean: str) -> tuple[re.Match[str], re.Match[str]]:
    """The two directives that must open a module, in this order, as ptxas demands it."""
    version = _VERSION.match(clean)
    if not version:
        raise PtxError("no .version directive at the start: not PTX")
    target = _TARGET.match(clean, version.end())
    if not target:
        raise PtxError("no .target directive after .version: not PTX")
    return version, target


def _entries(clean: str) -> Iterator[tuple[str, str, str]]:
    """Name, directives and body of each; a declaration, which ends in a semicolon, has no body."""
    position, pending = 0, None
    while mark := _TOP_LEVEL.search(clean, position):
        position = mark.end()
        if mark[1]:
            pending = mark
        elif mark[0] == ";":
            pending = None
        else:
            position = _end_of_scope(clean, position)
            if pending:
                head, body = clean[pending.end() : mark.end()], clean[mark.end() : position]
                yield pending[1], head, body
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


def without_debug(text: str) -> str:
    """The text without comments, line tables, debug sections and the labels that only they use."""
    text = _FILE.sub(" ", uncomment(text))
    text = LOC.sub(" ", _DEBUG_SECTION.sub(" ", text))
    text = _BLANK_LINES.sub("\n", _LOCAL_LABEL.sub(" ", text))
    lines = (line.strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def body_sha256(text: str) -> str:
    """Hash of what ptxas compiles: no debug information, no paths, no `.version` line.

    Two toolchains with equal body hashes hand ptxas the same program.
    """
    return _hash(_without_header(text, _VERSION))


def instructions_sha256(text: str) -> str:
    """Hash of what is executed: as `body_sha256`, without the target and the hints for registers.

    Executed on the same inputs, two texts with equal hashes do the same.
    """
    return _hash(_REGISTERS.sub("", _without_header(text, _VERSION, _TARGET)))


def _without_header(text: str, *directives: re.Pattern[str]) -> str:
    body = without_debug(text)
    for directive in directives:
        if match := directive.match(body):
            body = body[match.end() :]
    return body


def _hash(body: str) -> str:
    return hashlib.sha256(body.encode(errors="backslashreplace")).hexdigest()


def header_value(name: str, value: str) -> str:
    """`value`, if it can stand after the directive of that name (`version`, `target`).

    Raises `PtxError`: it cannot.
    """
    pattern = {"version": _VERSION, "target": _TARGET}[name]
    if not pattern.fullmatch(f".{name} {value}"):
        example = {"version": "8.8", "target": "sm_90a"}[name]
        raise PtxError(f"{value[:40]!r} is not a .{name}; write it like {example}")
    return value


def retarget(text: str, *, target: str | None = None, version: str | None = None) -> str:
    """The text with another `.target` or `.version`; the rest is byte for byte the same.

    Raises `PtxError`: no `.version` or `.target` at the start, or a value that cannot stand there.
    """
    old_version, old_target = _header(blank_opaque(text))
    # From the back, so that the positions before stay true.
    changes = (("target", target, old_target), ("version", version, old_version))
    for name, value, old in changes:
        if value:
            text = text[: old.start(1)] + header_value(name, value) + text[old.end(1) :]
    return text


# A directive or a modifier keeps its dot.
_WORD = re.compile(r"\.?[A-Za-z_$%][A-Za-z0-9_$]*")
_PARAMETER = re.compile(r"_param_[0-9]+")


def harmless_variants(text: str, entry: str) -> Iterator[tuple[str, str, str]]:
    """What was varied, the text, and the entry's name in it; what changes nothing is left out."""
    renamed = rename_entry(text, entry)
    if renamed:
        yield "with the entry renamed", *renamed
    bare = without_debug(text)
    if bare != text:
        yield "without line information", bare, entry


def rename_entry(text: str, entry: str, new: str = "renamed") -> tuple[str, str] | None:
    """The text with another name (like `new`) for this entry and its parameters, and that name.

    None where there is no such entry, or its name stands for something else too.
    """
    code = blank_opaque(text)
    words = list(_WORD.finditer(code))
    while any(word[0].startswith(new) for word in words):
        new += "_"
    chosen, is_declared, previous = [], False, ""
    for word in words:
        if word[0] == entry and previous == ".entry":
            chosen.append(word)
            is_declared = True
        elif word[0] == entry and code[word.end() : word.end() + 1] != ".":
            return None  # a use, or a name of another kind; `add.f32` does not use an entry `add`
        elif word[0].startswith(entry) and _PARAMETER.fullmatch(word[0], len(entry)):
            chosen.append(word)
        previous = word[0]
    if not is_declared:
        return None
    # Comments, strings and debug sections keep the old name: they are not the program.
    pieces, position = [], 0
    for word in chosen:
        pieces += [text[position : word.start()], new]
        position = word.start() + len(entry)
    return "".join([*pieces, text[position:]]), new


_BLOCK_SIZE = re.compile(r"^[ \t]*\.(?:reqntid|maxntid)\b[^\n{]*", re.MULTILINE)
_NAME_PART = "cutlass"


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxEdit:
    """A directive behind the block size of the entry, or a part of the entry's name."""

    words: str
    meaning: str
    directive: str | None = None


EDITS = (
    PtxEdit(
        words=".minnctapersm 1",
        meaning="asks for one block per SM; ptxas aims at no higher occupancy",
        directive=".minnctapersm 1",
    ),
    PtxEdit(
        words=".maxnreg 255", meaning="allows 255 registers per thread", directive=".maxnreg 255"
    ),
    PtxEdit(
        words=f"{_NAME_PART} in the entry's name",
        meaning="ptxas compiles an entry of such a name otherwise; not documented",
    ),
)


def edited(text: str, entry: str, edit: PtxEdit) -> tuple[str, str] | None:
    """The text after an edit, and the entry's name in it; None where it has no place for it."""
    if edit.directive is None:
        name = f"{entry}_{_NAME_PART}"
        return None if _NAME_PART in entry else rename_entry(text, entry, name)
    changed = with_directive(text, edit.directive)
    return (changed, entry) if changed else None


def with_directive(text: str, directive: str) -> str | None:
    """PTX with a directive behind the block size of its one entry; None where that is not one.

    Nor where the text has the directive already.
    """
    code = blank_opaque(text)
    places = list(_BLOCK_SIZE.finditer(code))
    if len(places) != 1 or re.search(rf"{re.escape(directive.split(maxsplit=1)[0])}\b", code):
        return None
    behind = places[0].end()
    return f"{text[:behind]}\n{directive}{text[behind:]}"
