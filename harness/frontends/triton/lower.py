"""Capture and lower, each kept by content: from launch code to PTX, IR and metadata."""

from __future__ import annotations

import functools
import hashlib
import platform
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.frontends.bench.bench import Kept, content_key, has_died, still_valid
from harness.frontends.captured_launch import CapturedLaunch
from harness.frontends.captures import kernel_text
from harness.frontends.launch_code import capture_request
from harness.frontends.reads import is_unchanged
from harness.frontends.triton.environment import child_environment
from harness.frontends.triton.sessions import child_code_sha256, sessions_of
from harness.frontends.triton.settings import knobs, torch_settings
from harness.io.files.scratch import scratch_disk
from harness.values.errors import InfrastructureError
from harness.values.limits import Limits
from harness.values.outcome import Capture, LaunchFacts, Lowering, RaisedError
from harness.values.target import Target
from harness.values.toolchain import Assembler, Compiler

if TYPE_CHECKING:
    from harness.frontends.base import LaunchCode
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.sessions import JobResult


_STAGES = ("source", "ttir", "glir", "ttgir", "llir", "ptx")
_MAX_LOG = 1 << 20
# Where the sources lie; `LaunchCode.identity` says what they are.
_SOURCES = frozenset({"file", "paths", "bare"})


async def capture(
    bench: Workbench, code: LaunchCode, *, target: Target, triton: Compiler, limits: Limits
) -> CapturedLaunch:
    """What the launch code launches, as `target` would see it.

    The capture of code that raised is not kept; its `error` says what was raised.

    Raises:
        CaptureError: the launch code hung or ended its process.
        InfrastructureError: this Triton cannot be imported here.
    """
    request = capture_request(code, target, limits)
    key = launch_key("capture", code, request.message(), triton)
    async with bench.once(key):
        kept = _if_true(bench.find("capture", key, Capture), triton)
        if kept is None:
            async with bench.slot():
                value = await sessions_of(bench).capture(key, triton, request)
            kept = (
                Kept(value=value, key=key, artifacts={}, cached=False)
                if value.error
                else bench.keep("capture", key, value, {})
            )
    return CapturedLaunch(capture=kept, compiler=triton, request=request)


def launch_key(kind: str, code: LaunchCode, message: Mapping[str, object], triton: Compiler) -> str:
    """By what an answer to `message` is kept: all that the child is sent, and what runs it.

    What the launch code reads besides is looked up again: see `harness.frontends.reads`.
    """
    # The content of the sources counts, not where a copy of them lies.
    sent = {name: value for name, value in message.items() if name not in _SOURCES}
    return content_key(
        kind=kind,
        sent=sent,
        code=code.identity,
        triton=triton.identity,
        child=child_code_sha256(),
        libraries=_libraries(),
        torch=torch_settings(),
        python=[sys.implementation.cache_tag, platform.python_version(), sys.prefix],
        module_path=_path_files(),
        knobs=knobs(triton),
    )


@functools.cache
def _libraries() -> dict[str, str]:
    """The libraries beside Triton that decide what launch code does."""
    return {name: metadata.version(name) for name in ("torch", "numpy")}


@functools.cache
def _path_files() -> dict[str, str]:
    """The files that add folders to Python's module path (editable installs), by content."""
    packages = [Path(entry) for entry in sys.path if entry.endswith("-packages")]
    patterns = ("*.pth", "__editable__*.py")
    found = (path for each in packages for pattern in patterns for path in each.glob(pattern))
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(found)
        if path.is_file()
    }


def stored_capture(
    bench: Workbench, code: LaunchCode, *, target: Target, triton: Compiler, limits: Limits
) -> CapturedLaunch | None:
    """What `capture` would find stored if the bench used what is stored; None where nothing is."""
    request = capture_request(code, target, limits)
    key = launch_key("capture", code, request.message(), triton)
    kept = _if_true(bench.read("capture", key, Capture), triton)
    return CapturedLaunch(capture=kept, compiler=triton, request=request) if kept else None


def _if_true(kept: Kept[Capture] | None, triton: Compiler) -> Kept[Capture] | None:
    """A stored capture, if the ptxas that it names is there and what it read is the same."""
    if kept is None or not Path(kept.value.ptxas).exists():
        return None
    return kept if is_unchanged(kept.value.reads, child_environment(triton)) else None


