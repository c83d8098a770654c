"""`triage site`, and `--serve`: the pages on this machine's own address, until it is stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

from harness.cli.amounts import FilePath
from harness.cli.main import CONTEXT
from harness.cli.options import Verb, exclusive, goes_with, json_option
from harness.cli.output import print_json, results_console, status_console
from harness.cli.progress.steps import doing, working
from harness.cli.results import read_results
from harness.cli.running import stored_options
from harness.site.pages_of_store import write_site
from harness.tables.summary import plural
from harness.values.errors import UsageError
from harness.values.matrix import Selector

_HERE = "127.0.0.1"


class _Pages(SimpleHTTPRequestHandler):
    """The files of one folder, for browsers of this machine."""

    def send_head(self) -> object:  # type: ignore[override]  # what it sends is not our concern
        # Another site whose name leads here must not read what is ours.
        name = self.headers.get("Host", "").rpartition(":")[0]
        if name not in (_HERE, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN)
            return None
        return super().send_head()

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing of each page."""


def serve(folder: Path, port: int) -> None:
    """Serve a folder on 127.0.0.1 until Ctrl-C, and say where; port 0 is any that is free.

    Raises:
        UsageError: the port is taken, or needs rights.
    """
    try:
        server = ThreadingHTTPServer((_HERE, port), partial(_Pages, directory=str(folder)))
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror}; without it, any free one") from error
    with server:
        results_console().print(
            f"http://{_HERE}:{server.server_port}/ until Ctrl-C", soft_wrap=True, highlight=False
        )
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


_EPILOG = """\b
Example:
  triage site
  triage site --out public --cell-pages 1000
  triage site --kernel 'mamba3_*' --sm 100a
  triage site --serve

The pages need no server and no network; open index.html. A folder that an earlier `triage site`
wrote is replaced; any other that is not empty is refused."""


@click.command("site", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@exclusive("--serve", "--json")
@goes_with("--serve", "--port")
@click.option(
    "--out",
    type=FilePath(readable=False),
    default=Path("site"),
    show_default=True,
    metavar="DIR",
    help="The folder of the pages.",
)
@click.option(
    "--cell-pages",
    type=click.IntRange(0, 100_000),
    default=300,
    show_default=True,
    metavar="N",
    help="The most cells that get a page of their own, with their artifacts.",
)
@click.option("--serve", "serves", is_flag=True, help="Then serve them on 127.0.0.1 until Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port of --serve. Default: any free one."
)
@stored_options
@json_option
def command(
    *,
    out: Path,
    cell_pages: int,
    serves: bool,
    port: int | None,
    only: Sequence[Selector],
    as_json: bool,
) -> None:
    """Write what is stored as static pages: tonight, matrix, kernels, bugs, cells, toolchains."""
    with read_results() as store, working(status_console(), "writing pages"):
        report = write_site(store, out, cell_pages=cell_pages, only=only)
    if as_json:
        print_json({"schema": 1, **asdict(report), "path": str(out)})
        return
    results_console().print(
        f"{plural(report.pages, 'page')} of {plural(report.cells, 'cell')}, "
        f"{report.bytes / 1e6:,.1f} MB; the largest has {report.largest / 1e6:,.1f} MB",
        soft_wrap=True,
    )
    if report.failures_without_page:
        results_console().print(
            f"{report.failures_without_page:,} failing cells have a row and no page of their own; "
            "--cell-pages N writes more",
            soft_wrap=True,
        )
    if serves:
        with doing(lambda: ""):
            serve(out, port or 0)
        return
    results_console().print(f"open {out / 'index.html'}", soft_wrap=True)
