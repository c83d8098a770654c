"""`triage pr`.

Example:
  triage pr --base main --kernel 'kernels/**.py' --sm 90a --sm 120a
  triage pr --base main --run --out triage-pr --fail-on failure
  triage pr --base ../before --head ../after --kernel bench.py --sm 80
  triage pr --base results-of-main --head results-of-branch

Exit codes are those of `triage diff`. 0: nothing got worse. 1: fewer configs of a launch work,
a regression, another signature, a metric that got worse (--fail-on failure: any failure that no
matrix expects, too). 4: something known could not be determined.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import structs

from harness.cells.matrix_file import FILE, read_matrix
from harness.cells.places import CompileOptions
from harness.cli.amounts import FilePath
from harness.cli.gpu_way import Execution, execution_option
from harness.cli.options import Options, exclusive, json_option, option, silent, verb
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
from harness.cli.running import execution_options, run_to_the_end, sm_option
from harness.diff.pairing import pair_launches, renaming
from harness.io.files.locations import create_folder
from harness.io.files.writing import write_atomically
from harness.matrix.pull_request import (
    Side,
    base_of,
    comments_alone,
    compare_sides,
    head_of,
    last_run,
    lines_of_worse,
    run_side,
)
from harness.matrix.pull_request_forms import as_junit, as_markdown, as_sarif, pr_document, pr_said
from harness.matrix.run_policy import MatrixOptions
from harness.store.artifacts import DATABASE
from harness.store.store import Store
from harness.values.change import Changes, PullRequest
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.matrix import Matrix, VersionChoice
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, INSTALLED


class _PrOptions(Options, rules=[exclusive("--json", "--markdown")]):
    base: str = option(
        often=True,
        required=True,
        metavar="REF",
        help="What to compare with: a branch or commit (what head left it at), a folder, or a "
        "folder of results, whose last run counts.",
    )
    head: str = option(often=True, default=".", metavar="DIR", help="A folder, or one of results.")
    kernels: tuple[str, ...] = option(
        "--kernel",
        "--kernels",
        often=True,
        metavar="PATTERN",
        help="Files ('kernels/**.py', FILE.py::NAME, FILE.ptx) or names of repros. Repeatable. "
        "Default: those of ./matrix.yaml, else of ./repros.",
    )
    sm: tuple[str, ...] = sm_option(" Default: the matrix's.")
    triton: tuple[str, ...] = option(metavar="X", help="Triton version. Repeatable.")
    ptxas: tuple[str, ...] = option(metavar="X", help="ptxas version. Repeatable.")
    file: Path | None = option(
        "--matrix",
        type=FilePath(read=True),
        metavar="FILE",
        help="Targets, toolchains, exclusions and known failures, for both. Default: "
        "./matrix.yaml of head, if there is one.",
    )
    execution: Execution = execution_option(
        "Execute the kernels too, on small inputs, as `triage run` does.",
        "Their cubins: SASS emulated, or launched on a GPU.",
        takes_formal=False,
    )
    fail_on: str = silent(
        often=True,
        type=click.Choice(["regression", "failure", "never"]),
        default="regression",
        help="When the exit code is 1: head is worse; or has any failure that no matrix expects.",
    )
    out: Path | None = silent(
        often=True,
        type=FilePath(file_okay=False),
        metavar="DIR",
        help="Write comment.md, triage.sarif, junit.xml and triage.json there.",
    )
    is_markdown: bool = silent("--markdown", help="The comment on stdout.")
    how: CompileOptions = execution_options()
    as_json: bool = json_option()


@verb()
def command(options: _PrOptions) -> int:
    """Say what a change does to the machine code of kernels, before it is merged.

    Compiles the kernels of base and head for each target and toolchain, and compares them as
    `triage diff` does; cells whose machine code is the same are counted and not shown.
    """
    results = [Path(text, DATABASE).is_file() for text in (options.base, options.head)]
    if all(results):
        with (
            Store.for_reading(Path(options.base)) as one,
            Store.for_reading(Path(options.head)) as other,
        ):
            matrix = read_matrix(options.file) if options.file else None
            result = compare_sides((one, last_run(one)), (other, last_run(other)), matrix)
        result = structs.replace(result, base=options.base, head=options.head)
    elif any(results):
        raise UsageError(
            f"{options.base} and {options.head}: one of them holds results and the other does not"
        )
    else:
        ours = head_of(options.head)
        theirs = click.get_current_context().with_resource(base_of(options.base, ours))
        own = ours.folder / FILE
        matrix = _matrix(options.file or (own if own.is_file() else None), options)
        night = MatrixOptions(
            work=options.how,
            run=options.execution.run,
            on=options.execution.on,
            runner=options.execution.runner,
        )
        result = _of_folders(theirs, ours, matrix, options.kernels, night)
    document = pr_document(result)
    if options.out:
        create_folder(options.out)
        forms = {
            "comment.md": as_markdown(result),
            "triage.sarif": json_text(as_sarif(result)),
            "junit.xml": as_junit(result),
            "triage.json": json_text(document),
        }
        for name, text in forms.items():
            write_atomically(options.out / name, text.encode())
    print_remarks(*result.notes, *result.failures)
    if options.as_json:
        print_json(document)
    elif options.is_markdown:
        print_text(as_markdown(result))
    else:
        print_said(pr_said(result), whole_lines=True)
    return result.exit_code(options.fail_on)


def _matrix(file: Path | None, options: _PrOptions) -> Matrix:
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
    return structs.replace(
        matrix,
        targets=tuple(map(Target.parse, options.sm)) or matrix.targets,
        triton=VersionChoice(specs=options.triton) if options.triton else matrix.triton,
        ptxas=VersionChoice(specs=options.ptxas) if options.ptxas else matrix.ptxas,
    )


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
            with show_progress() as progress:
                status.print(f"triage: {side.name}", style="dim")
                job = run_side(side, matrix, patterns, store, options, progress, never=never)
                reports.append(run_to_the_end(job))
        before, after = reports
        if after is None:
            raise EmptySelectionError(
                "no kernel is selected: name files or repros with --kernel, or write matrix.yaml"
            )
        ran, launches = after
        old = set(before[0].failures) if before else set()
        failures = tuple(failure for failure in ran.failures if failure not in old)
        named = pair_launches(before[1], launches) if before else {}
        result = compare_sides(
            (store, before[0].run if before else None),
            (store, ran.run),
            matrix,
            named=named,
            is_whole=not failures,
        )
        lines = lines_of_worse(result, store, head)
    notes = tuple(dict.fromkeys((*ran.warnings, *sorted(old & set(ran.failures)))))
    return structs.replace(
        result,
        base=base.name,
        head=head.name,
        command=options.work.command,
        lines=lines,
        unexpected=ran.unexpected,
        renamed=tuple(renaming(named)),
        failures=failures,
        notes=notes,
    )
