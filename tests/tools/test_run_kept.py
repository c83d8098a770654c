"""What runs leave in the store: results, bugs, history and what changed, as for compiles."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

PTX = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, STRIDE;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r1;
  ret;
}
"""


def run(triage: Triage, stride: int, *words: str) -> tuple[int, dict[str, Any]]:
    (triage.folder / "case.ptx").write_text(PTX.replace("STRIDE", str(stride)))
    done = triage("run", "case.ptx", "--buffer", "out=u32[32]", "--block", "32", *words, "--json")
    [row] = msgspec.json.decode(done.stdout)["runs"]
    return done.returncode, row


def documents(triage: Triage, *words: str, code: int = 0) -> Any:
    done = triage(*words, "--json")
    assert done.returncode == code, done.stderr + done.stdout
    return msgspec.json.decode(done.stdout)


def test_a_fault_is_a_bug_with_a_history_and_an_edited_file_is_another_program(
    triage: Triage,
) -> None:
    code, row = run(triage, 8)
    assert (code, row["run"]) == (1, "memory_fault")
    assert run(triage, 8) == (code, row)
    [bug] = documents(triage, "bugs")["bugs"]
    assert (bug["kind"], bug["stage"]) == ("memory_fault", "run")
    assert bug["signature"] == row["run_signature"]
    assert bug["kernels"] == {"case.ptx": 1}
    # The second run read what the first one had found.
    assert bug["compiled"] == 1
    [cell] = documents(triage, "history", "--kernel", "case.ptx")["cells"]
    assert (cell["verdict"], cell["ptxas"]) == ("memory_fault", "emulator")
    assert run(triage, 4)[1]["run"] == "ran"
    [bug] = documents(triage, "bugs")["bugs"]
    # One run is not a night: it is not seen any more, and that is all.
    assert bug["machine"] == "absent"
    counts = documents(triage, "diff", code=4)["counts"]
    assert (counts["missing"], counts["new"]) == (1, 1)
