"""`triage report`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from harness.cells.selection import select
from harness.cells.spelling import SelectionOptions, spell_command, words_of
from harness.cli.amounts import FilePath
from harness.cli.gpu_way import executed_on, formal_option, is_executed, is_on_gpu
from harness.cli.main import CONTEXT
from harness.cli.options import (
    EXECUTES,
    apart,
    exclusive,
    execution_options,
    json_option,
    selection_options,
    while_option,
)
from harness.cli.output import print_json, print_line, results_console, status_console
from harness.cli.progress.steps import narrating, preparing
from harness.cli.results import open_results
from harness.cli.running import compile_options, run_to_the_end, selection_words, surroundings
from harness.frontends.base import Selection
from harness.frontends.registry import front_end, kinds
from harness.io.files.locations import create_folder
from harness.io.files.writing import write_atomically
from harness.judging.conditions import spell
from harness.judging.followed import read_while
from harness.matrix.bugs.list import find_bug, list_bugs
from harness.minimize.reduction.words import folder_files
from harness.report.dossier import Dossier, Upstream, search_terms
from harness.report.filing import Filed, Filing, attach, file_report
from harness.report.gather import GatherOptions, gather, required_fields, times_of_results
from harness.report.issue import render_report, report_document, report_page
from harness.report.picture import PICTURE, draw_history
from harness.store.store import Store
from harness.values.errors import UsageError
from harness.values.row import Row
from harness.values.toolchain import GPU, TRITON

# Of a sentence that could not be checked: enough to find it in the issue.
_SHOWN = 100

_EPILOG = """\b
Example:
  triage report --kernel mamba3_siso_bwd_dqkv --sm 100a --set chunk_size=32 --ptxas 13.1.115 \\
      --for nvidia --out reports/c7907
  triage report --bug 3 --for triton
  triage report --kernel slow.py --triton 3.6.0 --for triton --while "spill_stores>4096"
  triage report --kernel two_dots --sm 100a --triton 3.8.0 --for triton --run
  triage report --kernel fold_prmt_sign --ptxas 13.0.88 --for nvidia --run --on gpu

