"""`triage doctor`."""

from __future__ import annotations

import click
from rich.text import Text

from harness.cli.machine.doctor_checks import examine
from harness.cli.main import CONTEXT
from harness.cli.options import json_option
from harness.cli.output import print_json, results_console

__all__ = ["command"]

_EPILOG = """\b
Example:
  triage doctor"""

_MARKS = {True: ("ok", "green"), False: ("!!", "red"), None: ("--", "dim")}


@click.command("doctor", context_settings=CONTEXT, epilog=_EPILOG)
@json_option
def command(*, as_json: bool) -> None:
    """Say what works on this machine, and what to do about what does not."""
    checks = examine()
    if as_json:
        print_json({"schema": 1, "checks": checks})
    else:
        console = results_console()
        for check in checks:
            mark, style = _MARKS[check.ok]
            console.print(Text.assemble((mark, style), f" {check.name}: {check.found}"))
            if check.advice:
                console.print(f"   {check.advice}")
    raise click.exceptions.Exit(4 if any(check.ok is False for check in checks) else 0)
