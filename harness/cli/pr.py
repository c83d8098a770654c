"""`triage pr`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import structs

from harness.cells.matrix_file import FILE, read_matrix
from harness.cells.places import CompileOptions
from harness.cli.amounts import FilePath
from harness.cli.gpu_way import Execution, execution_of
from harness.cli.main import CONTEXT
from harness.cli.options import SilentOption, Verb, exclusive, json_option
from harness.cli.output import (
    json_text,
    print_json,
    print_remarks,
    print_said,
    print_text,
    status_console,
)
from harness.cli.progress.cells import show_progress
from harness.cli.results import open_results
from harness.cli.running import execution_options, run_to_the_end
from harness.diff.pairing import pair_launches, renaming
from harness.io.files.locations import create_folder
from harness.io.files.writing import write_atomically
from harness.matrix.night import MatrixOptions
from harness.matrix.pull_request import (
    Side,
    base_of,
    comments_alone,
    compare_sides,
    firsts_lost,
    head_of,
    last_run,
    lines_of_worse,
    run_side,
)
from harness.matrix.pull_request_forms import as_junit, as_markdown, as_sarif, pr_document, pr_said
from harness.store.artifacts import DATABASE
from harness.store.store import Store
from harness.values.change import Changes, FirstLost, PullRequest
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.matrix import Matrix, VersionChoice
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, EMULATOR, GPU, INSTALLED, SASS

_EPILOG = """\b
Example:
  triage pr --base main --kernel 'kernels/**.py' --sm 90a --sm 120a
  triage pr --base main --run --out triage-pr --fail-on failure
  triage pr --base ../before --head ../after --kernel bench.py --sm 80
  triage pr --base results-of-main --head results-of-branch

