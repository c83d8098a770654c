"""What a bisection found, in the words that a report wants, and as a document."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from harness.logic.answers import Outcome
from harness.logic.bisect_report import BisectReport
from harness.logic.bisection import Boundary
from harness.logic.ir_difference import StageStory
from harness.presentation.tables import verdict_text
from harness.values.verdict import VerdictKind

__all__ = [
    "TOOLS",
    "bisect_document",
    "blame_words",
    "bound_words",
    "render_bisection",
    "report_line",
]


TOOLS = {"ptxas": "ptxas", "triton": "Triton"}
"""How an axis of versions is called in a sentence."""


def render_bisection(report: BisectReport) -> RenderableType:
    """The segments, oldest first, what lies at the boundary, and the line to paste."""
    lines: list[RenderableType] = []
    for part in report.finding.segments:
        first, last = report.version(part.first), report.version(part.last)
        span = first if first == last else f"{first} - {last}"
        row = report.rows.get(last)
        text = Text(f"{span:>20}  ")
        known = {kind.value for kind in VerdictKind}
        if part.probe.verdict in known:
            text.append_text(verdict_text(part.probe.verdict))
            said = row.reason if row else report.reasons.get(last, "")
        else:
            said = part.probe.verdict
        mark = "  <- this failure" if part.probe.outcome is Outcome.SAME else ""
        text.append(f"{mark}  {said}", style="dim")
        lines.append(text)
    if report.stages:
        lines += [Text(""), *map(Text, stage_lines(report, report.stages))]
    return Group(*lines, Text(""), Text(report_line(report), style="bold"))


def stage_lines(report: BisectReport, story: StageStory) -> list[str]:
    """What the Tritons on both sides make of the kernel, and what they are made of."""
    assert report.boundary is not None
    before, after = report.version(report.boundary.before), report.version(report.boundary.after)
    lines = [f"Between Triton {before} and {after} (+ is what {after} has and {before} has not):"]
    lines += [f"  {stage.stage:>5}: {stage.words}" for stage in story.stages]
    if story.first:
        lines.append(f"First stage that differs in kind: {story.first.stage}.")
    if story.trap_stage:
        made = f", made by pass {story.failing_pass}" if story.failing_pass else ""
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
    finding = report.finding
    if finding.newest_bad is None:
        return f"No {TOOLS[report.axis]} that was tried shows this failure."
    parts = [_begin(report), _end(report)]
    if report.boundary:
        holes = ", ".join(report.version(index) for index in report.boundary.holes) or "none"
        parts.append(f"Untestable between: {holes}.")
    if finding.came_back:
        parts.append("It failed, worked, and failed again: all segments are above.")
    parts += _confidence(report)
    if report.ptx_identical is not None:
        same = "yes" if report.ptx_identical else "no"
        parts.append(f"PTX identical on both sides: {same}{blame_words(report)}.")
    if finding.unprobed:
        parts.append(f"{len(finding.unprobed)} versions were not tried (--sweep tries all).")
    return " ".join(parts)


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
    finding = report.finding
    if finding.regression is None:
        assert finding.oldest_bad is not None
        oldest = report.version(finding.oldest_bad)
        return f"Present in the oldest {TOOLS[report.axis]} that could be told, {oldest}."
    good = report.version(finding.regression.before)
    bad = bound_words(report, finding.regression)
    return f"First bad: {TOOLS[report.axis]} {bad}. Last good: {good}."


def _end(report: BisectReport) -> str:
    finding = report.finding
    if finding.fix is None:
        assert finding.newest_bad is not None
        return (
            f"Still present in the newest that could be told, {report.version(finding.newest_bad)}."
        )
    return f"First fixed: {bound_words(report, finding.fix)}."


def bound_words(report: BisectReport, boundary: Boundary) -> str:
    """The version, or all that it may be."""
    if boundary.exact:
        return report.version(boundary.after)
    return "any of " + ", ".join(report.version(index) for index in boundary.candidates)


def blame_words(report: BisectReport) -> str:
    """What equal or unequal PTX says, where it says something."""
    return {"ptxas": ", so ptxas", "triton": ": it follows what Triton makes"}.get(
        report.blame or "", ""
    )


def bisect_document(report: BisectReport) -> dict[str, Any]:
    """For `--json`."""
    finding = report.finding
    return {
        "schema": 1,
        "axis": report.axis,
        "config": report.config.as_dict() if report.config else None,
        "signature": report.signature,
        "last_good": _version(report, finding.regression, before=True),
        "first_bad": _version(report, finding.regression),
        "first_bad_candidates": _candidates(report, finding.regression),
        "first_fixed": _version(report, finding.fix),
        "first_fixed_candidates": _candidates(report, finding.fix),
        "untestable": [report.version(index) for index in finding.holes],
        "not_tried": [report.version(index) for index in finding.unprobed],
        "segments": [
            {
                "first": report.version(part.first),
                "last": report.version(part.last),
                "outcome": part.probe.outcome.value,
                "verdict": part.probe.verdict,
                "signature": part.probe.signature,
            }
            for part in finding.segments
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
