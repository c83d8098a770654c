"""The tables of a report, each line with the claims that it makes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.bisect.contrast import Contrast
from harness.bisect.report import BisectReport
from harness.bisect.words import tool_title
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
from harness.tables.templates import config_label, markdown_cell
from harness.values.row import Row
from harness.values.verdict import VerdictKind

__all__ = [
    "attachment_lines",
    "config_lines",
    "contrast_lines",
    "output_lines",
    "version_lines",
    "way_lines",
]

_Cell = tuple[str, tuple[Claim, ...]]

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


def config_lines(ledger: Ledger, rows: Sequence[Row]) -> list[str]:
    """The table of every config: its verdict and its numbers."""
    names = ("config", "verdict", "registers", "spill stores (B a thread)", "spill loads")
    lines = [_line((*names, "shared (B)", "tensor memory (columns)")), _line(["---"] * 7)]
    for row in rows:
        numbers = (row.n_regs, row.spill_stores, row.spill_loads, row.shared, row.tmem_size)
        words = [markdown_cell(config_label(row)), markdown_cell(row.verdict)]
        said = _line([*words, *("" if n is None else f"{n:,}" for n in numbers)])
        lines.append(ledger.say(said, has_figures(row)))
    return lines


def version_lines(ledger: Ledger, d: Dossier, report: BisectReport) -> list[str]:
    """The history, version by version: the kernel or the file as it was given, and `min.*`."""
    columns = [_given(d, report)]
    if d.smallest and report is d.history:
        columns.append(_smallest(d))
    tool = tool_title(report.axis)
    lines = [_line([tool, *(each.header for each in columns)]), _line(["---"] * (len(columns) + 1))]
    for versions, cells in _spans(report.versions, columns):
        name = versions[0] if len(versions) == 1 else f"{versions[0]} - {versions[-1]}"
        said = _line([name, *(words for words, _ in cells[0])])
        claims = [claim for one in cells for _, made in one for claim in made]
        lines.append(ledger.say(said, *claims))
    return lines


def _given(d: Dossier, report: BisectReport) -> _Column:
    cells: dict[str, _Cell] = {}
    for version, row in report.rows.items():
        claims: tuple[Claim, ...] = (has_figures(row),)
        if d.is_ptx:
            place = AttachedPlace(
                file="original.ptx", tool="ptxas", version=version, target=d.case.target
            )
            claims += gives(place, d.outcome(row), row.verdict)
        cells[version] = (_words(d, row), claims)
    for version, reason in report.reasons.items():
        said = f"could not be determined: {reason}"
        cells.setdefault(version, (markdown_cell(said), (Claim(kind=ClaimKind.TEXT),)))
    header = "`original.ptx`" if d.is_ptx else f"`{markdown_cell(d.function)}`"
    if not d.is_ptx and len(d.rows) > 1:
        header += f", {markdown_cell(config_label(d.case))}"
    return _Column(header=header, cells=cells)


def _smallest(d: Dossier) -> _Column:
    """What the reduced file does, where it was tried."""
    assert d.minimized is not None
    name = d.minimized.shown_file
    works = "is right" if d.executed else "compiles"
    cells: dict[str, _Cell] = {}
    for version, (outcome, said) in d.smallest.items():
        words = {VerdictAnswer.SAME: "fails in the same way", VerdictAnswer.OK: works}.get(
            outcome, said
        )
        place = AttachedPlace(file=name, tool=d.tool, version=version, target=d.case.target)
        cells[version] = (markdown_cell(words), gives(place, outcome))
    return _Column(header=f"`{name}`", cells=cells)


def _words(d: Dossier, row: Row) -> str:
    """A cell of the table of versions."""
    kind, outcome = VerdictKind(row.verdict), d.outcome(row)
    same = " (this failure)" if outcome is VerdictAnswer.SAME else ""
    if d.condition and kind.compiles:
        same = " (holds)" if outcome is VerdictAnswer.SAME else ""
        numbers = measured(d.followed.fields, [row])
        return markdown_cell(f"{row.verdict}{same}: {numbers or row.reason}")
    if kind is VerdictKind.OK:
        return "compiles"
    if kind is VerdictKind.RIGHT:
        return "is right"
    return markdown_cell(f"{row.verdict}{same}: {row.reason.removeprefix('emulated: ')}")


def _spans(
    versions: Sequence[str], columns: Sequence[_Column]
) -> Iterator[tuple[list[str], list[list[_Cell]]]]:
    """Neighbouring versions that did the same in every column, with the cells of each.

    Versions that no column knows are left out.
    """
    blank: _Cell = ("not tried", ())
    names: list[str] = []
    rows: list[list[_Cell]] = []
    for version in versions:
        if not any(version in column.cells for column in columns):
            continue
        cells = [column.cells.get(version, blank) for column in columns]
        if rows and [words for words, _ in cells] != [words for words, _ in rows[-1]]:
            yield names, rows
            names, rows = [], []
        names.append(version)
        rows.append(cells)
    if names:
        yield names, rows


def contrast_lines(ledger: Ledger, d: Dossier, found: Contrast) -> list[str]:
    """What fails, works, and cannot be determined along one axis; a line each."""
    lines = []
    for words, outcomes in _CONTRASTS:
        points = [
            point
            for point in found.points
            if (d.outcome(point.row) if point.row else point.outcome) in outcomes
        ]
        if points:
            said = f"{words}: {', '.join(markdown_cell(point.label) for point in points)}."
            rows = [point.row for point in points if point.row]
            claims = [has_figures(row) for row in rows]
            for point in points:
                place = _contrast_place(d, found.axis, point.label)
                if place and point.row:
                    claims += gives(place, d.outcome(point.row))
            lines.append(ledger.say(said, *claims))
    return lines


def _contrast_place(d: Dossier, axis: str, label: str) -> AttachedPlace | None:
    """Where an attached file shows it: flags on the PTX, and targets where the PTX was given."""
    case = d.case
    if axis == "flag":
        return AttachedPlace(
            file="original.ptx",
            tool="ptxas",
            version=case.ptxas or "",
            target=case.target,
            flag=label,
        )
    if axis == "target" and d.is_ptx:
        return AttachedPlace(
            file="original.ptx", tool="ptxas", version=case.ptxas or "", target=label
        )
    return None


def way_lines(ledger: Ledger, d: Dossier) -> list[str]:
    """The table of workarounds: what changes, and the result."""
    # What is executed has not seen ptxas: it has none of these.
    measures = () if d.executed else ("registers", "spill stores (B a thread)", "tensor memory")
    names = ("change", "verdict", *measures, "what is known of its results")
    lines = [_line(names), _line(["---"] * len(names))]
    for way in d.ways or ():
        numbers = (way.row.n_regs, way.row.spill_stores, way.row.tmem_size)
        words = [markdown_cell(way.change), markdown_cell(way.row.verdict)]
        words += ["" if n is None else f"{n:,}" for n in numbers if not d.executed]
        said = _line([*words, markdown_cell(way.evidence)])
        lines.append(ledger.say(said, has_figures(way.row)))
    return lines


def attachment_lines(ledger: Ledger, d: Dossier) -> list[str]:
    """The attached files with their hashes."""
    lines = [_line(("file", "sha256", "")), _line(["---"] * 3)]
    for file in d.attachments:
        said = _line((f"`{file.name}`", f"`{file.sha256}`", markdown_cell(file.what)))
        claim = Claim(kind=ClaimKind.SHA256, file=file.name, expected=file.sha256)
        lines.append(ledger.say(said, claim))
    return lines


def output_lines(ledger: Ledger, d: Dossier) -> list[str]:
    """What each output must hold and holds, where they differ first."""
    shown = d.shown_run
    if shown is None:
        return []
    place, row = shown
    names = ("output", "elements that differ", "by up to", "first at", "expected", "actual")
    lines = [_line(names), _line(["---"] * len(names))]
    for each in row.outputs:
        if each.differing is None:
            continue
        words = [f"`{each.name}` ({each.dtype})", f"{each.differing:,} of {each.elements:,}"]
        if each.differing and each.max_abs is not None:
            words += [f"{each.max_abs:.4g}", f"`{each.where}`"]
            words += [_number(n, each.dtype) for n in (each.expected, each.actual)]
        else:
            words += [""] * 4
        lines.append(ledger.say(_line(words), has_output(place, row, each)))
    return lines


def _number(value: float | None, dtype: str) -> str:
    """Of an integer all digits: the last one may be what differs."""
    if value is None:
        return ""
    return f"{int(value)}" if dtype[:1] in "us" or "int" in dtype else f"{value:.6g}"


def _line(cells: Sequence[str]) -> str:
    if set(cells) == {"---"}:
        return "|" + "|".join(cells) + "|"
    return "| " + " | ".join(cells) + " |"
