"""`triage watch`."""

from __future__ import annotations

import os
import re
from dataclasses import asdict

import click

from harness.cli.main import CONTEXT
from harness.cli.options import goes_with, json_option
from harness.cli.output import print_json, print_line, status_console
from harness.cli.results import open_results
from harness.matrix.watch import file_issues, send, watch
from harness.values.errors import UsageError

_EPILOG = """\b
Example:
  triage watch
  triage watch --webhook https://chat.example.com/hooks/1234
  triage watch --github my-org/my-kernels

One message for each change of the last night that matters: what got worse, what was fixed, and
bugs that it is the first to show. None where nothing does, and none twice. The address of the
webhook may be in TRIAGE_WEBHOOK instead. With --github, an issue is drafted for each new bug that
is untriaged; only --file files it, with the token in GH_TOKEN or GITHUB_TOKEN.
Exit code 3: no run has finished. 4: the receiver could not be reached, or refused."""

_WEBHOOK = "TRIAGE_WEBHOOK"
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")


@click.command("watch", context_settings=CONTEXT, epilog=_EPILOG)
@goes_with("--github", "--file")
@click.option("--webhook", metavar="URL", help="Post each message there, as JSON.")
@click.option("--github", metavar="OWNER/REPO", help="Draft an issue for each new bug.")
@click.option("--file", "files", is_flag=True, help="File the issues of --github.")
@json_option
def command(*, webhook: str | None, github: str | None, files: bool, as_json: bool) -> None:
    """Tell people what the last night changed: one message for each change that matters."""
    if webhook is None:
        webhook = os.environ.get(_WEBHOOK)
        if webhook is not None and not webhook.strip():
            raise UsageError(f"{_WEBHOOK} is empty; unset it, or give it an address")
    if github is not None and not _REPOSITORY.fullmatch(github):
        raise UsageError(f"--github {github!r}: write OWNER/REPO")
    with open_results() as store:
        night = watch(store)
        sent = send(night.news, webhook, store.home) if webhook else 0
        filed = file_issues(store, night.drafts, github) if github and files else {}
    drafts = night.drafts if github else ()
    if as_json:
        news = [{**asdict(message), "text": message.text} for message in night.news]
        more = {"sent": sent, "drafts": [asdict(message) for message in drafts], "filed": filed}
        print_json({"schema": 1, "run": night.run, "older": night.older, "news": news, **more})
        return
    if not webhook:
        for message in night.news:
            print_line(message.text)
    for draft in drafts:
        print_line(filed.get(draft.bug) or f"# {draft.title}\n\n{draft.body}")
    status_console().print(
        f"run {night.run}: {len(night.news):,} messages"
        + (f", {sent:,} of them sent now" if webhook else "")
        + (f"; {len(drafts):,} issues, {len(filed):,} filed" if github else ""),
        soft_wrap=True,
    )
