"""Cells as the tests of the nightly diff write them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from harness.diff.compare import compare
from harness.values.change import ChangeKind, Changes
from harness.values.kernel import Config
from harness.values.matrix import Expectation
from harness.values.row import Facts
from harness.values.verdict import VerdictKind


def facts(
    verdict: str = "ok",
    signature: str | None = None,
    *,
    kernel: str = "k",
    warps: int = 4,
    target: str = "sm_100a",
    triton: str | None = "3.6.0",
    ptxas: str = "13.1.115",
    bundled: bool = False,
    **numbers: Any,
) -> Facts:
    config = {"num_warps": warps}
    place = f"{kernel}/default/{Config.of(dict(config)).label}@{target}"
    compiler = f"triton-{triton}" if triton else "ptx"
    cell = f"{place}/{compiler}/ptxas-{ptxas}{'-bundled' if bundled else ''}"
    base = Facts(
        cell=cell,
        short=hashlib.sha256(cell.encode()).hexdigest()[:8],
        kernel=kernel,
        launch="default",
        config=dict(config),
        target=target,
        triton=triton,
        compiler="triton" if triton else None,
        compiler_version=triton,
        ptxas=ptxas,
        ptxas_origin="bundled" if bundled else "nvidia-cuda-nvcc",
        verdict=VerdictKind(verdict),
        reason=f"{verdict} it is",
        signature=signature,
    )
    if verdict == "ok":
        well = {"n_regs": 64, "spill_stores": 0, "spill_loads": 0, "occupancy": 0.5}
        base = replace(base, **well)
    return replace(base, **numbers)


def compared(
    older: Iterable[Facts], newer: Iterable[Facts], expectations: Sequence[Expectation] = ()
) -> Changes:
    return compare(in_order(older), in_order(newer), runs=(1, 2), expectations=expectations)


def in_order(run: Iterable[Facts]) -> list[Facts]:
    return sorted(run, key=lambda each: each.cell)


def told(changes: Changes) -> dict[str, ChangeKind]:
    """Cell to kind, of all that is said."""
    return {change.facts.cell: change.kind for change in changes.changes}


def counted(changes: Changes) -> dict[ChangeKind, int]:
    return {kind: count for kind, count in changes.counts.items() if count}
