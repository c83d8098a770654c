"""From a hit to its cause: what is known is walked around, the rest is reduced, named and joined.

Hits are duplicates nearly always. A hit is known if it goes away with the one opcode that a known
cause cannot do without (`key`): so it is asked once more without it, and what still fails is a hit
of something else, which that cause no longer hides. What is new is reduced, by the passes of
`triage minimize`, to a program that is as well defined as the one that was generated. Its name is
what is left: the first words of its opcodes, the levels that lose the vote, or what ptxas says.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import msgspec

from gpu_emulator.ptx.text.document import Document, parse, read_head
from gpu_emulator.ptx.text.facts import Instruction
from harness.minimize.hunt.generator import opcode_forms
from harness.minimize.hunt.oracles import Asked, Together
from harness.minimize.hunt.voting import Answer, Vote
from harness.minimize.ptx.reduce import count_instructions, count_unwritten, reduce_ptx
from harness.minimize.reduction.driver import Effort

# A reduction asks about so many candidates at a time, and about so many in all.
_AT_ONCE, _MOST_TESTS = 32, 1500
_PARAMETERS = {"in", "out", "n", "m"}
# What may stand in a program beside the opcodes of the emulator's table that are closed.
_OTHERS = ("ld", "st", "mov", "bra", "ret", "bar")
# What every program has: it loads, stores, and leaves.
_COMMON = ("ld", "st", "ret", "mov")


class LeastProgram(msgspec.Struct, kw_only=True):
    """A reduced program: a text, the seed of its inputs, and the answer that it gets.

    `versions` and `targets` say what other ptxas and targets make of it (`said_of`).
    """

    text: str
    seed: int
    answer: Answer
    versions: dict[str, str] = {}
    targets: dict[str, str] = {}

    @property
    def asked(self) -> Asked:
        """As oracles are asked."""
        return Asked(self.text, self.seed)

    @property
    def opcodes(self) -> tuple[str, ...]:
        """Those of the instructions that compute, with their modifiers, each once."""
        return tuple(sorted({op.opcode for op in computing(parse(self.text))}))

    @property
    def instructions(self) -> int:
        """How many it has, with loads, stores and `ret`."""
        return count_instructions(self.text)


class Cause(msgspec.Struct, kw_only=True):
    """One cause: its least programs, the smallest first, and how often it was hit.

    `seconds` and `tried` say how far the hunt was when it came up.
    """

    programs: list[LeastProgram]
    hits: int = 1
    seconds: float = 0.0
    tried: int = 0

    @property
    def least(self) -> LeastProgram:
        """The smallest of its programs."""
        return self.programs[0]

    @property
    def name(self) -> str:
        """What it is joined by, as a person reads it."""
        return name_of(self.least)

    def parted(self, version: str) -> list[Cause]:
        """One cause for each set of versions on which the programs fail; hits stay with the first.

        `version` is the one that was hunted.
        """
        groups: dict[frozenset[str], list[LeastProgram]] = {}
        for program in self.programs:
            wrong = program.versions.get(version)
            bad = frozenset(v for v, words in program.versions.items() if words == wrong)
            groups.setdefault(bad, []).append(program)
        first, *others = groups.values()
        parts = [msgspec.structs.replace(self, programs=list(first))]
        return parts + [msgspec.structs.replace(self, programs=list(p), hits=1) for p in others]


def said_of(answer: Answer) -> str:
    """An answer in a word or two: `right`, `wrong -O3`, `fails -O0 -O3`."""
    return " ".join([answer.vote.value, *(f"-O{level}" for level in answer.levels)])


def name_of(program: LeastProgram) -> str:
    """The failure that ptxas names; else the first words of what is left, and the losing levels."""
    answer = program.answer
    bases = " ".join(sorted({opcode.partition(".")[0] for opcode in program.opcodes}) or ["mov"])
    levels = " and ".join(f"-O{level}" for level in answer.levels)
    if answer.vote is Vote.FAILS:
        return f"{answer.words[:80]} ({bases})"
    return f"{bases} at {levels}"


def computing(document: Document) -> Iterator[Instruction]:
    """The instructions that are not about addresses, loads and stores."""
    for _, op in document.instructions:
        is_address = {"%in", "%out", "%t"} & set(op.writes)
        if op.base not in _COMMON and not is_address:
            yield op


def without(text: str, opcode: str) -> str:
    """A generated program without an opcode: its registers still have the values they began with.

    With what sets a carry goes what reads it.
    """
    document = parse(text)
    is_chain = _is_of_carry(opcode)
    dropped = [
        place
        for place, op in document.instructions
        if op.opcode == opcode or (is_chain and _is_of_carry(op.opcode))
    ]
    return str(document.without(dropped))


def slices(text: str) -> list[str]:
    """For each store, the program with what this one needs alone: most hits need one value."""
    document = parse(text)
    stores = [place for place, op in document.instructions if op.opcode.startswith("st.global")]
    return [str(_slice(document, [store])) for store in stores if len(stores) > 1]


def _slice(document: Document, stores: Sequence[int]) -> Document:
    """Without the other stores, and without what writes registers that nothing reads."""
    needed: set[str] = set()
    kept: set[int] = set()
    while True:
        more = {
            place
            for place, op in document.instructions
            if place in stores
            or (
                not op.opcode.startswith("st.global") and (not op.writes or needed & set(op.writes))
            )
        }
        if more == kept:
            return document.without(
                [place for place, _ in document.instructions if place not in kept]
            )
        kept = more
        needed = {name for place, op in document.instructions if place in kept for name in op.reads}


def _is_of_carry(opcode: str) -> bool:
    words = opcode.split(".")
    return "cc" in words or words[0] in ("addc", "subc", "madc")


def is_closed(text: str) -> bool:
    """Whether a candidate is of the kind that is generated: no more is open than there."""
    document = parse(text)
    allowed = {form.opcode for form in opcode_forms()}
    sets_carry = False
    for _, op in document.instructions:
        if op.base not in _OTHERS and op.opcode not in allowed and not _is_of_carry(op.opcode):
            return False
        if op.base in ("addc", "subc", "madc") and not sets_carry:
            return False
        sets_carry = "cc" in op.modifiers
    heads = [read_head(line.code) for line in document.statements if ".entry" in line.code]
    return len(heads) == 1 and all(
        head and head.name == "k" and {one.name for one in head.parameters} <= _PARAMETERS
        for head in heads
    )


class Causes:
    """All that a hunt has found. `seen` counts in how many programs each opcode is."""

    def __init__(self, together: Together, causes: list[Cause], seen: Counter[str]) -> None:
        self.together = together
        self.causes = causes
        self.seen = seen

    def key(self, program: LeastProgram) -> str | None:
        """The rarest opcode of a cause: without it there is none of this cause."""
        opcodes = [opcode for opcode in program.opcodes if opcode.partition(".")[0] != "bra"]
        return min(opcodes, key=lambda opcode: (self.seen[opcode], opcode), default=None)

    async def walk_around(self, asked: Asked, answer: Answer) -> tuple[Asked, Answer] | None:
        """The hit without what is known; None where nothing is left of it: that cause is counted.

        Raises:
            InfrastructureError: a tool cannot be started.
        """
        for cause in self.causes:
            for program in cause.programs:
                key = self.key(program)
                there = {op.opcode for op in computing(parse(asked.text))}
                if key is None or not set(program.opcodes) <= there:
                    continue
                less = Asked(without(asked.text, key), asked.seed)
                after = await self._ask(less, answer)
                if not is_same_kind(after, answer):
                    cause.hits += 1
                    return None
                asked, answer = less, after
        return asked, answer

    async def reduce(
        self, asked: Asked, answer: Answer, *, is_time_up: Callable[[], bool]
    ) -> LeastProgram | None:
        """The least program that gets such an answer; None if it does not get it a second time.

        Raises:
            InfrastructureError: a tool cannot be started.
        """
        first = await self._ask(asked, answer)
        if not is_same_kind(first, answer):
            return None
        if answer.vote is Vote.WRONG:
            asked = await self._sliced(asked, answer)
        most = count_unwritten(asked.text)

        async def is_interesting(text: str) -> bool:
            if not is_closed(text) or count_unwritten(text) > most:
                return False
            return is_same_kind(await self._ask(Asked(text, asked.seed), answer), answer)

        result = await reduce_ptx(
            asked.text,
            lambda text: asyncio.ensure_future(is_interesting(text)),
            always=True,
            effort=Effort(jobs=_AT_ONCE, max_tests=_MOST_TESTS, is_time_up=is_time_up),
        )
        alone = [Asked(result.document, asked.seed)]
        votes = answer.vote is Vote.WRONG
        [last] = await self.together.oracles.ask(alone, is_thorough=True, votes=votes)
        least = LeastProgram(text=result.document, seed=asked.seed, answer=last)
        return least if last.is_hit else None

    async def _sliced(self, asked: Asked, answer: Answer) -> Asked:
        """The smallest slice that gets such an answer; the whole program where none does."""
        parts = sorted((Asked(text, asked.seed) for text in slices(asked.text)), key=_length)
        answers = await asyncio.gather(*(self._ask(part, answer) for part in parts))
        fitting = (
            part for part, one in zip(parts, answers, strict=True) if is_same_kind(one, answer)
        )
        return next(fitting, asked)

    async def _ask(self, asked: Asked, like: Answer) -> Answer:
        """The answer to a variant of a hit: alone where ptxas fails, since a module would."""
        if like.vote is Vote.FAILS:
            return (await self.together.oracles.ask([asked], votes=False))[0]
        # One level is enough until the end: nvdisasm takes longest.
        return await self.together.ask(asked, like.levels[-1:])

    def join(self, program: LeastProgram, *, seconds: float, tried: int) -> tuple[Cause, bool]:
        """The cause of a reduced program, and whether it is new."""
        name = name_of(program)
        for cause in self.causes:
            if name_of(cause.least) != name:
                continue
            cause.hits += 1
            if all(one.opcodes != program.opcodes for one in cause.programs):
                cause.programs.append(program)
                cause.programs.sort(key=lambda one: (one.instructions, len(one.text)))
            return cause, False
        cause = Cause(programs=[program], seconds=seconds, tried=tried)
        self.causes.append(cause)
        return cause, True


def _length(asked: Asked) -> int:
    return count_instructions(asked.text)


def is_same_kind(answer: Answer, like: Answer) -> bool:
    """Whether an answer accuses ptxas as another one does: for a failure, in the same words."""
    is_level = answer.levels[-1:] == like.levels[-1:]
    return answer.vote is like.vote and is_level and answer.signature == like.signature
