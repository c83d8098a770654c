"""`triage bugs`.

Example:
  triage bugs
  triage bugs show 3
  triage bugs set 3 reported https://github.com/triton-lang/triton/issues/9933
  triage bugs join 3 5 --because "the same reduced PTX"
  triage bugs --kernel 'mamba3_*' --sm 100a
  triage bugs --while "n_regs<=32 and spill_stores>4096"

Failures with equal signatures are one bug; its number never changes. A failure without words (an
internal error, a crash that says nothing) is one bug for each kernel or PTX, until `join`: compared
are the versions, targets and flags with which each was seen to fail and to work. The state
of a bug follows from the results; your label for it is kept. With --while, the kernels and
targets for which the condition ever held are listed, with the versions; they have no number.
"""

from __future__ import annotations

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
from harness.cli.options import (
    Options,
    argument,
    exclusive,
    holds_option,
    json_option,
    option,
    verb,
)
from harness.cli.output import print_json, print_line, print_next, print_result
from harness.cli.results import open_results, read_results
from harness.cli.running import stored_options
from harness.judging.followed import read_while
from harness.values.bug import OPEN, HumanState, MachineState
from harness.values.matrix import Selector


class _BugsOptions(Options, rules=[exclusive("--state", "--while")]):
    states: tuple[str, ...] = option(
        "--state",
        type=click.Choice([state.value for state in (*MachineState, *HumanState)]),
        help="Only bugs in this state, of the results or of people. Repeatable.",
    )
    condition: str | None = holds_option()
    only: tuple[Selector, ...] = stored_options()
    as_json: bool = json_option()


@verb(cls=click.Group, invoke_without_command=True)
def command(options: _BugsOptions) -> None:
    """List the bugs that all results so far add up to, or those that some cells ever had."""
    if click.get_current_context().invoked_subcommand is not None:
        return
    holds, states = read_while(options.condition), set(options.states)
    if holds is not None:
        with read_results() as store:
            kernels = list_held(store, holds, only=options.only)
        said = held_said(kernels, holds)
        print_result(held_document(kernels, holds), said, as_json=options.as_json)
        return
    with read_results() as store:
        bugs = list_bugs(store, only=options.only)
    if states:
        bugs = [bug for bug in bugs if states & {bug.machine.value, bug.record.state.value}]
    print_result(bugs_document(bugs), bugs_said(bugs), as_json=options.as_json)
    if not options.as_json:
        shown = [f"triage bugs show {bug.record.number}" for bug in bugs if bug.machine in OPEN]
        print_next((command, "all that is known of it") for command in shown[:1])


class _BugOptions(Options):
    number: int = argument(type=click.IntRange(1), metavar="N")
    as_json: bool = json_option()


@verb(command)
def _show(options: _BugOptions) -> None:
    """Show all that is known of one bug, with a cell that has it."""
    with read_results() as store:
        bug = find_bug(list_bugs(store), options.number)
        workarounds = workarounds_of(store, bug)
    said = bug_said(bug, workarounds)
    print_result(bug_document(bug, workarounds), said, as_json=options.as_json)
    if bug.machine in OPEN and not options.as_json:
        filed = f"triage report --bug {options.number}"
        print_next([(filed, "an issue for those who can fix it")])


class _SetOptions(Options):
    number: int = argument(type=click.IntRange(1), metavar="N")
    state: str = argument(type=click.Choice([state.value for state in HumanState]))
    meant: str | None = argument(required=False, metavar="[URL|M]")
    note: str | None = option(metavar="TEXT", help="Words to keep with the bug.")
    as_json: bool = json_option()


@verb(command)
def _set(options: _SetOptions) -> None:
    """Say what people have decided: reported URL, duplicate M, expected, invalid, wontfix."""
    with open_results() as store:
        record = set_state(
            store, options.number, HumanState(options.state), options.meant, note=options.note
        )
    if options.as_json:
        print_json(record_document(record))
    else:
        print_line(f"bug {options.number} is {options.state} {options.meant or ''}".rstrip())


class _JoinOptions(Options):
    number: int = argument(type=click.IntRange(1), metavar="N")
    other: int = argument(type=click.IntRange(1), metavar="M")
    because: str | None = option(
        metavar="TEXT", help="Why they are one; needed unless histories agree."
    )
    as_json: bool = json_option()


@verb(command)
def _join(options: _JoinOptions) -> None:
    """Count the results of bug M as those of bug N, from now on; the reason is kept."""
    with open_results() as store:
        record = join_bugs(store, options.number, options.other, options.because)
    if options.as_json:
        print_json(record_document(record))
    else:
        print_line(f"bug {options.other} is part of bug {options.number}: {record.note}")
