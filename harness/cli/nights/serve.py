"""`triage site --serve`: the pages on this machine's own address, until it is stopped."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from harness.cli.output import results_console
from harness.values.errors import UsageError

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
