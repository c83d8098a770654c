"""`triage site`, and `--serve`: the pages on this machine's own address, until it is stopped.

Example:
  triage site
  triage site --out public --cell-pages 1000
  triage site --kernel 'mamba3_*' --sm 100a
  triage site --serve

The pages need no server and no network; open index.html. A folder that an earlier `triage site`
wrote is replaced; any other that is not empty is refused.
"""

from __future__ import annotations

import os
import webbrowser
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

from harness.cli.amounts import FilePath
from harness.cli.options import Options, exclusive, goes_with, json_option, option, verb
from harness.cli.output import print_json, print_line
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
    """Serve a folder on 127.0.0.1 until Ctrl-C, say where, and open it; port 0 is any free one.

    Raises:
        UsageError: the port is taken, or needs rights.
    """
    try:
        server = ThreadingHTTPServer((_HERE, port), partial(_Pages, directory=str(folder)))
    except OSError as error:
        raise UsageError(f"--port {port}: {error.strerror}; without it, any free one") from error
    with server:
        url = f"http://{_HERE}:{server.server_port}/"
        print_line(f"{url} until Ctrl-C")
        # Without a screen Python would start a browser of the terminal, and take it.
        if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return


class _SiteOptions(Options, rules=[exclusive("--serve", "--json"), goes_with("--serve", "--port")]):
    out: Path = option(
        often=True,
        type=FilePath(readable=False),
        default=Path("site"),
        metavar="DIR",
        help="The folder of the pages.",
    )
    cell_pages: int = option(
        type=click.IntRange(0, 100_000),
        default=300,
        metavar="N",
        help="The most cells that get a page of their own, with their artifacts.",
    )
    serves: bool = option(
        "--serve", often=True, help="Then serve them on 127.0.0.1 until Ctrl-C, and open them."
    )
    port: int | None = option(
        type=click.IntRange(0, 65535), help="The port of --serve. Default: any free one."
    )
    only: tuple[Selector, ...] = stored_options()
    as_json: bool = json_option()


@verb()
def command(options: _SiteOptions) -> None:
    """Write what is stored as static pages: open problems, nights, kernels, bugs, cells."""
    with read_results() as store, working("writing pages"):
        report = write_site(store, options.out, cell_pages=options.cell_pages, only=options.only)
    if options.as_json:
        print_json({"schema": 1, **asdict(report), "path": str(options.out)})
        return
    print_line(
        f"{plural(report.pages, 'page')} of {plural(report.cells, 'cell')}, "
        f"{report.bytes / 1e6:,.1f} MB; the largest has {report.largest / 1e6:,.1f} MB"
    )
    if report.failures_without_page:
        print_line(
            f"{report.failures_without_page:,} failing cells have a row and no page of their own; "
            "--cell-pages N writes more"
        )
    if options.serves:
        with doing(lambda: ""):
            serve(options.out, options.port or 0)
        return
    print_line(f"open {options.out / 'index.html'}")
