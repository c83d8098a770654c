"""`triage binaries`.

Example:
  triage binaries bitsandbytes-0.50.2-py3-none-manylinux_2_24_x86_64.whl
  triage binaries ~/.triton/cache --kernel '*attn*' --sm 90a
  triage binaries torchvision==0.29.1 torchvision==0.29.2
  triage binaries build/lib.so --kernel 'nms_*' --ptxas latest

Exit codes: 0 all was read (and nothing got worse), 1 a kernel got worse or its PTX does not
assemble, 3 no kernel, 4 a part could not be read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from harness.binaries.again import assemble_again
from harness.binaries.binary_words import (
    again_said,
    builds_document,
    builds_said,
    kernels_document,
    kernels_said,
)
from harness.binaries.builds import compare_builds
from harness.binaries.find_binaries import BinaryContents, read_binaries
from harness.cells.places import CompileOptions
from harness.cli.amounts import Words
from harness.cli.options import Options, argument, goes_with, json_option, option, silent, verb
from harness.cli.output import print_remarks, print_result
from harness.cli.progress.steps import preparing, working
from harness.cli.results import open_results
from harness.cli.running import run_to_the_end, sm_option, tool_options
from harness.frontends.back_end import PTXAS_BACK_END
from harness.judging.ptxas.binary import selects
from harness.values.binary import ReassembledKernel
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.target import Target


class _BinariesOptions(Options, rules=[goes_with("--ptxas", "--jobs", "--timeout", "--memory")]):
    paths: tuple[str, ...] = argument(
        required=True, type=Words(names_files=True), metavar="PATH [PATH2]"
    )
    patterns: tuple[str, ...] = option(
        "--kernel",
        often=True,
        metavar="PATTERN",
        help="Only these: a name, mangled, in words or without its arguments, or a pattern. "
        "Repeatable.",
    )
    sm: tuple[str, ...] = sm_option(" Only these.")
    ptxas: tuple[str, ...] = option(
        often=True,
        metavar="X",
        help="Assemble the embedded PTX again by this ptxas, for its own target or --sm. "
        "Repeatable.",
    )
    whole: bool = silent("--all", often=True, help="A row for each kernel.")
    how: CompileOptions = tool_options()
    as_json: bool = json_option()


@verb()
def command(options: _BinariesOptions) -> int:
    """List the kernels of finished binaries: registers, spills, stack, shared memory, PTX.

    PATH is a cubin, a fatbin, a library or another ELF file, a wheel or another zip (.pt2), a
    folder (a cache of Triton or Inductor, a build tree), or NAME==VERSION of the package index.
    With PATH2, say what changed between two builds. Nothing of it is executed.
    """
    paths, ptxas = options.paths, options.ptxas
    if len(paths) > 2:
        raise UsageError(f"{len(paths)} paths: name one, or two to compare")
    if len(paths) == 2 and ptxas:
        raise UsageError("--ptxas does not apply to two builds: name one")
    targets = list(map(Target.parse, options.sm))
    found = []
    for path in paths:
        with working(f"reading {os.path.basename(path)}"):  # noqa: PTH119
            found.append(read_binaries(path))
    problems = [problem for contents in found for problem in contents.problems]
    names = set(map(str, targets))
    selected = [
        [k for k in contents.kernels if selects(options.patterns, k.name, k.demangled)]
        for contents in found
    ]
    chosen = [[k for k in some if not names or k.target in names] for some in selected]
    if not any(chosen) and not ptxas:
        count = len({kernel.name for contents in found for kernel in contents.kernels})
        raise EmptySelectionError(
            f"{' and '.join(paths)}: none of the {count:,} kernels is selected by --kernel and --sm"
        )
    print_remarks(*problems)
    if len(paths) == 2:
        result = compare_builds(*chosen)
        is_worse = any(change.worse for change in result.changes)
        document: object = builds_document(result, (paths[0], paths[1]), problems)
        blocks = builds_said(result, *paths, whole=options.whole)
    else:
        again = None
        blocks = kernels_said(chosen[0], whole=options.whole or bool(options.patterns))
        if ptxas:
            again = _assembled_again(found[0], {k.name: k.demangled for k in selected[0]}, options)
            blocks = [*(blocks if chosen[0] else ()), *again_said(again)]
        is_worse = any(row.problem for row in again or ())
        document = kernels_document(paths[0], chosen[0], problems, again)
    print_result(document, blocks, as_json=options.as_json)
    return 1 if is_worse else 4 if problems else 0


def _assembled_again(
    contents: BinaryContents, selected: Mapping[str, str], options: _BinariesOptions
) -> list[ReassembledKernel]:
    with preparing():
        versions = [version for spec in options.ptxas for version in PTXAS_BACK_END.select(spec)]
        tools = [PTXAS_BACK_END.install(version) for version in versions]
    modules, kernels = contents.modules, contents.kernels
    targets = list(map(Target.parse, options.sm))
    with open_results() as store, working("assembling PTX") as tell:
        return run_to_the_end(
            assemble_again(store, modules, kernels, selected, tools, targets, options.how, tell)
        )
