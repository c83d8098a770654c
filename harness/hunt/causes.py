"""Causes: what a hit was reduced to, how it is named, and which are one.

The name of a cause is what is left: the first words of its opcodes, the levels that lose the vote,
or what ptxas says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from gpu_emulator.ptx.text.document import Document, parse
from gpu_emulator.ptx.text.facts import Instruction
from harness.hunt.oracles import HuntCase
from harness.hunt.variants import accesses, computing, first_word
from harness.hunt.voting import HuntAnswer, Vote
from harness.minimize.ptx.reduce import count_instructions

# A cause that this many opcodes of one first word have is taken to be of all of this word.
_OF_ONE_WORD = 3


class LeastProgram(msgspec.Struct, kw_only=True):
    """A reduced program: a text, the seed of its inputs, and the answer that it gets.

    `name` is what causes are joined by, as a person reads it. `opcodes` are those of what computes,
    with their modifiers, each once; `instructions` counts loads and stores too, of a kernel lines.
    `versions` and `targets` say what other ptxas and targets make of it (`said_of`).
    """

    text: str
    seed: int
    answer: HuntAnswer
    name: str
    opcodes: tuple[str, ...]
    instructions: int
    versions: dict[str, str] = {}
    targets: dict[str, str] = {}

    @classmethod
    def of(cls, asked: HuntCase, answer: HuntAnswer) -> LeastProgram:
        """A reduced program of PTX."""
        opcodes = {op.opcode for op in _left(parse(asked.text), answer)}
        return cls(
            text=asked.text,
            seed=asked.seed,
            answer=answer,
            name=name_of(asked.text, answer),
            opcodes=tuple(sorted(opcodes)),
            instructions=count_instructions(asked.text),
        )

    @property
    def asked(self) -> HuntCase:
        """As oracles are asked."""
        return HuntCase(self.text, self.seed)


class Cause(msgspec.Struct, kw_only=True):
    """One cause: its least programs, the smallest first, and how often it was hit.

    `seconds` and `tried` say how far the hunt was when it came up. One that `is_known` was found by
    another hunt.
    """

    programs: list[LeastProgram]
    hits: int = 1
    seconds: float = 0.0
    tried: int = 0
    is_known: bool = False

    @property
    def least(self) -> LeastProgram:
        """The smallest of its programs."""
        return self.programs[0]

    @property
    def name(self) -> str:
        """What it is joined by, as a person reads it."""
        return self.least.name

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


def joined(causes: Sequence[Cause]) -> list[Cause]:
    """Causes whose programs have all that another one needs, and fail where that does, are one.

    Of programs that are reduced at the same time neither is known to the other.
    """
    kept: list[Cause] = []
    for cause in sorted(causes, key=lambda one: (one.least.instructions, one.seconds)):
        least = cause.least
        same = next(
            (
                other
                for other in kept
                if is_same_kind(least.answer, other.least.answer)
                and least.answer.levels == other.least.answer.levels
                and least.versions == other.least.versions
                and _bases(least) >= _bases(other.least)
            ),
            None,
        )
        if same is None:
            kept.append(cause)
            continue
        same.hits += cause.hits
        same.programs += cause.programs
        same.seconds = min(same.seconds, cause.seconds)
        same.tried = min(same.tried, cause.tried)
    return kept


def ranked(causes: Sequence[Cause]) -> list[Cause]:
    """As they came up; what is latent on a GPU comes last."""
    return sorted(causes, key=lambda cause: (cause.least.answer.is_latent, cause.seconds))


def said_of(answer: HuntAnswer) -> str:
    """An answer in a word or two: `right`, `wrong -O3`, `fails -O0 -O3`."""
    return " ".join([answer.vote.value, *(f"-O{level}" for level in answer.levels)])


def name_of(text: str, answer: HuntAnswer) -> str:
    """The failure that ptxas names; else the first words of what is left, and the losing levels.

    A guard that is left could not be taken away: where one is, it is what both levels get wrong,
    of that opcode alone.
    """
    operations = _left(parse(text), answer)
    bases = " ".join(sorted({first_word(op.opcode) for op in operations}) or ["mov"])
    guarded = sorted({op.base for op in operations if op.guard and op.base != "bra"})
    if guarded and len(answer.levels) > 1:
        bases = f"guarded {' '.join(guarded)}"
    levels = " and ".join(f"-O{level}" for level in answer.levels)
    if answer.vote is Vote.GROWS:
        return f"{answer.signature} out of proportion ({bases})"
    if answer.vote is Vote.FAILS:
        return f"{answer.words[:80]} ({bases})"
    return f"{bases} at {levels}"


def _left(document: Document, answer: HuntAnswer) -> list[Instruction]:
    """What a cause is known by: where ptxas fails on them alone, loads and stores, too."""
    operations = list(computing(document))
    if operations or answer.vote is Vote.WRONG:
        return operations
    return list(accesses(document))


def walks_of(cause: Cause, seen: Mapping[str, int]) -> Iterator[tuple[str, frozenset[str]]]:
    """What to leave out of a program that may hit a cause, and what such a program has.

    The rarest opcode of each of its programs (`seen` counts opcodes); and where several of one
    first word were needed, all of this word.
    """
    rarest: list[str] = []
    for program in cause.programs:
        opcodes = [opcode for opcode in program.opcodes if opcode.partition(".")[0] != "bra"]
        if opcodes:
            rarest.append(min(opcodes, key=lambda opcode: (seen.get(opcode, 0), opcode)))
            yield rarest[-1], frozenset(program.opcodes)
    words = Counter(map(first_word, set(rarest)))
    for word, count in words.items():
        if count >= _OF_ONE_WORD:
            yield word, frozenset(_bases(cause.least) | {word})


def known_words(causes: Sequence[Cause], seen: Mapping[str, int]) -> frozenset[str]:
    """What a generator leaves out to walk around causes: opcodes, and first words of opcodes."""
    return frozenset(word for cause in causes for word, _ in walks_of(cause, seen))


def join(
    causes: list[Cause], program: LeastProgram, *, seconds: float, tried: int
) -> tuple[Cause, bool]:
    """The cause of a reduced program, and whether it is new among `causes`."""
    for cause in causes:
        if not is_same_cause(cause.least, program):
            continue
        cause.hits += 1
        if all(one.opcodes != program.opcodes for one in cause.programs):
            cause.programs.append(program)
            # What a GPU may never show is the least program of none that it shows.
            cause.programs.sort(
                key=lambda one: (one.answer.is_latent, one.instructions, len(one.text))
            )
        return cause, False
    cause = Cause(programs=[program], seconds=seconds, tried=tried)
    causes.append(cause)
    return cause, True


def is_same_cause(one: LeastProgram, two: LeastProgram) -> bool:
    """Whether one has all first words of the other, with the same vote: it needs more for it.

    Where a version was asked about both, it says the same of both. Kernels, which no level is
    asked about, are the same by name or by a race.
    """
    if one.answer.levels != two.answer.levels:
        return False
    if not one.answer.levels:
        return one.name == two.name or (one.answer.race == two.answer.race != "")
    if any(one.versions.get(version, words) != words for version, words in two.versions.items()):
        return False
    less, more = sorted((_bases(one), _bases(two)), key=len)
    is_like = is_same_kind(one.answer, two.answer)
    return one.name == two.name or (is_like and bool(less) and less <= more)


def _bases(program: LeastProgram) -> set[str]:
    return {first_word(opcode) for opcode in program.opcodes}


def is_same_kind(answer: HuntAnswer, like: HuntAnswer) -> bool:
    """Whether an answer accuses ptxas as another one does: for a failure, in the same words."""
    is_level = answer.levels[-1:] == like.levels[-1:]
    return answer.vote is like.vote and is_level and answer.signature == like.signature
