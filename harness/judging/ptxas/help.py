"""Which options a ptxas knows, by its own `--help`; the answer is kept beside the toolchains."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from harness.io.files.locations import cache_dir
from harness.io.files.writing import write_atomically
from harness.io.processes.hub import run_tool
from harness.judging.ptxas.ptxas_options import OPTIONS, known_options, usable
from harness.values.errors import InfrastructureError, StorageError
from harness.values.toolchain import Assembler

if TYPE_CHECKING:
    from harness.judging.ptxas.ptxas_options import PtxasOption


_SECONDS = 60.0


def options_of(ptxas: Assembler) -> list[PtxasOption]:
    """The options worth a try that this ptxas knows, in their order.

    It is asked once for each executable, by its hash.

    Raises:
        InfrastructureError: it does not run.
    """
    memo = cache_dir() / "described" / f"options-{ptxas.sha256[:16]}.json"
    options = _read(memo)
    if options is None:
        result = run_tool([ptxas.path, "--help"], timeout=_SECONDS)
        if not result.end.ok:
            raise InfrastructureError(f"ptxas {ptxas.version} --help fails: {result.end.words}")
        options = known_options(result.stdout)
        # On a read-only cache it is asked again next time.
        with contextlib.suppress(StorageError):
            write_atomically(memo, msgspec.json.encode(options))
    return [option for option in OPTIONS if usable(option, options)]


def _read(memo: Path) -> dict[str, str] | None:
    try:
        return msgspec.json.decode(memo.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return None
