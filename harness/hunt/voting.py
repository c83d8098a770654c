"""The vote on what a program computes: its PTX, and the SASS of each level, all emulated.

Where a GPU votes in place of SASS, the PTX alone is emulated here, and `on_gpu.py` counts.
Runs in a fork of the emulator's process (`harness.run.child.serving`), under limits. Answers are
written one by one: what ends the process costs one program, not a batch.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import msgspec
import numpy as np

# Imported here, so that no fork imports them again.
import numpy.ma
import numpy.random

from gpu_emulator.api import run
from gpu_emulator.values import Budget, Checks, Cubin, Launch, Outcome, Schedule
from harness.hunt.generator import RESULTS, comparable, launch_of
from harness.run.comparing import Array

JOB, ANSWERS, RIGHT = "job.json", "answers.jsonl", "{}.right"


SOME_ORDERS = "in some orders"
"""Of a signature: the values are right where asynchronous copies, or warps, come in other orders.

A GPU may never show it: it is latent there.
"""


class Vote(StrEnum):
    """What came of one program; of several configs, the first of these says it.

    `ASSEMBLED`: by all levels; nothing was executed. `REFUSED`: ptxas says that it is not valid.
    `FAILS`: ptxas ends without code and without reason. `GROWS`: it assembles it, and takes
    registers, spills or time out of proportion; or Triton compiles it, and takes time.
    `LEFT_OUT`: the PTX leaves open what it computes. `UNTOLD`: it could not be executed, or no two
    of three agree.
    """

    FAILS = "fails"
    WRONG = "wrong"
    GROWS = "grows"
    RIGHT = "right"
    ASSEMBLED = "assembled"
    LEFT_OUT = "left_out"
    UNTOLD = "untold"
    REFUSED = "refused"


class HuntAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A vote, the levels of ptxas that lost it, and why.

    `signature` is of a failure of ptxas, or says what grows.
    `race` is a pair of accesses of a kernel that nothing orders (`RaceFacts.words`).
    """

    vote: Vote
    levels: tuple[int, ...] = ()
    words: str = ""
    signature: str | None = None
    race: str = ""

    @property
    def is_hit(self) -> bool:
        """Whether ptxas is accused."""
        return self.vote in (Vote.WRONG, Vote.FAILS, Vote.GROWS)

    @property
    def is_latent(self) -> bool:
        """Whether a GPU may always be right."""
        return SOME_ORDERS in (self.signature or "")


class Voter(msgspec.Struct, frozen=True, kw_only=True):
    """One program: its PTX, the seed of its inputs, and the entry that it has in the cubins."""

    text: str
    seed: int
    entry: str


class VoteJob(msgspec.Struct, frozen=True, kw_only=True):
    """The programs of one module; `level-N.cubin` and `level-N.sass` lie beside it.

    Without `levels`, what the PTX leaves is put into a file for each entry; there is no vote.
    `is_thorough`: the PTX is executed with other garbage, too.
    """

    programs: tuple[Voter, ...]
    levels: tuple[int, ...]
    is_thorough: bool = False


# Thread-instructions of the PTX: of 2,000 generated programs the longest needs less than half of
# this. A candidate of a reduction whose loop has lost its end takes seconds for it, not minutes.
_MOST_INSTRUCTIONS = 50_000
# SASS has at most this many for one of PTX (a division at -O0). What has not ended then is given
# `_MORE` times as much; only what takes that, too, does not end.
_SASS_FOR_PTX, _SASS_AT_LEAST, _MORE = 100, 20_000, 20
_MOST_MEMORY = 1 << 28
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([\w$]+),", re.MULTILINE)


def work(folder: Path) -> None:
    """Answer for every program of the job in a folder."""
    # What decoding leaves is small, and this process ends soon: a sixth of its time was collecting.
    gc.set_threshold(50_000)
    job = msgspec.json.decode((folder / JOB).read_bytes(), type=VoteJob)
    cubins = {level: _cubins(folder, level) for level in job.levels}
    with (folder / ANSWERS).open("ab", buffering=0) as answers:
        for program in job.programs:
            if job.levels:
                of_levels = {level: parts.get(program.entry) for level, parts in cubins.items()}
                answer = vote_on(program, of_levels, is_thorough=job.is_thorough)
            else:
                launch = launch_of(program.seed, program.text)
                right = _right(launch, emulated_ptx(launch), is_thorough=job.is_thorough)
                if isinstance(right, HuntAnswer):
                    answer = right
                else:
                    answer = HuntAnswer(vote=Vote.RIGHT)
                    (folder / RIGHT.format(program.entry)).write_bytes(right.tobytes())
            answers.write(msgspec.json.encode(answer) + b"\n")


def _cubins(folder: Path, level: int) -> dict[str, Cubin]:
    """A cubin with the part of its listing that each entry has."""
    elf = (folder / f"level-{level}.cubin").read_bytes()
    listing = (folder / f"level-{level}.sass").read_text()
    sections = [*_SECTION.finditer(listing)]
    head = listing[: sections[0].start()] if sections else ""
    ends = [*(section.start() for section in sections[1:]), len(listing)]
    return {
        section[1]: Cubin(elf=elf, listing=head + listing[section.start() : end])
        for section, end in zip(sections, ends, strict=True)
    }


