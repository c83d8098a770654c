"""The child that captures kernels of cuTile and lowers them, and what it leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from harness.frontends.captures import CapturingChild, read_lowering
from harness.frontends.cutile.versions import KIND
from harness.values.outcome import Lowering
from harness.values.toolchain import Assembler

if TYPE_CHECKING:
    from harness.frontends.sessions import JobResult


PROGRAM = "kernel.tileir"
"""What tileiras takes, in the folder of a job."""
FILES = {"cutile": "kernel.cutile", "tileir": PROGRAM}
"""What a job leaves, by stage."""
CHILD = CapturingChild(
    kind=KIND,
    module="harness.frontends.cutile.child",
    code=("frontends/pretend", "frontends/triton/child", "frontends/cutile/child"),
    settings=("CUDA_TILE_",),
    never=frozenset(
        f"CUDA_TILE_{name}"
        for name in ("CACHE_DIR", "TEMP_DIR", "DUMP_BYTECODE", "DUMP_TILEIR", "LOGS")
    ),
)


def asked_for(tileiras: Assembler) -> dict[str, object]:
    """What the child gets to know of a tileiras: it reads the bytecode of its release and older."""
    major, minor = Version(tileiras.version).release[:2]
    return {"bytecode": f"{major}.{minor}"}


def lowering_of(done: JobResult) -> Lowering:
    """The evidence that a job left, with the options that tileiras is to get."""
    options = tuple((done.result or {}).get("options", ()))
    return replace(read_lowering(done, "cutile"), flags=options)
