"""What a reduction of one failure came to: all that is printed and written of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from harness.minimize.reduction.fingerprint import (
    Answer,
    Fingerprint,
    Reaction,
    accepting_neighbours,
)
from harness.minimize.reduction.reducer import PassCount, Size
from harness.values.execution import RunRow
from harness.values.standalone import SourceInstall
from harness.values.toolchain import (
    EMULATOR,
    EXECUTOR_NAMES,
    GPU,
    PTXAS,
    TRITON,
    assembler_name,
    compiler_name,
)
from harness.values.verdict import Stage, VerdictKind

LAUNCH_FILE = "kernel.py"
"""A kernel with its launch, named as the candidates are: a fault says in which file it is."""


# How what reads a text says that it is wrong: a compiler, and the assembler of what it wrote.
REFUSALS = frozenset({VerdictKind.REJECTED, VerdictKind.PTXAS_ERROR})


class Ending(StrEnum):
    """Why a reduction stopped."""

    FINISHED = "finished"
    BUDGET = "budget"
    INTERRUPTED = "interrupted"
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLine:
    """What one version does with the original and with what is left of it; None: was not run.

    `minimized_kind` is its verdict on what is left.
    """

    version: str
    original: Answer
    original_words: str
    minimized: Answer | None = None
    minimized_words: str = ""
    minimized_kind: VerdictKind | None = None

    @property
    def is_same(self) -> bool | None:
        """Whether both have the same result; None where that is not known."""
        return None if self.minimized is None else self.minimized is self.original


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """One instruction, and what happens without it, as found by running.

    `is_needed`: without it, the whole fingerprint is not there any more.
    """

    instruction: str
    is_needed: bool
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingToReduce:
    """There is nothing to reduce, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimizedSubject:
    """What was reduced: a cell of a `kernel`, and its `text` as this level has it.

    `stage` is where it goes wrong; `flags` are those of ptxas. `as_version` is the `.version` that
    it was tried with, if another than its own. `undefined` counts the registers that are read
    though nothing may have written them.
    """

    kernel: str
    short: str
    target: str
    flags: tuple[str, ...] = ()
    stage: str | None = None
    as_version: str | None = None
    text: str
    size: Size
    undefined: int = 0

    @property
    def is_executed(self) -> bool:
        """Whether what it computes was looked at, and not how it compiles."""
        return self.stage == Stage.RUN.value


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimizedToolchain:
    """What compiles it: a compiler of a `kind` and `version`, and what `install`s it.

    `assembler` is the kind of what `ptxas` is the version of; `is_of_assemblers`: it takes no PTX,
    and its versions are compared. `packages` are those that carry each ptxas, where an index has
    it. `accused` names the ptxas and level whose cubin goes wrong, where cubins were executed.
    """

    kind: str = TRITON
    version: str | None = None
    install: SourceInstall | None = None
    ptxas: str
    assembler: str = PTXAS
    is_of_assemblers: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)
    accused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimizedLaunch:
    """How what is left is executed: a `command`, and the `files` that go with it.

    `shown` is what came out. `is_comparing`: as a program for a GPU the file with the launch says
    how far its results are from those without a pipeline.
    """

    command: str
    files: Mapping[str, bytes]
    shown: RunRow | None = None
    is_comparing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimizedText:
    """What is left of it, and what is known of that.

    `is_minimal`: nothing can go alone; None where that was not tried out. `not_ablated` pieces were
    not taken away alone. `undefined` is as in `MinimizedSubject`. It has a `launch` where it was
    executed.
    """

    text: str
    size: Size
    is_minimal: bool | None = None
    ablation: tuple[Ablation, ...] = ()
    not_ablated: int = 0
    undefined: int = 0
    launch: MinimizedLaunch | None = None

    @property
    def command(self) -> str | None:
        """What executes it, where that is what was looked at."""
        return self.launch.command if self.launch else None

    @property
    def files(self) -> Mapping[str, bytes]:
        """What goes with it to be executed."""
        return self.launch.files if self.launch else {}

    @property
    def shown(self) -> RunRow | None:
        """What came out when it was executed."""
        return self.launch.shown if self.launch else None


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimizeSpent:
    """What it took, in all runs that worked on it, and how it ended.

    `calls` counts the runs of a compiler, `passes` what each pass did.
    """

    tests: int
    calls: int
    seconds: float
    ending: Ending
    trouble: str | None = None
    passes: Mapping[str, PassCount] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimization:
    """A reduction at a level, finished or not, in the folder `path`.

    `suffix` is that of the files with the original and the result, `options` what `triage compile`
    needs besides to take the latter. `reason` says what goes wrong; `reaction` is what the compiler
    did, None where that was not seen. `limit` is the seconds after which a candidate counts as
    hanging. `versions` are those that were asked about the original.
    """

    level: str
    suffix: str = ".ptx"
    options: str = ""
    path: str
    fingerprint: Fingerprint
    reason: str
    reaction: Reaction | None
    limit: float
    subject: MinimizedSubject
    toolchain: MinimizedToolchain
    left: MinimizedText
    spent: MinimizeSpent
    versions: tuple[VersionLine, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def shown_file(self) -> str:
        """The file that a reader is shown: the one with a launch, where there is one."""
        return LAUNCH_FILE if LAUNCH_FILE in self.left.files else f"min{self.suffix}"

    @property
    def shown_text(self) -> str:
        """What is in it."""
        data = self.left.files.get(LAUNCH_FILE)
        return data.decode() if data is not None else self.left.text

    @property
    def on_gpu(self) -> bool:
        """Whether its cubin was launched on a GPU."""
        return self.left.shown is not None and self.left.shown.on == GPU

    @property
    def compiler(self) -> str:
        """Whose versions `versions` compares: ptxas for PTX, a compiler for what it compiles.

        No version is compared where PTX is executed.
        """
        tools = self.toolchain
        if self.level == "ptx" and self.subject.is_executed:
            return EXECUTOR_NAMES[self.left.shown.on if self.left.shown else EMULATOR]
        if tools.is_of_assemblers:
            return assembler_name(tools.assembler)
        return "ptxas" if self.level == "ptx" else compiler_name(tools.kind)

    @property
    def tool_kind(self) -> str:
        """The kind of the tool whose versions are compared, where it is compiled."""
        tools = self.toolchain
        is_assembler = tools.is_of_assemblers or self.level == "ptx"
        return tools.assembler if is_assembler else tools.kind

    @property
    def is_unheld(self) -> bool:
        """Whether it is refused, and nothing that was tried accepts it: it may be wrong in itself.

        What crashes, or goes wrong later, has been read and found to be valid.
        """
        fingerprint = self.fingerprint
        is_refused = self.reaction is not None and self.reaction.verdict in REFUSALS
        return (
            is_refused
            and fingerprint.signature is not None
            and not (fingerprint.accepting or fingerprint.held_for)
        )

    @property
    def is_same_everywhere(self) -> bool | None:
        """Whether every version with an answer for the original has the same; None: unknown.

        A version that refuses the original in another way counts for compilers, whose refusals are
        kept; for ptxas it asks for nothing.
        """
        telling = [line for line in self.versions if line.original in self._telling]
        if not telling or any(line.is_same is None for line in telling):
            return None
        return not self.drift

    @property
    def _telling(self) -> tuple[Answer, ...]:
        others = () if self.compiler == "ptxas" else (Answer.OTHER,)
        return (Answer.SAME, Answer.ACCEPTS, *others)

    @property
    def last_good(self) -> str | None:
        """The nearest older version that accepts the original."""
        return self._neighbours[0]

    @property
    def first_fixed(self) -> str | None:
        """The nearest newer version that accepts the original."""
        return self._neighbours[1]

    @property
    def _neighbours(self) -> tuple[str | None, str | None]:
        if not self.versions:
            return None, None
        answers = {line.version: line.original for line in self.versions}
        return accepting_neighbours(answers, self.fingerprint.bad)

    @property
    def drift(self) -> tuple[str, ...]:
        """Versions whose answer for the result is not that for the original."""
        return tuple(
            line.version
            for line in self.versions
            if line.original in self._telling and line.is_same is False
        )


def versions_document(result: Minimization) -> dict[str, object]:
    """The same for machines: what is in `versions.json` of the folder."""
    return {
        "schema": 1,
        "compiler": result.compiler,
        "target": result.subject.target,
        "signature": result.fingerprint.signature,
        "original": f"original{result.suffix}",
        "minimized": f"min{result.suffix}",
        "is_same_everywhere": result.is_same_everywhere,
        "differs_on": result.drift,
        "versions": [
            {
                "version": line.version,
                "original": line.original.value,
                "original_reason": line.original_words,
                "minimized": line.minimized.value if line.minimized else None,
                "minimized_reason": line.minimized_words or None,
                "is_same": line.is_same,
            }
            for line in result.versions
        ],
    }
