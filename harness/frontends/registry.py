"""The front ends there are: one line each here, and those that other packages register.

A package registers one with an entry point of the group `kernel_triage.front_ends`, whose name is
the kind and whose object is the front end.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from harness.frontends.back_end import BackEnd
from harness.frontends.base import FrontEnd
from harness.frontends.bench import Workbench
from harness.frontends.plan import CapturePlace, Plan
from harness.frontends.sessions import LaunchSessions
from harness.io.processes.hub import Hub
from harness.values.errors import TriageError, UsageError
from harness.values.kernel import Repro
from harness.values.target import Target
from harness.values.toolchain import NVCC, PTX, TRITON, Compiler, name_kind

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from harness.frontends.captured_front_end import CapturedFrontEnd, FileForm

GROUP = "kernel_triage.front_ends"
_OURS = {
    TRITON: "harness.frontends.triton.front_end:TRITON_FRONT_END",
    PTX: "harness.frontends.ptx.front_end:PTX_FRONT_END",
    NVCC: "harness.frontends.cuda.front_end:CUDA_FRONT_END",
    "tilelang": "harness.frontends.tilelang.front_end:TILELANG_FRONT_END",
    "cutedsl": "harness.frontends.cutedsl.front_end:CUTEDSL_FRONT_END",
    "cutile": "harness.frontends.cutile.front_end:CUTILE_FRONT_END",
}
# What of them takes files and modules, so that a name is looked up without loading every front end.
_SUFFIXES: dict[str, tuple[str, ...]] = {
    TRITON: (".ttir", ".ttgir"),
    PTX: (".ptx",),
    NVCC: (".cu",),
}
_MODULES = {"tilelang": ("tilelang",), "cutedsl": ("cutlass",), "cutile": ("cuda.tile",)}


@functools.cache
def _registered() -> dict[str, EntryPoint]:
    from importlib import metadata  # noqa: PLC0415 - 20 ms of every command

    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def kinds() -> list[str]:
    """The kinds of all front ends, ours first."""
    return list(dict.fromkeys([*_OURS, *sorted(_registered())]))


@functools.cache
def front_end(kind: str) -> FrontEnd:
    """The front end of a kind; it is imported when it is first asked for.

    Raises:
        UsageError: there is none.
    """
    if kind in _OURS:
        module, _, name = _OURS[kind].partition(":")
        ours = cast(FrontEnd, getattr(importlib.import_module(module), name))
        name_kind(kind, ours.title)
        return ours
    point = _registered().get(kind)
    if point is None:
        raise UsageError(f"no compiler of the kind {kind!r}; there are {', '.join(kinds())}")
    front = cast(FrontEnd, point.load())
    name_kind(kind, front.title)
    for back in front.back_ends:
        name_kind(back.kind, back.title)
    return front


def takes(kind: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The suffixes of the files that a kind takes, and the modules that its Python files import."""
    if kind in _SUFFIXES or kind in _MODULES:
        return _SUFFIXES.get(kind, ()), _MODULES.get(kind, ())
    front = front_end(kind)
    return front.suffixes, front.modules


def reader_of(repro: Repro, compilers: Sequence[str]) -> FrontEnd:
    """The front end of a repro: where several read its file, `--compiler` says which is meant."""
    suffix = repro.file.suffix
    for text in compilers if not (repro.ptx or repro.group) else ():
        kind = next((kind for kind in kinds() if re.match(rf"{kind}(?![a-z0-9_])", text)), None)
        if kind is None:
            continue
        suffixes, modules = takes(kind)
        if suffix == ".py":
            is_read = kind == TRITON or bool(modules)
        else:
            is_read = kind != TRITON and suffix in suffixes
        if is_read:
            return front_end(kind)
    return front_end(repro.front_end)


def back_end(kind: str, target: Target) -> BackEnd:
    """What assembles for a target what a kind of compiler generates."""
    return front_end(kind).back_end(target)


def form_of(kind: str) -> FileForm:
    """How a kind of compiler writes its kernels as files.

    Raises:
        UsageError: it does not.
    """
    from harness.frontends.captured_front_end import FileForm  # noqa: PLC0415 - as heavy as a front end

    front = front_end(kind)
    if not isinstance(front.source_form, FileForm):
        raise UsageError(f"kernels of {front.title} cannot be written as one file of Python")
    return front.source_form


def interpreter_for(compiler: Compiler) -> CapturedFrontEnd:
    """The front end that runs launches of a compiler's kernels with values.

    Raises:
        UsageError: nothing does.
    """
    front = front_end(compiler.kind)
    if not front.interprets:
        raise UsageError(
            f"launches of {front.title} cannot be run with values: run their PTX, by `triage run`"
        )
    return cast("CapturedFrontEnd", front)


def unassembled(front: FrontEnd) -> str:
    """What to say where an assembler is asked for, and there is none."""
    return f"nothing assembles what {front.title} generates here"


async def plan_launch(bench: Workbench, place: CapturePlace) -> Plan:
    """The cells of one launch: one for each config that the filter lets through, and each ptxas.

    Warnings go to the user at once.

    Raises:
        CaptureError: the launch cannot be captured, or never launches the kernel.
        InfrastructureError: this compiler, or a source, cannot be brought here.
    """
    plan = await front_end(place.compiler.kind).plan(bench, place)
    for words in plan.warnings:
        bench.warn(words)
    return plan


def stages_of(kind: str) -> tuple[str, ...]:
    """The stages of a kind of compiler; none where its package is not installed any more."""
    return front_end(kind).stages if kind in _OURS or kind in _registered() else ()


def known_versions(kind: str) -> tuple[str, ...]:
    """The versions of a compiler or an assembler that exist, oldest first, as far as is known here.

    The package index is not asked: what it said last counts.
    """
    from harness.io.packages.index import as_cached  # noqa: PLC0415 - what is planned needs no index

    tool: FrontEnd | BackEnd | None
    if kind in kinds():
        tool = front_end(kind)
    else:
        backs = (back for front in front_ends() for back in front.back_ends)
        tool = next((back for back in backs if back.kind == kind), None)
    with as_cached(), contextlib.suppress(TriageError):
        return tuple(map(str, tool.available())) if tool else ()
    return ()


def front_ends() -> list[FrontEnd]:
    """All of them."""
    return [front_end(kind) for kind in kinds()]


class OpenSessions(LaunchSessions):
    """The living captures of one run, whatever their compilers."""

    def __init__(self, hub: Hub, *, timeout: float, memory: int = 0) -> None:
        def program(compiler: Compiler) -> tuple[list[str], dict[str, str]]:
            return cast("CapturedFrontEnd", front_end(compiler.kind)).program(compiler)

        super().__init__(hub, program, timeout=timeout, memory=memory)
