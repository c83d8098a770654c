"""A dossier as the issue that one upstream wants: templates/report/*.md.j2, JSON, HTML.

Pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from markdown_it import MarkdownIt
from msgspec import structs

from harness.bisect.bisect_words import BisectReport, bisect_document, bounds_line, stage_lines
from harness.bisect.contrast import contrast_document
from harness.blame.grid import Culprit
from harness.report import paragraphs, tables
from harness.report.claims import Claim, ClaimsProof, Issue, Ledger, ends_so, has_figures
from harness.report.dossier import Dossier, Upstream
from harness.report.gate import Defect, without_folders
from harness.report.paragraphs import escaped
from harness.report.title import at_boundary, title_of
from harness.tables.file_templates import (
    config_label,
    markdown_cell,
    markdown_code,
    render_template,
)
from harness.values.toolchain import assembler_name, without_evidence
from harness.values.verdict import VerdictKind

T = TypeVar("T")
# As much of a minimal input as one reads in an issue; more is in the bundle.
_FITS = 6000
_FITS_LINES = 24


def _words_of(write: Callable[[Ledger, Dossier], object]) -> property:
    return property(lambda view: write(view.ledger, view.d))


def _words_about(
    write: Callable[[Ledger, Dossier, T], list[str]],
) -> Callable[[View, T], list[str]]:
    return lambda view, subject: write(view.ledger, view.d, subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a template asks of a dossier, in words; `ledger` takes what these words claim."""

    d: Dossier
    upstream: Upstream
    ledger: Ledger = field(default_factory=Ledger)

    # What a template says of the dossier alone; the ledger takes what these words claim.
    impact = _words_of(paragraphs.impact_sentences)
    ptx_ways = _words_of(paragraphs.ptx_ways)
    output_lines = _words_of(tables.output_lines)
    schedule_words = _words_of(paragraphs.schedule_sentence)
    race_lines = _words_of(paragraphs.race_lines)
    near_words = _words_of(paragraphs.near_words)
    first_way = _words_of(tables.first_way)
    way_lines = _words_of(tables.way_lines)
    attachment_lines = _words_of(tables.attachment_lines)
    # And of one history, or one contrast.
    short_version_lines = _words_about(tables.short_version_lines)
    version_lines = _words_about(tables.version_lines)
    contrast_lines = _words_about(tables.contrast_lines)

    @property
    def title(self) -> str:
        """Class, construct, condition, versions."""
        return title_of(self.ledger, self.d, self.upstream, _compilers(self.d), self.message)

    @property
    def message(self) -> str:
        """The failure in its own words."""
        d = self.d
        quotes = d.in_ptxas and d.kind is not VerdictKind.SICK and not d.of_cubins
        quotes = quotes or d.kind is VerdictKind.REJECTED
        match = re.search(r": (.+)", d.reason) if quotes and not d.condition else None
        return match[1] if match else d.reason

    @property
    def observed(self) -> str:
        """What happens, in one sentence."""
        case, d = self.d.case, self.d
        where = ", executed on an emulator" if d.executed else ""
        does = d.kind.facts.observed
        if d.of_cubins:
            return paragraphs.launched_sentence(self.ledger, d)
        if d.is_ptx:
            command = shlex.join([*case.ptxas_flags, d.ptx_file])
            return self.ledger.say(
                f"`ptxas {command}` with {_compilers(d)} {does}: {escaped(self.message)}.",
                has_figures(case),
            )
        message = without_evidence(self.message)
        sentence = (
            f"{markdown_code(d.function)} for {case.target} with {_compilers(d)} {does}"
            f"{where}: {escaped(message)}."
        )
        return self.ledger.say(sentence, has_figures(case))

    @property
    def expected(self) -> str:
        """What should happen instead."""
        if self.d.of_cubins:
            return paragraphs.launched_expected(self.ledger, self.d)
        return paragraphs.expected_sentence(self.ledger, self.d)

    @property
    def affected(self) -> str:
        """Who meets it."""
        case, origin = self.d.case, self.d.origin
        source = "this code"
        if origin:
            source = f"{origin.package} {origin.version} ({markdown_code(origin.module)})"
        return (
            f"Users of {source} on {case.target} with {_compilers(self.d)}. Launch: "
            f"{markdown_code(case.launch)}. It was compiled, not run: no GPU took part."
        )

    @property
    def input_words(self) -> str:
        """What the compiler at fault was given, where that is not this program itself."""
        d = self.d
        if d.is_ptx:
            return ""
        origin = f" ({d.origin.package} {d.origin.version})" if d.origin else ""
        return (
            f"The input is PTX that {d.case.compiler_name} generates from "
            f"{markdown_code(d.function)}{origin} for {d.case.target}; `original.ptx` is that PTX "
            "without debug information."
        )

    @property
    def ended(self) -> str:
        """How the failing process ended."""
        row = self.d.case
        place = next(iter(self.d.places(self.d.version)), None)
        words = ""
        if row.signal is not None:
            words = f"Ended by signal {row.signal}."
        elif row.exit_code == 0:
            words = "Exit code: 0. No compiler reports the failure."
        elif row.exit_code is not None:
            words = f"Exit code: {row.exit_code}."
        if not words:
            return ""
        return self.ledger.say(words, ends_so(place, row) if place else has_figures(row))

    @property
    def names(self) -> set[str]:
        """The files of the bundle."""
        return {file.name for file in self.d.attachments}

    @property
    def has_script(self) -> bool:
        """Whether one command shows it."""
        return "repro.sh" in self.names

    @property
    def by_hand(self) -> str:
        """The command that ptxas gets, or the one that gives the cell with this program."""
        return paragraphs.by_hand(self.d, self.names, self.minimal_name)

    @property
    def minimal_name(self) -> str:
        """The file that holds the smallest input."""
        return self.d.minimized.shown_file if self.d.minimized else "min.ptx"

    @property
    def minimal_fits(self) -> bool:
        """Whether it can be read in the issue itself."""
        return self.d.minimized is not None and len(self.d.minimized.shown_text) <= _FITS

    @property
    def build(self) -> str:
        """Which build of ptxas it is, as it says itself."""
        return self.d.banner.strip().rpartition("\n")[2]

    @property
    def shown_listings(self) -> list[str]:
        """The labels of the SASS that stands in the issue itself: the last one, where it fits."""
        last = [*self.d.listings.items()][-1:]
        return [label for label, code in last if code.count("\n") < _FITS_LINES]

    @property
    def minimal_words(self) -> str:
        """How small, and what of it was checked."""
        return paragraphs.minimal_words(self.ledger, self.d, self.minimal_name)

    @property
    def history_name(self) -> str:
        """What the missing piece would be called."""
        return f"the history along {self.d.tool}"

    @property
    def stage_words(self) -> str:
        """Where it goes wrong."""
        case, signature = self.d.case, self.d.signature
        if self.d.executed:
            return "It compiles cleanly: what goes wrong is what the PTX computes."
        words = f"Stage: {case.stage}." if case.stage else "The stage is not known."
        if signature and signature.failing_pass:
            words += f" Pass: `{signature.failing_pass}`."
        return self.ledger.say(words, has_figures(case))

    @property
    def stage_lines(self) -> list[str]:
        """What lies between the two sides of a Triton boundary."""
        report = self.d.along_triton
        lines = stage_lines(report, report.stages) if report and report.stages else []
        is_ptxas = self.d.is_in_cubin
        return [line for line in lines if is_ptxas or not line.startswith("Bundled ptxas")]

    @property
    def where_to_report(self) -> str:
        """To whom the cause belongs, in words."""
        maintainers = {"ptxas": "ptxas (NVIDIA)", "Triton": "Triton (triton-lang/triton)"}
        owner = maintainers.get(self.d.tool, self.d.tool)
        return f"It goes wrong in {owner}; `triage report` writes the report for them too."

    def bound_words(self, report: BisectReport) -> str:
        """Where it began and ended."""
        line = bounds_line(report)
        if self.d.is_invalid:
            line = line.replace("Last good:", "Last that accepts it:")
        if len(self.d.rows) > 1:
            line = f"Config {markdown_code(config_label(self.d.case))}: {line}"
        claims: list[Claim] = []
        for boundary in (report.finding.regression, report.finding.fix):
            if boundary:
                claims += at_boundary(self.d, report, boundary)
        return self.ledger.say(line, *claims)

    def is_shown(self, name: str) -> bool:
        """Whether a part of the environment has a part in it: ptxas, only where it is involved."""
        d = self.d
        is_assembler = name.startswith(f"{assembler_name(d.case.assembler)} ")
        return not is_assembler or d.is_in_cubin or d.kind is VerdictKind.SICK

    @property
    def blame_shown(self) -> int:
        """How many of these stand in the text: none of a crash, which accuses by itself."""
        return 0 if self.d.followed.is_crash or self.d.of_cubins else 2

    @property
    def blame_lines(self) -> list[str]:
        """Whose fault it is, and the evidence: of what was executed, all cells count."""
        blame = self.d.blame
        if blame is None:
            return []
        measured = self.d.of_cubins and self.d.notes and self.d.notes.measured
        if measured and blame.culprit is Culprit.CANNOT_TELL:
            by = "; the rule says that they are wrong" if self.d.notes and self.d.notes.rule else ""
            return [f"The measured values are those of the emulated SASS{by}."]
        rests_on = [has_figures(row) for row in self.d.tried]
        # What all of it comes to is said first.
        words = sorted(blame.reasons, key=lambda reason: not reason.startswith("So it "))
        words = [re.sub(r"^So it ", "It ", reason) for reason in words]
        reasons = [self.ledger.say(markdown_cell(reason)) for reason in words]
        return [self.ledger.say(markdown_cell(blame.headline), *rests_on), *reasons]

    @property
    def config_lines(self) -> list[str]:
        """The table of every config."""
        return tables.config_lines(self.ledger, self.d.rows)


