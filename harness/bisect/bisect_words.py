"""What a bisection found, in the words that a report wants, and as a document. Pure."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from harness.bisect.ir_difference import StageStory
from harness.bisect.search import Boundary, Finding, Tally, bounds_said, confidence
from harness.judging.answers import LIMITS_OF_OURS, VerdictAnswer
from harness.judging.followed import PAIRING, FollowedFailure, is_followable, measured
from harness.tables.said import BLANK, Block, SaidLine, Tone, say, verdict_said
from harness.tables.summary import plural
from harness.values.cell import CellId
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.toolchain import EMULATOR, NO_ASSEMBLER, PTXAS, RELEASE, compiler_name
from harness.values.verdict import VerdictKind


def bisection_said(report: BisectReport) -> list[Block]:
    """The versions, oldest first, what lies at the boundary, and the line to paste."""
    lines: list[Block] = [_span_said(span) for span in spans(report)]
    if report.stages:
        lines += [BLANK, *map(say, stage_lines(report, report.stages))]
    if report.followed.words:
        lines += [BLANK, say(f"Followed: {report.followed.words}.")]
    lines += [BLANK, say(report_line(report), Tone.HEAD)]
    return [*lines, *map(say, filter(None, [upgrade_words(report)]))]


def upgrade_words(report: BisectReport) -> str:
    """That the newest version that was tried is without the failure; empty where it is not."""
    newest = spans(report)[-1]
    is_over = report.finding.fix is not None and newest.outcome is VerdictAnswer.OK
    name = f"{compiler_name(report.axis)} {newest.last}"
    return (
        f"{name}, the newest that was tried, is without it: upgrading ends it." if is_over else ""
    )


def _span_said(span: Span) -> SaidLine:
    name = span.first if span.first == span.last else f"{span.first} - {span.last}"
    line = say(f"{name:>20}  ")
    if span.verdict:
        line += verdict_said(VerdictKind(span.verdict))
    mark = "  <- this failure" if span.outcome is VerdictAnswer.SAME else ""
    return line + say(f"{mark}  {span.reason}", Tone.FAINT)


def stage_lines(report: BisectReport, story: StageStory) -> list[str]:
    """What the compilers on both sides make of the kernel, and what they are made of."""
    assert report.boundary is not None
    before, after = report.version(report.boundary.before), report.version(report.boundary.after)
    tool = compiler_name(report.axis)
    lines = [f"Between {tool} {before} and {after} (+ is what {after} has and {before} has not):"]
    lines += [f"  {stage.stage:>5}: {stage.words}" for stage in story.stages]
    if story.first:
        how = "in kind" if story.first.differs else "in number"
        lines.append(f"First stage that differs {how}: {story.first.stage}.")
    if story.trap_stage:
        maker = f", inserted by pass {story.failing_pass}" if story.failing_pass else ""
        lines.append(f"The trap is first seen in {story.trap_stage}{maker}.")
    elif story.failing_pass:
        lines.append(f"Failing pass: {story.failing_pass}.")
    if all(story.llvm):
        is_same = story.llvm[0] == story.llvm[1]
        commits = f"{story.llvm[0]} in {before}, {story.llvm[1]} in {after}"
        lines.append(f"LLVM: {f'{story.llvm[0]} in both' if is_same else commits}.")
    if all(story.ptxas):
        lines.append(f"Bundled ptxas for this target: {story.ptxas[0]} against {story.ptxas[1]}.")
    return lines


def report_line(report: BisectReport) -> str:
    """One paragraph: last good, first bad, first fixed, holes, confidence, whose PTX it was."""
    finding, tool = report.finding, compiler_name(report.axis)
    if finding.newest_bad is None:
        shows = "meets the condition" if report.followed.condition else "shows this failure"
        return f"No {tool} that was tried {shows}."
    parts = bounds_said(report, tool)
    if finding.came_back:
        parts.append("It failed, worked, and failed again: all segments are above.")
    parts += [numbers_line(report)] if report.followed.fields else []
    parts += _confidence(report)
    if report.ptx_identical is not None:
        same = "yes" if report.ptx_identical else "no"
        parts.append(f"{report.code} identical on both sides: {same}{blame_words(report)}.")
    if any(row.ptxas == EMULATOR for row in report.rows.values()):
        parts.append(f"Emulated: the PTX of each {tool}, executed on the same inputs.")
    sides = report.boundary and (report.boundary.before, report.boundary.after)
    if sides and len({report.version(side).partition("+")[2] for side in sides}) > 1:
        parts.append("The sides are of two distributions: each may have changes of its own.")
    if finding.unprobed:
        count = plural(len(finding.unprobed), "version")
        verb = "was" if len(finding.unprobed) == 1 else "were"
        parts.append(f"{count} {verb} not tried (--sweep tries all).")
    return " ".join(filter(None, parts))


def bounds_line(report: BisectReport) -> str:
    """Where it began and where it ended, and no more."""
    if report.finding.newest_bad is None:
        return report_line(report)
    return " ".join(bounds_said(report, compiler_name(report.axis))[:2])


def numbers_line(report: BisectReport) -> str:
    """The numbers on both sides of the boundary; empty where no numbers are followed."""
    boundary, fields = report.boundary, report.followed.fields
    if boundary is None:
        rows = [
            row for row in report.rows.values() if report.followed.of(row) is VerdictAnswer.SAME
        ]
        numbers = measured(fields, rows)
        return f"Numbers: {numbers}." if numbers else ""
    sides = []
    for index in (boundary.before, boundary.after):
        row = report.rows.get(report.version(index))
        sides.append(f"{measured(fields, [row] if row else [])} with {report.version(index)}")
    return f"Numbers: {', '.join(sides)}." if fields else ""


def _confidence(report: BisectReport) -> list[str]:
    if report.sides is None:
        return []
    bad, good = report.sides
    counts = f"{bad.failures}/{bad.runs} against {good.failures}/{good.runs}"
    parts = [f"Confidence {report.confidence:.2f} ({counts})."]
    if bad.is_flaky:
        parts.append("Flaky: it comes and goes on one version.")
    return parts


def blame_words(report: BisectReport) -> str:
    """What equal or unequal PTX says, where it says something."""
    if report.blame is None:
        return ""
    if report.blame == PAIRING:
        return "; these versions do not go together, and no component is at fault"
    if report.along_assembler:
        return f", so {compiler_name(report.axis)}"
    return f": it depends on the {compiler_name(report.axis)}"


def bisect_document(report: BisectReport) -> dict[str, Any]:
    """For `--json`."""
    finding = report.finding
    return {
        "schema": 1,
        "axis": report.axis,
        "kernel": report.cell.kernel if report.cell else None,
        "launch": report.cell.launch if report.cell else None,
        "config": report.config.as_dict() if report.config else None,
        "signature": report.signature,
        "followed": report.followed.words,
        "last_good": _version(report, finding.regression, before=True),
        "first_bad": _version(report, finding.regression),
        "first_bad_candidates": _candidates(report, finding.regression),
        "first_fixed": _version(report, finding.fix),
        "first_fixed_candidates": _candidates(report, finding.fix),
        "gone_from": _gone(report),
        "untestable": [report.version(index) for index in finding.holes],
        "not_tried": [report.version(index) for index in finding.unprobed],
        "segments": [
            {
                "first": report.version(part.first),
                "last": report.version(part.last),
                "outcome": part.probe.outcome.value,
                "verdict": part.probe.verdict,
                "signature": part.probe.signature,
                "reasons": list(
                    dict.fromkeys(map(report.reason_of, range(part.first, part.last + 1)))
                ),
            }
            for part in finding.segments
        ],
        "others": [
            {"version": report.version_of(row)}
            | {"verdict": row.verdict, "reason": row.reason, "signature": row.signature}
            for row in report.other_failures
        ],
        "came_back": finding.came_back,
        "confidence": report.confidence,
        "runs": {
            version: {"failures": tally.failures, "runs": tally.runs}
            for version, tally in report.tallies.items()
        },
        "ptx_identical": report.ptx_identical,
        "blame": report.blame,
        "stages": {
            "differs": {stage.stage: stage.differs for stage in report.stages.stages},
            "gained": {stage.stage: stage.gained for stage in report.stages.stages},
            "counts": {stage.stage: dict(stage.counts) for stage in report.stages.stages},
            "lost": {stage.stage: stage.lost for stage in report.stages.stages},
            "first": report.stages.first.stage if report.stages.first else None,
            "failing_pass": report.stages.failing_pass,
            "trap_stage": report.stages.trap_stage,
            "llvm": report.stages.llvm,
            "bundled_ptxas": report.stages.ptxas,
        }
        if report.stages
        else None,
        "trouble": report.trouble,
    }


def _gone(report: BisectReport) -> dict[str, Any] | None:
    last = report.finding.fix.left if report.finding.fix else report.finding.vanishes
    if last is None or not report.is_clean_end(last.after):
        return None
    return {"candidates": _candidates(report, last), "ends_with": report.reason_of(last.after)}


def _version(
    report: BisectReport, boundary: Boundary | None, *, before: bool = False
) -> str | None:
    if boundary is None:
        return None
    if before:
        return report.version(boundary.before)
    # A bare version only where nothing lies between.
    return report.version(boundary.after) if boundary.exact else None


def _candidates(report: BisectReport, boundary: Boundary | None) -> list[str]:
    return [report.version(index) for index in boundary.candidates] if boundary else []


# What a bisection says: the finding, with the rows that it rests on.


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectReport:
    """What was found of one cell along one axis; `rows` are by version, in the order of `versions`.

    `cell` is the one that was tried first; None where none was ever captured. `tallies` say how
    often each version was run. `stages` is what the compilers at both sides of a Triton boundary
    made. `trouble` says why it ended early; `has_all`: `versions` are all that there are.
    """

    axis: str
    versions: tuple[str, ...]
    rows: dict[str, Row]
    reasons: dict[str, str]
    tallies: dict[str, Tally]
    finding: Finding
    followed: FollowedFailure
    cell: CellId | None
    others: tuple[CellId, ...]
    stages: StageStory | None
    trouble: str | None
    has_all: bool = True

    @property
    def config(self) -> Config | None:
        """The config that is followed."""
        return self.cell.config if self.cell else None

    @property
    def signature(self) -> str | None:
        """The failure that is followed, or that of the row whose numbers are."""
        return self.followed.signature

    def version(self, index: int) -> str:
        """The name of a point of the axis."""
        return self.versions[index]

    def row(self, index: int) -> Row | None:
        """What a version did; None where there was nothing to compile, or only a script's word."""
        return self.rows.get(self.version(index))

    def reason_of(self, index: int) -> str:
        """The reason of a version's answer, in words."""
        row = self.row(index)
        return row.reason if row else self.reasons.get(self.version(index), "nothing that is known")

    def is_clean_end(self, index: int) -> bool:
        """Whether a version comes to an end of its own, with a reason: no limit cut it."""
        row = self.row(index)
        if row is None:
            return self.version(index) in self.reasons
        kind = row.verdict
        return kind not in LIMITS_OF_OURS and kind not in (VerdictKind.INFRA, VerdictKind.NOT_RUN)

    @property
    def other_failures(self) -> tuple[Row, ...]:
        """One row for each other failure that was seen, the newest version that shows it."""
        newest: dict[str | None, Row] = {}
        for version in self.versions:
            row = self.rows.get(version)
            if row and is_followable(row):
                outcome = self.followed.of(row)
                is_better = outcome is VerdictAnswer.OK and self.followed.condition is not None
                if outcome is not VerdictAnswer.SAME and not is_better:
                    newest[row.signature] = row
        return tuple(newest.values())

    @property
    def boundary(self) -> Boundary | None:
        """The one that the report rests on: where it began, else where it ended."""
        return self.finding.regression or self.finding.fix

    @property
    def sides(self) -> tuple[Tally, Tally] | None:
        """How often the failing and the working side of the boundary were run, and failed."""
        if self.boundary is None:
            return None
        before, after = (
            self.tallies.get(self.version(i), Tally())
            for i in (self.boundary.before, self.boundary.after)
        )
        return (after, before) if self.finding.regression else (before, after)

    @property
    def confidence(self) -> float | None:
        """How sure it is that the working side works; None without a boundary."""
        return confidence(*self.sides) if self.sides else None

    @property
    def along_assembler(self) -> bool:
        """Whether its versions are those of an assembler, and not of what lowers for it."""
        kinds = {row.assembler for row in self.rows.values()}
        return self.axis == PTXAS or self.axis in kinds

    @property
    def code(self) -> str:
        """What is assembled, for people."""
        return "Program" if any(row.program_sha256 for row in self.rows.values()) else "PTX"

    def version_of(self, row: Row) -> str | None:
        """The version of the tool on the axis that a row is about."""
        if self.axis == RELEASE:
            return next((version for version, own in self.rows.items() if own == row), None)
        return row.ptxas if self.along_assembler else row.compiler_version

    @property
    def ptx_identical(self) -> bool | None:
        """Whether both sides of the boundary had the same program; None where one is not known."""
        boundary = self.boundary
        if boundary is None:
            return None
        sides = [self.rows.get(self.version(i)) for i in (boundary.before, boundary.after)]
        bodies = [side.program if side else None for side in sides]
        return None if None in bodies else bodies[0] == bodies[1]

    @property
    def blame(self) -> str | None:
        """Whose failure it is, as far as this axis alone can say."""
        if self.boundary is None:
            return None
        is_fix = self.finding.regression is None
        failing = self.row(self.boundary.before if is_fix else self.boundary.after)
        if failing and structs.replace(self.followed, kind=failing.verdict).is_pairing:
            return PAIRING
        rows = self.rows.values()
        if self.axis in {row.compiler for row in rows if row.assembler == NO_ASSEMBLER}:
            return self.axis  # nothing else takes part
        return self.axis if self.ptx_identical is self.along_assembler else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Neighbouring versions with one verdict and one reason; `verdict` is empty for a script's."""

    first: str
    last: str
    outcome: VerdictAnswer
    verdict: str
    reason: str


def spans(report: BisectReport) -> list[Span]:
    """The versions that were probed, oldest first; a segment falls apart where its reasons do."""
    kinds = {kind.value for kind in VerdictKind}
    lines: list[Span] = []
    for part in report.finding.segments:
        verdict = part.probe.verdict if part.probe.verdict in kinds else ""
        reasons = {
            index: report.reason_of(index) if verdict else part.probe.verdict
            for index in range(part.first, part.last + 1)
        }
        for reason, alike in itertools.groupby(reasons, key=reasons.__getitem__):
            versions = [report.version(index) for index in alike]
            lines.append(
                Span(
                    first=versions[0],
                    last=versions[-1],
                    outcome=part.probe.outcome,
                    verdict=verdict,
                    reason=reason,
                )
            )
    return lines