Exit code 0: written, and ready to be filed. 1: written, but not ready; what is wrong is listed.
4: this machine or a toolchain failed."""


class _Addressee(click.ParamType[str]):
    """An upstream, or the kind of a compiler whose form of an issue is known."""

    name = "upstream"
    _fixed = tuple(each.value for each in Upstream if each is not Upstream.COMPILER)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        return f"[{'|'.join(self._fixed)}|KIND]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in self._fixed or (value in kinds() and front_end(value).issue_fields):
            return value
        known = [kind for kind in kinds() if front_end(kind).issue_fields]
        return self.fail(f"{value!r} is not one of {', '.join((*self._fixed, *known))}", param, ctx)


def _upstream(options: Mapping[str, Any]) -> Upstream:
    asked: str = options["upstream"]
    return Upstream(asked) if asked not in kinds() or asked == TRITON else Upstream.COMPILER


@click.command("report", context_settings=CONTEXT, epilog=_EPILOG)
@exclusive("--signature", "--while")
@exclusive("--bug", "--while")
@apart(EXECUTES, "--while", "--measured", because="it is about what ptxas makes")
@partial(selection_options, kernel_required=False)
@click.option("--bug", type=click.IntRange(1), metavar="N", help="A bug of `triage bugs`.")
@click.option(
    "--for",
    "upstream",
    type=_Addressee(),
    required=True,
    help="The upstream whose form the issue gets; KIND is another compiler.",
)
@click.option(
    "--out",
    type=FilePath(file_okay=False),
    help="Folder for issue.md, history.svg and bundle.tar.gz. Default: reports/KERNEL-CELL.",
)
@click.option(
    "--run", is_flag=True, help="Report what the PTX computes when it is executed on the emulator."
)
@executed_on("On a GPU, what the cubin of a file of PTX computes.")
@formal_option
@click.option(
    "--measured",
    type=FilePath(read=True),
    metavar="RESULTS",
    help="Of registers that collapse: what a pack of `triage workaround --pack` gave on a GPU.",
)
@click.option("--signature", metavar="KEY", help="The failure that is meant.")
@while_option
@click.option(
    "--minimized",
    type=FilePath(file_okay=False),
    metavar="DIR",
    help="Folder of `triage minimize`. Default: minimized/KERNEL-CELL, created if it is missing.",
)
@click.option("--quick", is_flag=True, help="Run nothing that takes minutes; say what is missing.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["md", "json", "html"]),
    default="md",
    show_default=True,
    help="Of the issue.",
)
@click.option("--draft-duplicates", is_flag=True, help="Only print what to search for first.")
@execution_options
@json_option
def command(**options: Any) -> None:  # noqa: ANN401 - click's options, typed by their declarations
    """Write the report of one failure that its upstream can act on, and say if it is ready.

    What is not stored yet is computed: the history, blame, the smallest input, workarounds. Then
    the bundle is unpacked in a clean folder, its one command is run with a fresh toolchain, and
    each statement of the issue is checked: the attached files are compiled again on the versions
    and with the flags that it names, and its numbers are judged again from stored evidence.
    """
    read_while(options["condition"])
    if is_on_gpu(options):
        options["on"] = GPU
    options["run"] = is_executed(options)
    with open_results() as store:
        words = _words(options, store)
        with preparing(status_console()):
            selection = _one(select(words))
        mine, asked = selection.repro.front_end, options["upstream"]
        if _upstream(options) is Upstream.COMPILER and asked != mine:
            raise UsageError(f"--for {asked}: {selection.repro.name} is compiled by {mine}")
        dossier = _gathered(options, words, selection, store)
        if options["draft_duplicates"]:
            for term in search_terms(dossier):
                print_line(term)
            return
        out = options["out"] or Path("reports") / _slug(dossier.case)
        filed = _filed(dossier, selection, options, out, store)
    if options["as_json"]:
        print_json({**_document(filed, options), "path": str(out)})
    else:
        _say(filed, out)
    raise click.exceptions.Exit(1 if filed.defects else 0)


def _words(options: dict[str, Any], store: Store) -> SelectionOptions:
    """What selects the case: the options, or the cell in which a bug was seen."""
    if (options["bug"] is None) == (options["kernel"] is None):
        raise UsageError("name the failure: either --kernel K with its options, or --bug N")
    if options["bug"] is None:
        return selection_words(options)
    example = find_bug(list_bugs(store), options["bug"]).example
    options["signature"] = options["signature"] or example.signature
    return replace(words_of(example), surroundings=surroundings())


def _one(selection: Selection) -> Selection:
    several = {
        "--sm": selection.targets,
        "--launch": selection.launches,
        "--triton": selection.compilers,
        "--ptxas": selection.ptxas,
    }
    for name, values in several.items():
        if len(values) != 1:
            raise UsageError(f"{name}: {len(values)} are meant; a report is of one")
    return selection


def _gathered(
    options: dict[str, Any], words: SelectionOptions, selection: Selection, store: Store
) -> Dossier:
    # Where the file lies on this machine is private.
    public = replace(words, kernel=Path(words.kernel).name)
    condition = read_while(options["condition"])
    results = options["measured"]
    times = times_of_results(results, selection, store) if results else None
    asked_for = ["--for", options["upstream"]]
    asked_for += ["--while", spell(condition)] if condition else []
    asked_for += ["--measured", results.name] if results else []
    asked_for += ["--run"] if options["run"] else []
    asked_for += ["--on", GPU] if options["on"] == GPU else []
    asked = GatherOptions(
        words=words,
        made_by=spell_command("report", public, *asked_for),
        upstream=_upstream(options),
        signature=options["signature"],
        condition=condition,
        run=options["run"],
        on_gpu=options["on"] == GPU,
        runner=options["runner"],
        quick=options["quick"] or options["draft_duplicates"],
        minimized=lambda row: options["minimized"] or Path("minimized") / _slug(row),
    )
    how = compile_options(options)
    with narrating(status_console(), "report: compiling", who="report: ") as tell:
        dossier = run_to_the_end(gather(selection, store, how, asked, tell))
    if times and dossier.collapse is None:
        raise UsageError(f"--measured {results.name}: no registers collapse in this config")
    dossier = replace(dossier, times=times)
    scripts = folder_files(dossier.minimized, command=asked.made_by) if dossier.minimized else {}
    given = selection.repro.ptx.read_bytes() if selection.repro.ptx else b""
    return attach(dossier, store, scripts, given, draw_history(dossier, asked.upstream))


def _slug(row: Row) -> str:
    return f"{Path(row.kernel.partition('::')[0]).stem}-{row.short}"


def _filed(
    dossier: Dossier, selection: Selection, options: dict[str, Any], out: Path, store: Store
) -> Filed:
    """Write what is to be filed, and hold it to the gate."""
    upstream, kind = _upstream(options), options["kind"]
    create_folder(out.absolute())
    with narrating(status_console(), "report: checking", who="report: ") as tell:
        filing = Filing(
            render=partial(render_report, upstream=upstream),
            required=tuple(required_fields(upstream, dossier.case.compiler)),
            bundle=out / "bundle.tar.gz",
            folder=out.name or "report",
            selection=selection,
            store=store,
            how=compile_options(options),
            tell=tell,
            runner=options["runner"],
        )
        filed = run_to_the_end(file_report(dossier, filing))
    write_atomically(out / "issue.md", filed.issue.text.encode())
    if picture := _picture(filed):
        write_atomically(out / PICTURE, picture)
    if kind == "html":
        write_atomically(out / "issue.html", report_page(filed.issue.text).encode())
    if kind == "json":
        document = json.dumps(_document(filed, options), indent=2)
        write_atomically(out / "issue.json", document.encode())
    return filed


def _picture(filed: Filed) -> bytes | None:
    files = {file.name: file.data for file in filed.dossier.attachments}
    return files.get(PICTURE)


def _document(filed: Filed, options: dict[str, Any]) -> dict[str, Any]:
    upstream = _upstream(options)
    return report_document(filed.dossier, upstream, filed.issue, filed.proof, filed.defects)


def _say(filed: Filed, out: Path) -> None:
    console = results_console()
    console.print(f"{out / 'issue.md'}", soft_wrap=True, markup=False)
    console.print(f"{out / 'bundle.tar.gz'}", soft_wrap=True, markup=False)
    if _picture(filed):
        does = "GitHub shows it once it is dragged into the issue"
        console.print(f"{out / PICTURE}  ({does})", soft_wrap=True, markup=False)
    proof = filed.proof
    said = f"{proof.checked} of its {proof.claims} statements were checked"
    for sentence, why in proof.unchecked:
        words = " ".join(sentence.split())[:_SHOWN]
        console.print(f"  not checked: {words} ({why})", soft_wrap=True, markup=False)
    if not filed.defects:
        console.print(f"Ready to be filed: {said}, and all of these are true.")
        return
    console.print(f"Not ready to be filed ({said}):")
    for defect in filed.defects:
        console.print(f"  {defect.kind}: {defect}", soft_wrap=True, markup=False)
