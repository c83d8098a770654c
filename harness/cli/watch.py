"""`triage watch`.

Example:
  triage watch
  triage watch --webhook https://chat.example.com/hooks/1234
  triage watch --github my-org/my-kernels

One message for each change of the last night that matters: what got worse, what was fixed, and
bugs that it is the first to show. None where nothing does, and none twice. The address of the
webhook may be in TRIAGE_WEBHOOK instead. With --github, an issue is drafted for each new bug that
is untriaged; only --file files it, with the token in GH_TOKEN or GITHUB_TOKEN.
Exit code 3: no run has finished. 4: the receiver could not be reached, or refused.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict

from harness.cli.options import Options, goes_with, json_option, option, verb
from harness.cli.output import print_json, print_line, status_console
from harness.cli.results import open_results
from harness.matrix.watch import file_issues, send, watch
from harness.values.errors import UsageError

_WEBHOOK = "TRIAGE_WEBHOOK"
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+")


class _WatchOptions(Options, rules=[goes_with("--github", "--file")]):
    webhook: str | None = option(metavar="URL", help="Post each message there, as JSON.")
    github: str | None = option(metavar="OWNER/REPO", help="Draft an issue for each new bug.")
    files: bool = option("--file", help="File the issues of --github.")
    as_json: bool = json_option()


@verb()
def command(options: _WatchOptions) -> None:
    """Tell people what the last night changed: one message for each change that matters."""
    webhook = options.webhook
    if webhook is None:
        webhook = os.environ.get(_WEBHOOK)
        if webhook is not None and not webhook.strip():
            raise UsageError(f"{_WEBHOOK} is empty; unset it, or give it an address")
    if options.github is not None and not _REPOSITORY.fullmatch(options.github):
        raise UsageError(f"--github {options.github!r}: write OWNER/REPO")
    with open_results() as store:
        run, older, news, drafts = watch(store)
        drafts = drafts if options.github else []
        sent = send(news, webhook, store.home) if webhook else 0
        is_filed = options.github and options.files
        filed = file_issues(store, drafts, options.github or "") if is_filed else {}
    if options.as_json:
        print_json(
            {
                "schema": 1,
                "run": run.id,
                "older": older.id if older else None,
                "news": [{**asdict(message), "text": message.text} for message in news],
                "sent": sent,
                "drafts": list(map(asdict, drafts)),
                "filed": filed,
            }
        )
        return
    for message in () if webhook else news:
        print_line(message.text)
    for draft in drafts:
        print_line(filed.get(draft.bug) or f"# {draft.title}\n\n{draft.body}")
    status_console().print(
        f"run {run.id}: {len(news):,} messages"
        + (f", {sent:,} of them sent now" if webhook else "")
        + (f"; {len(drafts):,} issues, {len(filed):,} filed" if options.github else ""),
        soft_wrap=True,
    )
