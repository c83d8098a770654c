r"""`triage report`.

Example:
  triage report --kernel mamba3_siso_bwd_dqkv --sm 100a --set chunk_size=32 --ptxas 13.1.115 \
      --for nvidia --out reports/c7907
  triage report --bug 3 --for triton
  triage report --kernel slow.py --triton 3.6.0 --for triton --while "spill_stores>4096"
  triage report --kernel two_dots --sm 100a --triton 3.8.0 --for triton --run
  triage report --kernel fold_prmt_sign --ptxas 13.0.88 --for nvidia --run --on gpu

Exit code 0: written, and ready to be filed. 1: written, but not ready; what is wrong is listed.
4: this machine or a toolchain failed.
"""

from __future__ import annotations

import json
import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import click
from msgspec import structs

from gpu_emulator.ptx.text.facts import MAX_BYTES
from harness.bisect.bisect_words import upgrade_words
from harness.bugs.list import find_bug, list_bugs
from harness.cells.places import CompileOptions
from harness.cells.spelling import SelectionOptions, inputs_in, inputs_words, words_of
from harness.cli.amounts import FilePath
from harness.cli.gpu_way import Execution, execution_option
from harness.cli.minimize import folder_of
from harness.cli.options import (
    EXECUTES,
    Options,
    apart,
    exclusive,
    json_option,
    option,
    verb,
    while_option,
)
from harness.cli.output import print_json, print_line
from harness.cli.progress.steps import narrating
from harness.cli.ptx_inputs import PtxOptions
from harness.cli.results import open_results
from harness.cli.running import (
    execution_options,
    run_to_the_end,
    select_single,
    selection_options,
    surroundings,
)
from harness.diff.between_runs import current_results
from harness.frontends.registry import front_end, kinds
from harness.io.files.locations import create_folder
from harness.io.files.reading import read_regular
from harness.io.files.writing import write_atomically
from harness.judging.followed import read_while
from harness.minimize.reduction.reduction_words import folder_files
from harness.report.dossier import Upstream, search_terms
from harness.report.filing import BUNDLE, Filed, attach, file_report
from harness.report.gather import FACTS, Case, filed_facts, gather, reduce_first
from harness.report.issue import report_document, report_page
from harness.store.store import Store
from harness.values.errors import UsageError
from harness.values.toolchain import TRITON, takes_cubins

# Of a sentence that could not be checked: enough to find it in the issue.
_SHOWN = 100


class _Addressee(click.ParamType[str]):
    """An upstream, or the kind of a compiler whose form of an issue is known."""

    name = "upstream"
    _fixed = tuple(form.value for form in Upstream if form is not Upstream.COMPILER)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        return f"[{'|'.join(self._fixed)}|KIND]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self._fixed or (value in kinds() and front_end(value).issue_fields):
            return value
        compilers = (kind for kind in kinds() if front_end(kind).issue_fields)
        forms = ", ".join((*self._fixed, *compilers))
        return self.fail(f"{value!r} is not one of {forms}", param, ctx)


class _ReportOptions(
    Options,
    rules=[
        exclusive("--signature", "--while"),
        exclusive("--bug", "--while"),
        apart(EXECUTES, "--while", because="it is about what ptxas makes"),
    ],
):
    words: SelectionOptions = selection_options(kernel_required=False)
    bug: int | None = option(
        often=True, type=click.IntRange(1), metavar="N", help="A bug of `triage bugs`."
    )
    addressee: str | None = option(
        "--for",
        often=True,
        type=_Addressee(),
        help="The upstream whose form the issue gets; KIND is another compiler. Default: whom "
        "blame accuses.",
    )
    out: Path | None = option(
        often=True,
        type=FilePath(file_okay=False),
        help="Folder for issue.md and bundle.tar.gz. Default: reports/KERNEL-CELL.",
    )
    execution: Execution = execution_option(
        "Report what the PTX computes when it is executed on the emulator.",
        "On a GPU, what the cubin of a file of PTX computes; with sass, its SASS is emulated.",
    )
    inputs: PtxOptions
    signature: str | None = option(metavar="KEY", help="The failure that is meant.")
    condition: str | None = while_option()
    minimized: Path | None = option(
        type=FilePath(file_okay=False),
        metavar="DIR",
        help="Folder of `triage minimize`. Default: minimized/KERNEL-CELL, created if it is "
        "missing.",
    )
    quick: bool = option(help="Run nothing that takes minutes; say what is missing.")
    form: str = option(
        "--format", type=click.Choice(["md", "json", "html"]), default="md", help="Of the issue."
    )
    draft_duplicates: bool = option(help="Only print what to search for first.")
    how: CompileOptions = execution_options()
    as_json: bool = json_option()

    @property
    def upstream(self) -> Upstream | None:
        """The form of the issue, where one is named."""
        if self.addressee is None:
            return None
        is_kind = self.addressee in kinds() and self.addressee != TRITON
        return Upstream.COMPILER if is_kind else Upstream(self.addressee)


