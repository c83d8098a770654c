"""`triage history`.

Example:
  triage history --kernel mamba3_siso_bwd_dqkv --sm 100a --config num_warps=8,num_stages=1
  triage history mamba3_siso_bwd_dqkv --while "n_regs<=32 and spill_stores>4096"

With --while, each row says if the condition holds: `no` is of a kernel that compiles, `other
failure` of one that does not, - of what says nothing of the kernel.

Nothing is compiled: it is what `triage compile` and `triage matrix run` found, the last result of
each cell. In the sparklines a version is a character; x did not compile, · is not known.
"""

from __future__ import annotations

from harness.cli.options import Options, holds_option, json_option, kernel_option, verb
from harness.cli.output import print_result
from harness.cli.results import read_results
from harness.cli.running import only_options
from harness.judging.followed import read_while
from harness.matrix.history import read_history
from harness.matrix.history_table import history_document, history_said
from harness.values.matrix import Selector


class _HistoryOptions(Options):
    kernel: str = kernel_option("A kernel with results, or a pattern; as the argument.")
    only: tuple[Selector, ...] = only_options()
    condition: str | None = holds_option()
    as_json: bool = json_option()


@verb()
def command(options: _HistoryOptions) -> None:
    """Show a table a launch: verdict, registers and spills of its configs over versions."""
    holds = read_while(options.condition)
    with read_results() as store:
        rows = read_history(store, options.kernel, options.only)
    said = history_said(rows, holds)
    print_result(history_document(rows, holds), said, as_json=options.as_json)
