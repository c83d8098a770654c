"""Nights of a matrix, kept in a store as a run keeps them; nothing is compiled."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.cells.evaluate import Evaluated
from harness.cells.places import record_of
from harness.store.schema import ResultRecord
from harness.store.store import Store
from harness.values.cell import CellId
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.target import Target
from harness.values.verdict import VerdictKind


def row(
    verdict: str = "ok",
    signature: str | None = None,
    *,
    kernel: str = "scan_fwd",
    launch: str = "default",
    warps: int = 4,
    target: str = "sm_100a",
    triton: str = "3.6.0",
    ptxas: str = "13.0.88",
    **changes: Any,
) -> Row:
    config = Config.of({"num_warps": warps, "maxnreg": 128})
    cell = CellId(
        kernel=kernel,
        launch=launch,
        config=config,
        target=Target.parse(target),
        compiler=f"triton-{triton}",
        ptxas=ptxas,
    )
    base = Row(
        cell=str(cell),
        short=cell.short,
        kernel=kernel,
        launch=launch,
        config=config.as_dict(),
        target=target,
        triton=triton,
        compiler="triton",
        compiler_version=triton,
        ptxas=ptxas,
        ptxas_origin="nvidia-cuda-nvcc",
        verdict=VerdictKind(verdict),
        reason="compiled, nothing suspect",
        ptxas_flags=("-v",),
    )
    if verdict == "ok":
        base = replace(base, n_regs=64, spill_stores=0, spill_loads=0, occupancy=0.5)
    else:
        base = replace(base, signature=signature, stage="cubin", reason=f"it is {verdict}")
    return replace(base, **changes)


def night(
    home: Path, rows: Iterable[Row], *, command: str = "triage matrix run", finish: bool = True
) -> int:
    """Keep a run with these rows; return its number."""
    with Store.open(home) as store:
        run = store.begin_run(command)
        store.put_results(run, [record(each) for each in rows])
        if finish:
            store.finish_run(run)
        return run


def as_json(row: Row) -> dict[str, Any]:
    """The row as a reader of `--json` gets it."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(row))
    return found


def record(row: Row) -> ResultRecord:
    """The row as a run keeps it."""
    return record_of(Evaluated(row=row, evidence={}))
