"""Sessions of Triton: what its children are asked for."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from harness.frontends.programs import interpreter_of
from harness.frontends.registry import OpenSessions
from harness.frontends.sessions import ChildProgram, LaunchSessions
from harness.frontends.triton.environment import child_environment
from harness.io.files.own_code import code_sha256
from harness.values.toolchain import TRITON, Compiler

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.capture_request import CaptureRequest
    from harness.frontends.sessions import JobResult
    from harness.io.processes.hub import Hub, ResourceLimits


@functools.cache
def child_code_sha256() -> str:
    """Hash of the code that runs in children: part of the key of everything it made."""
    return code_sha256("io/children", "frontends/pretend", "frontends/triton/child")


def sessions_of(bench: Workbench) -> TritonSessions:
    """The living captures of a bench, which are Triton's."""
    found = bench.sessions
    if isinstance(found, OpenSessions):
        found = found.of(TRITON)
    assert isinstance(found, TritonSessions)
    return found


def _program(triton: Compiler) -> ChildProgram:
    keep = () if sys.dont_write_bytecode else ("-X", "keep-bytecode")
    argv = (interpreter_of(triton), *keep, "-m", "harness.frontends.triton.child")
    return ChildProgram(argv=argv, env=child_environment(triton))


class TritonSessions(LaunchSessions):
    """The living captures of Triton."""

    def __init__(self, hub: Hub, *, capture_timeout: float, capture_memory: int = 0) -> None:
        super().__init__(
            hub, _program, capture_timeout=capture_timeout, capture_memory=capture_memory
        )

    async def lower(
        self,
        key: str,
        triton: Compiler,
        request: CaptureRequest,
        *,
        record: str,
        ptxas: Path | None,
        limits: ResourceLimits,
        dump: bool = False,
    ) -> JobResult:
        """Compile one record as far as PTX in a fork of the session.

        With `dump`, the module before every pass is in its standard error.

        Raises:
            InfrastructureError: the session died twice while it had this job.
        """
        message = {
            "op": "lower",
            "key": record,
            "ptxas": str(ptxas) if ptxas else None,
            "dump": dump,
            "limits": limits.message(),
        }
        return await self.on_record(key, triton, request, message)

    async def export(
        self,
        key: str,
        triton: Compiler,
        request: CaptureRequest,
        *,
        record: str,
        limits: ResourceLimits,
    ) -> JobResult:
        """What one record is made of, by a fork of the session: see `exporting` in the child.

        Raises:
            InfrastructureError: the session died twice while it had this job.
        """
        message = {"op": "export", "key": record, "limits": limits.message()}
        return await self.on_record(key, triton, request, message)

    async def compile_file(
        self,
        triton: Compiler,
        request: CaptureRequest,
        *,
        ptxas: Path | None,
        until: str | None,
        limits: ResourceLimits,
    ) -> JobResult:
        """Run a file that compiles a kernel, as far as PTX, in a fork without a session.

        A file of Triton's IR is compiled with the overrides as its options. With `until`, it ends
        when this stage ends well; `is_past` in the result says so.

        Raises:
            InfrastructureError: the process of this Triton died twice while it had this job.
        """
        message = {
            "op": "compile",
            "capture": request.message() | {"until": until, "ptxas": ptxas and str(ptxas)},
            "limits": limits.message(),
        }
        return await self.on_server(triton, message)

    async def work_on_values(
        self, triton: Compiler, module: str, place: Path, limits: ResourceLimits
    ) -> JobResult:
        """Have `main` of a module do what `request.json` in a folder asks for, by a fork.

        Triton is in its interpreter's mode there.

        Raises:
            InfrastructureError: the process of this Triton died twice while it had this job.
        """
        # The module confines itself to the place.
        asked = {"module": module, "place": str(place), "confined": False}
        message = {"op": "compile", "capture": asked, "limits": limits.message()}
        return await self.on_server(triton, message)
