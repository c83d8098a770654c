"""What `triage package` finds, as values. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cells.document import CompileReport
from harness.values.kernel import Pin, Repro
from harness.workaround.package.functions import FunctionCount
from harness.workaround.package.losses import Loss, TuningList


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A release of a package, and the launches that come to its kernels.

    Each of `launches` has one launch and means every kernel of it. `is_pinned` says that a repro
    pins this very file; else its sha256 is what the package index says. `pinned` are the releases
    that repros pin. `complaints` are about repros that cannot be read.
    """

    pin: Pin
    is_pinned: bool
    pinned: tuple[str, ...]
    launches: tuple[Repro, ...]
    complaints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """A function, or the reason why there is none; `keeps` configs stay."""

    source: str | None
    keeps: int = 0
    why_none: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageReport:
    """The tuning lists of a package, and what would save each; `None` where nothing is to be saved.

    `elsewhere` are kernels that launches reach outside of the package; `surroundings` are options
    that decide what launch code sees.
    """

    reached: Reached
    compiled: CompileReport
    lists: tuple[tuple[TuningList, Pruning | None], ...]
    functions: FunctionCount
    elsewhere: tuple[str, ...]
    surroundings: tuple[str, ...] = ()

    @property
    def losing(self) -> tuple[tuple[TuningList, Pruning | None], ...]:
        """The lists of which all, or most, is lost: the most first."""
        order = (Loss.ALL, Loss.MOST)
        return tuple(each for loss in order for each in self.lists if each[0].loss is loss)

    @property
    def is_incomplete(self) -> bool:
        """Whether something could not be determined: a launch, or a config."""
        return bool(self.compiled.failures) or any(one.unknown for one, _ in self.lists)
