"""A stored result, judged again from the evidence that is kept of it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from harness.cells.evaluate import cell_evidence
from harness.frontends.assemble import Inspection
from harness.frontends.readings import PtxReading
from harness.judging.judge import judge
from harness.store.schema import ResultRecord
from harness.store.store import Store
from harness.values.limits import limits_of
from harness.values.outcome import Assembly, Lowering
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, PTX
from harness.values.verdict import VerdictKind

_KINDS: dict[str, Any] = {
    "lower": Lowering,
    "ptx": PtxReading,
    "assemble": Assembly,
    "inspect": Inspection,
}


def row_of_evidence(store: Store, cell: str) -> Row | None:
    """The last result of a cell as its evidence is judged today; None where that is not kept.

    Not where its evidence was trimmed, or was made again after the result (and so may tell of
    something else: it left other bytes, or none), where the machine failed us, and where its own
    runs disagreed.

    Raises:
        StorageError: the results cannot be read.
    """
    record = next(
        (candidate for candidate in store.find_cells(cell) if candidate.cell == cell), None
    )
    if record is None:
        return None
    row = msgspec.json.decode(record.row, type=Row)
    steps = _steps(store, record, row)
    if not steps:
        return None
    target = Target.parse(row.target)
    evidence = cell_evidence(
        kind=row.compiler or PTX,
        target=target,
        limits=limits_of(target.capability),
        lowering=steps.get("lower"),
        reading=steps.get("ptx"),
        assembly=steps.get("assemble"),
        inspection=steps.get("inspect"),
    )
    verdict, needs = judge(evidence), evidence.resources
    return replace(
        row,
        verdict=verdict.kind,
        reason=verdict.reason,
        signature=verdict.signature.key if verdict.signature else None,
        **needs.columns,
    )


def _steps(store: Store, record: ResultRecord, row: Row) -> dict[str, Any] | None:
    # A run was judged from what its PTX did, with inputs that are not among the evidence.
    if row.flaky or row.ptxas == EMULATOR or row.verdict is VerdictKind.INFRA:
        return None
    steps: dict[str, Any] = {}
    for kind, schema in _KINDS.items():
        key = record.evidence.get(kind)
        if key is None:
            continue
        evidence = store.get_evidence(kind, key)
        created = store.evidence_times(kind, [key]).get(key)
        if evidence is None or created is None:
            return None
        # Made again since, it counts where it left the very bytes that the result speaks of.
        output = row.cubin_sha256 if kind == "assemble" else row.program_sha256 or row.ptx_sha256
        if created > (record.created or 0.0) and output not in evidence.artifacts.values():
            return None
        try:
            steps[kind] = msgspec.json.decode(evidence.body, type=schema)
        except msgspec.MsgspecError:
            return None
        if kind == "assemble" and evidence.artifacts.get("cubin") != row.cubin_sha256:
            return None
    return steps