def vote_on(program: Voter, cubins: Mapping[int, Cubin | None], *, is_thorough: bool) -> HuntAnswer:
    """The vote on one program, by the entry that it has in the cubin of each level.

    Whether the PTX says what is computed is asked where not all agree: checks take a third more.
    """
    launch = launch_of(program.seed, program.text)
    expected = _executed(launch, Checks(), _MOST_INSTRUCTIONS)
    right = _right(launch, expected, is_thorough=is_thorough)
    if isinstance(right, HuntAnswer):
        return right
    usual = _SASS_AT_LEAST + _SASS_FOR_PTX * expected.executed
    most = dict.fromkeys(cubins, usual)
    results: dict[int, Array] = {}
    launches: dict[int, Launch] = {}
    for level, cubin in cubins.items():
        if cubin is None:
            return HuntAnswer(vote=Vote.UNTOLD, words=f"-O{level}: nvdisasm lists no such entry")
        launches[level] = replace(launch, ptx="", cubin=cubin, entry=program.entry)
        outcome = _executed(launches[level], Checks(), usual)
        if outcome.is_out_of_budget:
            most[level] = _MORE * usual
            outcome = _executed(launches[level], Checks(), most[level])
        if outcome.not_run and not outcome.is_out_of_budget:
            return HuntAnswer(vote=Vote.UNTOLD, words=f"SASS: {outcome.not_run}")
        # A fault leaves what cannot be right.
        is_faulty = bool(outcome.faults) or not outcome.allocations
        results[level] = right ^ 0xFF if is_faulty else comparable(outcome.allocations[1].data)
    answer = counted(right, results)
    if answer.vote is not Vote.RIGHT and (open_words := _left_open(emulated_ptx(launch))):
        return HuntAnswer(vote=Vote.LEFT_OUT, words=open_words)
    # Threads that wrongly write different values to one place may still leave the right one on a
    # GPU, which chooses among them: no least program of a cause is such.
    for level in answer.levels if answer.vote is Vote.WRONG else ():
        if _executed(launches[level], Checks(races=True), most[level]).races:
            return HuntAnswer(
                vote=Vote.LEFT_OUT, words="threads write different values to one place"
            )
    return answer


def _right(launch: Launch, expected: Outcome, *, is_thorough: bool) -> Array | HuntAnswer:
    """What the PTX leaves, as it was executed; or why there is nothing to vote on."""
    if expected.is_out_of_budget:
        most = f"{_MOST_INSTRUCTIONS:,} instructions of threads"
        return HuntAnswer(vote=Vote.LEFT_OUT, words=f"no end within {most}")
    if expected.not_run:
        return HuntAnswer(vote=Vote.UNTOLD, words=f"PTX: {expected.not_run}")
    if open_words := _left_open(expected):
        return HuntAnswer(vote=Vote.LEFT_OUT, words=open_words)
    right = comparable(expected.allocations[1].data)
    if is_thorough:
        other = _executed(launch, Checks(), _MOST_INSTRUCTIONS, Schedule(garbage=1))
        if other.faults or other.not_run or (comparable(other.allocations[1].data) != right).any():
            return HuntAnswer(vote=Vote.LEFT_OUT, words="the result depends on what nothing wrote")
    return right


def emulated_ptx(launch: Launch) -> Outcome:
    """What the PTX of a launch computes, with all that is wrong with it."""
    return _executed(launch, Checks(races=True, validity=True), _MOST_INSTRUCTIONS)


def _executed(
    launch: Launch, checks: Checks, most: int, schedule: Schedule | None = None
) -> Outcome:
    budget = Budget(max_instructions=most, max_memory=_MOST_MEMORY)
    return run(launch, schedule, budget, checks)


def _left_open(outcome: Outcome) -> str:
    """Why the PTX does not say what is computed; empty if it does."""
    for problems in (outcome.faults, outcome.races, outcome.uninitialised):
        for problem in problems:
            return problem.what
    return ""


def counted(right: Array, results: Mapping[int, Array]) -> HuntAnswer:
    """Who loses, of the PTX, which leaves `right`, and what each level leaves."""
    wrong = tuple(level for level, result in results.items() if (result != right).any())
    if not wrong:
        return HuntAnswer(vote=Vote.RIGHT)
    losing = [results[level] for level in wrong]
    if len(wrong) == len(results) and any((one != losing[0]).any() for one in losing):
        return HuntAnswer(vote=Vote.UNTOLD, levels=wrong, words="no two of three agree")
    thread, offset = (int(n) for n in np.argwhere(losing[0] != right)[0])
    first = offset & ~3
    both = (right, losing[0])
    values = [int(rows[thread, first : first + 4].view(np.uint32)[0]) for rows in both]
    words = f"thread {thread}, bytes {first}-{first + 3} of {RESULTS}: {{1:#010x}}, PTX {{0:#010x}}"
    return HuntAnswer(vote=Vote.WRONG, levels=wrong, words=words.format(*values))
