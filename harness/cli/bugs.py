"""`triage bugs`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from harness.bugs.bug_words import (
    bug_document,
    bug_said,
    bugs_document,
    bugs_said,
    held_document,
    held_said,
    record_document,
)
from harness.bugs.list import find_bug, join_bugs, list_bugs, list_held, set_state, workarounds_of
from harness.cli.main import CONTEXT
from harness.cli.options import exclusive, holds_option, json_option
from harness.cli.output import print_json, print_said, results_console
from harness.cli.results import open_results, read_results
from harness.cli.running import stored_options
from harness.judging.conditions import Condition
from harness.judging.followed import read_while
from harness.values.bug import HumanState, MachineState
from harness.values.matrix import Selector

_EPILOG = """\b
Example:
  triage bugs
  triage bugs show 3
  triage bugs set 3 reported https://github.com/triton-lang/triton/issues/9933
  triage bugs join 3 5 --because "the same reduced PTX"
  triage bugs --kernel 'mamba3_*' --sm 100a
  triage bugs --while "n_regs<=32 and spill_stores>4096"

Failures with equal signatures are one bug; its number never changes. A failure without words (an
internal error, a crash that says nothing) is one bug for each kernel or PTX, until `join`: compared
are the versions, targets and flags with which each was seen to fail and to work. What the results
say of a bug is derived from them each time; what people say is kept. With --while, the kernels and
targets for which the condition ever held are listed, with the versions; they have no number."""
_STATES = click.Choice([state.value for state in HumanState])


@click.group("bugs", context_settings=CONTEXT, epilog=_EPILOG, invoke_without_command=True)
@exclusive("--state", "--while")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([state.value for state in (*MachineState, *HumanState)]),
    help="Only bugs in this state, of the results or of people. Repeatable.",
)
@holds_option
@stored_options
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    states: tuple[str, ...],
    condition: str | None,
    only: Sequence[Selector],
    as_json: bool,
) -> None:
    """List the bugs that all results so far add up to, or those that some cells ever had."""
    if ctx.invoked_subcommand is not None:
        return
    if (holds := read_while(condition)) is not None:
        _list_held(holds, only, as_json=as_json)
        return
    with read_results() as store:
        bugs = list_bugs(store, only=only)
    if states:
        bugs = [bug for bug in bugs if {bug.machine.value, bug.record.state.value} & set(states)]
    if as_json:
        print_json(bugs_document(bugs))
    else:
        print_said(bugs_said(bugs))


def _list_held(condition: Condition, only: Sequence[Selector], *, as_json: bool) -> None:
    with read_results() as store:
        kernels = list_held(store, condition, only=only)
    if as_json:
        print_json(held_document(kernels, condition))
    else:
        print_said(held_said(kernels, condition))


@command.command("show", context_settings=CONTEXT)
@click.argument("number", type=click.IntRange(1), metavar="N")
@json_option
def _show(number: int, *, as_json: bool) -> None:
    """Show all that is known of one bug, with a cell that has it."""
    with read_results() as store:
        bug = find_bug(list_bugs(store), number)
        workarounds = workarounds_of(store, bug)
    if as_json:
        print_json(bug_document(bug, workarounds))
    else:
        print_said(bug_said(bug, workarounds))


@command.command("set", context_settings=CONTEXT)
@click.argument("number", type=click.IntRange(1), metavar="N")
@click.argument("state", type=_STATES)
@click.argument("argument", required=False, metavar="[URL|M]")
@click.option("--note", metavar="TEXT", help="Words to keep with the bug.")
@json_option
def _set(number: int, state: str, argument: str | None, *, note: str | None, as_json: bool) -> None:
    """Say what people have decided: reported URL, duplicate M, expected, invalid, wontfix."""
    with open_results() as store:
        record = set_state(store, number, HumanState(state), argument, note=note)
    if as_json:
        print_json(record_document(record))
    else:
        results_console().print(f"bug {number} is {state}" + (f" {argument}" if argument else ""))


@command.command("join", context_settings=CONTEXT)
@click.argument("number", type=click.IntRange(1), metavar="N")
@click.argument("other", type=click.IntRange(1), metavar="M")
@click.option("--because", metavar="TEXT", help="Why they are one; needed unless histories agree.")
@json_option
def _join(number: int, other: int, *, because: str | None, as_json: bool) -> None:
    """Count the results of bug M as those of bug N, from now on; the reason is kept."""
    with open_results() as store:
        record = join_bugs(store, number, other, because)
    if as_json:
        print_json(record_document(record))
    else:
        results_console().print(f"bug {other} is part of bug {number}: {record.note}")
