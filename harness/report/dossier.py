"""All that a report of one failure says, before it is said to anybody in particular. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby

from harness.bisect.bisect_words import BisectReport
from harness.bisect.contrast import Contrast
from harness.blame.blame_words import Blame
from harness.blame.grid import Culprit
from harness.judging.answers import VerdictAnswer
from harness.judging.conditions import Condition, spell
from harness.judging.followed import FollowedFailure, follow, measured
from harness.minimize.reduction.fingerprint import Answer
from harness.minimize.reduction.minimization import Minimization
from harness.report.claims import AttachedPlace
from harness.tables.survivors import Survivors, survivors
from harness.values.execution import RunRow
from harness.values.kernel import Pin, ReportNotes
from harness.values.outcome import signal_name
from harness.values.row import Row
from harness.values.toolchain import assembler_name, compiler_name, takes_cubins
from harness.values.verdict import Signature, Stage, VerdictKind
from harness.workaround.result import Candidate


def options_that_work(case: Row, rows: Sequence[Row]) -> Iterator[KnownWorkaround]:
    """Single options of the case's config with which another row came out right."""
    for row in rows:
        new = {n: value for n, value in row.config.items() if value != case.config.get(n)}
        is_elsewhere = (row.target, row.triton) != (case.target, case.triton)
        if is_elsewhere or len(new) != 1 or not row.verdict.is_fine_run:
            continue
        [(name, value)] = new.items()
        yield KnownWorkaround(
            change=f"{name} {case.config.get(name, 'unset')} -> {value}",
            row=row,
            evidence=f"{row.reason.replace(':', ' on these inputs:', 1)}",
        )


def way_of(candidate: Candidate) -> KnownWorkaround:
    """A workaround that was found, as a report has it."""
    numerics = candidate.numerics
    return KnownWorkaround(
        change=candidate.change,
        row=candidate.row,
        evidence=f"{numerics.known.value}: {numerics.reason}",
        paste="\n".join(candidate.paste),
    )


class Upstream(StrEnum):
    """Whom a report is for; `COMPILER` is that of the kernel, which its kind names."""

    TRITON = "triton"
    NVIDIA = "nvidia"
    PROJECT = "project"
    PYTORCH = "pytorch"
    COMPILER = "compiler"

    def spelled(self, compiler: str | None) -> str:
        """As `--for` has it; `compiler` is the kind of the kernel's."""
        return compiler or "" if self is Upstream.COMPILER else self.value


