"""What a bisection found, in the words that a report wants, and as a document."""

from __future__ import annotations

from typing import Any

from harness.bisect.ir_difference import StageStory
from harness.bisect.report import BisectReport, Span, spans
from harness.bisect.search import Boundary
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import measured
from harness.tables.said import BLANK, Block, SaidLine, Tone, say, verdict_said
from harness.values.toolchain import EMULATOR, compiler_name

__all__ = [
    "bisect_document",
    "bisection_said",
    "blame_words",
    "bound_words",
    "numbers_line",
    "report_line",
    "tool_title",
]


def tool_title(axis: str) -> str:
    """The tool whose versions an axis walks, for people."""
    return compiler_name(axis)


"""How an axis of versions is called in a sentence."""


def bisection_said(report: BisectReport) -> list[Block]:
    """The versions, oldest first, what lies at the boundary, and the line to paste."""
    lines: list[Block] = [_span_said(span) for span in spans(report)]
    if report.stages:
        lines += [BLANK, *map(say, stage_lines(report, report.stages))]
    if report.followed.words:
        lines += [BLANK, say(f"Followed: {report.followed.words}.")]
    return [*lines, BLANK, say(report_line(report), Tone.HEAD)]


def _span_said(span: Span) -> SaidLine:
    name = span.first if span.first == span.last else f"{span.first} - {span.last}"
    said = say(f"{name:>20}  ")
    if span.verdict:
        said += verdict_said(span.verdict)
    mark = "  <- this failure" if span.outcome is VerdictAnswer.SAME else ""
    return said + say(f"{mark}  {span.reason}", Tone.FAINT)


def stage_lines(report: BisectReport, story: StageStory) -> list[str]:
    """What the Tritons on both sides make of the kernel, and what they are made of."""
    assert report.boundary is not None
    before, after = report.version(report.boundary.before), report.version(report.boundary.after)
    tool = tool_title(report.axis)
    lines = [f"Between {tool} {before} and {after} (+ is what {after} has and {before} has not):"]
    lines += [f"  {stage.stage:>5}: {stage.words}" for stage in story.stages]
    if story.first:
        lines.append(f"First stage that differs in kind: {story.first.stage}.")
    if story.trap_stage:
        made = f", inserted by pass {story.failing_pass}" if story.failing_pass else ""
        lines.append(f"The trap is first seen in {story.trap_stage}{made}.")
    elif story.failing_pass:
        lines.append(f"Failing pass: {story.failing_pass}.")
    if all(story.llvm):
        same = "the same" if story.llvm[0] == story.llvm[1] else "another"
        lines.append(f"LLVM: {story.llvm[0]} against {story.llvm[1]}, {same}.")
    if all(story.ptxas):
        lines.append(f"Bundled ptxas for this target: {story.ptxas[0]} against {story.ptxas[1]}.")
    return lines


def report_line(report: BisectReport) -> str:
    """One paragraph: last good, first bad, first fixed, holes, confidence, whose PTX it was."""
    finding, tool = report.finding, tool_title(report.axis)
    if finding.newest_bad is None:
        meant = "meets the condition" if report.followed.condition else "shows this failure"
        return f"No {tool} that was tried {meant}."
    parts = [_begin(report), _end(report), *_between(report)]
    if finding.came_back:
        parts.append("It failed, worked, and failed again: all segments are above.")
    parts += [numbers_line(report)] if report.followed.fields else []
    parts += _confidence(report)
    if report.ptx_identical is not None:
        same = "yes" if report.ptx_identical else "no"
        parts.append(f"{report.code} identical on both sides: {same}{blame_words(report)}.")
    if any(row.ptxas == EMULATOR for row in report.rows.values()):
        parts.append(f"Emulated: the PTX of each {tool}, executed on the same inputs.")
    if finding.unprobed:
        parts.append(f"{len(finding.unprobed)} versions were not tried (--sweep tries all).")
    return " ".join(filter(None, parts))


def numbers_line(report: BisectReport) -> str:
    """The numbers on both sides of the boundary; empty where no numbers are followed."""
    boundary, fields = report.boundary, report.followed.fields
    if boundary is None:
        rows = [
            row for row in report.rows.values() if report.followed.of(row) is VerdictAnswer.SAME
        ]
        known = measured(fields, rows)
        return f"Numbers: {known}." if known else ""
    sides = []
    for index in (boundary.before, boundary.after):
        row = report.rows.get(report.version(index))
        sides.append(f"{measured(fields, [row] if row else [])} with {report.version(index)}")
    return f"Numbers: {', '.join(sides)}." if fields else ""