def _compilers(d: Dossier) -> str:
    compiler = d.case.compiler_name if d.case.compiler else ""
    ptxas = d.case.tool if d.in_ptxas else ""
    return " and ".join(filter(None, (compiler, ptxas)))


def render_report(dossier: Dossier, upstream: Upstream) -> Issue:
    """The issue's text, ready for the gate, with all that it claims."""
    view = View(d=dossier, upstream=upstream)
    form = "comment" if dossier.same_as else upstream.spelled(dossier.case.compiler)
    text = render_template(f"report/{form}.md.j2", d=dossier, v=view)
    whole = without_folders(re.sub(r"\n{3,}", "\n\n", text).strip()) + "\n"
    return Issue(text=whole, claims=tuple(view.ledger.claims))


def report_document(
    d: Dossier, upstream: Upstream, issue: Issue, proof: ClaimsProof, defects: Sequence[Defect]
) -> dict[str, Any]:
    """For `--json` and `--format json`."""
    title, _, body = issue.text.partition("\n")
    return {
        "schema": 1,
        "for": upstream.value,
        "title": title.removeprefix("# "),
        "body": body.strip(),
        "ready": not defects,
        "statements": proof.claims,
        "statements_checked": proof.checked,
        "defects": [asdict(defect) for defect in defects],
        "case": structs.asdict(d.case),
        "configs": [structs.asdict(row) for row in d.rows],
        "along_ptxas": bisect_document(d.along_ptxas) if d.along_ptxas else None,
        "along_triton": bisect_document(d.along_triton) if d.along_triton else None,
        "flags": contrast_document(d.flags) if d.flags else None,
        "targets": contrast_document(d.targets) if d.targets else None,
        "blame": {"headline": d.blame.headline, "reasons": d.blame.reasons} if d.blame else None,
        "workarounds": None if d.ways is None else [asdict(way) for way in d.ways],
        "attachments": [
            {"name": file.name, "sha256": file.sha256, "what": file.what} for file in d.attachments
        ],
        "missing": [asdict(piece) for piece in d.missing],
    }


def report_page(issue: str) -> str:
    """A page of HTML that stands alone; the values in the text were escaped when it was made."""
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render(issue)
    return render_template("report/page.html.j2", title=issue.partition("\n")[0][2:], body=body)