async def lower(
    bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, *, ptxas: Assembler
) -> Kept[Lowering]:
    """Lower one config, with Triton seeing `ptxas` as a user would point it there.

    Triton picks the PTX version by the release of the ptxas it sees, and by nothing else of it, so
    all ptxas of one release share a lowering. A job that dies is run once more, alone, to tell a
    config that kills its compiler from a machine in trouble.

    Raises:
        InfrastructureError: the child could not be kept alive.
    """
    key = lowering_key(launch, record, ptxas)
    async with bench.once(key):
        kept = bench.find("lower", key, Lowering)
        if kept and still_valid(kept.value.end, bench.limits):
            return kept
        lowering, artifacts = await _lower_once(bench, launch, record, ptxas, alone=False)
        # LLVM's fatal errors leave by exit(1), and no result behind.
        if has_died(lowering.end) or lowering.end.exit_code:
            again, artifacts = await _lower_once(bench, launch, record, ptxas, alone=True)
            lowering = replace(again, attempts=2)
        return bench.keep("lower", key, lowering, artifacts)


def lowering_key(launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
    """By what a lowering is kept: equal for all that share one."""
    return content_key(
        record=record.key,
        capability=launch.request.capability,
        triton=launch.compiler.identity,
        sees=".".join(ptxas.version.split(".")[:2]),
        child=child_code_sha256(),
        knobs=knobs(launch.compiler),
    )


async def _lower_once(
    bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler, *, alone: bool
) -> tuple[Lowering, dict[str, str]]:
    async with bench.slot(alone=alone):
        await _meet_again(bench, launch, record)
        done = await sessions_of(bench).lower(
            launch.capture.key,
            launch.compiler,
            launch.request,
            record=record.key,
            ptxas=ptxas.path,
            limits=bench.limits,
        )
    bench.cpu_seconds += done.end.cpu
    try:
        artifacts = _collect(bench, done)
        if text := kernel_text(launch.request, record):
            artifacts["python"] = bench.store.artifacts.put(text)
        return read_lowering(done), artifacts
    finally:
        bench.hub.drop_folder(done.folder)


async def _meet_again(bench: Workbench, launch: CapturedLaunch, record: LaunchFacts) -> None:
    """Run the launch code for a stored capture, which must come to the same launch again.

    Raises:
        InfrastructureError: it does not; what it came to now is kept in its place.
    """
    if not launch.capture.cached:
        return
    key = launch.capture.key
    value = await sessions_of(bench).capture(key, launch.compiler, launch.request)
    if any(each.key == record.key for each in value.records):
        return
    if not value.error:
        bench.keep("capture", key, value, {})
    raise InfrastructureError(
        f"{launch.request.file}: the launch code no longer makes this launch, and nothing that it "
        "reads has changed, as far as can be seen (random numbers, the time, a service?); what it "
        "makes now is stored: run again"
    )


def _tail(path: Path) -> str:
    """The end of what a job printed; it may be far more than fits our memory."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - _MAX_LOG, 0))
        return file.read().decode(errors="replace")


def read_lowering(done: JobResult) -> Lowering:
    """The evidence that a job left in its folder."""
    # A result that was written before the process died is whole: it is renamed into place.
    result = done.result or {}
    command = result.get("ptxas_command") or {}
    error = result.get("error")
    progress = done.progress or {}
    return Lowering(
        end=done.end,
        stage=str(result.get("stage") or progress.get("stage") or "ttir"),
        error=msgspec.convert(error, RaisedError) if error else None,
        metadata=result.get("metadata", {}),
        flags=tuple(command.get("flags", ())),
        seconds=result.get("seconds") or progress.get("seconds") or {},
        log=_tail(done.folder / "stderr"),
    )


def stage_file(done: JobResult, stage: str) -> Path | None:
    """What Triton stored of one stage, where it came so far."""
    # Triton cuts the name at 150 characters; it is the only one of its kind in the folder.
    return next(iter(sorted(done.folder.glob(f"cache/*/*.{stage}"))), None)


def _collect(bench: Workbench, done: JobResult) -> dict[str, str]:
    """Keep what Triton stored of each stage that it finished, and what the job printed."""
    store = bench.store.artifacts
    artifacts = {}
    for stage in _STAGES:
        found = stage_file(done, stage)
        if found:
            artifacts[stage] = store.put_file(found)
    # Until Triton 3.8 what Gluon's source becomes is kept under that name alone.
    if (done.result or {}).get("first_stage") == "glir" and "source" in artifacts:
        artifacts.setdefault("glir", artifacts["source"])
    with scratch_disk(), (done.folder / "log").open("wb") as log:
        for name in ("stderr", "stdout"):
            # One that was killed at once may not have made them yet.
            if (done.folder / name).is_file():
                with (done.folder / name).open("rb") as stream:
                    shutil.copyfileobj(stream, log)
    artifacts["log"] = store.put_file(done.folder / "log")
    return artifacts
