"""What a reduction of one failure came to: all that is printed, written and told of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from harness.logic.fingerprint import Answer, Fingerprint, Reaction, accepting_neighbours
from harness.logic.reduction import PassCount

__all__ = ["Ablation", "Ending", "Minimization", "Size", "Uninteresting", "VersionLine"]


class Ending(str, Enum):
    """Why a reduction stopped."""

    FINISHED = "finished"
    BUDGET = "budget"
    INTERRUPTED = "interrupted"
    TROUBLE = "trouble"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Of a text. `instructions` are those of PTX; `lines` counts what the level counts."""

    instructions: int | None = None
    bytes: int
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLine:
    """What one ptxas does with the original and with what is left of it; None: was not run."""

    version: str
    original: Answer
    original_words: str
    minimized: Answer | None = None
    minimized_words: str = ""

    @property
    def is_same(self) -> bool | None:
        """Whether both fare alike; None where that is not known."""
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
class Uninteresting:
    """There is nothing to reduce, and why."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimization:
    """A reduction, finished or not.

    `suffix` is that of the files with the original and the result, `options` what `triage compile`
    needs besides to take the latter. `reason` says what goes wrong, `stage` where; `reaction` is
    what the compiler did, None where that was not seen. `as_version` is the `.version` that the
    original was tried with, where it was another than its own. `packages` are the distributions
    that carry each ptxas, where an index has it. `limit` is the seconds after which a candidate
    counts as hanging. `is_minimal`: nothing can go alone; None where that was not tried out.
    `undefined` counts the registers that are read though nothing may have written them, in the
    original and now. `tests`, `calls` and `seconds` are of all runs that worked on it.
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
    triton: str | None = None
    ptxas: str
    packages: Mapping[str, str]
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
    is_defined: bool = False
    undefined: tuple[int, int] = (0, 0)
    passes: Mapping[str, PassCount] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

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
        answers = {line.version: line.original for line in self.versions}
        return accepting_neighbours(answers, self.ptxas)

    @property
    def drift(self) -> tuple[str, ...]:
        """Versions that failed this way or accepted, and no longer do."""
        telling = (Answer.SAME, Answer.ACCEPTS)
        return tuple(
            line.version
            for line in self.versions
            if line.original in telling and line.is_same is False
        )
