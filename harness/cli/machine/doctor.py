"""`triage doctor`."""

from __future__ import annotations

import click

from harness.cli.machine.doctor_checks import Check, examine
from harness.cli.main import CONTEXT
from harness.cli.options import json_option
from harness.cli.output import print_json, print_said, status_console
from harness.cli.progress.steps import working
from harness.tables.said import SaidLine, Tone, say

_EPILOG = """\b
Example:
  triage doctor"""

_MARKS = {True: say("ok", Tone.GOOD), False: say("!!", Tone.BAD), None: say("--", Tone.FAINT)}


@click.command("doctor", context_settings=CONTEXT, epilog=_EPILOG)
@json_option
def command(*, as_json: bool) -> None:
    """Say what works on this machine, and what to do about what does not."""
    with working(status_console(), "looking at this machine"):
        checks = examine()
    if as_json:
        print_json({"schema": 1, "checks": checks})
    else:
        print_said(line for check in checks for line in _lines(check))
    raise click.exceptions.Exit(4 if any(check.ok is False for check in checks) else 0)


def _lines(check: Check) -> list[SaidLine]:
    found = _MARKS[check.ok] + say(f" {check.name}: {check.brief or check.found}")
    return [found, say(f"   {check.advice}")] if check.advice else [found]