class SourceOrigin(Pin, frozen=True, kw_only=True):
    """Where the kernel's source comes from: a pinned file of the package index.

    `license` is what the package says of itself, None where it says nothing.
    """

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
class KnownWorkaround:
    """A workaround: what is changed, the cell with it, and what is known of its numbers."""

    change: str
    row: Row
    evidence: str
    paste: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dossier:
    """One failure with everything that is known of it; a piece that is None is among `missing`.

    `case` is the failing cell, `rows` those of every config beside it. `is_ptx` says that the input
    is a PTX file. `shown_by` makes the row again, `made_by` the report. `log` is what the failing
    compiler printed. `banner` is what `ptxas --version` prints, `ptxas_package` the distribution
    that carries it, None for a bundled one that the index does not have. `environment` is in the
    manner of collect_env. `elsewhere` has the configs that fail on other versions of the tool in
    which it goes wrong: at both sides of a boundary, and on the newest. `ways` are the best
    workarounds first, as changes of `ways_from`, `patch` is one for the kernel's source.
    `condition` is what is reported in the place of a failure, where the user gave one. `executed`
    is the case as it came out on the emulator, or on a GPU, where that is what is reported;
    `tried` are the cells that `blame` executed beside it, `levels` what it does at each level of
    optimisation. `notes` are said by hand. Of a reduced file of PTX: `given` says
    how it is launched, `listings` are the SASS of it by level, and `invalid` says why it is no
    valid PTX, as far as that was seen. `near` is a program that differs little and works.
    """

    case: Row
    signature: Signature | None
    function: str
    is_ptx: bool = False
    summary: str
    condition: Condition | None = None
    origin: SourceOrigin | None
    issue: str | None
    shown_by: str
    made_by: str = ""
    rows: tuple[Row, ...]
    log: str
    banner: str
    ptxas_package: str | None
    environment: Mapping[str, str]
    elsewhere: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    along_ptxas: BisectReport | None = None
    along_triton: BisectReport | None = None
    flags: Contrast | None = None
    targets: Contrast | None = None
    blame: Blame | None = None
    minimized: Minimization | None = None
    ways: tuple[KnownWorkaround, ...] | None = None
    ways_from: Row | None = None
    patch: str | None = None
    executed: RunRow | None = None
    tried: tuple[Row, ...] = ()
    levels: Mapping[str, VerdictAnswer] = field(default_factory=dict)
    attachments: tuple[Attachment, ...] = ()
    missing: tuple[Missing, ...] = ()
    notes: ReportNotes | None = None
    given: str = ""
    listings: Mapping[str, str] = field(default_factory=dict)
    invalid: str = ""
    near: str = ""

    @property
    def is_invalid(self) -> bool:
        """Whether the input is no valid program: an error message is all that is expected."""
        return bool(self.invalid or (self.notes and self.notes.invalid))

    @property
    def kind(self) -> VerdictKind:
        """The result of the failing cell; of what compiles, the condition says that it is poor."""
        kind = self.case.verdict
        return VerdictKind.SICK if self.condition and kind is VerdictKind.OK else kind

    @property
    def same_as(self) -> str:
        """The open issue that is known to be the same, for which the report is a comment."""
        return self.notes.same_as if self.notes else ""

    @property
    def device(self) -> str:
        """The GPU that executed it; empty where none did."""
        return (self.executed.device if self.executed else None) or ""

    @property
    def of_cubins(self) -> bool:
        """Whether cubins were executed, and what they compute is reported."""
        return self.executed is not None and takes_cubins(self.executed.on)

    @property
    def in_ptxas(self) -> bool:
        """Whether it goes wrong in ptxas, not before, and not for what the compiler wrote."""
        return self.of_cubins or (self.is_in_cubin and not self.is_compilers)

    @property
    def is_in_cubin(self) -> bool:
        """Whether ptxas prints it, which says nothing of whose fault it is."""
        return follow(self.case, condition=self.condition).stage == Stage.CUBIN.value

    @property
    def is_compilers(self) -> bool:
        """Whether blame names the kernel's compiler.

        Poor code has no one place: its history says which compiler it comes from.
        """
        blamed = self.blame is not None and self.blame.culprit is Culprit.TRITON
        return blamed and self.kind is not VerdictKind.SICK

    @property
    def tool(self) -> str:
        """The compiler in which it goes wrong, as a sentence names it."""
        if self.history_axis == self.case.assembler:
            return assembler_name(self.case.assembler)
        return compiler_name(self.case.compiler)

    @property
    def history_axis(self) -> str:
        """The axis of its history.

        Poor code comes from either compiler: it is the one whose versions differ.
        """
        if self.kind is VerdictKind.SICK and self.along_triton and self.along_triton.boundary:
            return self.along_triton.axis
        assembler = self.case.assembler
        return assembler if self.in_ptxas else self.case.compiler or assembler

    @property
    def fates(self) -> Survivors:
        """The configs by their results."""
        return survivors(self.rows)

    @property
    def history(self) -> BisectReport | None:
        """Along the tool in which it goes wrong."""
        is_assembler = self.history_axis == self.case.assembler
        return self.along_ptxas if is_assembler else self.along_triton

    @property
    def newest(self) -> str | None:
        """The newest version of that tool that says anything of this config."""
        rows = self.history.rows if self.history else {}
        telling = [v for v, row in rows.items() if not row.verdict.tells_nothing]
        return telling[-1] if telling else None

    @property
    def followed(self) -> FollowedFailure:
        """What is reported: a failure, or for poor code the condition that its history follows."""
        is_sick = self.kind is VerdictKind.SICK and self.condition is None
        if is_sick and self.history:
            return self.history.followed
        return follow(self.case, condition=self.condition)

    @property
    def reason(self) -> str:
        """What the failing cell says; with a condition, that one and the numbers."""
        if self.condition is None:
            return self.case.reason
        numbers = measured(self.followed.fields, [self.case])
        return f"{spell(self.condition)} ({numbers or self.case.reason})"

    @property
    def failing(self) -> tuple[Row, ...]:
        """The configs that fail as this one does."""
        return tuple(row for row in self.rows if self.outcome(row) is VerdictAnswer.SAME)

    @property
    def executed_rows(self) -> list[Row]:
        """All cells that were executed and that the report names; the case first, each once."""
        histories = self.history.rows.values() if self.history else ()
        ways = [way.row for way in self.ways or ()]
        points = self.targets.points if self.targets else ()
        neighbours = [point.row for point in points if point.row]
        rows = (self.case, *self.rows, *histories, *self.tried, *ways, *neighbours)
        return list({row.cell: row for row in rows}.values())

    @property
    def shown_run(self) -> tuple[AttachedPlace | None, RunRow] | None:
        """What a reader sees when it is executed: the attached file, else the case itself."""
        reduction, name = self.minimized, self.minimized.shown_file if self.minimized else ""
        shown = reduction.left.shown if reduction else None
        if shown and any(file.name == name for file in self.attachments):
            place = AttachedPlace(
                file=name, tool=self.tool, version=self.version, target=self.case.target
            )
            return place, shown
        return (None, self.executed) if self.executed else None

    @property
    def smallest(self) -> dict[str, tuple[VerdictAnswer, str]]:
        """What the reduced file does: for each version that tried it, the outcome and its words.

        Empty for a file of PTX: its history is that of the reduced file.
        """
        reduction = None if self.is_ptx else self.minimized
        if reduction is None:
            return {}
        does: dict[str, tuple[VerdictAnswer, str]] = {}
        for line in reduction.versions if reduction.compiler == self.tool else ():
            answer, kind = line.minimized, line.minimized_kind
            if answer is not None:
                # A reduction keeps refusals of what cannot do it; a history cannot tell there.
                is_refused = answer is Answer.OTHER and kind is not None and kind.tells_nothing
                outcome = VerdictAnswer.UNTESTABLE if is_refused else _OUTCOMES[answer]
                does[line.version] = (outcome, line.minimized_words)
        if self.version not in does and reduction.fingerprint.signature == self.case.signature:
            does[self.version] = (VerdictAnswer.SAME, "")
        return does

    @property
    def version(self) -> str:
        """The failing version of the tool in which it goes wrong."""
        case = self.case
        is_assembler = self.history_axis == case.assembler
        return (case.ptxas if is_assembler else case.compiler_version) or ""

    def places(self, version: str) -> list[AttachedPlace]:
        """The attached inputs on one version of that tool, the smallest first.

        Of the reduced file only where it was tried; a kernel's source as it was given is not
        compiled as the kernel is, so it is none of them.
        """
        names = {file.name for file in self.attachments}
        if self.is_ptx:
            return [self.ptx_place(version)] if self.ptx_file in names else []
        small = self.minimized.shown_file if self.minimized else ""
        inputs = [small] if small in names and version in self.smallest else []
        if self.history_axis == "ptxas" and "original.ptx" in names:
            inputs.append("original.ptx")
        return [
            AttachedPlace(file=file, tool=self.tool, version=version, target=self.case.target)
            for file in inputs
        ]

    @property
    def reproducer(self) -> str:
        """The module and the pipeline that MLIR prints when a pass fails; empty where it did not.

        `triton-opt --run-reproducer` takes it.
        """
        found = _REPRODUCER.search(self.log)
        return found[0] if found else ""

    @property
    def said(self) -> str:
        """What is printed, without that and without warnings and frames of Python."""
        text = _REPRODUCER.sub("[reproducer.mlir]\n", self.log)
        return _FRAMES.sub("", _WARNINGS.sub("", text))

    @property
    def ptx_file(self) -> str:
        """The attached PTX that the history is of: of a file of PTX, what it is reduced to."""
        return self.minimized.shown_file if self.is_ptx and self.minimized else "original.ptx"

    def ptx_place(self, version: str, target: str | None = None, flag: str = "") -> AttachedPlace:
        """That file on one ptxas."""
        target = target or self.case.target
        return AttachedPlace(
            file=self.ptx_file, tool="ptxas", version=version, target=target, flag=flag
        )

    def outcome(self, row: Row) -> VerdictAnswer:
        """What a row says of the failure that is reported."""
        return self.followed.of(row)

    def lifted(self, version: str) -> tuple[list[Row], list[Row]] | None:
        """Of the configs that fail alike: those that this version compiles, and the others.

        None where that was not tried, or says nothing, for one of them.
        """
        there = {row.place: row for row in self.elsewhere.get(version, ())}
        counterparts = [there.get(row.place) for row in self.failing]
        if not counterparts or any(
            row is None or row.verdict.tells_nothing for row in counterparts
        ):
            return None
        rows = [row for row in counterparts if row is not None]
        works = [row for row in rows if self.outcome(row) is VerdictAnswer.OK]
        return works, [row for row in rows if row not in works]


