"""What changed between two builds: kernels by name and target, their code and numbers. Pure.

Judged by the rules of `triage diff`; in the place of bytes of spills stand the instructions that
access local memory, which is what finished machine code has of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import msgspec

from harness.diff.compare import direction, metric_steps
from harness.values.binary import BinaryKernel
from harness.values.change import MetricStep
from harness.values.row import Facts
from harness.values.verdict import VerdictKind

# Of names with internal linkage, nvcc hashes the file and its content; auditwheel hashes a library.
_HASHED = re.compile(r"\d*_(GLOBAL__N__|INTERNAL_)[0-9a-f]{8}_\d+_(.*?)_cu_[0-9a-f]{8}(?:_\d+)?")
_HASHED_FILE = re.compile(r"[-.][0-9a-f]{8}(?=\.so\b)")


class BuildChange(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel whose machine code is another one; without `older` it is new, without `newer` gone.

    `worse` is None where no number moved far enough to matter.
    """

    older: BinaryKernel | None
    newer: BinaryKernel | None
    steps: tuple[MetricStep, ...] = ()
    worse: bool | None = None

    @property
    def kernel(self) -> BinaryKernel:
        """The newer one, or what is gone."""
        kernel = self.newer or self.older
        assert kernel is not None, "one of the two is there"
        return kernel


class BuildChanges(msgspec.Struct, frozen=True, kw_only=True):
    """All that changed, and how many kernels have the same machine code."""

    same: int
    changes: tuple[BuildChange, ...]


def compare_builds(older: Iterable[BinaryKernel], newer: Iterable[BinaryKernel]) -> BuildChanges:
    """Compare kernel by kernel: one name on one target, in the same file where there is one.

    Files that moved, and hashes that a build puts in names, do not matter.
    """
    ones, others = [*older], [*newer]
    pairs: list[tuple[BinaryKernel, BinaryKernel]] = []
    # With the same machine code first: in its file, then wherever it went.
    keys: tuple[Callable[[BinaryKernel], object], ...] = (
        lambda kernel: (_named(kernel), kernel.code),
        lambda kernel: (_anywhere(kernel), kernel.code),
        _named,
        _anywhere,
    )
    for key in keys:
        waiting: dict[object, list[BinaryKernel]] = {}
        for kernel in ones:
            waiting.setdefault(key(kernel), []).append(kernel)
        left = []
        for kernel in others:
            if match := waiting.get(key(kernel)):
                pairs.append((match.pop(0), kernel))
            else:
                left.append(kernel)
        ones, others = [kernel for some in waiting.values() for kernel in some], left
    changed = []
    for one, other in pairs:
        if one.code != other.code:
            steps = metric_steps(_facts(one), _facts(other))
            changed.append(BuildChange(older=one, newer=other, steps=steps, worse=direction(steps)))
    same = len(pairs) - len(changed)
    changed += [BuildChange(older=kernel, newer=None) for kernel in ones]
    changed += [BuildChange(older=None, newer=kernel) for kernel in others]
    return BuildChanges(same=same, changes=tuple(changed))


def _anywhere(kernel: BinaryKernel) -> tuple[object, ...]:
    return _HASHED.sub(r"_\1\2", kernel.name), kernel.target


def _named(kernel: BinaryKernel) -> tuple[object, ...]:
    return (*_anywhere(kernel), _HASHED_FILE.sub("", kernel.file))


def _facts(kernel: BinaryKernel) -> Facts:
    return Facts(
        cell=kernel.name,
        short="",
        kernel=kernel.name,
        launch="",
        config={},
        target=kernel.target or "",
        triton=None,
        ptxas=None,
        ptxas_origin=None,
        verdict=VerdictKind.OK,
        reason="",
        n_regs=kernel.n_regs,
        spill_stores=kernel.local_stores,
        spill_loads=kernel.local_loads,
        stack=kernel.stack,
        shared=kernel.static_shared,
        cubin_sha256=kernel.code,
    )
