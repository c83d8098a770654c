"""Times that a GPU measured are found again by cubin: of packs, and of `triage run --on gpu`."""

from __future__ import annotations

from msgspec.structs import replace

from harness.cells.evaluate import Evaluated
from harness.frontends.assemble import keep_times, kept_times
from harness.run.executing import Executed, keep_execution
from harness.store.store import Store
from harness.values.execution import RunRow
from harness.values.row import Row
from harness.values.timing import TimeMs
from harness.values.verdict import VerdictKind

pytest_plugins = ("store_fixtures",)

ROW = Row(
    cell="k/default/c@sm_90a/triton-3.6.0/ptxas-1",
    short="01234567",
    kernel="k",
    launch="default",
    config={},
    target="sm_90a",
    triton="3.6.0",
    ptxas="1",
    ptxas_origin="x",
    verdict=VerdictKind.OK,
    reason="",
    cubin_sha256="a" * 64,
)
SLOW = TimeMs(median=2.0, min=1.9, q3=2.1, samples=30)
FAST = TimeMs(median=1.0, min=0.9, q3=1.1, samples=30)


def test_times_are_kept_by_gpu_and_cubin_beside_those_that_are_there(store: Store) -> None:
    other = replace(ROW, cubin_sha256="b" * 64)
    keep_times(store, "H200", [(ROW, SLOW)])
    keep_times(store, "H200", [(other, FAST), (replace(ROW, target="sm_80"), FAST)])
    keep_times(store, "B200", [(ROW, FAST)])
    assert kept_times(store, ROW) == {
        "H200": {"a" * 64: SLOW, "b" * 64: FAST},
        "B200": {"a" * 64: FAST},
    }
    assert kept_times(store, replace(ROW, launch="large")) == {}


def test_what_ran_on_a_gpu_has_its_time_too(store: Store) -> None:
    cell = "k/default/c@sm_90a/triton-3.6.0/gpu:ptxas-1"
    ran = RunRow(
        cell=cell,
        short="01234567",
        kernel="k",
        launch="default",
        config={},
        target="sm_90a",
        triton="3.6.0",
        on="gpu",
        device="H200",
        run=VerdictKind.RIGHT,
        run_reason="",
        time_ms=SLOW,
        compiled=ROW,
    )
    number = store.begin_run("triage run --on gpu")
    done = Evaluated(row=replace(ROW, cell=cell), evidence={})
    keep_execution(store, number, Executed(row=ran, evaluated=done))
    store.finish_run(number)
    assert kept_times(store, ROW) == {"H200": {"a" * 64: SLOW}}
    assert kept_times(store, replace(ROW, target="sm_80")) == {}