def _between(report: BisectReport) -> list[str]:
    """What lies inside the boundaries that are named: they are exact only without it."""
    finding = report.finding
    named = [each for each in (finding.regression, finding.fix) if each]
    if not named:
        return []
    parts = []
    for words, indices in (
        ("Untestable between", {index for each in named for index in each.holes}),
        ("Not tried between", {index for each in named for index in each.unprobed}),
    ):
        listed = ", ".join(report.version(index) for index in sorted(indices))
        if listed or words.startswith("Untestable"):
            parts.append(f"{words}: {listed or 'none'}.")
    return parts


def _confidence(report: BisectReport) -> list[str]:
    if report.sides is None:
        return []
    bad, good = report.sides
    counts = f"{bad.failures}/{bad.runs} against {good.failures}/{good.runs}"
    parts = [f"Confidence {report.confidence:.2f} ({counts})."]
    if bad.is_flaky:
        parts.append("Flaky: it comes and goes on one version.")
    return parts


def _begin(report: BisectReport) -> str:
    finding, tool = report.finding, tool_title(report.axis)
    if finding.regression is not None:
        good = report.version(finding.regression.before)
        return f"First bad: {tool} {bound_words(report, finding.regression)}. Last good: {good}."
    assert finding.oldest_bad is not None
    oldest = report.version(finding.oldest_bad)
    if finding.appears is None:
        return f"Present in the oldest {tool} {_reach(report, 0)}, {oldest}."
    older = finding.appears.before
    if not report.is_clean_end(older):
        return f"Present in the oldest testable {tool}, {oldest}."
    return (
        f"First seen: {tool} {bound_words(report, finding.appears)}. No older one that was tried "
        f"works: {report.version(older)} ends with: {_plain(report.said(older))}."
    )


def _end(report: BisectReport) -> str:
    finding, tool = report.finding, tool_title(report.axis)
    if finding.fix is not None:
        return f"First fixed: {bound_words(report, finding.fix)}."
    assert finding.newest_bad is not None
    newest = report.version(finding.newest_bad)
    if finding.vanishes is None:
        return f"Still present in the newest {tool} {_reach(report, -1)}, {newest}."
    newer = finding.vanishes.after
    if not report.is_clean_end(newer):
        return (
            f"Still present in {newest}, the newest testable {tool}; {report.version(newer)} ends "
            f"with: {_plain(report.said(newer))}."
        )
    gone = bound_words(report, finding.vanishes)
    return f"Gone from {gone} on, which ends with: {_plain(report.said(newer))}."


def _plain(reason: str) -> str:
    """A reason as the end of a sentence."""
    return reason.rstrip(".")


def _reach(report: BisectReport, end: int) -> str:
    """Whether the last version in this direction is the last of all, or of those tried."""
    outermost = report.versions[end]
    bad = report.finding.oldest_bad if end == 0 else report.finding.newest_bad
    assert bad is not None
    return "there is" if report.version(bad) == outermost else "that was tried"


def bound_words(report: BisectReport, boundary: Boundary) -> str:
    """The version, or all that it may be."""
    if boundary.exact:
        return report.version(boundary.after)
    return "any of " + ", ".join(report.version(index) for index in boundary.candidates)


def blame_words(report: BisectReport) -> str:
    """What equal or unequal PTX says, where it says something."""
    if report.blame is None:
        return ""
    if report.along_assembler:
        return f", so {tool_title(report.axis)}"
    return f": it depends on the {tool_title(report.axis)}"


def bisect_document(report: BisectReport) -> dict[str, Any]:
    """For `--json`."""
    finding = report.finding
    return {
        "schema": 1,
        "axis": report.axis,
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
                "reasons": list(report.reasons_of(part)),
            }
            for part in finding.segments
        ],
        "others": [
            {"version": report.version_of(each)}
            | {
                "verdict": each.verdict,
                "reason": each.reason,
                "signature": each.signature,
            }
            for each in report.other_failures
        ],
        "came_back": finding.came_back,
        "confidence": report.confidence,
        "runs": {
            version: {"failures": tally.failures, "runs": tally.runs}
            for version, tally in report.tallies.items()
        },
        "ptx_identical": report.ptx_identical,
        "blame": report.blame,
        "stages": _stages(report.stages) if report.stages else None,
        "trouble": report.trouble,
    }


def _gone(report: BisectReport) -> dict[str, Any] | None:
    """Where another end takes the place of the failure, and what that end is."""
    ended = report.finding.vanishes
    if ended is None or not report.is_clean_end(ended.after):
        return None
    return {"candidates": _candidates(report, ended), "ends_with": report.said(ended.after)}


def _stages(story: StageStory) -> dict[str, Any]:
    return {
        "differs": {stage.stage: stage.differs for stage in story.stages},
        "gained": {stage.stage: stage.gained for stage in story.stages},
        "lost": {stage.stage: stage.lost for stage in story.stages},
        "first": story.first.stage if story.first else None,
        "failing_pass": story.failing_pass,
        "trap_stage": story.trap_stage,
        "llvm": story.llvm,
        "bundled_ptxas": story.ptxas,
    }


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
