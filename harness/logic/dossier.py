"""All that a report of one failure says, before it is said to anybody in particular. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from harness.logic.bisect_report import BisectReport
from harness.logic.blame_words import Blame
from harness.logic.contrast import Contrast
from harness.logic.minimization import Minimization
from harness.logic.survivorship import Survivors, survivors
from harness.values.outcome import signal_name
from harness.values.row import Row
from harness.values.verdict import Signature, VerdictKind

__all__ = ["Attachment", "Dossier", "Missing", "Origin", "Upstream", "Way", "search_terms"]


class Upstream(str, Enum):
    """Whom a report is for."""

    TRITON = "triton"
    NVIDIA = "nvidia"
    PROJECT = "project"
    PYTORCH = "pytorch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the kernel's source comes from: a pinned file of the package index.

    `license` is what the package says of itself, None where it says nothing.
    """

    package: str
    version: str
    sha256: str
    module: str
    license: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A piece that the report lacks, why, and the command that makes it."""

    what: str
    why: str
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """A file of the bundle; `what` says what it is."""

    name: str
    data: bytes
    sha256: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A workaround: what is changed, the cell with it, and what is known of its numbers."""

    change: str
    row: Row
    evidence: str
    paste: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """One failure with everything that is known of it; a piece that is None is among `missing`.

    `case` is the failing cell, `rows` those of every config beside it. `shown_by` makes the row
    again, `made_by` the report. `log` is what the failing compiler printed. `build` is the Build
    line of the ptxas, `ptxas_package` the distribution that carries it, None for a bundled one that
    the index does not have. `environment` is told in the manner of collect_env. `ways` are the best
    workarounds first, as changes of `ways_from`, `patch` is one for the kernel's source.
    """

    case: Row
    signature: Signature | None
    function: str
    summary: str
    origin: Origin | None
    issue: str | None
    shown_by: str
    made_by: str
    rows: tuple[Row, ...]
    log: str
    build: str
    ptxas_package: str | None
    environment: Mapping[str, str]
    along_ptxas: BisectReport | None = None
    along_triton: BisectReport | None = None
    flags: Contrast | None = None
    targets: Contrast | None = None
    blame: Blame | None = None
    minimized: Minimization | None = None
    ways: tuple[Way, ...] | None = None
    ways_from: Row | None = None
    patch: str | None = None
    attachments: tuple[Attachment, ...] = ()
    missing: tuple[Missing, ...] = ()

    @property
    def kind(self) -> VerdictKind:
        """What became of the failing cell."""
        return VerdictKind(self.case.verdict)

    @property
    def in_ptxas(self) -> bool:
        """Whether it goes wrong in ptxas, not before."""
        return self.case.stage == "cubin"

    @property
    def fates(self) -> Survivors:
        """The configs by what became of them."""
        return survivors(self.rows)

    @property
    def alike(self) -> int:
        """How many configs fail as this one does."""
        return sum(row.signature == self.case.signature for row in self.rows)

    @property
    def history(self) -> BisectReport | None:
        """Along the tool in which it goes wrong."""
        return self.along_ptxas if self.in_ptxas else self.along_triton

    @property
    def newest(self) -> tuple[str, Row] | None:
        """The newest version of that tool that was tried, and what it did."""
        if self.history is None or not self.history.rows:
            return None
        return list(self.history.rows.items())[-1]


_PHRASE = re.compile(r"[A-Za-z][A-Za-z' -]{8,80}[A-Za-z]")


def search_terms(dossier: Dossier) -> list[str]:
    """What to type into the search box of an issue tracker, the most telling first."""
    return list(dict.fromkeys(_terms(dossier)))


def _terms(dossier: Dossier) -> Iterator[str]:
    case, signature = dossier.case, dossier.signature
    if case.code:
        yield case.code
        yield f"{case.code} {case.target.rstrip('af')}"
    if signature and signature.failing_pass:
        yield signature.failing_pass
    stages = dossier.along_triton.stages if dossier.along_triton else None
    if stages and stages.failing_pass:
        yield stages.failing_pass
    if signature:
        yield from (f'"{phrase}"' for phrase in _PHRASE.findall(signature.template)[:3])
    if case.signal:
        yield f"{'ptxas' if dossier.in_ptxas else 'triton'} {signal_name(case.signal)}"
    yield dossier.function
    yield f"{case.verdict.replace('_', ' ')} {case.target}"
    if dossier.history:
        for boundary in (dossier.history.finding.regression, dossier.history.finding.fix):
            if boundary:
                yield f"{dossier.history.axis} {dossier.history.version(boundary.after)} regression"
