"""The tables of a report, each line with the claims that it makes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from harness.bisect.bisect_words import BisectReport
from harness.bisect.contrast import Contrast
from harness.judging.answers import VerdictAnswer
from harness.judging.followed import measured
from harness.report.claims import (
    AttachedPlace,
    Claim,
    ClaimKind,
    Ledger,
    gives,
    has_figures,
    has_output,
)
from harness.report.dossier import Dossier
from harness.tables.file_templates import config_label, markdown_cell, markdown_code
from harness.values.row import Row
from harness.values.toolchain import compiler_name, without_evidence
from harness.values.verdict import VerdictKind

_Cell = tuple[str, tuple[Claim, ...]]
_BLANK: _Cell = ("not tried", ())
# From here on an integer is easier to read with its bits.
_PLAIN = 1 << 12
_TELLING = (VerdictAnswer.SAME, VerdictAnswer.OK, VerdictAnswer.OTHER)

_CONTRASTS = (
    ("Fails in the same way", (VerdictAnswer.SAME,)),
    ("Works", (VerdictAnswer.OK,)),
    ("Fails in another way", (VerdictAnswer.OTHER,)),
    ("Cannot be determined", (VerdictAnswer.UNTESTABLE, VerdictAnswer.INFRA)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """What one input does, by version: in words, and as claims."""

    header: str
    cells: Mapping[str, _Cell]


def table_line(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def table_head(names: Sequence[str]) -> list[str]:
    """The lines with which a Markdown table begins."""
    return [table_line(names), "|" + "---|" * len(names)]


def config_lines(ledger: Ledger, rows: Sequence[Row]) -> list[str]:
    """The table of every config: its verdict and its numbers."""
    names = ("config", "verdict", "registers", "spill stores (B per thread)", "spill loads")
    lines = table_head((*names, "shared (B)", "tensor memory (columns)"))
    for row in rows:
        numbers = (row.n_regs, row.spill_stores, row.spill_loads, row.shared, row.tmem_size)
        words = [markdown_cell(config_label(row)), markdown_cell(row.verdict)]
        line = table_line([*words, *("" if n is None else f"{n:,}" for n in numbers)])
        lines.append(ledger.say(line, has_figures(row)))
    return lines


def short_version_lines(ledger: Ledger, d: Dossier, report: BisectReport) -> list[str]:
    """The versions that say something, in as few words as there are; one column where all agree."""
    columns = [_outcomes(d, report.rows, _given(d, report))]
    if d.smallest and report is d.history:
        columns.append(_smallest(d))
    telling = [v for v, row in report.rows.items() if d.outcome(row) in _TELLING]
    words = [[column.cells.get(v, _BLANK)[0] for v in telling] for column in columns]
    if len(columns) > 1 and words[0] == words[1]:
        first, second = columns
        joined = {
            v: (first.cells[v][0], first.cells[v][1] + second.cells.get(v, _BLANK)[1])
            for v in telling
        }
        columns = [_Column(header=f"{first.header} and {second.header}", cells=joined)]
    # What is the same everywhere is said in a sentence.
    said = {tuple(column.cells.get(v, _BLANK)[0] for column in columns) for v in telling}
    return _history(ledger, report, telling, columns) if len(said) > 1 else []


def _outcomes(d: Dossier, rows: Mapping[str, Row], original: _Column) -> _Column:
    """A column without what the issue has said already."""
    cells = {}
    for version, row in rows.items():
        words, claims = original.cells[version]
        if d.followed.condition is None:  # else the words are its numbers
            outcome = d.outcome(row)
            is_other = outcome is VerdictAnswer.OTHER
            text = f"fails in another way: {without_evidence(row.reason)}" if is_other else words
            words = markdown_cell(_short_words(d).get(outcome, text))
        cells[version] = (words, claims)
    return replace(original, cells=cells)


def _short_words(d: Dossier) -> dict[VerdictAnswer, str]:
    works = "is accepted" if d.is_invalid else "is right" if d.executed else "compiles"
    return {VerdictAnswer.SAME: "fails in the same way", VerdictAnswer.OK: works}


def version_lines(ledger: Ledger, d: Dossier, report: BisectReport) -> list[str]:
    """The history, version by version: the kernel or the file as it was given, and `min.*`."""
    columns = [_given(d, report)]
    if d.smallest and report is d.history:
        columns.append(_smallest(d))
    return _history(ledger, report, report.versions, columns)


def _history(
    ledger: Ledger, report: BisectReport, versions: Sequence[str], columns: Sequence[_Column]
) -> list[str]:
    """One line for neighbours that did the same in every column; none for what no column knows."""
    rows = {
        version: [column.cells.get(version, _BLANK) for column in columns]
        for version in versions
        if any(version in column.cells for column in columns)
    }
    lines = table_head((compiler_name(report.axis), *(column.header for column in columns)))
    for words, group in groupby(rows, key=lambda version: [cell for cell, _ in rows[version]]):
        names = list(group)
        name = names[0] if len(names) == 1 else f"{names[0]} - {names[-1]}"
        claims = [claim for v in names for _, claims_of_cell in rows[v] for claim in claims_of_cell]
        lines.append(ledger.say(table_line((name, *words)), *claims))
    return lines


def _given(d: Dossier, report: BisectReport) -> _Column:
    cells: dict[str, _Cell] = {}
    for version, row in report.rows.items():
        claims: tuple[Claim, ...] = (has_figures(row),)
        if d.is_ptx:
            claims += gives(d.ptx_place(version), d.outcome(row), row.verdict)
        cells[version] = (_words(d, row), claims)
    for version, reason in report.reasons.items():
        text = f"could not be determined: {reason}"
        cells.setdefault(version, (markdown_cell(text), (Claim(kind=ClaimKind.TEXT),)))
    header = f"`{d.ptx_file}`" if d.is_ptx else markdown_code(d.function).replace("|", "\\|")
    if not d.is_ptx and len(d.rows) > 1:
        header += f", {markdown_cell(config_label(d.case))}"
    return _Column(header=header, cells=cells)


def _smallest(d: Dossier) -> _Column:
    assert d.minimized is not None
    name = d.minimized.shown_file
    cells: dict[str, _Cell] = {}
    for version, (outcome, text) in d.smallest.items():
        words = markdown_cell(_short_words(d).get(outcome, text))
        place = AttachedPlace(file=name, tool=d.tool, version=version, target=d.case.target)
        cells[version] = (words, gives(place, outcome))
    return _Column(header=f"`{name}`", cells=cells)


def _words(d: Dossier, row: Row) -> str:
    kind, outcome = row.verdict, d.outcome(row)
    same = " (this failure)" if outcome is VerdictAnswer.SAME else ""
    if same and (d.of_cubins or row.reason == d.case.reason) and not kind.compiles:
        return markdown_cell(f"{row.verdict}, this failure")
    if d.condition and kind.compiles:
        same = " (holds)" if outcome is VerdictAnswer.SAME else ""
        numbers = measured(d.followed.fields, [row])
        return markdown_cell(f"{row.verdict}{same}: {numbers or row.reason}")
    if kind is VerdictKind.OK:
        return "is accepted" if d.is_invalid else "compiles"
    if kind is VerdictKind.RIGHT:
        return "is right"
    return markdown_cell(f"{row.verdict}{same}: {without_evidence(row.reason)}")


def contrast_lines(ledger: Ledger, d: Dossier, neighbours: Contrast) -> list[str]:
    """What fails, works, and cannot be determined along one axis; a line each."""
    lines = []
    for words, outcomes in _CONTRASTS:
        points = [
            point
            for point in neighbours.points
            if (d.outcome(point.row) if point.row else point.outcome) in outcomes
        ]
        if points:
            is_other = VerdictAnswer.OTHER in outcomes
            labels = [
                f"{point.label} ({point.row.verdict})" if is_other and point.row else point.label
                for point in points
            ]
            is_accepted = d.is_invalid and VerdictAnswer.OK in outcomes
            named = ", ".join(map(markdown_cell, labels))
            line = f"{'Accepted' if is_accepted else words}: {named}."
            if VerdictAnswer.UNTESTABLE in outcomes:
                line += f" {points[0].label}: {markdown_cell(points[0].reason)}."
            rows = [point.row for point in points if point.row]
            claims = [has_figures(row) for row in rows]
            for point in points:
                place = _contrast_place(d, neighbours.axis, point.label)
                if place and point.row:
                    claims += gives(place, d.outcome(point.row))
            lines.append(ledger.say(line, *claims))
    return lines


def _contrast_place(d: Dossier, axis: str, label: str) -> AttachedPlace | None:
    """Where an attached file shows it: flags on the PTX, and targets where the PTX was given."""
    if axis != "flag" and not (axis == "target" and d.is_ptx):
        return None
    flag, target = (label, d.case.target) if axis == "flag" else ("", label)
    return d.ptx_place(d.case.ptxas or "", target, flag)


def way_lines(ledger: Ledger, d: Dossier) -> list[str]:
    """The table of workarounds: what changes, and the result."""
    # What is executed has not seen ptxas: it has none of these.
    measures = () if d.executed else ("registers", "spill stores (B per thread)", "tensor memory")
    names = ("change", "verdict", *measures, "what is known of its results")
    lines = table_head(names)
    for way in d.ways or ():
        numbers = (way.row.n_regs, way.row.spill_stores, way.row.tmem_size)
        words = [markdown_cell(way.change), markdown_cell(way.row.verdict)]
        words += ["" if n is None else f"{n:,}" for n in numbers if not d.executed]
        line = table_line([*words, markdown_cell(way.evidence)])
        lines.append(ledger.say(line, has_figures(way.row)))
    return lines


def first_way(ledger: Ledger, d: Dossier) -> str:
    """The best workaround, and how many there are; empty without one."""
    for way in (d.ways or ())[:1]:
        more = len(d.ways or ()) - 1
        others = f" {more} more {'is' if more == 1 else 'are'} below." if more else ""
        how = "compiled and executed on the emulator" if d.executed else "compiled, not run"
        sentence = f"Workaround: {markdown_cell(way.change)} ({way.row.verdict}; {how}).{others}"
        return ledger.say(sentence, has_figures(way.row))
    return ""


def attachment_lines(ledger: Ledger, d: Dossier) -> list[str]:
    """The attached files with their hashes."""
    lines = table_head(("file", "sha256", ""))
    for file in d.attachments:
        line = table_line((f"`{file.name}`", f"`{file.sha256}`", markdown_cell(file.what)))
        claim = Claim(kind=ClaimKind.SHA256, file=file.name, expected=file.sha256)
        lines.append(ledger.say(line, claim))
    return lines


def output_lines(ledger: Ledger, d: Dossier) -> list[str]:
    """What each output must hold and holds, where they differ first."""
    shown = d.shown_run
    if shown is None:
        return []
    place, row = shown
    names = ("output", "elements that differ", "by up to", "first at", "expected", "actual")
    lines = table_head(names)
    for output in row.outputs:
        if output.differing is None:
            continue
        words = [
            f"`{output.name}` ({output.dtype})",
            f"{output.differing:,} of {output.elements:,}",
        ]
        if output.differing and output.max_abs is not None:
            words += [_number(output.max_abs, output.dtype), f"`{output.where}`"]
            words += [_number(n, output.dtype) for n in (output.expected, output.actual)]
        else:
            words += [""] * 4
        lines.append(ledger.say(table_line(words), has_output(place, row, output)))
    # What faults or hangs leaves nothing to compare.
    return lines if any(output.differing is not None for output in row.outputs) else []


def _number(value: float | None, dtype: str) -> str:
    """Of an integer all digits: the last one may be what differs."""
    if value is None:
        return ""
    if not (dtype[:1] in "us" or "int" in dtype):
        return f"{value:.6g}"
    return f"{int(value)} (0x{int(value):x})" if value > _PLAIN else f"{int(value)}"
