"""What a bisection found, in the words that a report wants, and as a document. Pure."""

from __future__ import annotations

from typing import Any

from harness.bisect.bounds import bounds_said
from harness.bisect.ir_difference import StageStory
from harness.bisect.report import BisectReport, Span, spans
from harness.bisect.search import Boundary
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import PAIRING, measured
from harness.tables.said import BLANK, Block, SaidLine, Tone, say, verdict_said
from harness.values.toolchain import EMULATOR, compiler_name


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
    tool = compiler_name(report.axis)
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
        is_same = story.llvm[0] == story.llvm[1]
        both = f"{story.llvm[0]} in {before}, {story.llvm[1]} in {after}"
        lines.append(f"LLVM: {f'{story.llvm[0]} in both' if is_same else both}.")
    if all(story.ptxas):
        lines.append(f"Bundled ptxas for this target: {story.ptxas[0]} against {story.ptxas[1]}.")
    return lines


def report_line(report: BisectReport) -> str:
    """One paragraph: last good, first bad, first fixed, holes, confidence, whose PTX it was."""
    finding, tool = report.finding, compiler_name(report.axis)
    if finding.newest_bad is None:
        meant = "meets the condition" if report.followed.condition else "shows this failure"
        return f"No {tool} that was tried {meant}."
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
    if finding.unprobed:
        parts.append(f"{len(finding.unprobed)} versions were not tried (--sweep tries all).")
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
        known = measured(fields, rows)
        return f"Numbers: {known}." if known else ""
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
            | {"verdict": each.verdict, "reason": each.reason, "signature": each.signature}
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
