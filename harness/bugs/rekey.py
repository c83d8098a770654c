"""`triage bugs rekey`: all history judged again by today's rules, from the evidence that is kept.

A result stays as it is where its evidence was trimmed, or was made again after the result (and so
may tell of something else: it left other bytes, or none), where the machine failed us, and where
its own runs disagreed. What a run did is not kept: its signature follows from the older one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from harness.cells.evaluate import cell_evidence
from harness.frontends.assemble import Inspection
from harness.frontends.readings import PtxReading
from harness.judging.answers import is_failure
from harness.judging.judge import CellEvidence, judge
from harness.judging.signature import RULE, run_template
from harness.store.bug_identity import bug_key
from harness.store.schema import Evidence, ResultRecord
from harness.store.store import Store
from harness.values.cell import executed_by
from harness.values.limits import limits_of
from harness.values.outcome import Assembly, Lowering
from harness.values.row import Row
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, PTX
from harness.values.verdict import Signature, Stage, Verdict, VerdictKind

_PAGE = 500
_KINDS: dict[str, Any] = {
    "lower": Lowering,
    "ptx": PtxReading,
    "assemble": Assembly,
    "inspect": Inspection,
}
_Found = dict[str, dict[str, tuple[Evidence, float]]]

_decode_row = msgspec.json.Decoder(Row).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Rekeyed:
    """How many results there are, were judged again, and differ; `kept` could not be."""

    rule: int
    results: int
    judged: int
    kept: int
    changed: int
    bugs: int
    merged: int


def rekey(store: Store) -> Rekeyed:
    """Judge every result again that can be, and let the bugs follow to their new keys.

    Raises:
        StorageError: the results cannot be read or written.
    """
    store.bugs()  # so that each old key has its number before it changes
    signatures = store.signatures()
    results = judged = 0
    verdicts: dict[int, Verdict] = {}
    equal: dict[Verdict, Verdict] = {}
    same: Counter[str] = Counter()
    every = store.every_result()
    while page := list(islice(every, _PAGE)):
        evidence = _evidence(store, [record for _, record in page])
        for number, record in page:
            results += 1
            row = _decode_row(record.row)
            verdict = None
            if executed_by(row.cell):
                verdict = _of_run(row, signatures.get(row.signature or ""))
            elif steps := _steps(record, row, evidence):
                verdict = judge(_cell_evidence(row, steps))
            if verdict is None:
                continue
            judged += 1
            key = verdict.signature.key if verdict.signature else None
            stage = verdict.stage.value if verdict.stage else None
            new = (verdict.kind, verdict.reason, stage, verdict.code, key)
            if new != (row.verdict, row.reason, row.stage, row.code, row.signature):
                verdicts[number] = equal.setdefault(verdict, verdict)
            elif row.signature and is_failure(row.verdict):
                same[bug_key(row, verdict.signature) or row.signature] += 1
    moved = store.judge_again(verdicts, same)
    store.bugs()  # what split off gets a number of its own
    return Rekeyed(
        rule=RULE,
        results=results,
        judged=judged,
        kept=results - judged,
        changed=moved.results,
        bugs=moved.bugs,
        merged=moved.merged,
    )


def _evidence(store: Store, records: Iterable[ResultRecord]) -> _Found:
    records = list(records)
    by_kind: _Found = {}
    for kind in _KINDS:
        keys = {record.evidence[kind] for record in records if kind in record.evidence}
        times = store.evidence_times(kind, keys)
        stored = store.get_many(kind, keys)
        by_kind[kind] = {
            key: (evidence, times[key]) for key, evidence in stored.items() if key in times
        }
    return by_kind


def row_of_evidence(store: Store, cell: str) -> Row | None:
    """The last result of a cell as its evidence is judged today; None where that is not kept.

    Raises:
        StorageError: the results cannot be read.
    """
    record = next(
        (candidate for candidate in store.find_cells(cell) if candidate.cell == cell), None
    )
    if record is None:
        return None
    row = _decode_row(record.row)
    steps = _steps(record, row, _evidence(store, [record]))
    if not steps:
        return None
    evidence = _cell_evidence(row, steps)
    verdict, needs = judge(evidence), evidence.resources
    return replace(
        row,
        verdict=verdict.kind,
        reason=verdict.reason,
        signature=verdict.signature.key if verdict.signature else None,
        **needs.columns,
    )


def _steps(record: ResultRecord, row: Row, stored: _Found) -> dict[str, Any] | None:
    # A run was judged from what its PTX did, with inputs that are not among the evidence.
    if row.flaky or row.ptxas == EMULATOR or row.verdict is VerdictKind.INFRA:
        return None
    steps: dict[str, Any] = {}
    for kind, schema in _KINDS.items():
        key = record.evidence.get(kind)
        if key is None:
            continue
        evidence, created = stored[kind].get(key, (None, 0.0))
        if evidence is None:
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


def _of_run(row: Row, signature: Signature | None) -> Verdict | None:
    if signature is None:
        return None
    signature = replace(signature, rule=RULE, template=run_template(signature.template))
    return Verdict(kind=row.verdict, reason=row.reason, stage=Stage.RUN, signature=signature)


def _cell_evidence(row: Row, steps: Mapping[str, Any]) -> CellEvidence:
    target = Target.parse(row.target)
    return cell_evidence(
        kind=row.compiler or PTX,
        target=target,
        limits=limits_of(target.capability),
        lowering=steps.get("lower"),
        reading=steps.get("ptx"),
        assembly=steps.get("assemble"),
        inspection=steps.get("inspect"),
    )
