"""The history of a report as a picture: its numbers over versions, and the same in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.bisect.bisect_words import BisectReport
from harness.bisect.search import Boundary
from harness.judging.answers import VerdictAnswer
from harness.report.claims import Ledger, has_figures
from harness.report.dossier import Dossier, Upstream
from harness.tables.charts import FRAME, Chart, charts_over
from harness.tables.file_templates import config_label, markdown_cell, render_template
from harness.values.limits import limits_of
from harness.values.target import Target
from harness.values.toolchain import compiler_name

PICTURE = "history.svg"
# Of the heading in the picture, in characters; the title has it whole.
_LONGEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class _Band:
    """Neighbouring versions that show the failure, or have no numbers; `x` as in a chart."""

    versions: tuple[str, ...]
    is_failure: bool
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mark:
    """A side of a boundary that is known exactly: its words, and where it begins."""

    words: str
    x: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Picture:
    subject: str
    words: tuple[str, ...]
    tool: str
    failure: str
    charts: tuple[Chart, ...]
    versions: tuple[tuple[str, float], ...]
    bands: tuple[_Band, ...]
    marks: tuple[_Mark, ...]


def draw_history(d: Dossier, upstream: Upstream) -> bytes | None:
    """The numbers of the reported config over versions, as SVG; None where too few are known.

    It is the history that the form of this upstream has a place for.
    """
    report = d.along_ptxas if upstream is Upstream.NVIDIA else d.history
    drawing = _picture(d, report) if report else None
    if drawing is None:
        return None
    subject = drawing.subject
    short = subject if len(subject) <= _LONGEST else f"{subject[:_LONGEST]}..."
    return render_template("report/history.svg.j2", it=drawing, short=short).encode()


def picture_lines(ledger: Ledger, d: Dossier, report: BisectReport) -> list[str]:
    """The attached picture in Markdown, with all that it shows in words; nothing without one."""
    attached = any(file.name == PICTURE for file in d.attachments)
    drawing = _picture(d, report) if attached else None
    if drawing is None:
        return []
    rows = [has_figures(row) for row in report.rows.values()]
    words = " ".join(
        (f"{drawing.subject}, numbers over versions of {drawing.tool}.", *drawing.words)
    )
    alt = ledger.say(markdown_cell(words).replace("]", "\\]"), *rows)
    return [
        f"![{alt}]({PICTURE})",
        "",
        f"The picture is `{PICTURE}`; GitHub shows it once that file is dragged into the issue.",
    ]


def _picture(d: Dossier, report: BisectReport) -> _Picture | None:
    rows = {name: row for name, row in report.rows.items() if row.verdict.compiles}
    failing = {name for name, row in report.rows.items() if d.outcome(row) is VerdictAnswer.SAME}
    probed = [
        version
        for version in report.versions
        if version in report.rows or version in report.reasons
    ]
    # What has no numbers before the first and behind the last takes no room: the table has it.
    telling = [index for index, item in enumerate(probed) if item in rows or item in failing]
    probed = probed[telling[0] : telling[-1] + 1] if telling else []
    limits = limits_of(Target.parse(d.case.target).capability)
    measurable = {_plain(name): rows[name] for name in probed if name in rows}
    charts = charts_over([_plain(name) for name in probed], {"": measurable}, limits)
    charts = [item for item in charts if len(item.lines[0].points) > 1]
    if not charts:
        return None
    measured = {point.label for chart in charts for point in chart.lines[0].points}
    step = FRAME.x(1, len(probed)) - FRAME.left
    bands = tuple(_bands(probed, failing, measured, step))
    tool = compiler_name(report.axis)
    failure = "meets the condition" if d.condition else "this failure"
    config = f", {config_label(d.case)}" if d.case.config else ""
    subject = _plain(f"{d.function}{config}, {d.case.target}")
    marks = tuple(_marks(report, probed, step))
    return _Picture(
        subject=subject,
        words=tuple(_words(charts, bands, marks, failure)),
        tool=tool,
        failure=failure,
        charts=tuple(charts),
        versions=tuple(
            (_plain(name), FRAME.x(index, len(probed))) for index, name in enumerate(probed)
        ),
        bands=bands,
        marks=marks,
    )


def _bands(
    probed: Sequence[str], failing: set[str], measured: set[str], step: float
) -> Iterator[_Band]:
    def kind(index: int) -> tuple[bool, bool]:
        return probed[index] in failing, _plain(probed[index]) in measured

    for (is_failure, has_numbers), indices in groupby(range(len(probed)), key=kind):
        if has_numbers and not is_failure:
            continue
        run = list(indices)
        start = max(0.0, FRAME.left + (run[0] - 0.5) * step)
        right = min(FRAME.width, FRAME.left + (run[-1] + 0.5) * step)
        yield _Band(
            versions=tuple(_plain(probed[index]) for index in run),
            is_failure=is_failure,
            x=round(start, 1),
            width=round(right - start, 1),
        )


def _marks(report: BisectReport, probed: Sequence[str], step: float) -> Iterator[_Mark]:
    finding = report.finding
    sides: tuple[tuple[str, Boundary | None], ...] = (
        ("first bad", finding.regression),
        ("first fixed", finding.fix),
    )
    for words, boundary in sides:
        version = report.version(boundary.after) if boundary and boundary.exact else ""
        if version in probed:
            x = FRAME.left + (probed.index(version) - 0.5) * step
            yield _Mark(words=f"{words} {_plain(version)}", x=round(x, 1))


def _words(
    charts: Sequence[Chart], bands: Sequence[_Band], marks: Sequence[_Mark], failure: str
) -> Iterator[str]:
    for chart in charts:
        limit = f"limit {_amount(chart.limit)}" if chart.limit else ""
        facts = "; ".join(filter(None, (chart.unit, limit)))
        parts = [
            f"{_amount(value)} with {_span([point.label for point in points])}"
            for part in chart.lines[0].stretches
            for value, points in groupby(part, key=lambda point: point.value)
        ]
        yield f"{_begun(chart.title)}{facts and f' ({facts})'}: {', '.join(parts)}."
    for is_failure, words in ((True, _begun(failure)), (False, "No numbers")):
        if spans := [_span(band.versions) for band in bands if band.is_failure is is_failure]:
            yield f"{words}: {', '.join(spans)}."
    if marks:
        yield f"{_begun(', '.join(mark.words for mark in marks))}."


def _span(names: Sequence[str]) -> str:
    first, last = _plain(names[0]), _plain(names[-1])
    return first if len(names) == 1 else f"{first} - {last}"


def _amount(value: float) -> str:
    return f"{value:,.1f}".removesuffix(".0")


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


def _plain(text: str) -> str:
    """Without what a file of XML must not hold: control characters and what is not a character."""
    return "".join(char if char.isprintable() else "?" for char in text)
