"""From a hit to its cause: what is known is walked around, the rest is reduced, named and joined.

Hits are duplicates nearly always. A hit is known if it goes away with the one opcode that a known
cause cannot do without (`key`): so it is asked once more without it, and what still fails is a hit
of something else, which that cause no longer hides. What is new is reduced, by the passes of
`triage minimize`, to a program that is as well defined as the one that was generated. Its name is
what is left: the first words of its opcodes, the levels that lose the vote, or what ptxas says.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from functools import cache
from itertools import islice

import msgspec

from gpu_emulator.ptx.text.document import Document, parse, read_head
from gpu_emulator.ptx.text.facts import Instruction, names_in
from harness.hunt.corpus import CorpusSource, changed_program
from harness.hunt.generator import opcode_forms
from harness.hunt.oracles import LEVELS, Asked, AskedTogether
from harness.hunt.voting import Answer, Vote
from harness.io.processes.tasks import in_parallel
from harness.minimize.ptx.reduce import (
    count_instructions,
    count_unwritten,
    reduce_ptx,
    single_steps,
)
from harness.minimize.reduction.reducer import Effort

# A reduction asks about so many candidates at a time, and about so many in all.
_AT_ONCE, _MOST_TESTS = 32, 1500
_MOST_AT_ONCE = 64
# Seconds for a variant of what ptxas fails on: one that hangs costs all of them.
_LONGEST_VARIANT = 10.0
# How much of what may go alone is tried together: all of it, then less, in several orders.
_SHARES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15)
# A cause that so many opcodes of one first word have is taken to be of all of this word.
_OF_ONE_WORD = 3
# Chunks of a program that are taken away at once: halves, quarters, eighths.
_PARTS = (2, 4, 8)
_PARAMETERS = {"in", "out", "n", "m"}
# What may stand in a program beside the opcodes of the emulator's table that are closed.
_OTHERS = ("ld", "st", "mov", "bra", "ret", "bar")
# What makes an address of an address.
_ADDRESSING = ("mad", "add", "xor")
_REGISTERS = re.compile(r"(\s*\.reg \.\w+ )([^<>]*);")
# What every program has: it loads, stores, and leaves.
_COMMON = ("ld", "st", "ret", "mov")
_MEMORY = _COMMON[:2]
_INPUTS_AND_RESULTS = ("ld.param", "ld.global", "st.global")


_Step = tuple[frozenset[str], frozenset[str]]
"""What a step of a reduction does: the lines that go, and those that come."""


class LeastProgram(msgspec.Struct, kw_only=True):
    """A reduced program: a text, the seed of its inputs, and the answer that it gets.

    `name` is what causes are joined by, as a person reads it. `opcodes` are those of what computes,
    with their modifiers, each once; `instructions` counts loads and stores too, of a kernel lines.
    `versions` and `targets` say what other ptxas and targets make of it (`said_of`).
    """

    text: str
    seed: int
    answer: Answer
    name: str
    opcodes: tuple[str, ...]
    instructions: int
    versions: dict[str, str] = {}
    targets: dict[str, str] = {}

    @classmethod
    def of(cls, asked: Asked, answer: Answer) -> LeastProgram:
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
    def asked(self) -> Asked:
        """As oracles are asked."""
        return Asked(self.text, self.seed)


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


def said_of(answer: Answer) -> str:
    """An answer in a word or two: `right`, `wrong -O3`, `fails -O0 -O3`."""
    return " ".join([answer.vote.value, *(f"-O{level}" for level in answer.levels)])


def name_of(text: str, answer: Answer) -> str:
    """The failure that ptxas names; else the first words of what is left, and the losing levels.

    A guard that is left could not be taken away: where one is, it is what both levels get wrong,
    of that opcode alone.
    """
    operations = _left(parse(text), answer)
    bases = " ".join(sorted({_word(op.opcode) for op in operations}) or ["mov"])
    guarded = sorted({op.base for op in operations if op.guard and op.base != "bra"})
    if guarded and len(answer.levels) > 1:
        bases = f"guarded {' '.join(guarded)}"
    levels = " and ".join(f"-O{level}" for level in answer.levels)
    if answer.vote is Vote.GROWS:
        return f"{answer.signature} out of proportion ({bases})"
    if answer.vote is Vote.FAILS:
        return f"{answer.words[:80]} ({bases})"
    return f"{bases} at {levels}"


def computing(document: Document) -> Iterator[Instruction]:
    """The instructions that are not about addresses, loads and stores."""
    for _, op in document.instructions:
        is_address = op.opcode == "mad.wide.u32" and {"%in", "%out"} & set(op.writes)
        if op.base not in _COMMON and not is_address:
            yield op


def _left(document: Document, answer: Answer) -> list[Instruction]:
    """What a cause is known by: where ptxas fails on them alone, loads and stores, too."""
    operations = list(computing(document))
    if operations or answer.vote is Vote.WRONG:
        return operations
    return list(_accesses(document))


def _accesses(document: Document) -> Iterator[Instruction]:
    """Loads and stores but for those of every program, which are of inputs and results."""
    for _, op in document.instructions:
        if op.base in _MEMORY and _word(op.opcode) not in _INPUTS_AND_RESULTS:
            yield op


def _word(opcode: str) -> str:
    """The first word of an opcode; of a load or store with the space."""
    base, *more = opcode.split(".")
    return ".".join([base, *more[: base in _MEMORY]])


def without(text: str, opcode: str) -> str:
    """A program without an opcode, or all of a first word.

    Its registers still have the values they began with.

    With what sets a carry goes what reads it.
    """
    document = parse(text)
    is_chain = _is_of_carry(opcode)
    dropped = [
        place
        for place, op in document.instructions
        if opcode in (op.opcode, _word(op.opcode)) or (is_chain and _is_of_carry(op.opcode))
    ]
    return str(document.without(dropped))


def slices(text: str) -> list[str]:
    """For each store, the program with what this one needs alone: most hits need one value."""
    document = parse(text)
    stores = [place for place, op in document.instructions if op.opcode.startswith("st.global")]
    return [
        str(pruned(document.without([other for other in stores if other != store])))
        for store in stores
    ]


def _chunks(document: Document) -> Iterator[Document]:
    """The document without each half, quarter and eighth of its instructions."""
    places = [place for place, _ in document.instructions]
    for parts in _PARTS:
        size = -(-len(places) // parts)
        if size > 1:
            for first in range(0, len(places), size):
                yield document.without(places[first : first + size])


def pruned(document: Document) -> Document:
    """Without what writes registers that nothing reads, and labels that nothing names."""
    kept = dict(document.instructions)
    while True:
        read = {name for op in kept.values() for name in op.reads}
        less = {n: op for n, op in kept.items() if not op.writes or read & set(op.writes)}
        if len(less) == len(kept):
            break
        kept = less
    dropped = {place for place, _ in document.instructions if place not in kept}
    labels = {
        n for n, line in enumerate(document.statements) if line.label and line.label not in read
    }
    return document.without(dropped | labels)


def combined(text: str, variants: Sequence[str]) -> str:
    """The text with the changes of several variants, as far as they are of different lines."""
    lines = text.splitlines()
    changes: dict[int, list[str]] = {}
    for variant in variants:
        matcher = SequenceMatcher(None, lines, variant.splitlines(), autojunk=False)
        hunks = [hunk for hunk in matcher.get_opcodes() if hunk[0] != "equal"]
        touched = {n for _, low, high, _, _ in hunks for n in range(low, max(high, low + 1))}
        if touched & changes.keys():
            continue
        for _, low, high, first, last in hunks:
            new = variant.splitlines()[first:last]
            if low == high:
                new = [*new, lines[low]] if low < len(lines) else new
            changes.update({n: [] for n in range(low, max(high, low + 1))})
            changes[low] = new
    return "\n".join(line for n, old in enumerate(lines) for line in changes.get(n, [old])) + "\n"


def _is_of_carry(opcode: str) -> bool:
    words = opcode.split(".")
    return "cc" in words or words[0] in ("addc", "subc", "madc")


@cache
def _allowed() -> frozenset[str]:
    return frozenset(form.opcode for form in opcode_forms())


def is_closed(candidate: str | Document) -> bool:
    """Whether a candidate is of the kind that is generated: no more is open than there."""
    document = parse(candidate) if isinstance(candidate, str) else candidate
    allowed = _allowed()
    carry = ""
    for _, op in document.instructions:
        if op.base not in _OTHERS and op.opcode not in allowed and not _is_of_carry(op.opcode):
            return False
        # A borrow is no carry: what takes the one must not follow what sets the other.
        kind = "borrow" if op.base in ("sub", "subc") else "carry"
        if op.base in ("addc", "subc", "madc") and carry != kind:
            return False
        carry = kind if "cc" in op.modifiers else ""
    if _tells_an_address(document):
        return False
    heads = [read_head(line.code) for line in document.statements if ".entry" in line.code]
    return len(heads) == 1 and all(
        head and head.name == "k" and {one.name for one in head.parameters} <= _PARAMETERS
        for head in heads
    )


def _tells_an_address(document: Document) -> bool:
    """Whether a result may depend on where a buffer or a variable lies, which nothing says."""
    addresses: set[str] = set()
    for _, op in document.instructions:
        named = {
            name
            for operand in op.operands[op.results :]
            if not operand.startswith("[")
            for name in names_in(operand)
        }
        names_one = op.base == "mov" and not all(name.startswith("%") for name in named)
        makes_one = op.base in _ADDRESSING and named & addresses
        if named & addresses and not makes_one:
            return True
        if op.opcode == "ld.param.u64" or names_one or makes_one:
            addresses.update(op.writes)
        else:
            addresses.difference_update(op.writes)
    return False


def _walks(cause: Cause, seen: Mapping[str, int]) -> Iterator[tuple[str, frozenset[str]]]:
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
    words = Counter(map(_word, set(rarest)))
    for word, count in words.items():
        if count >= _OF_ONE_WORD:
            yield word, frozenset(_bases(cause.least) | {word})


def known_words(causes: Sequence[Cause], seen: Mapping[str, int]) -> frozenset[str]:
    """What a generator leaves out to walk around causes: opcodes, and first words of opcodes."""
    return frozenset(word for cause in causes for word, _ in _walks(cause, seen))


class Causes:
    """All that a hunt has found. `seen` counts in how many programs each opcode is."""

    def __init__(
        self, together: AskedTogether, causes: list[Cause], seen: Mapping[str, int]
    ) -> None:
        self.together = together
        self.causes = causes
        self.seen = seen
        self.walked: dict[int, set[str]] = {}
        """What was taken out of a hit already, by its seed."""
        self.refused: set[_Step] = set()
        """Steps of reductions that made a program which ptxas refuses."""

    def is_allowed(self, candidate: str) -> bool:
        """Whether a candidate may be what a program is reduced to."""
        return is_closed(candidate)

    def mark(self, asked: Asked, answer: Answer) -> str:
        """What a hit is most likely about: its rarest opcode, or what ptxas says."""
        opcodes = {op.opcode for op in computing(parse(asked.text)) if op.base != "bra"}
        rarest = min(opcodes, key=lambda opcode: (self.seen.get(opcode, 0), opcode), default="")
        return answer.signature or rarest

    async def walk_around(self, asked: Asked, answer: Answer) -> tuple[Asked, Answer] | None:
        """The hit without what is known; None where nothing is left of it: that cause is counted.

        A hit of wrong code is cut down to one result first. It is not asked twice about one word.

        Raises:
            InfrastructureError: a tool cannot be started.
        """
        walked = self.walked.get(asked.seed)
        if walked is None:
            walked = self.walked[asked.seed] = set()
            if answer.vote is Vote.WRONG:
                texts = [text for text in slices(asked.text) if is_closed(text)]
                parts = [Asked(text, asked.seed) for text in texts]
                answers = await in_parallel(self._ask(part, answer) for part in parts)
                pairs = zip(parts, answers, strict=True)
                wrong = [part for part, one in pairs if is_same_kind(one, answer)]
                asked = min([asked, *wrong], key=lambda part: _size(part.text))
        document = parse(asked.text)
        opcodes = {op.opcode for op in (*computing(document), *_accesses(document))}
        opcodes |= {_word(opcode) for opcode in opcodes}
        walks = {
            word: cause
            for cause in self.causes
            for word, needed in _walks(cause, self.seen)
            if needed <= opcodes and word not in walked
        }
        if not walks:
            return asked, answer
        walked.update(walks)
        less = [Asked(without(asked.text, word), asked.seed) for word in walks]
        least = asked
        for word in walks:
            least = Asked(without(least.text, word), asked.seed)
        *answers, after = await in_parallel(self._ask(one, answer) for one in (*less, least))
        needed_causes = [
            cause
            for cause, one in zip(walks.values(), answers, strict=True)
            if not is_same_kind(one, answer)
        ]
        if is_same_kind(after, answer):
            return least, answer
        # Where only all of them together are needed, several known causes are in it.
        [*needed_causes, *walks.values()][0].hits += 1
        return None

    async def reduce(
        self, asked: Asked, answer: Answer, *, is_time_up: Callable[[], bool]
    ) -> LeastProgram | str:
        """The least program that gets such an answer.

        Else why there is none, in words: it does not get it a second time. No words: the time is up
        before it is as small as it can be, or it was counted with a cause that is known by now.

        Raises:
            InfrastructureError: a tool cannot be started.
        """
        text: str | None = asked.text
        if answer.vote is Vote.WRONG:
            text = await self._narrowed(asked, answer, is_time_up)
        elif not is_same_kind(await self._ask(asked, answer), answer):
            return "a hit that did not come back"
        else:
            most = count_unwritten(asked.text)

            async def is_interesting(candidate: str) -> bool:
                if not self.is_allowed(candidate) or count_unwritten(candidate) > most:
                    return False
                return is_same_kind(await self._ask(Asked(candidate, asked.seed), answer), answer)

            result = await reduce_ptx(
                asked.text,
                lambda candidate: asyncio.ensure_future(is_interesting(candidate)),
                always=True,
                effort=Effort(jobs=_AT_ONCE, max_tests=_MOST_TESTS, is_time_up=is_time_up),
            )
            text = result.document
        if is_time_up() or text is None:
            return ""  # what is half reduced has no name yet
        least = Asked(text, asked.seed)
        if answer.vote is Vote.WRONG:
            last = await self.together.ask(least, LEVELS, is_thorough=True)
        else:
            [last] = await self.together.oracles.ask([least], votes=False)
        return LeastProgram.of(least, last) if last.is_hit else f"a hit that is {said_of(last)}"

    async def _narrowed(
        self, asked: Asked, answer: Answer, is_time_up: Callable[[], bool]
    ) -> str | None:
        """Wrong code, step by step: what is asked at once goes into one module.

        Chunks of instructions go first, then single ones, then every single step is tried; of what
        may go alone, as much as may go together. None where the program turns out to be of a cause
        that came up in the meantime.
        """
        best, tried, failed = asked.text, {asked.text}, set[_Step]()
        draw = random.Random(asked.seed)  # noqa: S311 - to repeat, not to hide

        async def smaller(candidates: Iterable[Document], *, again: bool = False) -> list[str]:
            """Those of them that are as wrong: of the smallest that have some, a module full.

            What failed before is asked `again` where nothing else is left.
            """
            size, lines = _size(best), set(best.splitlines())
            new: list[tuple[tuple[int, int], str, _Step, Document]] = []
            for document in candidates:
                text = str(document)
                of_text = len(document.instructions), len(text)
                others = set(text.splitlines())
                step = frozenset(lines - others), frozenset(others - lines)
                is_vain = step in self.refused or (step in failed and not again)
                if of_text < size and text not in tried and not is_vain:
                    new.append((of_text, text, step, document))
            new.sort(key=lambda one: one[:2])
            allowed = (
                (text, step)
                for _, text, step, document in new
                if is_closed(document) and not count_unwritten(document)
            )
            while some := dict(islice(allowed, _MOST_AT_ONCE)):
                tried.update(some)
                answers = await in_parallel(
                    self._ask(Asked(text, asked.seed), answer) for text in some
                )
                good: list[str] = []
                for (text, step), one in zip(some.items(), answers, strict=True):
                    if is_same_kind(one, answer):
                        good.append(text)
                    else:
                        (self.refused if one.vote is Vote.REFUSED else failed).add(step)
                if good:
                    return good
            return []

        kinds = (_chunks, lambda document: single_steps(document, deletes=True), single_steps)
        for steps in kinds:
            while not is_time_up():
                left = await self.walk_around(Asked(best, asked.seed), answer)
                if left is None:
                    return None
                best = left[0].text
                candidates = [pruned(step) for step in steps(parse(best))]
                good = await smaller(candidates) or await smaller(candidates, again=True)
                if not good:
                    break
                orders = [good, good[::-1], draw.sample(good, len(good))]
                groups = [some[: round(part * len(good))] for part in _SHARES for some in orders]
                joint = [combined(best, group) for group in groups if len(group) > 1]
                better = await smaller(pruned(parse(text)) for text in joint)
                best = min([*good, *better], key=_size)
        return tidy(best)

    async def _ask(self, asked: Asked, like: Answer) -> Answer:
        """The answer to a variant of a hit: alone where ptxas fails, since a module would."""
        if like.vote is not Vote.WRONG:
            oracles = self.together.oracles
            seconds = oracles.limits.timeout
            if like.vote is Vote.FAILS:
                seconds = min(seconds, _LONGEST_VARIANT)
            limits = msgspec.structs.replace(oracles.limits, timeout=seconds)
            return (await replace(oracles, limits=limits).ask([asked], votes=False))[0]
        # One level is enough until the end: nvdisasm takes longest.
        return await self.together.ask(asked, like.levels[-1:])


class CorpusCauses(Causes):
    """All that changes of real PTX have found: `sources` is what was changed."""

    def __init__(
        self,
        together: AskedTogether,
        causes: list[Cause],
        seen: Mapping[str, int],
        sources: Sequence[CorpusSource],
    ) -> None:
        super().__init__(together, causes, seen)
        self.sources = sources

    def is_allowed(self, candidate: str) -> bool:
        """Ptxas may fail on none, whatever it means."""
        return True

    async def reduce(
        self, asked: Asked, answer: Answer, *, is_time_up: Callable[[], bool]
    ) -> LeastProgram | str:
        """As `Causes.reduce`; steps that are not needed are dropped first."""
        made = changed_program(asked.seed, self.sources)
        text, steps = asked.text, made.steps
        if text == made.text:
            for step in made.steps:
                fewer = tuple(one for one in steps if one != step)
                less = made.source.changed(fewer)
                if is_same_kind(await self._ask(Asked(less, asked.seed), answer), answer):
                    text, steps = less, fewer
        return await super().reduce(Asked(text, asked.seed), answer, is_time_up=is_time_up)


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
    return {_word(opcode) for opcode in program.opcodes}


def tidy(text: str) -> str:
    """Without declarations of registers that nothing names; the entry and its parameters stay."""
    named = {name for _, op in parse(text).instructions for name in (*op.reads, *op.writes)}
    lines = []
    for line in text.splitlines():
        if match := _REGISTERS.fullmatch(line):
            names = [name for name in match[2].split(", ") if name in named]
            line = f"{match[1]}{', '.join(names)};" if names else ""  # noqa: PLW2901
        if line:
            lines.append(line)
    return "\n".join(lines) + "\n"


def _size(text: str) -> tuple[int, int]:
    return count_instructions(text), len(text)


def is_same_kind(answer: Answer, like: Answer) -> bool:
    """Whether an answer accuses ptxas as another one does: for a failure, in the same words."""
    is_level = answer.levels[-1:] == like.levels[-1:]
    return answer.vote is like.vote and is_level and answer.signature == like.signature