def tried_levels(d: Dossier) -> tuple[list[str], list[str]]:
    """The optimisation levels of ptxas at which it fails, and those at which it works."""
    outcomes = dict(d.levels)
    for point in d.flags.points if d.flags else ():
        if re.fullmatch(r"-O\d", point.label):
            outcomes[point.label] = d.outcome(point.row) if point.row else point.outcome
    fails = sorted(level for level, does in outcomes.items() if does is VerdictAnswer.SAME)
    return fails, sorted(level for level, does in outcomes.items() if does is VerdictAnswer.OK)


def spans(outcomes: Mapping[str, VerdictAnswer], wanted: VerdictAnswer) -> str:
    """`11.8.89 - 13.0.88, 13.5.37`: the versions with an outcome, neighbours as a range."""
    groups = [
        list(group) for does, group in groupby(outcomes, outcomes.__getitem__) if does is wanted
    ]
    return ", ".join(g[0] if len(g) == 1 else f"{g[0]} - {g[-1]}" for g in groups)


def spelled_levels(levels: list[str]) -> str:
    """`-O1 to -O3`, `-O0 and -O3`, `-O0`."""
    numbers = [int(level[2:]) for level in levels]
    if len(levels) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{levels[0]} to {levels[-1]}"
    return " and ".join(levels)


_OUTCOMES = {
    Answer.SAME: VerdictAnswer.SAME,
    Answer.ACCEPTS: VerdictAnswer.OK,
    Answer.OTHER: VerdictAnswer.OTHER,
    Answer.UNTOLD: VerdictAnswer.UNTESTABLE,
}
_REPRODUCER = re.compile(r"(?ms)^(?:#\w+ = .*\n)*module\b.*?mlir_reproducer.*?^#-\}\n")
_WARNINGS = re.compile(r"^\S+\.py:\d+: \w*Warning: .*\n(?:  .*\n)?", re.MULTILINE)
_FRAMES = re.compile(r"^Traceback \(most recent call last\):\n(?:  .*\n)+", re.MULTILINE)
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
