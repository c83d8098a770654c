"""A package index on 127.0.0.1 that can misbehave, and the small wheels that it serves."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import tarfile
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LINUX = "py3-none-manylinux2014_x86_64"


@dataclass
class Served:
    """One file: the listing promises `sha256`; `sent` cuts the body short; `stall` waits."""

    filename: str
    body: bytes
    sha256: str
    yanked: bool = False
    requires_python: str = ""
    sent: int | None = None
    status: int = 200
    stall: threading.Event | None = None
    asked: threading.Event = field(default_factory=threading.Event)
    gets: int = 0


class LocalIndex:
    """PEP 503 by default, PEP 691 with `as_json`; `down` drops every connection."""

    def __init__(self) -> None:
        self.projects: dict[str, dict[str, Served]] = {}
        self.as_json = False
        self.down = False
        self.listings: list[str] = []
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            def do_HEAD(self) -> None:
                index.answer(self, head=True)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/simple"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def add(self, filename: str, body: bytes, *, sha256: str = "", yanked: bool = False) -> Served:
        served = Served(filename, body, sha256 or hashlib.sha256(body).hexdigest(), yanked)
        project = filename.split("-", maxsplit=1)[0].replace("_", "-").lower()
        self.projects.setdefault(project, {})[filename] = served
        return served

    def answer(self, request: BaseHTTPRequestHandler, *, head: bool = False) -> None:
        parts = request.path.strip("/").split("/")
        files = self.projects.get(parts[1]) if len(parts) > 1 else None
        if self.down:
            request.close_connection = True
            return
        if files is None:
            request.send_error(404)
        elif len(parts) == 2:
            self.listings.append(parts[1])
            self.answer_listing(request, parts[1], list(files.values()))
        else:
            self.answer_file(request, files[parts[2]], head=head)

    def answer_listing(
        self, request: BaseHTTPRequestHandler, name: str, files: list[Served]
    ) -> None:
        if self.as_json:
            kind, body = "application/vnd.pypi.simple.v1+json", _json_listing(name, files)
        else:
            kind, body = "text/html", _html_listing(name, files)
        request.send_response(200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def answer_file(self, request: BaseHTTPRequestHandler, file: Served, *, head: bool) -> None:
        file.gets += not head
        file.asked.set()
        if file.stall is not None:
            file.stall.wait(60)
        if file.status != 200:
            request.send_error(file.status)
            return
        request.send_response(200)
        request.send_header("Content-Type", "application/octet-stream")
        request.send_header("Content-Length", str(len(file.body)))
        request.end_headers()
        if not head:
            request.wfile.write(file.body[: file.sent])
        request.close_connection = True


def _html_listing(name: str, files: list[Served]) -> bytes:
    lines = [
        f'<a href="/simple/{name}/{file.filename}#sha256={file.sha256}"'
        + (' data-yanked="bad"' if file.yanked else "")
        + f' data-requires-python="{html.escape(file.requires_python)}">{file.filename}</a>'
        for file in files
    ]
    return f"<!DOCTYPE html><html><body>{'<br>'.join(lines)}</body></html>".encode()


def _json_listing(name: str, files: list[Served]) -> bytes:
    entries = [
        {
            "filename": file.filename,
            "url": f"/simple/{name}/{file.filename}",
            "hashes": {"sha256": file.sha256},
            "yanked": file.yanked,
            "size": len(file.body),
            **({"requires-python": file.requires_python} if file.requires_python else {}),
        }
        for file in files
    ]
    meta = {"api-version": "1.1"}
    versions = sorted({file.filename.split("-")[1] for file in files})
    page = {"meta": meta, "name": name, "files": entries, "versions": versions}
    return json.dumps(page).encode()


def wheel(
    name: str,
    version: str,
    files: dict[str, str],
    *,
    tag: str = "py3-none-any",
    requires: tuple[str, ...] = (),
) -> tuple[str, bytes]:
    """Filename and bytes of a wheel; files under bin/ get the executable bit."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
    content = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(
        f"{path},sha256={_record_hash(text)},{len(text.encode())}\n"
        for path, text in content.items()
    )
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in content.items():
            member = zipfile.ZipInfo(path)
            member.external_attr = (0o100755 if "/bin/" in path else 0o100644) << 16
            archive.writestr(member, text)
    return f"{name}-{version}-{tag}.whl", buffer.getvalue()


def tool_wheel(
    version: str, *, project: str = "nvidia_cuda_nvcc", tool: str = "ptxas", says: str = ""
) -> tuple[str, bytes]:
    """A CUDA wheel whose executable is a shell script that says a version and counts its runs."""
    banner = says or f"Cuda compilation tools, release 0.0, V{version}\nBuild cuda_fake.r{version}"
    script = f'#!/bin/sh\necho run >> "${{FAKE_TOOL_RUNS:-/dev/null}}"\ncat <<END\n{banner}\nEND\n'
    files = {f"nvidia/cu0/bin/{tool}": script, "nvidia/cu0/lib/large.a": "not kept"}
    return wheel(project, version, files, tag=LINUX)


def triton_wheel(
    version: str,
    *,
    requires: tuple[str, ...] = (),
    code: str = "",
    tag: str = "py3-none-any",
    name: str = "triton",
    modules: dict[str, str] | None = None,
) -> tuple[str, bytes]:
    """A Triton that knows its version, and of its `modules` nothing else."""
    files = {
        f"{name}/__init__.py": f"__version__ = {version!r}\n{code}",
        f"{name}/_C/libtriton.so": f"library of {version}",
        **{f"{name}/{module}.py": text for module, text in (modules or {}).items()},
    }
    return wheel(name, version, files, tag=tag, requires=requires)


def tar(files: dict[str, str], *, members: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    """A .tar.gz of text files, then of raw members without content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for path, text in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
        for member in members:
            archive.addfile(member)
    return buffer.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    """A tar member that links."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def _record_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
