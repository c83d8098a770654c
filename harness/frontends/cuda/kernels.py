"""The kernels that PTX of CUDA C++ holds, by the names that the source gives them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_emulator.ptx.text.facts import PtxError, read_ptx
from harness.frontends.cuda.source import bounds_in, display_name


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """A kernel as it is shown, its name in the PTX, and the threads that its bounds allow."""

    name: str
    entry: str | None
    most_threads: int | None


def kernels_of(ptx: str) -> list[CompiledKernel]:
    """All of a PTX; none where it cannot be read. Instances of a template have their whole name."""
    try:
        entries = read_ptx(ptx).entries
    except PtxError:
        return []
    names = [display_name(entry) for entry in entries]
    return [
        CompiledKernel(
            name=name if names.count(name) == 1 else entry,
            entry=entry,
            most_threads=bounds_in(ptx, entry),
        )
        for name, entry in zip(names, entries, strict=True)
    ]


def kernel_meant(found: Sequence[CompiledKernel], name: str) -> CompiledKernel | None:
    """The kernel of that name, or the only one there is: a shorter text may name it otherwise."""
    same = [each for each in found if name in (each.name, each.entry)]
    return same[0] if same else found[0] if len(found) == 1 else None