@verb()
def command(options: _ReportOptions) -> int:
    """Write the report of one failure that its upstream can act on, and say if it is ready.

    What is not stored yet is computed: the history, blame, the smallest input, workarounds. Then
    the bundle is unpacked in a clean folder, its one command is run with a fresh toolchain, and
    each statement of the issue is checked: the attached files are compiled again on the versions
    and with the flags that it names, and its numbers are judged again from stored evidence.
    """
    how, request, execution, inputs = options.how, options, options.execution, None
    words = execution.formally(options.words)
    condition = read_while(request.condition)
    if (request.bug is None) == (not words.kernel):
        raise UsageError("name the failure: either FILE or --kernel K with its options, or --bug N")
    with open_results() as store:
        if request.bug is not None:
            example = find_bug(list_bugs(store), request.bug).example
            request = replace(request, signature=request.signature or example.signature)
            beside = current_results(store, example.kernel)
            words = structs.replace(words_of(example, beside), surroundings=surroundings())
            [record, *_] = store.find_cells(example.cell)
            if record.evidence.get("run") or example.verdict.is_of_run:
                executions = store.executions(example.cell)
                on = next((row.on for row in executions if takes_cubins(row.on)), None)
                execution = replace(execution, is_asked=True, named=execution.named or on)
            if example.compiler is None and record.run:
                try:
                    inputs = inputs_in(store.command_of(record.run))
                except ValueError as error:
                    raise UsageError(f"--bug {request.bug}: its run's command: {error}") from error
                # What is executed again is found again by its command.
                line = f"{how.command} {shlex.join(inputs_words(inputs))}"
                how = structs.replace(how, command=line)
        single = ("--sm", "--launch", "--triton", "--ptxas")
        selection = select_single(words, "a report is of one", *single)
        if not (execution.run and selection.repro.ptx):
            options.inputs.refuse("a file of PTX that is executed: --run --on sass")
        elif inputs := options.inputs.said(selection.repro) if inputs is None else inputs:
            repro = structs.replace(selection.repro, inputs=inputs)
            selection = structs.replace(selection, repro=repro)
        front_end = selection.repro.front_end
        if request.upstream is Upstream.COMPILER and request.addressee != front_end:
            raise UsageError(
                f"--for {request.addressee}: {selection.repro.name} is compiled by {front_end}"
            )
        with ExitStack() as stores, narrating("report: compiling", who="report: ") as tell:
            case = Case(
                selection=selection,
                store=store,
                how=how,
                tell=tell,
                words=words,
                upstream=request.upstream,
                signature=request.signature,
                condition=condition,
                quick=request.quick or request.draft_duplicates,
                minimized=lambda row: request.minimized or folder_of(row),
                run=execution.run,
                on=execution.on,
                runner=execution.runner,
            )
            asked = case
            case = run_to_the_end(
                reduce_first(case, lambda folder: stores.enter_context(Store.open(folder)))
            )
            dossier, upstream = run_to_the_end(gather(case))
            if request.draft_duplicates:
                for term in search_terms(dossier):
                    print_line(term)
                return 0
            reduction, ptx = dossier.minimized, selection.repro.ptx
            scripts = folder_files(reduction, command=dossier.made_by) if reduction else {}
            source = read_regular(ptx, MAX_BYTES) if ptx else b""
            dossier = attach(dossier, store, scripts, source)
            out = request.out or folder_of(dossier.case, "reports")
            create_folder(out.absolute())
            filed = run_to_the_end(file_report(dossier, upstream, case, out))
    document = report_document(filed.dossier, upstream, filed.issue, filed.proof, filed.defects)
    files = {"issue.md": filed.issue.text.encode()}
    if request.form == "html":
        files["issue.html"] = report_page(filed.issue.text).encode()
    if request.form == "json":
        files["issue.json"] = json.dumps(document, indent=2).encode()
    addressee = upstream.spelled(dossier.case.compiler)
    files[FACTS] = _facts(filed, asked.command("report", "--for", addressee), out / FACTS)
    for name, data in files.items():
        write_atomically(out / name, data)
    if options.as_json:
        print_json({**document, "path": str(out)})
    else:
        _say(filed, out)
    return 1 if filed.defects else 0


def _facts(filed: Filed, command: str, path: Path) -> bytes:
    """What a list of reports says of this one; what a person wrote of its state stays."""
    d = filed.dossier
    kept = filed_facts(path) if path.exists() else {}
    measured = d.device or (d.notes and d.notes.measured)
    ways = [*(["emulated"] if d.executed else ["compiled"]), *(["measured"] if measured else [])]
    facts = {
        "signature": d.case.signature,
        "evidence": kept.get("evidence", "; ".join(ways)),
        "date": d.environment["date"],
        "state": kept.get("state", "not filed"),
        "command": command,
    }
    return json.dumps(facts, indent=1).encode() + b"\n"


def _say(filed: Filed, out: Path) -> None:
    print_line(str(out / "issue.md"))
    print_line(str(out / BUNDLE))
    proof = filed.proof
    checked = f"{proof.checked} of its {proof.claims} statements were checked"
    for sentence, why in proof.unchecked:
        words = " ".join(sentence.split())[:_SHOWN]
        print_line(f"  not checked: {words} ({why})")
    if not filed.defects:
        print_line(f"Ready to be filed: {checked}, and all of these are true.")
        for report in filter(None, (filed.dossier.along_triton, filed.dossier.along_ptxas)):
            if words := upgrade_words(report):
                print_line(f"Before you file it: {words}")
        return
    print_line(f"Not ready to be filed ({checked}):")
    for defect in filed.defects:
        print_line(f"  {defect.kind}: {defect}")
