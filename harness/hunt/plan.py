"""What a hunt is asked for, what is hunted in, what was found, and what the store keeps of it."""

from __future__ import annotations

import itertools
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from harness.frontends.bench import content_key
from harness.hunt.causes import Cause, LeastProgram, is_same_cause, ranked
from harness.hunt.changes import AnyProgram
from harness.hunt.ir_corpus import options_of, suffix_of
from harness.hunt.oracles import HuntCase
from harness.hunt.voting import HuntAnswer, Vote
from harness.io.files.own_code import code_sha256
from harness.run.emulating import emulator_sha256
from harness.store.store import Store
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, Assembler, Compiler

_KIND = "hunt"
"""The kind of record that a hunt is."""

# The modules that make programs and vote on them: a hunt is kept by their code and that of the
# emulator. The others reduce and name what is found: a change there starts no hunt again.
VOTES_ON_PTXAS = (
    *("changes", "corpus", "disassembly", "generator", "growth"),
    *("on_gpu", "oracles", "voting"),
)
# All of `run/` votes, too: it executes launches, and compares what they leave.
VOTES_ON_TRITON = (
    *("changes", "gluon_sources", "growth", "ir_corpus", "ir_defined", "ir_oracles"),
    *("oracles", "triton_oracles", "triton_sources", "voting"),
)


class HuntPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A hunt in one ptxas or one Triton, for `seconds` or `most` programs.

    Programs follow from the `seed`, and take turns with the `targets`; ptxas has one. Where there
    is a `corpus` of texts (PTX, or modules of Triton's IR), these are changed and no programs are
    generated. `on` executes them; a GPU is reached by the `runner`, or is this machine's. In ptxas
    with the emulator of PTX nothing is executed, and what ptxas fails on is found.
    """

    tool: Assembler | Compiler
    targets: tuple[Target, ...]
    seed: int
    seconds: float
    most: int | None = None
    on: str = EMULATOR
    runner: str | None = None
    corpus: tuple[str, ...] = ()

    @property
    def of_ptxas(self) -> bool:
        """Whether it is hunted in ptxas, and not in Triton."""
        return isinstance(self.tool, Assembler)

    @property
    def key(self) -> str:
        """By what the hunt is kept: what its programs and answers follow from."""
        tool = self.tool
        is_ptxas = isinstance(tool, Assembler)
        votes = [f"hunt/{name}.py" for name in (VOTES_ON_PTXAS if is_ptxas else VOTES_ON_TRITON)]
        more = () if is_ptxas else ("run", "frontends/triton/child")
        return content_key(
            tool=[tool.kind, tool.sha256 if isinstance(tool, Assembler) else tool.identity],
            targets=[str(target) for target in self.targets],
            seed=self.seed,
            on=self.on,
            corpus=list(self.corpus),
            code=[code_sha256(*votes, *more), emulator_sha256()],
        )

    @property
    def coordinates(self) -> dict[str, Any]:
        """What is hunted in, for JSON."""
        names = [str(target) for target in self.targets]
        targets = {"target": names[0]} if self.of_ptxas else {"targets": names}
        return {self.tool.kind: self.tool.version, **targets, "on": self.on}

    @property
    def known_by(self) -> str:
        """The name of what hunts are in that have causes in common."""
        return "IR of Triton" if self.corpus and not self.of_ptxas else self.tool.kind

    def target_of(self, seed: int) -> Target:
        """For which GPU the program of a seed is compiled."""
        return self.targets[seed % len(self.targets)]

    def command(self, folder: str, least: LeastProgram) -> str:
        """What executes a least program as the hunt did, where the repro is in this folder.

        The options that say where are those of `triage run`; the emulator needs none.
        """
        where = f" --on {self.on}" if self.on != EMULATOR else ""
        where = f" --runner {shlex.quote(self.runner)}" if self.runner else where
        name = Path(folder).name
        if self.of_ptxas:
            return (
                f"cd {shlex.quote(str(Path(folder).parents[1]))} && triage run --kernel {name}"
                f"{where} --sm {self.targets[0]} --ptxas {self.tool.version} -O 0,3"
            )
        verb = f"run{where}" if least.answer.vote is Vote.WRONG else "compile"
        file = "launch.py"
        if self.corpus:
            options = options_of(least.seed, least.text).items()
            file = f"{name}{suffix_of(least.text)}"
            file += "".join(f" --set {option}={value}" for option, value in options)
        target = self.target_of(least.seed)
        return f"triage {verb} --kernel {folder}/{file} --sm {target} --triton {self.tool.version}"


class Hit(msgspec.Struct, frozen=True):
    """A program that a compiler is accused of, as it was made."""

    asked: HuntCase
    answer: HuntAnswer


class HuntState(msgspec.Struct, kw_only=True):
    """How far a hunt is, over all times that it was run.

    Batches below `batch` are done, and those of `beyond`. `reasons` count why programs were
    refused, left out or not voted on. `curve` has the seconds, programs, causes and seconds of CPU
    each time that one came up. `waiting` are hits that were not reduced yet; `causes` begin with
    those that other hunts found and that are still there.
    """

    batch: int = 0
    beyond: list[int] = []
    tried: int = 0
    seconds: float = 0.0
    votes: dict[str, int] = {}
    reasons: dict[str, int] = {}
    seen: dict[str, int] = {}
    causes: list[Cause] = []
    cpu: float = 0.0
    curve: list[tuple[float, int, int, float]] = []
    waiting: list[Hit] = []

    @property
    def new(self) -> list[Cause]:
        """The causes that this hunt found, as they came up."""
        return ranked([cause for cause in self.causes if not cause.is_known])


@dataclass(slots=True, kw_only=True)
class HuntReport:
    """What a hunt came to; `spent` are seconds of CPU by what used them, `own` this process'.

    `device` is the GPU that voted.
    """

    plan: HuntPlan
    state: HuntState
    spent: Mapping[str, float] = field(default_factory=dict)
    own: float = 0.0
    seconds: float = 0.0
    tried: int = 0
    is_stopped: bool = False
    device: str = ""
    notes: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class HuntedCompiler(ABC):
    """A compiler as it is hunted in: a source of programs, and what asks, reduces and names.

    The source is a function, which makes the `program` of a seed. `batch` programs are asked about
    together, by `jobs` processes.
    """

    plan: HuntPlan
    state: HuntState
    program: Callable[[int], AnyProgram]
    batch: int = 1
    jobs: int = 1

    @abstractmethod
    async def ask(self, programs: Sequence[HuntCase], number: int) -> Sequence[HuntAnswer]:
        """The answers about the batch of this number.

        Raises:
            InfrastructureError: a tool cannot be started, or the disk is full.
        """

    @abstractmethod
    async def still_there(
        self, causes: Sequence[Cause], show: Callable[[str], None]
    ) -> list[Cause]:
        """Those causes of other hunts that are here, too: what is fixed is hunted again."""

    @abstractmethod
    def mark(self, hit: Hit) -> str:
        """What a hit is most likely about: of one mark one is reduced at a time."""

    @abstractmethod
    async def walk_around(self, hit: Hit) -> Hit | None:
        """The hit without what is known; None where nothing is left: that cause is counted."""

    @abstractmethod
    async def reduce(self, hit: Hit, *, is_time_up: Callable[[], bool]) -> LeastProgram | str:
        """The least program that gets such an answer.

        Else why there is none: it does not get it a second time. No words: the time is up before it
        is as small as it can be, or it was counted with a cause that is known by now.

        Raises:
            InfrastructureError: a tool cannot be started.
        """

    @abstractmethod
    async def spread(self, show: Callable[[str], None], is_time_up: Callable[[], bool]) -> None:
        """Ask other versions, and other targets, about all least programs, while there is time."""

    @abstractmethod
    def spent(self) -> Mapping[str, float]:
        """Seconds of CPU by what used them, the compilers first."""

    @property
    def device(self) -> str:
        """The GPU that voted, if one did."""
        return ""

    @property
    def notes(self) -> Iterable[str]:
        """What else there is to say at the end."""
        return ()


class KeptHunt(msgspec.Struct, frozen=True, kw_only=True):
    """A hunt that a store knows, with how far it is; `version` is of what was hunted in.

    Hunts with the same `known_by` have causes in common.
    """

    title: str
    version: str
    state: HuntState
    known_by: str = ""


def keep_hunt(store: Store, plan: HuntPlan, state: HuntState) -> None:
    """Put into the store how far a hunt is.

    Raises:
        StorageError: the disk is full.
    """
    title = f"{plan.tool.name} for {', '.join(map(str, plan.targets))}, seed {plan.seed}"
    hunt = KeptHunt(title=title, version=plan.tool.version, state=state, known_by=plan.known_by)
    store.keep_record(_KIND, plan.key, hunt)


def state_of(store: Store, plan: HuntPlan) -> HuntState:
    """How far a hunt is."""
    kept = store.records(_KIND, KeptHunt, [plan.key]).get(plan.key)
    return kept.state if kept else HuntState()


def kept_hunts(store: Store) -> list[KeptHunt]:
    """All hunts, those that have found the most first."""
    kept = store.records(_KIND, KeptHunt).values()
    return sorted(kept, key=lambda hunt: (-len(hunt.state.new), hunt.title))


def known_causes(store: Store, plan: HuntPlan) -> list[Cause]:
    """The causes that all hunts in a compiler of this kind have found.

    Of those that are the same by name and versions, the one that was found last.
    """
    named: dict[str, list[Cause]] = {}
    for hunt in store.records(_KIND, KeptHunt).values():
        if hunt.known_by == plan.known_by:
            for cause in hunt.state.new:
                same = named.setdefault(cause.name, [])
                same[:] = [one for one in same if not is_same_cause(one.least, cause.least)]
                same.append(cause)
    return list(itertools.chain.from_iterable(named.values()))
