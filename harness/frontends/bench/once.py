"""One assembler on one program, and nothing kept: what a reduction asks thousands of times."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from harness.frontends.bench.assemble import CODE, execute_run, is_cubin, ptxas_run
from harness.io.files.whole_folders import scratch_disk
from harness.judging.ptxas.cubin import Cubin, read_cubin
from harness.values.errors import UsageError
from harness.values.outcome import Assembly, ProcessEnd
from harness.values.toolchain import Assembler

if TYPE_CHECKING:
    from harness.frontends.bench.assemble import AssemblerRun
    from harness.io.processes.hub import Hub, ResourceLimits


class Assembled(msgspec.Struct, frozen=True, kw_only=True):
    """How the assembler ended, what it printed, and the cubin where a whole one came out."""

    assembly: Assembly
    cubin: Cubin | None = None


async def assemble_once(hub: Hub, run: AssemblerRun, limits: ResourceLimits) -> Assembled:
    """Run an assembler in a scratch folder that is gone afterwards.

    Raises:
        InfrastructureError: it cannot be started, or the disk is full.
    """
    folder = hub.new_folder("oracle")
    try:
        assembly = await execute_run(hub, folder, run, limits)
        # Not each assembler leaves a cubin.
        is_known = assembly.has_cubin and is_cubin(folder / CODE)
        cubin = read_cubin((folder / CODE).read_bytes()) if is_known else None
        return Assembled(assembly=assembly, cubin=cubin)
    finally:
        hub.drop_folder(folder)


async def assemble_text(
    hub: Hub, text: str, *, ptxas: Assembler, flags: tuple[str, ...], limits: ResourceLimits
) -> Assembled:
    """The same with PTX; `flags` name the target. Errors are those of `assemble_once`."""
    return await assemble_once(hub, ptxas_run(ptxas, flags, text.encode), limits)


def script_words(command: str) -> tuple[str, ...]:
    """The words of the user's predicate, its program by its absolute path.

    Raises:
        UsageError: there is no such program, or the words cannot be split.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--script {command!r}: {error}") from error
    found = shutil.which(words[0]) if words else None
    if not found:
        raise UsageError(f"--script {command!r}: no such program, or it cannot be executed")
    return (os.path.abspath(found), *words[1:])  # noqa: PTH100 - a link stays what it is


async def run_predicate(
    hub: Hub, text: str, *, name: str, words: Sequence[str], limits: ResourceLimits
) -> ProcessEnd:
    """Run the user's predicate in a fresh folder that holds the text as a file of that name.

    Raises:
        InfrastructureError: it cannot be started, or the disk is full.
    """
    folder = hub.new_folder("predicate")
    work = folder / "work"
    try:
        with scratch_disk():
            work.mkdir()
            (work / name).write_text(text, encoding="utf-8", newline="")
        # The streams lie beside the file's folder: a predicate may look at all that is there.
        enter = ["/bin/sh", "-c", 'cd work && exec "$@"', "sh", *words]
        return await hub.execute(enter, folder=folder, limits=limits)
    finally:
        hub.drop_folder(folder)
