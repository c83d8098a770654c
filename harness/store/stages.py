"""The files of a stored cell, by stage."""

from __future__ import annotations

import msgspec

from harness.store.schema import ResultRecord
from harness.store.store import Store
from harness.values.outcome import Lowering
from harness.values.toolchain import PTXAS, TRITON, assembler_name, compiler_name

STAGES = (
    "python",
    "source",
    "ttir",
    "glir",
    "ttgir",
    "llir",
    "ptx",
    "cubin",
    "sass",
    "log",
    "meta",
)
"""What can be shown of a cell; `python` is the file that holds the kernel, `log` what
the compilers printed, `meta` Triton's metadata."""


def stage_bytes(store: Store, record: ResultRecord, stage: str) -> bytes | None:
    """The artifact of a stage; None where the pipeline did not come so far, or it was trimmed.

    Raises:
        UnusableArtifactError: it is damaged; the command that made the cell makes it again.
    """
    if stage == "log":
        return _log(store, record)
    if stage == "meta":
        evidence = store.get_evidence("lower", record.evidence.get("lower", ""))
        if evidence is None:
            return None
        lowering = msgspec.json.decode(evidence.body, type=Lowering)
        return msgspec.json.format(msgspec.json.encode(lowering.metadata), indent=2) + b"\n"
    for kind in ("lower", "assemble", "inspect"):
        evidence = store.get_evidence(kind, record.evidence.get(kind, ""))
        if evidence and stage in evidence.artifacts:
            return store.artifacts.get(evidence.artifacts[stage])
    row = msgspec.json.decode(record.row)
    if stage == "ptx" and row["ptx_sha256"]:
        return store.artifacts.get(row["ptx_sha256"])
    return None


def _log(store: Store, record: ResultRecord) -> bytes | None:
    parts, last, is_trimmed = [], "", False
    row = msgspec.json.decode(record.row)
    compiler = compiler_name(row.get("compiler") or TRITON)
    tool = assembler_name(row.get("assembler") or PTXAS)
    titles = {"log": compiler, "stdout": f"{tool}, stdout", "stderr": f"{tool}, stderr"}
    for kind in ("lower", "assemble"):
        evidence = store.get_evidence(kind, record.evidence.get(kind, ""))
        if evidence is None:
            is_trimmed = is_trimmed or kind in record.evidence
            continue
        last = compiler if kind == "lower" else tool
        for role, title in titles.items():
            sha256 = evidence.artifacts.get(role)
            if data := store.artifacts.get(sha256) if sha256 else b"":
                parts.append(f"--- {title}\n".encode() + data)
        if kind == "lower":
            error = msgspec.json.decode(evidence.body, type=Lowering).error
            if error:
                text = error.traceback or error.message
                parts.append(f"--- {compiler}, exception\n{text}".encode())
    if last and not parts and not is_trimmed:
        return f"--- {last} printed nothing\n".encode()
    return b"\n".join(parts) if parts else None
