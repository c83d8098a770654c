"""What a bisection found, in the words that a report wants."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from harness.logic.bisect_report import BisectReport
from harness.logic.bisection import Boundary, Outcome
from harness.presentation.tables import verdict_text
from harness.values.verdict import VerdictKind

__all__ = ["blame_words", "bound_words", "render_bisection", "report_line"]


def render_bisection(report: BisectReport) -> RenderableType:
    """The segments, oldest first, and the line to paste."""
    lines: list[RenderableType] = []
    for part in report.finding.segments:
        first, last = report.version(part.first), report.version(part.last)
        span = first if first == last else f"{first} - {last}"
        row = report.rows.get(last)
        text = Text(f"{span:>20}  ")
        known = {kind.value for kind in VerdictKind}
        if part.probe.verdict in known:
            text.append_text(verdict_text(part.probe.verdict))
        mark = "  <- this failure" if part.probe.outcome is Outcome.SAME else ""
        reason = row.reason if row else report.reasons.get(last, "")
        text.append(f"{mark}  {reason}", style="dim")
        lines.append(text)
    return Group(*lines, Text(""), Text(report_line(report), style="bold"))


def report_line(report: BisectReport) -> str:
    """One paragraph: last good, first bad, first fixed, holes, confidence, whose PTX it was."""
    finding, axis = report.finding, report.axis
    if finding.newest_bad is None:
        return f"No {axis} that was tried shows this failure."
    parts = [_begin(report), _end(report)]
    boundary = finding.regression or finding.fix
    if boundary:
        holes = ", ".join(report.version(index) for index in boundary.holes) or "none"
        parts.append(f"Untestable between: {holes}.")
    if finding.came_back:
        parts.append("It failed, worked, and failed again: all segments are above.")
    if report.repeats:
        again = report.repeats
        parts.append(
            f"Confidence {again.confidence:.2f} "
            f"({again.bad}/{again.runs} against {again.good}/{again.runs})."
        )
    if report.ptx_identical is not None:
        same = "yes" if report.ptx_identical else "no"
        parts.append(f"PTX identical on both sides: {same}{blame_words(report)}.")
    if finding.unprobed:
        parts.append(f"{len(finding.unprobed)} versions were not tried (--sweep tries all).")
    return " ".join(parts)


def _begin(report: BisectReport) -> str:
    finding = report.finding
    if finding.regression is None:
        assert finding.oldest_bad is not None
        oldest = report.version(finding.oldest_bad)
        return f"Present in the oldest {report.axis} that could be told, {oldest}."
    good = report.version(finding.regression.before)
    return f"First bad: {report.axis} {bound_words(report, finding.regression)}. Last good: {good}."


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
    if report.axis == "ptxas" and report.ptx_identical:
        return ", so ptxas"
    if report.axis == "triton" and report.ptx_identical is False:
        return ": it follows what Triton makes"
    return ""
