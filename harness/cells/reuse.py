"""Results that need no work: a cell whose identity is that of its last result keeps its row.

A cell's identity is a hash of all that its row follows from: its capture, record, Triton, ptxas,
target, settings of the compilers, and our own code that runs, reads and judges. So a changed rule
judges again from stored evidence, and a changed input makes evidence again.
"""

from __future__ import annotations

import functools
import hashlib

import msgspec
from msgspec import structs

from harness.frontends.bench import content_key
from harness.frontends.plan import PlannedCell
from harness.frontends.registry import front_end
from harness.io.files.own_code import code_sha256
from harness.io.processes.hub import ResourceLimits
from harness.judging.answers import LIMITS_OF_OURS
from harness.store.schema import ResultRecord
from harness.values.row import Row
from harness.values.verdict import VerdictKind

CELL = "cell"
"""Where a result keeps its identity, among the evidence that it was judged from."""
LIMITS = "limits"
"""And the limits it was made under."""

# The packages and modules between a plan and its row, the child's left out: captures are keyed.
_JUDGING = (
    "values",
    "io/files",
    "io/processes",
    "io/packages",
    "io/toolchains",
    "store",
    "gpu_emulator/ptx/text",
    "judging",
    "frontends",
    "cells/repros",
    "cells/evaluate.py",
)
_judging_sha256 = functools.cache(functools.partial(code_sha256, *_JUDGING))
_LIMITED = {kind.value for kind in LIMITS_OF_OURS}
_SIGKILL = 9

_decode = msgspec.json.Decoder(Row).decode


def identity_of(cell: PlannedCell, name: str, repeat: int, shared: dict[str, str]) -> str:
    """The identity of a cell (`name` is its id) that is run so often.

    What the cells of one capture have in common is hashed once, and is in `shared` from then on.
    """
    capture = cell.launch.capture.key if cell.launch else ""
    if capture not in shared:
        shared[capture] = content_key(
            capture=capture,
            compiler=front_end(cell.compiler.kind).identity(cell.compiler),
            nvdisasms=[tool.version for tool in cell.nvdisasms],
            judging=_judging_sha256(),
        )
    words = (
        shared[capture],
        name,
        cell.record.key if cell.record else f"{cell.raw_ptx} {cell.entry}",
        cell.ptxas.sha256,
        cell.bundled.sha256 if cell.bundled else "",
        str(cell.freeze_ptx),
        str(repeat),
    )
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:32]


def limits_label(limits: ResourceLimits) -> str:
    """Limits as a result keeps them."""
    return f"{limits.timeout:g} s, {limits.memory} B"


def carried(
    last: ResultRecord | None, identity: str, limits: str
) -> tuple[Row, ResultRecord] | None:
    """The last result of a cell as one of this run; None where it has to be looked at again.

    That is what did not say anything (`infra`, somebody else's SIGKILL), and what our limits ended,
    where they were others.
    """
    if last is None or last.evidence.get(CELL) != identity:
        return None
    if last.verdict == VerdictKind.INFRA:
        return None
    if last.verdict in _LIMITED and last.evidence.get(LIMITS) != limits:
        return None
    try:
        row = _decode(last.row)
    except msgspec.MsgspecError:
        return None  # written by another version of this program
    if row.signal == _SIGKILL and last.verdict not in _LIMITED:
        return None
    if row.cached:
        return row, last
    row = structs.replace(row, cached=True)
    return row, structs.replace(last, row=msgspec.json.encode(row), created=None)
