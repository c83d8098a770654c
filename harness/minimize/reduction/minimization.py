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
class Minimization:
    """A reduction, finished or not.

    `kind` is that of the compiler, `triton` its version, and `install` what a file of the result
    needs to be compiled. `suffix` is that of the files with the original and the result, `options`
    what `triage compile` needs besides to take the latter. `reason` says what goes wrong, `stage`
    where; `reaction` is what the compiler did, None where that was not seen. `assembler` is the
    kind of what `ptxas` is the version of; `is_of_assemblers`: it takes no PTX, and its versions
    are compared. `as_version` is the `.version` that the original was tried with, if another than
    its own. `packages` are those that carry each ptxas, where an index has it. `limit` is the
    seconds after which a candidate counts as hanging. `is_minimal`: nothing can go alone; None
    where that was not tried out. `undefined` counts the registers that are read though nothing may
    have written them, in the original and now. `tests`, `calls` and `seconds` are of all runs that
    worked on it. `run_command` executes what is left, where that is what was looked at: a file with
    a launch among `run_files`; `shown` is what came out. `is_comparing`: as a program for a GPU
    that file says how far its results are from those without a pipeline. `accused` names the ptxas
    and level whose cubin goes wrong, where cubins were executed.
    """

    kernel: str
    short: str
    target: str
    flags: tuple[str, ...]
    level: str
    suffix: str = ".ptx"
    options: str = ""
    stage: str | None = None
    reason: str
    kind: str = TRITON
    triton: str | None = None
    install: SourceInstall | None = None
    ptxas: str
    assembler: str = PTXAS
    is_of_assemblers: bool = False
    packages: Mapping[str, str] = field(default_factory=dict)
    fingerprint: Fingerprint
    reaction: Reaction | None
    limit: float
    path: str
    as_version: str | None = None
    original_text: str
    text: str
    original: Size
    minimized: Size
    tests: int
    calls: int
    seconds: float
    ending: Ending
    trouble: str | None = None
    versions: tuple[VersionLine, ...] = ()
    ablation: tuple[Ablation, ...] = ()
    not_ablated: int = 0
    is_minimal: bool | None = None
    run_command: str | None = None
    run_files: Mapping[str, bytes] = field(default_factory=dict)
    shown: RunRow | None = None
    is_comparing: bool = False
    accused: str | None = None
    is_defined: bool = False
    undefined: tuple[int, int] = (0, 0)
    passes: Mapping[str, PassCount] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def shown_file(self) -> str:
        """The file that a reader is shown: the one with a launch, where there is one."""
        return LAUNCH_FILE if LAUNCH_FILE in self.run_files else f"min{self.suffix}"

    @property
    def shown_text(self) -> str:
        """What is in it."""
        data = self.run_files.get(LAUNCH_FILE)
        return data.decode() if data is not None else self.text

    @property
    def is_executed(self) -> bool:
        """Whether what it computes was looked at, and not how it compiles."""
        return self.stage == Stage.RUN.value

    @property
    def on_gpu(self) -> bool:
        """Whether its cubin was launched on a GPU."""
        return self.shown is not None and self.shown.on == GPU

    @property
    def compiler(self) -> str:
        """Whose versions `versions` compares: ptxas for PTX, a compiler for what it compiles.

        No version is compared where PTX is executed.
        """
        if self.level == "ptx" and self.is_executed:
            return EXECUTOR_NAMES[self.shown.on if self.shown else EMULATOR]
        if self.is_of_assemblers:
            return assembler_name(self.assembler)
        return "ptxas" if self.level == "ptx" else compiler_name(self.kind)

    @property
    def tool_kind(self) -> str:
        """The kind of the tool whose versions are compared, where it is compiled."""
        is_assembler = self.is_of_assemblers or self.level == "ptx"
        return self.assembler if is_assembler else self.kind

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
        "target": result.target,
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
