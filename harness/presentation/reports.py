"""A dossier as the issue that one upstream wants: templates/report/*.md.j2, and what they ask."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.logic.answers import Outcome
from harness.logic.bisect_report import BisectReport
from harness.logic.contrast import Contrast
from harness.logic.dossier import Attachment, Dossier, Upstream
from harness.logic.report_gate import without_folders
from harness.presentation.bisections import TOOLS, report_line, stage_lines
from harness.presentation.contrasts import contrast_words
from harness.presentation.templates import render_template
from harness.values.verdict import VerdictKind

__all__ = ["REQUIRED", "render_report"]

REQUIRED: Mapping[Upstream, Sequence[str]] = {
    Upstream.NVIDIA: (
        "Component",
        "Description",
        "Impact",
        "How to reproduce",
        "Output",
        "ptxas version",
        "Operating system",
        "Minimal input",
        "Last good and first bad",
        "By optimisation level and flag",
        "By target",
        "Workaround",
        "Attachments",
        "Redistribution",
    ),
    Upstream.TRITON: (
        "Describe the bug",
        "Reproduce",
        "Observed",
        "Versions",
        "Stage and pass",
        "Environment details",
    ),
    Upstream.PROJECT: (
        "Who is affected",
        "What happens",
        "Root cause",
        "Workaround",
        "Reproduce",
        "Upstream",
        "Environment",
    ),
    Upstream.PYTORCH: ("🐛 Describe the bug", "Minimal repro", "Error logs", "Versions"),
}
"""Headings that a report must have, with something below them."""

# As much of a minimal input as one reads in an issue; more is in the bundle.
_FITS = 6000

_OBSERVED = {
    VerdictKind.TRAP_STUB: "compiles without an error, to a kernel whose only effect is a trap",
    VerdictKind.OUT_OF_RESOURCES: "compiles without an error, but needs more than the target has",
    VerdictKind.REJECTED: "is rejected",
    VerdictKind.PASS_FAILURE: "makes a pass of the compiler fail",
    VerdictKind.COMPILER_CRASH: "takes the compiler down",
    VerdictKind.PTXAS_ICE: "ends ptxas with an internal compiler error",
    VerdictKind.PTXAS_ERROR: "is refused by ptxas",
    VerdictKind.TIMEOUT: "does not come to an end",
    VerdictKind.OUT_OF_MEMORY: "takes more memory than the machine has",
}
_EXPECTED = {
    VerdictKind.TRAP_STUB: "Expected: code that works, or an error when it is compiled.",
    VerdictKind.OUT_OF_RESOURCES: "Expected: an error when it is compiled, or code that fits.",
    VerdictKind.REJECTED: "Expected: that it compiles, or that the message says what to change.",
}
_ELSE_EXPECTED = "Expected: code, or a message that names what is wrong with the input."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    versions: str
    verdict: str
    reason: str
    same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What a template asks of a dossier, in words."""

    d: Dossier
    upstream: Upstream
    attachments: tuple[Attachment, ...]

    @property
    def title(self) -> str:
        """Within the habit of the upstream: what, where, since when."""
        case = self.d.case
        if self.upstream is Upstream.PROJECT:
            broken = sum(not VerdictKind(row.verdict).compiles for row in self.d.rows)
            return (
                f"{self.d.function} on {case.target}: {broken} of {len(self.d.rows)} configs do "
                f"not work with {_compilers(self.d)}"
            )
        if self.d.in_ptxas:
            said = _plain(self.message)
            return f"ptxas {case.ptxas}: {said} on {case.target}{self._since}"
        return f"{self.d.function} {_OBSERVED[self.d.kind]} on {case.target}{self._since}"

    @property
    def message(self) -> str:
        """The failure in its own words."""
        found = re.search(r": (.+)", self.d.case.reason)
        return found[1] if found and self.d.in_ptxas else self.d.case.reason

    @property
    def _since(self) -> str:
        report = self.d.history
        if report is None:
            return ""
        parts = []
        if report.finding.regression and report.finding.regression.exact:
            parts.append(f"since {report.version(report.finding.regression.after)}")
        if report.finding.fix and report.finding.fix.exact:
            parts.append(f"fixed in {report.version(report.finding.fix.after)}")
        return f" ({', '.join(parts)})" if parts else ""

    @property
    def observed(self) -> str:
        """What happens, in one sentence."""
        case = self.d.case
        return (
            f"`{self.d.function}` for {case.target} with {_compilers(self.d)} "
            f"{_OBSERVED[self.d.kind]}: {_plain(self.message)}."
        )

    @property
    def expected(self) -> str:
        """What should happen instead."""
        if self.d.in_ptxas and self.d.along_ptxas:
            accepting = [
                self.d.along_ptxas.version(bound)
                for boundary, bound in _working_sides(self.d.along_ptxas)
                if boundary
            ]
            if accepting:
                return f"Expected: a cubin, as {' and '.join(accepting)} make of the same bytes."
        return _EXPECTED.get(self.d.kind, _ELSE_EXPECTED)

    @property
    def impact(self) -> str:
        """How much is lost, as far as compiling tells."""
        rows, d = self.d.rows, self.d
        compiling = [row for row in rows if VerdictKind(row.verdict).compiles]
        fail = "fails" if d.alike == 1 else "fail"
        parts = [f"{d.alike} of the {len(rows)} configs that were tried {fail} this way."]
        if len(rows) == 1:
            parts = []  # it was said already that this one does
        elif not compiling:
            parts.append("No config is left that compiles.")
        elif spilling := [row.spill_stores for row in compiling if row.spill_stores]:
            least, most = min((row.spill_stores or 0) for row in compiling), max(spilling)
            span = f"{most:,}" if least == most else f"{least:,} to {most:,}"
            parts.append(f"What is left spills {span} B a thread.")
        else:
            parts.append(f"{len(compiling)} compile.")
        newest = d.newest
        if newest:
            words = "works" if VerdictKind(newest[1].verdict).compiles else newest[1].verdict
            assert d.history is not None
            tool = TOOLS[d.history.axis]
            parts.append(f"The newest {tool} that was tried, {newest[0]}: {words}.")
        return " ".join(parts)

    @property
    def affected(self) -> str:
        """Who meets it."""
        case, origin = self.d.case, self.d.origin
        source = f"{origin.package} {origin.version} (`{origin.module}`)" if origin else "this code"
        launch = case.launch
        return (
            f"Users of {source} on {case.target} with {_compilers(self.d)}. Launch: `{launch}`. "
            "What was compiled was not run: no GPU took part."
        )

    @property
    def ended(self) -> str:
        """How the failing process ended."""
        case = self.d.case
        if case.signal is not None:
            return f"Ended by signal {case.signal}."
        return "" if case.exit_code is None else f"Exit code: {case.exit_code}."

    @property
    def ptxas_version(self) -> str:
        """As `ptxas --version` ends."""
        return f"ptxas {self.d.case.ptxas}\n{self.d.build}".rstrip()

    @property
    def names(self) -> set[str]:
        """The files of the bundle."""
        return {file.name for file in self.attachments}

    @property
    def has_script(self) -> bool:
        """Whether one command shows it."""
        return "repro.sh" in self.names

    @property
    def by_hand(self) -> str:
        """The command that ptxas gets, or the one that makes the cell with this program."""
        case = self.d.case
        if self.d.in_ptxas and self.minimal_name in self.names:
            package = f"{self.d.ptxas_package}=={case.ptxas}" if self.d.ptxas_package else ""
            get = [f"pip install --target wheel {package}  # brings ptxas"] if package else []
            flags = shlex.join(self.d.minimized.flags if self.d.minimized else case.ptxas_flags)
            ptxas = "$(find wheel -name ptxas)" if package else "ptxas"
            return "\n".join([*get, f"{ptxas} {flags} {self.minimal_name} -o kernel.cubin"])
        if self.minimal_name in self.names:
            return f"pip install triton=={case.triton}\npython {self.minimal_name}"
        return self.d.shown_by

    @property
    def minimal_name(self) -> str:
        """The file that holds the smallest input."""
        return f"min{self.d.minimized.suffix}" if self.d.minimized else "min.ptx"

    @property
    def minimal_fits(self) -> bool:
        """Whether it can be read in the issue itself."""
        return self.d.minimized is not None and len(self.d.minimized.text) <= _FITS

    @property
    def minimal_words(self) -> str:
        """How small, and what of it was checked."""
        found = self.d.minimized
        assert found is not None
        if found.minimized.instructions is not None:
            sizes = (
                f"{found.original.instructions:,} instructions reduced to "
                f"{found.minimized.instructions:,} ({found.minimized.bytes:,} bytes)"
            )
        else:
            before, after = found.original.lines, found.minimized.lines
            sizes = f"{before:,} lines of functions reduced to {after:,}"
        checked = "; nothing more can go alone" if found.is_minimal else ""
        undefined = ""
        if found.undefined[1] > found.undefined[0]:
            undefined = " It reads registers that nothing has written: compile it, do not run it."
        return f"{sizes}, every step with the same failure{checked}.{undefined}"

    @property
    def history_name(self) -> str:
        """What the missing piece would be called."""
        return f"the history along {'ptxas' if self.d.in_ptxas else 'Triton'}"

    @property
    def stage_words(self) -> str:
        """Where it goes wrong."""
        case, signature = self.d.case, self.d.signature
        words = f"Stage: {case.stage}." if case.stage else "The stage is not known."
        if signature and signature.failing_pass:
            words += f" Pass: `{signature.failing_pass}`."
        return words

    @property
    def stage_lines(self) -> list[str]:
        """What lies between the two sides of a Triton boundary."""
        report = self.d.along_triton
        return stage_lines(report, report.stages) if report and report.stages else []

    @property
    def where_to_report(self) -> str:
        """To whom the cause belongs, in words."""
        tool = "ptxas (NVIDIA)" if self.d.in_ptxas else "Triton (triton-lang/triton)"
        return f"The cause is reported to {tool}; `triage report` makes that report too."

    def history_words(self, report: BisectReport) -> list[str]:
        """The line to paste."""
        return [report_line(report)]

    def spans(self, report: BisectReport) -> Iterator[_Span]:
        """Neighbouring versions that did the same."""
        for part in report.finding.segments:
            first, last = report.version(part.first), report.version(part.last)
            row = report.rows.get(last)
            is_verdict = part.probe.verdict in {kind.value for kind in VerdictKind}
            yield _Span(
                versions=first if first == last else f"{first} - {last}",
                verdict=part.probe.verdict if is_verdict else "could not be told",
                reason=row.reason if row else report.reasons.get(last, part.probe.verdict),
                same=part.probe.outcome is Outcome.SAME,
            )

    def contrast_words(self, found: Contrast) -> list[str]:
        """What carries it."""
        return contrast_words(found)


def _working_sides(report: BisectReport) -> Iterator[tuple[object, int]]:
    finding = report.finding
    if finding.regression:
        yield finding.regression, finding.regression.before
    if finding.fix:
        yield finding.fix, finding.fix.after


def _compilers(d: Dossier) -> str:
    triton = f"Triton {d.case.triton}" if d.case.triton else ""
    ptxas = f"ptxas {d.case.ptxas}" if d.in_ptxas else ""
    return " and ".join(filter(None, (triton, ptxas)))


def _plain(reason: str) -> str:
    return re.sub(r"([*<`\[]|(?<!\w)_|_(?!\w))", r"\\\1", reason.rstrip("."))


def render_report(dossier: Dossier, upstream: Upstream) -> str:
    """The issue's text, its title first, ready for the gate."""
    view = View(d=dossier, upstream=upstream, attachments=dossier.attachments)
    text = render_template(f"report/{upstream.value}.md.j2", d=dossier, v=view)
    return without_folders(re.sub(r"\n{3,}", "\n\n", text).strip()) + "\n"
