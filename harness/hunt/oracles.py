"""Asks one ptxas and the emulator about programs, many in one module; no answer is kept.

Many entries in one file assemble to the same code as each alone, and ptxas and nvdisasm take longer
to start than for one program. Where ptxas refuses a module, the entries that it names go; where it
fails, the module is halved until one program is left that fails alone.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
from msgspec import structs

from gpu_emulator.api import knows_sass
from gpu_emulator.ptx.forms import OpcodeForm
from gpu_emulator.values import NotExecutable
from harness.frontends.assemble import CODE
from harness.frontends.back_end import PTXAS_BACK_END
from harness.hunt import voting
from harness.hunt.disassembly import BASE, Word, WordText, read_texts, sass_of, words_of
from harness.hunt.generator import RESULTS, THREADS, listing
from harness.hunt.growth import SECONDS, TIME, growth_of, seconds_allowed
from harness.hunt.on_gpu import AssembledModule, Launcher
from harness.hunt.voting import HuntAnswer, Vote, Voter
from harness.io.files.writing import scratch_disk
from harness.io.processes.forked import ForkedTool
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.processes.tasks import Batcher, in_parallel
from harness.judging.judge import judge_assembly
from harness.judging.ptxas.ptxas_log import parse_ptxas_log
from harness.run.emulating import execute_job
from harness.values.errors import InfrastructureError, UsageError
from harness.values.outcome import Assembly
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, PTXAS, Assembler, Tool
from harness.values.verdict import VerdictKind

LEVELS = (0, 3)
"""The levels of ptxas that vote."""

_SASS_LINE = re.compile(r'//## File "k", line ([0-9]+)')
_SASS = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)")
_ENTRY = re.compile(r"\.entry\s+k\b")
ENDS = (VerdictKind.COMPILER_CRASH, VerdictKind.TIMEOUT, VerdictKind.OUT_OF_MEMORY)
"""The verdicts by which any compiler is accused: it does not come to an end of its own."""
_TOOLS = (PTXAS, "nvdisasm", EMULATOR)
# Seconds for a module, and for each of its programs: what takes longer is looked at alone.
_MODULE_SECONDS, _PROGRAM_SECONDS = 20.0, 0.2
_VOTE_SECONDS = 2.0
# Questions of one module: one process assembles it, and one executes it.
_FULL = 128
_FIRST_MAJOR, _MAJORS = 7, 4
# Instruction words whose text is kept: they take some 50 MB.
_MOST_WORDS = 1 << 17


class HuntCase(msgspec.Struct, frozen=True):
    """A program, entry `k` of its module, and the seed of its inputs."""

    text: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Voting:
    is_thorough: bool
    votes: bool
    levels: tuple[int, ...]
    voting: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Oracles:
    """One ptxas for one target; `jobs` processes run at once, by turns in `slots`.

    Without an `nvdisasm`, and without a `gpu`, nothing is executed: there is no vote. `spent` are
    seconds of CPU by what used them.
    """

    hub: Hub
    ptxas: Assembler
    target: Target
    nvdisasm: Tool | None
    limits: ResourceLimits
    jobs: int
    slots: asyncio.Semaphore
    spent: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_TOOLS, 0.0))
    texts: dict[Target, dict[Word, WordText]] = field(default_factory=dict)
    forked: dict[Target, ForkedTool] = field(default_factory=dict)
    gpu: Launcher | None = None

    async def ask(
        self,
        programs: Sequence[HuntCase],
        *,
        is_thorough: bool = False,
        votes: bool = True,
        screens: bool = False,
        levels: tuple[int, ...] = LEVELS,
    ) -> list[HuntAnswer]:
        """An answer for each program; `is_thorough`: the PTX must not depend on garbage, too.

        Without `votes` nothing is executed. Of fewer `levels` each is held to the PTX alone. Where
        it `screens`, all levels assemble, but the others vote only where the last one is wrong.

        Raises:
            InfrastructureError: a tool cannot be started, or the disk is full.
        """
        votes = votes and (self.gpu or self.nvdisasm) is not None
        voting = levels[-1:] if screens else levels
        how = _Voting(is_thorough=is_thorough, votes=votes, levels=levels, voting=voting)
        answers = await self._ask(dict(enumerate(programs)), how)
        wrong = {n: programs[n] for n, answer in answers.items() if answer.vote is Vote.WRONG}
        if voting != levels and wrong:
            answers |= await self._ask(wrong, replace(how, voting=levels))
        return [answers[number] for number in range(len(programs))]

    async def _ask(self, programs: dict[int, HuntCase], how: _Voting) -> dict[int, HuntAnswer]:
        if not programs:
            return {}
        with self.hub.folder("hunt") as folder:
            answers = await self._assembled(folder, programs, how)
            if answers is None:
                return await self._voted(folder, programs, how)
        numbers = [number for number in programs if number not in answers]
        # What nothing was said of is asked again, in halves where it is not known who failed.
        halves = [numbers] if answers else [numbers[::2], numbers[1::2]]
        for half in halves:
            answers |= await self._ask({number: programs[number] for number in half}, how)
        return answers

    async def _assembled(
        self, folder: Path, programs: dict[int, HuntCase], how: _Voting
    ) -> dict[int, HuntAnswer] | None:
        """Assemble for all levels; None where all is well, else what is known of who failed.

        What ptxas takes out of proportion is looked at, too.
        """
        text, starts = module_of(list(programs.values()))
        seconds = _MODULE_SECONDS + _PROGRAM_SECONDS * len(programs)
        limits = self.limits
        if len(programs) > 1:
            limits = structs.replace(limits, timeout=min(limits.timeout, seconds))
        of_levels = await in_parallel(
            self.assemble(folder, text, level, limits, "-v") for level in how.levels
        )
        for assembly in of_levels:
            if assembly.has_cubin:
                continue
            log = parse_ptxas_log(f"{assembly.stdout}\n{assembly.stderr}")
            verdict = judge_assembly(assembly, log=log, entry="k0", target=self.target)
            if verdict.kind is VerdictKind.INFRA:
                raise InfrastructureError(f"ptxas {self.ptxas.version}: {verdict.reason}")
            numbers = list(programs)
            if verdict.kind in (VerdictKind.PTXAS_ICE, *ENDS):
                key = verdict.signature.key if verdict.signature else None
                losing = tuple(
                    n for n, end in zip(how.levels, of_levels, strict=True) if not end.has_cubin
                )
                answer = HuntAnswer(
                    vote=Vote.FAILS, levels=losing, words=verdict.reason, signature=key
                )
                return {numbers[0]: answer} if len(numbers) == 1 else {}
            places = {
                max(bisect_right(starts, error.line) - 1, 0) for error in log.errors if error.line
            }
            if not places and len(numbers) > 1:
                return {}
            answer = HuntAnswer(vote=Vote.REFUSED, words=verdict.reason)
            return {numbers[place]: answer for place in places or {0}}
        by_level = dict(zip(how.levels, of_levels, strict=True))
        return await self._grown(folder, text, programs, by_level, limits)

    async def _grown(
        self,
        folder: Path,
        text: str,
        programs: dict[int, HuntCase],
        of_levels: Mapping[int, Assembly],
        limits: ResourceLimits,
    ) -> dict[int, HuntAnswer] | None:
        """Those of an assembled module that grow; as `_assembled`. A long time is seen twice."""
        grown: dict[int, HuntAnswer] = {}
        if last := of_levels.get(LEVELS[-1]):
            log = parse_ptxas_log(f"{last.stdout}\n{last.stderr}")
            for place, (number, asked) in enumerate(programs.items()):
                usage = log.function(f"k{place}")
                if usage and (growth := growth_of(asked.text, usage, self.target)):
                    signature, words = growth
                    grown[number] = HuntAnswer(
                        vote=Vote.GROWS, levels=LEVELS[-1:], words=words, signature=signature
                    )
        if grown:
            return grown
        seconds = {level: assembly.end.cpu for level, assembly in of_levels.items()}
        if max(seconds.values()) <= SECONDS:
            return None
        allowed = min(seconds_allowed(asked.text) for asked in programs.values())
        slow = [level for level in seconds if seconds[level] > allowed]
        if slow and len(programs) > 1:
            return {}
        for level in slow:
            again = await self.assemble(folder, text, level, limits)
            seconds[level] = min(seconds[level], again.end.cpu)
        slow = [level for level in slow if seconds[level] > allowed]
        if not slow:
            return None
        [number] = programs
        longest = max(seconds[level] for level in slow)
        words = f"ptxas takes {longest:.1f} s of CPU, twice, where {allowed:.1f} are plenty"
        return {
            number: HuntAnswer(vote=Vote.GROWS, levels=tuple(slow), words=words, signature=TIME)
        }

    async def assemble(
        self, folder: Path, text: str, level: int, limits: ResourceLimits, *more: str
    ) -> Assembly:
        """Assemble a module, with `more` options; its code is `level-N.cubin` in the folder."""
        flags = (f"-O{level}", f"--gpu-name={self.target}", *more)
        run = PTXAS_BACK_END.run(self.ptxas, text.encode, flags, None)
        inner = self.hub.new_folder(f"level-{level}", inside=folder)
        async with self.slots:
            assembly = await run.execute(self.hub, inner, limits)
        self.spent[PTXAS] += assembly.end.cpu
        if assembly.has_cubin:
            (inner / CODE).rename(folder / f"level-{level}.cubin")
        else:
            run.check()
        self.hub.drop_folder(inner)
        return assembly

    async def list_sass(self, folder: Path, levels: Sequence[int]) -> str:
        """Write `level-N.sass` of these levels; why that failed, or nothing."""
        assert self.nvdisasm is not None
        cubins = {level: (folder / f"level-{level}.cubin").read_bytes() for level in levels}
        try:
            words = words_of(cubins.values())
            known = self.texts.setdefault(self.target, {})
            texts = {word: known[word] for word in words if word in known}
            new = {word: raw for word, raw in words.items() if word not in texts}
            if new:
                if self.target not in self.forked:
                    raw = ("--binary", str(self.target).replace("sm_", "SM"))
                    argv = (self.nvdisasm.path, *raw, "--base-address", hex(BASE))
                    self.forked[self.target] = ForkedTool(self.hub, argv)
                async with self.slots:
                    end, printed = await self.forked[self.target].run(
                        b"".join(new.values()), self.limits
                    )
                self.spent["nvdisasm"] += end.cpu
                if not end.ok:
                    return f"{self.nvdisasm.label} {end.words}"
                texts |= read_texts(new, printed)
                known.update(texts)
                for word in list(islice(known, max(0, len(known) - _MOST_WORDS))):
                    del known[word]  # the oldest
            for level, cubin in cubins.items():
                with scratch_disk():
                    (folder / f"level-{level}.sass").write_text(sass_of(cubin, texts))
        except (NotExecutable, ValueError) as error:
            return str(error)
        return ""

    async def _voted(
        self, folder: Path, programs: dict[int, HuntCase], how: _Voting
    ) -> dict[int, HuntAnswer]:
        if not how.votes:
            return dict.fromkeys(programs, HuntAnswer(vote=Vote.ASSEMBLED))
        voters = {
            number: Voter(text=asked.text, seed=asked.seed, entry=f"k{place}")
            for place, (number, asked) in enumerate(programs.items())
        }
        if self.gpu is None:
            if problem := await self.list_sass(folder, how.voting):
                return dict.fromkeys(programs, HuntAnswer(vote=Vote.UNTOLD, words=problem))
            return await self._emulated(folder, voters, how.voting, how)
        answers = await self._emulated(folder, voters, (), how)
        defined = {n: one for n, one in voters.items() if answers[n].vote is Vote.RIGHT}
        if defined:
            module = AssembledModule(
                text=module_of(list(programs.values()))[0],
                ptxas=self.ptxas.version,
                cubins={
                    level: (folder / f"level-{level}.cubin").read_bytes() for level in how.voting
                },
                programs=list(defined.values()),
                right=[
                    np.fromfile(folder / voting.RIGHT.format(one.entry), np.uint8).reshape(
                        THREADS, RESULTS
                    )
                    for one in defined.values()
                ],
                is_thorough=how.is_thorough,
            )
            answers |= zip(defined, await self.gpu.ask(module), strict=True)
        return answers

    async def _emulated(
        self, folder: Path, voters: Mapping[int, Voter], levels: tuple[int, ...], how: _Voting
    ) -> dict[int, HuntAnswer]:
        waiting = list(voters.items())
        answers: dict[int, HuntAnswer] = {}
        while waiting:
            job = voting.VoteJob(
                programs=tuple(voter for _, voter in waiting),
                levels=levels,
                is_thorough=how.is_thorough,
            )
            with scratch_disk():
                (folder / voting.JOB).write_bytes(msgspec.json.encode(job))
                (folder / voting.ANSWERS).write_bytes(b"")
            # One program has its budget of instructions; many of them may take longer together.
            seconds = self.limits.timeout + _VOTE_SECONDS * len(waiting)
            limits = structs.replace(self.limits, timeout=seconds)
            async with self.slots:
                end = await execute_job(self.hub, folder, limits, voting.__name__)
            self.spent[EMULATOR] += end.cpu
            lines = (folder / voting.ANSWERS).read_bytes().splitlines()
            given = [msgspec.json.decode(line, type=HuntAnswer) for line in lines]
            answers |= {n: answer for (n, _), answer in zip(waiting, given, strict=False)}
            waiting = waiting[len(given) :]
            if waiting and not end.ok:
                (number, _), *waiting = waiting
                words = f"the emulator's process: {end.words}"
                answers[number] = HuntAnswer(vote=Vote.UNTOLD, words=words)
        return answers

    async def head(self) -> str:
        """The first lines of a module of the oldest `.version` that knows the target.

        So that as many other versions of ptxas as possible take it.

        Raises:
            UsageError: this ptxas does not know the target.
        """
        versions = (
            f"{_FIRST_MAJOR + major}.{minor}" for major in range(_MAJORS) for minor in range(10)
        )
        with self.hub.folder("hunt") as folder:
            for version in versions:
                head = f".version {version}\n.target {self.target}\n.address_size 64\n"
                text = head + ".visible .entry k()\n{\nret;\n}\n"
                if (await self.assemble(folder, text, LEVELS[-1], self.limits)).has_cubin:
                    return head
        raise UsageError(f"ptxas {self.ptxas.version} assembles nothing for {self.target}")

    async def usable(self, head: str, forms: Sequence[OpcodeForm]) -> list[OpcodeForm]:
        """The opcodes that this ptxas takes, with this head, and whose SASS can be executed.

        Which SASS an opcode becomes is read off the line table of one module that has them all, at
        the level that keeps each apart.

        Raises:
            InfrastructureError: ptxas does not say what it refuses, or nvdisasm cannot be run.
        """
        with self.hub.folder("hunt") as folder:
            while True:
                text, places = listing(head, forms)
                assembly = await self.assemble(folder, text, LEVELS[0], self.limits, "-lineinfo")
                if assembly.has_cubin:
                    break
                # Some is refused only where all else is right.
                log = parse_ptxas_log(f"{assembly.stdout}\n{assembly.stderr}")
                refused = {error.line for error in log.errors} & places.keys()
                if not refused:
                    raise InfrastructureError(
                        f"ptxas {self.ptxas.version} does not say what it refuses: {log.errors[:1]}"
                    )
                forms = [form for line, form in places.items() if line not in refused]
            if self.nvdisasm is None:
                return list(places.values())
            cubin = f"level-{LEVELS[0]}.cubin"
            argv = (self.nvdisasm.path, "-c", "-ndf", "-g", cubin)
            async with self.slots:
                end = await self.hub.execute(argv, folder=folder, limits=self.limits)
            self.spent["nvdisasm"] += end.cpu
            if not end.ok:
                raise InfrastructureError(f"{self.nvdisasm.label} {end.words}")
            unknown, line = set(), 0
            for row in (folder / "stdout").read_text().splitlines():
                if place := _SASS_LINE.search(row):
                    line = int(place[1])
                elif (code := _SASS.match(row)) and not knows_sass(code[1]):
                    unknown.add(line)
            return [form for line, form in places.items() if line not in unknown]


def module_of(programs: Sequence[HuntCase]) -> tuple[str, list[int]]:
    """One module with an entry `k0`, `k1`, ... for each, and the line where each begins."""
    head = programs[0].text[: _start_of_entry(programs[0].text)]
    parts, starts, line = [head], [], head.count("\n") + 1
    for number, program in enumerate(programs):
        body = body_of(program.text).rstrip() + "\n"
        body = _ENTRY.sub(f".entry k{number}", body, count=1)
        parts.append(body)
        starts.append(line)
        line += body.count("\n")
    return "".join(parts), starts


def body_of(text: str) -> str:
    """The entry of a module, without the lines before it."""
    return text[_start_of_entry(text) :]


def _start_of_entry(text: str) -> int:
    match = _ENTRY.search(text)
    return text.rfind("\n", 0, match.start()) + 1 if match else len(text)


class AskedTogether:
    """Puts questions of one kind that are asked at the same time into one module.

    A reduction asks about several candidates before it needs the first answer.
    """

    def __init__(self, oracles: Oracles) -> None:
        self.oracles = oracles
        self._kinds: dict[tuple[tuple[int, ...], bool], Batcher[HuntCase, HuntAnswer]] = {}

    def ask(
        self, asked: HuntCase, levels: tuple[int, ...], *, is_thorough: bool = False
    ) -> asyncio.Future[HuntAnswer]:
        """A started question; the arguments are those of `Oracles.ask`."""
        kind = levels, is_thorough
        if kind not in self._kinds:
            answer = partial(self.oracles.ask, levels=levels, is_thorough=is_thorough)
            self._kinds[kind] = Batcher(answer=answer, at_once=self.oracles.jobs, most=_FULL)
        return self._kinds[kind].ask(asked)
