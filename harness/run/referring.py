"""What a kernel must write, by the `reference:` of its repro: a torch function, in float64."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.frontends.base import LaunchCode
from harness.frontends.bench.bench import Workbench, content_key
from harness.frontends.launch_code import capture_request
from harness.frontends.registry import interpreter_for
from harness.io.files.whole_folders import scratch_disk
from harness.run.evidence import Trusted
from harness.values.execution import LaunchVariant
from harness.values.outcome import ProcessEnd, RaisedError
from harness.values.target import Target
from harness.values.toolchain import Compiler

REFERENCE_FILE = "reference.py"
"""Beside `repro.yaml`; its functions take the kernel's arguments by name."""

_WORDS = "the repro's reference (torch, float64)"


class NoReferenceError(Exception):
    """The function could not say what is right; the message is for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Referred:
    """The buffers that the function says something of, by sha256; None for the others."""

    buffers: tuple[str | None, ...] = ()
    error: RaisedError | None = None


async def refer(
    bench: Workbench,
    code: LaunchCode,
    *,
    file: Path,
    function: str,
    variant: LaunchVariant,
    target: Target,
    triton: Compiler,
) -> Trusted:
    """Run a function of `file` on the arguments of one launch; kept by content.

    Raises:
        NoReferenceError: it raised, or gave something else than tensors of the kernel.
        InfrastructureError: its process cannot be started.
    """
    if not file.is_file():
        raise NoReferenceError(f"no file {file}, of which the repro names a function as reference")
    sha256 = hashlib.sha256(file.read_bytes()).hexdigest()
    described = msgspec.to_builtins(variant)
    key = content_key(kind="reference", file=sha256, function=function, variant=described)
    async with bench.once(key):
        kept = bench.find("reference", key, Referred)
        if kept is None:
            sent = {
                **capture_request(code, target).message(),
                "file": str(file.resolve()),
                "function": function,
                "variant": described,
            }
            found = await _run(bench, sent, variant, triton)
            if found.error:
                said = next(iter(found.error.message.splitlines()), "")[:300]
                raise NoReferenceError(f"{file}: {function} raised {found.error.type}: {said}")
            names = {name: name for name in found.buffers if name}
            kept = bench.keep("reference", key, found, names)
    get = bench.store.artifacts.get
    buffers = tuple(get(name) if name else None for name in kept.value.buffers)
    return Trusted(words=_WORDS, buffers=buffers, is_final=True)


async def _run(
    bench: Workbench, sent: dict[str, object], variant: LaunchVariant, triton: Compiler
) -> Referred:
    folder = bench.hub.new_folder("reference")
    try:
        with scratch_disk():
            (folder / "request.json").write_text(json.dumps(sent))
            for buffer in variant.buffers:
                data = bench.store.artifacts.get(buffer.sha256)
                (folder / f"{buffer.sha256}.bin").write_bytes(data)
        async with bench.slot():
            interpreter = interpreter_for(triton)
            done = await interpreter.run_reference(bench, triton, folder, bench.limits)
        bench.cpu_seconds += done.end.cpu
        bench.hub.drop_folder(done.folder)
        found = _read(folder, done.end)
        for name in filter(None, found.buffers):
            bench.store.artifacts.put_file(folder / f"{name}.bin")
        return found
    finally:
        bench.hub.drop_folder(folder)


def _read(folder: Path, end: ProcessEnd) -> Referred:
    try:
        return msgspec.json.decode((folder / "result.json").read_bytes(), type=Referred)
    except (OSError, msgspec.MsgspecError):
        message = f"its process: {end.words}"
        return Referred(error=RaisedError(type="Reference", kinds=(), message=message))
