"""One ptxas on one text, and nothing kept: what a reduction asks thousands of times."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.bench.assemble import is_cubin, read_stream
from harness.processes.hub import scratch_disk
from harness.ptxas.cubin import Cubin, read_cubin
from harness.values.errors import UsageError
from harness.values.outcome import Assembly, ProcessEnd

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.processes.hub import Hub, ResourceLimits
    from harness.values.toolchain import Assembler

__all__ = ["Assembled", "assemble_text", "run_predicate", "script_words"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """How ptxas ended, what it printed, and the cubin where a whole one came out."""

    assembly: Assembly
    cubin: Cubin | None = None


async def assemble_text(
    hub: Hub, text: str, *, ptxas: Assembler, flags: tuple[str, ...], limits: ResourceLimits
) -> Assembled:
    """Assemble a text in a scratch folder that is gone afterwards; `flags` name the target.

    Raises:
        InfrastructureError: ptxas cannot be started, or the disk is full.
    """
    folder = hub.new_folder("oracle")
    try:
        with scratch_disk():
            (folder / "kernel.ptx").write_text(text, encoding="utf-8", newline="")
        argv: list[str | Path] = [ptxas.path, *flags, "kernel.ptx", "-o", "kernel.cubin"]
        end = await hub.execute(argv, folder=folder, limits=limits)
        has_cubin = is_cubin(folder / "kernel.cubin")
        return Assembled(
            assembly=Assembly(
                end=end,
                flags=flags,
                stdout=read_stream(folder / "stdout"),
                stderr=read_stream(folder / "stderr"),
                has_cubin=has_cubin,
            ),
            cubin=read_cubin((folder / "kernel.cubin").read_bytes()) if has_cubin else None,
        )
    finally:
        hub.drop_folder(folder)


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
