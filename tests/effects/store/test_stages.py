"""What the store has of a cell, by stage."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from store_cases import record

from harness.store.stages import stage_bytes
from harness.store.store import Store
from harness.values.outcome import Lowering, ProcessEnd

ROW = b'{"compiler": "triton", "assembler": "ptxas"}'


@pytest.mark.parametrize(
    ("kept", "printed", "log"),
    [
        (("lower", "assemble"), b"", b"--- ptxas printed nothing\n"),
        (("lower", "assemble"), b"a line", b"--- ptxas, stderr\na line"),
        # What was trimmed is not known.
        (("lower",), b"", None),
        ((), b"", None),
    ],
)
def test_the_log_of_tools_that_print_nothing_says_so(
    tmp_path: Path, kept: tuple[str, ...], printed: bytes, log: bytes | None
) -> None:
    with Store.open(tmp_path) as store:
        lowering = Lowering(end=ProcessEnd(exit_code=0, wall=0.1), stage="ptx")
        body = msgspec.json.encode(lowering)
        artifacts = {"stderr": store.artifacts.put(printed)} if printed else {}
        for kind, roles in (("lower", {}), ("assemble", artifacts)):
            if kind in kept:
                store.put_evidence(kind, "key", body, roles)
        evidence = {"lower": "key", "assemble": "key"}
        assert stage_bytes(store, record(row=ROW, evidence=evidence), "log") == log
