"""The tables of a report, each line with the claims that it makes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.bisect.contrast import Contrast
from harness.bisect.words import BisectReport
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
from harness.tables.templates import config_label, markdown_cell, markdown_code
from harness.values.row import Row
from harness.values.toolchain import compiler_name
from harness.values.verdict import VerdictKind

_Cell = tuple[str, tuple[Claim, ...]]
_BLANK: _Cell = ("not tried", ())
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


def config_lines(ledger: Ledger, rows: Sequence[Row]) -> list[str]:
    """The table of every config: its verdict and its numbers."""
    names = ("config", "verdict", "registers", "spill stores (B per thread)", "spill loads")
    lines = [_line((*names, "shared (B)", "tensor memory (columns)")), _line(["---"] * 7)]
    for row in rows:
        numbers = (row.n_regs, row.spill_stores, row.spill_loads, row.shared, row.tmem_size)
        words = [markdown_cell(config_label(row)), markdown_cell(row.verdict)]
        said = _line([*words, *("" if n is None else f"{n:,}" for n in numbers)])
        lines.append(ledger.say(said, has_figures(row)))
    return lines


def short_version_lines(ledger: Ledger, d: Dossier, report: BisectReport) -> list[str]:
    """The versions that say something, in as few words as there are; one column where all agree."""
    given = _given(d, report)
    names, columns = [given.header], [_outcomes(d, report.rows, given)]
    if d.smallest and report is d.history:
        small = _smallest(d)
        names.append(small.header)
        columns.append(replace(small, cells={v: small.cells.get(v, _BLANK) for v in given.cells}))
    telling = [v for v, row in report.rows.items() if d.outcome(row) in _TELLING]
    columns = [replace(x, cells={v: x.cells[v] for v in telling}) for x in columns]
    words = [[x.cells[v][0] for v in telling] for x in columns]
    if len(columns) > 1 and words[0] == words[1]:
        one, other = columns
        both = {v: (said, made + other.cells[v][1]) for v, (said, made) in one.cells.items()}
        names, columns = [" and ".join(names)], [replace(one, cells=both)]
    lines = [_line([compiler_name(report.axis), *names]), _line(["---"] * (len(names) + 1))]
    for versions, cells in _spans(telling, columns):
        name = versions[0] if len(versions) == 1 else f"{versions[0]} - {versions[-1]}"
        claims = [claim for one in cells for _, made in one for claim in made]
        lines.append(ledger.say(_line([name, *(said for said, _ in cells[0])]), *claims))
    return lines if telling else []


def _outcomes(d: Dossier, rows: Mapping[str, Row], given: _Column) -> _Column:
    """A column without what the issue has said already."""
    works = "is right" if d.executed else "compiles"
    short = {VerdictAnswer.SAME: "fails in the same way", VerdictAnswer.OK: works}
    has_numbers = d.followed.condition is not None
    cells = {}
    for version, row in rows.items():
        words, claims = given.cells[version]
        outcome = d.outcome(row)
        is_other = outcome is VerdictAnswer.OTHER
        said = f"fails in another way ({row.verdict})" if is_other else short.get(outcome, words)
        cells[version] = (words if has_numbers else markdown_cell(said), claims)
    return replace(given, cells=cells)


def version_lines(ledger: Ledger, d: Dossier, report: BisectReport) -> list[str]:
    """The history, version by version: the kernel or the file as it was given, and `min.*`."""
    columns = [_given(d, report)]
    if d.smallest and report is d.history:
        columns.append(_smallest(d))
    tool = compiler_name(report.axis)
    lines = [
        _line([tool, *(column.header for column in columns)]),
        _line(["---"] * (len(columns) + 1)),
    ]
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
    header = "`original.ptx`" if d.is_ptx else markdown_code(d.function).replace("|", "\\|")
    if not d.is_ptx and len(d.rows) > 1:
        header += f", {markdown_cell(config_label(d.case))}"
    return _Column(header=header, cells=cells)


def _smallest(d: Dossier) -> _Column:
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
    kind, outcome = row.verdict, d.outcome(row)
    same = " (this failure)" if outcome is VerdictAnswer.SAME else ""
    if same and row.reason == d.case.reason and not kind.compiles:
        return markdown_cell(f"{row.verdict}, this failure")
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
    names: list[str] = []
    rows: list[list[_Cell]] = []
    for version in versions:
        if not any(version in column.cells for column in columns):
            continue
        cells = [column.cells.get(version, _BLANK) for column in columns]
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
            is_other = VerdictAnswer.OTHER in outcomes
            labels = [
                f"{point.label} ({point.row.verdict})" if is_other and point.row else point.label
                for point in points
            ]
            said = f"{words}: {', '.join(map(markdown_cell, labels))}."
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
    measures = () if d.executed else ("registers", "spill stores (B per thread)", "tensor memory")
    names = ("change", "verdict", *measures, "what is known of its results")
    lines = [_line(names), _line(["---"] * len(names))]
    for way in d.ways or ():
        numbers = (way.row.n_regs, way.row.spill_stores, way.row.tmem_size)
        words = [markdown_cell(way.change), markdown_cell(way.row.verdict)]
        words += ["" if n is None else f"{n:,}" for n in numbers if not d.executed]
        said = _line([*words, markdown_cell(way.evidence)])
        lines.append(ledger.say(said, has_figures(way.row)))
    return lines


def first_way(ledger: Ledger, d: Dossier) -> str:
    """The best workaround, and how many there are; empty without one."""
    for way in (d.ways or ())[:1]:
        more = len(d.ways or ()) - 1
        others = f" {more} more {'is' if more == 1 else 'are'} below." if more else ""
        how = "compiled and executed on the emulator" if d.executed else "compiled, not run"
        said = f"Workaround: {markdown_cell(way.change)} ({way.row.verdict}; {how}).{others}"
        return ledger.say(said, has_figures(way.row))
    return ""


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
    for output in row.outputs:
        if output.differing is None:
            continue
        words = [
            f"`{output.name}` ({output.dtype})",
            f"{output.differing:,} of {output.elements:,}",
        ]
        if output.differing and output.max_abs is not None:
            words += [f"{output.max_abs:.4g}", f"`{output.where}`"]
            words += [_number(n, output.dtype) for n in (output.expected, output.actual)]
        else:
            words += [""] * 4
        lines.append(ledger.say(_line(words), has_output(place, row, output)))
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