Exit codes are those of `triage diff`. 0: nothing got worse. 1: fewer configs of a launch work,
a regression, another signature, a metric that got worse (--fail-on failure: any failure that no
matrix expects, too). 4: something known could not be determined."""


@click.command("pr", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@exclusive("--json", "--markdown")
@click.option(
    "--base",
    required=True,
    metavar="REF",
    help="What to compare with: a branch or commit (what head left it at), a folder, or a folder "
    "of results, whose last run counts.",
)
@click.option(
    "--head", default=".", show_default=True, metavar="DIR", help="A folder, or one of results."
)
@click.option(
    "--kernel",
    "--kernels",
    "kernels",
    multiple=True,
    metavar="PATTERN",
    help="Files ('kernels/**.py', FILE.py::NAME, FILE.ptx) or names of repros. Repeatable. "
    "Default: those of ./matrix.yaml, else of ./repros.",
)
@click.option(
    "--sm",
    multiple=True,
    metavar="SM",
    help="GPU target: 90a, sm_100a ... Repeatable. Default: the matrix's.",
)
@click.option("--triton", multiple=True, metavar="X", help="Triton version. Repeatable.")
@click.option("--ptxas", multiple=True, metavar="X", help="ptxas version. Repeatable.")
@click.option(
    "--matrix",
    "file",
    type=FilePath(read=True),
    metavar="FILE",
    help="Targets, toolchains, exclusions and known failures, for both. Default: ./matrix.yaml of "
    "head, if there is one.",
)
@execution_of(
    "Execute the kernels too, on small inputs, as `triage run` does.",
    "Their cubins: SASS emulated, or launched on a GPU.",
    takes=(EMULATOR, SASS, GPU),
    formal=False,
)
@click.option(
    "--fail-on",
    cls=SilentOption,
    type=click.Choice(["regression", "failure", "never"]),
    default="regression",
    show_default=True,
    help="When the exit code is 1: head is worse; or has any failure that no matrix expects.",
)
@click.option(
    "--out",
    cls=SilentOption,
    type=FilePath(file_okay=False),
    metavar="DIR",
    help="Write comment.md, triage.sarif, junit.xml and triage.json there.",
)
@click.option(
    "--markdown", "is_markdown", cls=SilentOption, is_flag=True, help="The comment on stdout."
)
@execution_options
@json_option
def command(
    *,
    base: str,
    head: str,
    kernels: tuple[str, ...],
    sm: tuple[str, ...],
    triton: tuple[str, ...],
    ptxas: tuple[str, ...],
    file: Path | None,
    execution: Execution,
    fail_on: str,
    out: Path | None,
    is_markdown: bool,
    how: CompileOptions,
    as_json: bool,
) -> None:
    """Say what a change does to the machine code of kernels, before it is merged.

    Compiles the kernels of base and head for each target and toolchain, and compares them as
    `triage diff` does; cells whose machine code is the same are counted and not shown.
    """
    results = [Path(text, DATABASE).is_file() for text in (base, head)]
    if all(results):
        with Store.for_reading(Path(base)) as one, Store.for_reading(Path(head)) as other:
            matrix = read_matrix(file) if file else None
            result = compare_sides((one, last_run(one)), (other, last_run(other)), matrix)
        result = structs.replace(result, base=base, head=head)
    elif any(results):
        raise UsageError(f"{base} and {head}: one of them holds results and the other does not")
    else:
        ours = head_of(head)
        theirs = click.get_current_context().with_resource(base_of(base, ours))
        own = ours.folder / FILE
        matrix = _matrix(file or (own if own.is_file() else None), sm, triton, ptxas)
        options = MatrixOptions(
            work=how, run=execution.run, on=execution.on, runner=execution.runner
        )
        result = _of_folders(theirs, ours, matrix, kernels, options)
    document = pr_document(result)
    if out:
        create_folder(out)
        forms = {
            "comment.md": as_markdown(result),
            "triage.sarif": json_text(as_sarif(result)),
            "junit.xml": as_junit(result),
            "triage.json": json_text(document),
        }
        for name, text in forms.items():
            write_atomically(out / name, text.encode())
    print_remarks((*result.notes, *result.failures))
    if as_json:
        print_json(document)
    elif is_markdown:
        print_text(as_markdown(result))
    else:
        print_said(pr_said(result), whole_lines=True)
    raise click.exceptions.Exit(result.exit_code(fail_on))


def _matrix(
    file: Path | None, sm: Sequence[str], triton: Sequence[str], ptxas: Sequence[str]
) -> Matrix:
    """The matrix of a file, or none but the defaults; options take the place of its lists."""
    matrix = (
        read_matrix(file)
        if file
        else Matrix(
            triton=VersionChoice(specs=(INSTALLED,)),
            ptxas=VersionChoice(specs=(BUNDLED,)),
            targets=(),
            kernels=(),
            freeze_ptx=False,
        )
    )
    changed: dict[str, object] = {}
    if sm:
        changed["targets"] = tuple(map(Target.parse, sm))
    if triton:
        changed["triton"] = VersionChoice(specs=tuple(triton))
    if ptxas:
        changed["ptxas"] = VersionChoice(specs=tuple(ptxas))
    return structs.replace(matrix, **changed)


def _of_folders(
    base: Side, head: Side, matrix: Matrix, kernels: Sequence[str], options: MatrixOptions
) -> PullRequest:
    """Run both, base first; nothing where the files differ in comments alone."""
    if (files := comments_alone(base, head)) is not None:
        nothing = PullRequest(changes=Changes(older=None, newer=0), unreached=tuple(files))
        return structs.replace(nothing, base=base.name, head=head.name)
    patterns = kernels or matrix.kernels
    status = status_console()
    with open_results() as store:
        reports = []
        for side, never in ((base, head), (head, base)):
            with show_progress(status) as progress:
                status.print(f"triage: {side.name}", style="dim")
                job = run_side(side, matrix, patterns, store, options, progress, never=never)
                reports.append(run_to_the_end(job))
        before, after = reports
        if after is None:
            raise EmptySelectionError(
                "no kernel is selected: name files or repros with --kernel, or write matrix.yaml"
            )
        old = set(before.report.failures) if before else set()
        failures = tuple(failure for failure in after.report.failures if failure not in old)
        named = pair_launches(before.launches, after.launches) if before else {}
        result = compare_sides(
            (store, before.report.run if before else None),
            (store, after.report.run),
            matrix,
            named=named,
            is_whole=not failures,
        )
        lines = lines_of_worse(result, store, head)
        firsts: tuple[FirstLost, ...] = ()
        if before and result.same_code < len(result.cells):
            firsts = run_to_the_end(firsts_lost(result, before, after, named, store, options))
    ran = after.report
    notes = tuple(dict.fromkeys((*ran.warnings, *sorted(old & set(ran.failures)))))
    return structs.replace(
        result,
        base=base.name,
        head=head.name,
        command=options.work.command,
        lines=lines,
        unexpected=ran.unexpected,
        firsts=firsts,
        renamed=tuple(renaming(named)),
        failures=failures,
        notes=notes,
    )
