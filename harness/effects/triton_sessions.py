"""Children that run a foreign Triton: one server for each Triton, one session for each capture."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import harness
from harness.effects.process import Hub, Peer, PeerGoneError, ResourceLimits
from harness.values.errors import CaptureError, InfrastructureError
from harness.values.limits import Limits
from harness.values.outcome import Capture, ProcessEnd
from harness.values.toolchain import Triton

__all__ = ["CaptureRequest", "LowerResult", "TritonSessions", "child_code_sha256", "knobs"]

# Triton settings that we decide ourselves; all others of the user's are honoured, and keyed.
_OURS = frozenset(
    {
        "TRITON_CACHE_DIR",
        "TRITON_HOME",
        "TRITON_DUMP_DIR",
        "TRITON_INTERPRET",
        "TRITON_PTXAS_PATH",
        "TRITON_PTXAS_BLACKWELL_PATH",
        "TRITON_ALWAYS_COMPILE",
        "TRITON_STORE_BINARY_ONLY",
    }
)
_KNOBS = ("TRITON_", "MLIR_", "LLVM_", "PTXAS_", "DISABLE_", "NVPTX_")
_DEFAULT_L2 = 50 << 20
_DEFAULT_MEMORY = 80 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureRequest:
    """What a session runs: `function(**overrides)` of `file`, or the file as `__main__`.

    `paths` go onto the module path; packages below `bare` are imported without their `__init__`.
    """

    file: Path
    function: str | None
    overrides: Mapping[str, object]
    capability: int
    limits: Limits
    paths: tuple[Path, ...] = ()
    bare: tuple[Path, ...] = ()

    def message(self) -> dict[str, Any]:
        return {
            "file": str(self.file.resolve()),
            "function": self.function,
            "overrides": dict(self.overrides),
            "paths": [str(path) for path in self.paths],
            "bare": [str(path) for path in self.bare],
            "device": {
                "capability": self.capability,
                "name": f"NVIDIA {self.limits.product or 'GPU'}",
                "multiprocessors": self.limits.multiprocessors or 1,
                "max_shared": self.limits.max_shared_per_block,
                "shared_per_sm": self.limits.shared_per_sm,
                "registers_per_sm": self.limits.registers_per_sm,
                "threads_per_sm": self.limits.max_threads_per_sm,
                "memory": _DEFAULT_MEMORY,
                "l2_cache": _DEFAULT_L2,
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LowerResult:
    """How the job ended, what it said of itself, and the folder with what it left."""

    end: ProcessEnd
    result: dict[str, Any] | None
    progress: dict[str, Any] | None
    folder: Path


@functools.cache
def child_code_sha256() -> str:
    """Hash of the code that runs in children: part of the key of everything it made."""
    digest = hashlib.sha256()
    for path in sorted((Path(harness.__file__).parent / "child").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def knobs() -> dict[str, str]:
    """The user's Triton and LLVM settings that reach the compiler."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_KNOBS) and name not in _OURS
    }


def _environment(triton: Triton) -> dict[str, str]:
    package_root = str(Path(harness.__file__).parent.parent)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in _OURS and not name.startswith("PYTHON")
    }
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([*([str(triton.path)] if triton.path else []), package_root]),
        "PYTHONDONTWRITEBYTECODE": "1",
        # Threads of numeric libraries do not survive a fork, and nothing here computes.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


class _Session:
    def __init__(self, server: Peer, job: int, peer: Peer, folder: Path):
        self.server = server
        self.job = job
        self.peer = peer
        self.folder = folder


