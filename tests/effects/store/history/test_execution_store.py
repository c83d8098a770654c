"""What came out when a cell was executed is kept, every time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from msgspec.structs import replace

from harness.store.store import Store
from harness.values.execution import OutputFacts, RunRow
from harness.values.verdict import Signature, VerdictKind

pytest_plugins = ("store_fixtures",)

CELL = "k/default/c@sm_90a/triton-3.6.0/ptxas-1"
SIGNATURE = Signature(
    stage="run", kind="wrong_result", failing_pass=None, code=None, template="differs: out"
)
WRONG = RunRow(
    cell=CELL,
    short="01234567",
    kernel="k",
    launch="default",
    config={"num_warps": 2},
    target="sm_90a",
    triton="3.6.0",
    on="emulator",
    run=VerdictKind.WRONG_RESULT,
    run_reason="1 of 4 elements differ",
    run_signature=SIGNATURE.key,
    outputs=(OutputFacts(name="out", dtype="float32", elements=4, differing=1),),
)


def test_every_execution_of_a_cell_is_kept_the_latest_first(store: Store) -> None:
    assert store.executions(CELL) == []
    right = replace(WRONG, run=VerdictKind.RIGHT, run_signature=None, outputs=())
    number = store.begin_run("triage run")
    store.put_execution(number, WRONG, SIGNATURE)
    store.put_execution(number, right, None)
    store.put_execution(number, replace(WRONG, cell="another"), SIGNATURE)
    store.finish_run(number)
    assert store.executions(CELL) == [right, WRONG]


def test_one_that_the_disk_has_changed_is_not_believed(store: Store, home: Path) -> None:
    store.put_execution(store.begin_run("triage run"), WRONG, SIGNATURE)
    with sqlite3.connect(home / "triage.db") as db:
        db.execute("UPDATE executions SET body = CAST(replace(body, '1 of 4', '0 of 4') AS BLOB)")
    assert store.executions(CELL) == []
