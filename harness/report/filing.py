"""`triage report`: from a dossier to an issue and a bundle, and the gate before both are filed."""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from gpu_emulator.ptx.text.facts import PtxError
from harness.cells.places import CompileOptions
from harness.frontends.base import Selection
from harness.frontends.one_file import StandaloneError
from harness.frontends.registry import front_end
from harness.frontends.texts.python import as_the_user_sees_it
from harness.io.packages.tarballs import pack, unpack
from harness.matrix.bugs.rekey import row_of_evidence
from harness.minimize.ptx.reduce import count_instructions, count_unwritten
from harness.minimize.texts import source_format
from harness.report.attached import (
    Bench,
    compile_places,
    execute_places,
    execute_rows,
    launch_places,
)
from harness.report.claims import AttachedPlace, Claim, ClaimsProof, ClaimsTrial, Issue, prove
from harness.report.dossier import Dossier
from harness.report.gate import Defect
from harness.report.writing import inspect_dossier, run_script, script_defects, with_log
from harness.store.store import Store
from harness.values.execution import RunRow
from harness.values.row import Row
from harness.values.toolchain import EMULATOR
from harness.values.verdict import VerdictKind

_SECONDS = 600.0
_LARGEST_FILE = 4 << 30
# It differs from run to run, and equal reports have equal bytes.
_TIMES = re.compile(r"^[^\n]*Compile time = [\d.]+ ms\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filing:
    """How to file: `render` writes the issue, `required` are the headings that it must have.

    The attached files are compiled for at most `seconds`; `tell` hears what is being checked. What
    was executed is executed again: the cells of `selection`; what was launched, on the GPU that
    `runner` reaches, or this machine's.
    """

    render: Callable[[Dossier], Issue]
    required: tuple[str, ...]
    bundle: Path
    folder: str
    selection: Selection
    store: Store
    how: CompileOptions
    tell: Callable[[str], None]
    seconds: float = _SECONDS
    runner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filed:
    """What was written, and what is wrong with it."""

    dossier: Dossier
    issue: Issue
    proof: ClaimsProof
    defects: tuple[Defect, ...]


async def file_report(dossier: Dossier, filing: Filing) -> Filed:
    """Write the bundle, run its command, write the issue, and hold it to what the files do.

    Raises:
        StorageError: the bundle cannot be written.
    """
    defects: list[Defect] = []
    with tempfile.TemporaryDirectory(prefix="triage-report-") as place:
        if any(file.name == "repro.sh" for file in dossier.attachments):
            filing.tell("running the bundle's command in a clean folder")
            inside = _unpacked(dossier, filing, Path(place) / "command")
            has_triage = dossier.executed is not None
            done = await asyncio.to_thread(
                run_script,
                inside,
                replace(filing.how.limits, file_size=_LARGEST_FILE),
                has_triage=has_triage,
                runner=filing.runner,
            )
            defects += script_defects(done)
            if not defects:
                text = as_the_user_sees_it(done.stdout.partition("\nit shows: ")[0] + "\n")
                dossier = replace(dossier, log=_TIMES.sub("", text))
        dossier = with_log(dossier)
        issue = filing.render(dossier)
        inside = _unpacked(dossier, filing, Path(place) / "files")
        proof = prove(issue.claims, await _trial(dossier, filing, issue, inside), issue.text)
    defects += inspect_dossier(dossier, issue.text, filing.required)
    defects += [Defect(kind="claim", file="issue.md", words=words) for words in proof.false]
    defects += [Defect(kind="unchecked", file="issue.md", words=each) for each in proof.unproved]
    return Filed(dossier=dossier, issue=issue, proof=proof, defects=tuple(defects))


def _unpacked(dossier: Dossier, filing: Filing, place: Path) -> Path:
    files = {file.name: file.data for file in dossier.attachments}
    pack(filing.bundle, files, folder=filing.folder)
    unpack(filing.bundle, place)
    return place / filing.folder


async def _trial(dossier: Dossier, filing: Filing, issue: Issue, inside: Path) -> ClaimsTrial:
    # Nothing is unpacked where nothing is attached.
    attached = inside.iterdir() if dossier.attachments else ()
    files = {path.name: path.read_bytes() for path in attached}
    cells = {claim.cell for claim in issue.claims if claim.cell}
    stored = {cell: row_of_evidence(filing.store, cell) for cell in cells}
    places = _in_order(dossier, issue.claims)
    if places:
        does = "executing" if dossier.executed else "compiling"
        does = "launching" if dossier.on_gpu else does
        filing.tell(f"{does} the attached files in {len(places)} ways")
    untried: dict[AttachedPlace | str, str] = {
        cell: _why_not_judged(filing.store, cell) for cell, row in stored.items() if row is None
    }
    executed: dict[AttachedPlace | str, tuple[Row, RunRow]] = {}
    rows: dict[AttachedPlace, Row] = {}
    home = inside.parent / "results"
    with Store.open(home) as store:
        bench = Bench(
            folder=inside,
            case=dossier.case,
            condition=dossier.condition,
            store=store,
            how=replace(filing.how, use_cache=False),
            seconds=filing.seconds,
            formal=filing.selection.formal,
        )
        if dossier.on_gpu:
            again = {
                row.cell: AttachedPlace(
                    file="original.ptx",
                    tool=dossier.tool,
                    version=row.ptxas or "",
                    target=dossier.case.target,
                )
                for row in dossier.executed_rows
            }
            every = [*dict.fromkeys((*places, *again.values()))]
            executed |= await launch_places(bench, filing.selection, every, filing.runner, untried)
            executed |= {
                cell: executed[place] for cell, place in again.items() if place in executed
            }
            untried |= {cell: untried[place] for cell, place in again.items() if place in untried}
        elif dossier.executed:
            executed |= await execute_places(bench, places, untried)
            named = [row for row in dossier.executed_rows if row.cell in cells]
            filing.tell(f"executing {len(named)} cells again")
            executed |= await execute_rows(bench, filing.selection, named, untried)
        else:
            rows |= await compile_places(bench, places, untried)
    for subject, (row, _) in executed.items():
        if isinstance(subject, AttachedPlace):
            rows[subject] = row
        else:
            stored[subject] = row
    return ClaimsTrial(
        files=files,
        rows=rows,
        outcomes={place: dossier.outcome(row) for place, row in rows.items()},
        stored={cell: row for cell, row in stored.items() if row},
        runs={subject: run for subject, (_, run) in executed.items()},
        instructions=_counted(files, ".ptx", count_instructions),
        unwritten=_counted(files, ".ptx", count_unwritten),
        lines=_lines(files, filing.selection),
        untried=untried,
    )


def _why_not_judged(store: Store, cell: str) -> str:
    """Why a stored result cannot be judged again from its evidence."""
    record = next((each for each in store.find_cells(cell) if each.cell == cell), None)
    if record is None:
        return "no result of this cell is stored"
    row = msgspec.json.decode(record.row, type=Row)
    if row.flaky:
        return "its runs disagreed, and each would be judged by itself"
    if row.verdict == VerdictKind.INFRA.value:
        return f"this machine failed: {row.reason}"
    if row.ptxas == EMULATOR:
        return "it was not executed again"
    return "the evidence that it was judged from is not kept"


def _in_order(dossier: Dossier, claims: Sequence[Claim]) -> list[AttachedPlace]:
    """The places of all claims; the failing version and the sides of its boundaries first."""
    report = dossier.history
    first = [dossier.version]
    if report:
        for boundary in (report.finding.regression, report.finding.fix):
            if boundary:
                first += [report.version(boundary.before), report.version(boundary.after)]
    places = dict.fromkeys(claim.place for claim in claims if claim.place)
    return sorted(places, key=lambda place: (place.version not in first, bool(place.flag)))


def _lines(files: Mapping[str, bytes], selection: Selection) -> dict[str, int]:
    form = front_end(selection.repro.front_end).source_form
    if form is None:
        return {}
    suffix, text_format = source_format(form)
    return _counted(files, suffix, lambda text: text_format.size_of(text).lines)


def _counted(
    files: Mapping[str, bytes], suffix: str, count: Callable[[str], int]
) -> dict[str, int]:
    found = {}
    for name, data in files.items():
        if name.endswith(suffix):
            with contextlib.suppress(PtxError, StandaloneError):
                found[name] = count(data.decode(errors="replace"))
    return found