class TritonSessions:
    """Opens sessions on demand and keeps them until they are closed, or die and are replaced."""

    def __init__(self, hub: Hub, *, capture_timeout: float):
        self._hub = hub
        self._capture_timeout = capture_timeout
        self._servers: dict[Triton, asyncio.Task[Peer]] = {}
        self._sessions: dict[str, asyncio.Task[tuple[_Session, Capture]]] = {}

    async def _server(self, triton: Triton) -> Peer:
        task = self._servers.get(triton)
        if task is None or (task.done() and (task.exception() or task.result().gone)):
            task = asyncio.create_task(self._start_server(triton))
            self._servers[triton] = task
        return await asyncio.shield(task)

    async def _start_server(self, triton: Triton) -> Peer:
        folder = self._hub.new_folder("server")
        argv = [sys.executable, "-m", "harness.child.serve"]
        try:
            peer = await self._hub.spawn(argv, env=_environment(triton), log=folder / "log")
        except InfrastructureError as error:
            raise InfrastructureError(f"Triton {triton.version}: {error}") from error
        await peer.event()
        return peer

    async def capture(self, key: str, triton: Triton, request: CaptureRequest) -> Capture:
        """The launches of a request; the session stays open under `key` for `lower`.

        Raises:
            CaptureError: the launch code hung or took its process down.
            InfrastructureError: this Triton cannot be imported here.
        """
        return (await self._session(key, triton, request))[1]

    async def _session(
        self, key: str, triton: Triton, request: CaptureRequest
    ) -> tuple[_Session, Capture]:
        task = self._sessions.get(key)
        if task is None or (task.done() and (task.exception() or task.result()[0].peer.gone)):
            task = asyncio.create_task(self._open(triton, request))
            self._sessions[key] = task
        return await asyncio.shield(task)

    async def _open(self, triton: Triton, request: CaptureRequest) -> tuple[_Session, Capture]:
        server = await self._server(triton)
        folder = self._hub.new_folder("capture")
        name, hello = self._hub.expect()
        job, ended = server.start(
            {"op": "open", "name": name, "folder": str(folder), "capture": request.message()}
        )
        event: dict[str, Any] | None = None
        try:
            peer = await self._first(hello, ended)
            event = await asyncio.wait_for(peer.event(), self._capture_timeout) if peer else None
        except asyncio.TimeoutError:
            server.kill(job, timed_out=True)
            raise CaptureError(
                f"{request.file}: the launch code did not end within "
                f"{self._capture_timeout:.0f} s; it may compute on real values (see --timeout)"
            ) from None
        if peer is None or event is None:
            raise CaptureError(await _how_it_died(request, ended, folder))
        capture = msgspec.convert(event["captured"], Capture)
        return _Session(server, job, peer, folder), capture

    async def _first(
        self, hello: asyncio.Future[Peer], ended: asyncio.Future[dict[str, Any]]
    ) -> Peer | None:
        await asyncio.wait(
            {hello, ended}, timeout=self._capture_timeout, return_when=asyncio.FIRST_COMPLETED
        )
        return hello.result() if hello.done() else None

    async def lower(
        self,
        key: str,
        triton: Triton,
        request: CaptureRequest,
        *,
        record: str,
        ptxas: Path | None,
        limits: ResourceLimits,
    ) -> LowerResult:
        """Compile one record as far as PTX in a fork of the session.

        Raises:
            InfrastructureError: the session died twice while it had this job.
        """
        for _ in range(2):
            session, _capture = await self._session(key, triton, request)
            folder = self._hub.new_folder("lower")
            message = {
                "op": "lower",
                "key": record,
                "folder": str(folder),
                "ptxas": str(ptxas) if ptxas else None,
                "limits": limits.message(),
            }
            try:
                end, start_error = await session.peer.run(message)
            except PeerGoneError:
                continue
            if start_error:
                raise InfrastructureError(f"a compilation could not start: {start_error}")
            return LowerResult(
                end=end,
                result=_read_json(folder / "result.json"),
                progress=_read_json(folder / "progress.json"),
                folder=folder,
            )
        raise InfrastructureError(f"Triton {triton.version}: its child process died twice")

    async def close(self, key: str) -> None:
        """End one session; its memory is given back."""
        task = self._sessions.pop(key, None)
        if task and task.done() and not task.cancelled() and not task.exception():
            await task.result()[0].peer.close()


async def _how_it_died(
    request: CaptureRequest, ended: asyncio.Future[dict[str, Any]], folder: Path
) -> str:
    words = "ended"
    with contextlib.suppress(asyncio.TimeoutError, PeerGoneError):
        answer = await asyncio.wait_for(asyncio.shield(ended), 5)
        words = ProcessEnd(**answer["end"]).words
    log = folder / "capture.err"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    said = f": {lines[-1][:300]}" if lines else ""
    return f"{request.file}: the launch code took its process down ({words}){said}"


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
