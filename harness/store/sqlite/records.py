"""History as rows: what is kept of a run and of each of its cells, and how it is written down."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from harness.store.sqlite.connection import DamagedRowError
from harness.values.verdict import Signature

Config: TypeAlias = Mapping[str, str | int | float | bool | None]

_FIELDS = (
    "cell",
    "short",
    "kernel",
    "launch",
    "config",
    "target",
    "triton",
    "ptxas",
    "verdict",
    "signature_key",
    "row",
    "evidence",
    "created",
)
"""Fields of `ResultRecord` that are columns of the same name, in the order of the checksum."""

RESULT_COLUMNS = ("run_id", *_FIELDS, "checksum")
"""What `to_row` makes and `from_row` reads."""

RUN_COLUMNS = ("id", "uid", "started", "finished", "command", "harness_version")
"""The fields of `RunRecord`, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRecord:
    """One cell of one run, as it is kept for history.

    `row` is the JSON object that `--json` prints; the other fields are what history is searched
    by. `evidence` maps a kind to the key of the evidence that the row was judged from.
    `created` is in seconds since the epoch; it and `run` are set by the store. `signature` has the
    parts of the key; the store keeps them once for all results, and does not return them here.
    """

    cell: str
    short: str
    kernel: str
    launch: str
    config: Config
    target: str
    triton: str
    ptxas: str
    verdict: str
    row: bytes
    evidence: Mapping[str, str]
    signature_key: str | None = None
    created: float | None = None
    run: int | None = None
    signature: Signature | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One invocation that recorded results.

    Times are in seconds since the epoch; `finished` is None while it works, or when it was
    killed. `uid` is unique over all machines, `id` only within this store.
    """

    id: int
    uid: str
    started: float
    finished: float | None
    command: str
    harness_version: str


def canonical(value: Mapping[str, object]) -> str:
    """JSON by which equal configs are equal texts."""
    return json.dumps(dict(value), sort_keys=True, separators=(",", ":"))


def to_row(run: int, record: ResultRecord, now: float) -> tuple[object, ...]:
    """Return the `RESULT_COLUMNS` of a record; `now` is when it was made if it does not say."""
    stored = {name: getattr(record, name) for name in _FIELDS}
    stored["config"] = canonical(record.config)
    stored["evidence"] = canonical(record.evidence)
    stored["created"] = now if record.created is None else record.created
    values = (run, *stored.values())
    return (*values, _checksum(values))


def from_row(row: Sequence[Any]) -> ResultRecord:
    """Make a record from its `RESULT_COLUMNS`.

    Raises:
        DamagedRowError: it is not what was written.
    """
    run, *values, _ = row
    stored = dict(zip(_FIELDS, values, strict=True))
    if not is_intact(row):
        raise DamagedRowError(f"the result of {stored['cell']} in run {run} was changed")
    stored["config"] = json.loads(stored["config"])
    stored["evidence"] = json.loads(stored["evidence"])
    return ResultRecord(run=run, **stored)


def is_intact(row: Sequence[object]) -> bool:
    """Whether these `RESULT_COLUMNS` are what was written."""
    *values, checksum = row
    return checksum == _checksum(tuple(values))


def _checksum(values: tuple[object, ...]) -> int:
    # ascii() and not repr(): what repr() escapes depends on Python's Unicode tables.
    return zlib.crc32(ascii(values).encode())
