"""Results of a pack: its candidates come from the store, and nothing is searched again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from acted_front_end import Stage

from gpu_emulator.values import Budget
from harness.frontends.assemble import kept_times
from harness.run.emulator_jobs import Emulation, JobBuffer
from harness.run.gpu.evaluating import keep_batch
from harness.run.gpu.gpu_batch import BatchCase, GpuBatch
from harness.run.launch import Launch
from harness.values.cell import CellId
from harness.values.errors import UsageError
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.target import Target
from harness.values.verdict import VerdictKind
from harness.workaround.executed_trials import import_workarounds, keep_packed
from harness.workaround.result import Candidate, Equivalence, Numerics, WorkaroundReport
from harness.workaround.settings import Setting, SettingKind, SettingStep

pytest_plugins = ("acted_fixtures",)

GPU = {
    "name": "Test GPU",
    "capability": 90,
    "cuda": "13.0",
    "memory": 1 << 37,
    "max_threads": 1024,
    "multiprocessors": 132,
    "max_shared": 232448,
}
WIDE = Config.of({"width": 2})
WORDS = {"compiler": ["acted==1.1"], "config": "width=2"}


def row(cubin: str) -> Row:
    return Row(
        cell=f"kernel/{cubin}",
        short=cubin,
        kernel="kernel",
        launch="default",
        config=WIDE.as_dict(),
        target="sm_80",
        triton=None,
        ptxas="2.0",
        ptxas_origin="x",
        verdict=VerdictKind.SICK,
        reason="spills",
        signature="sick-x",
        cubin_sha256=hashlib.sha256(cubin.encode()).hexdigest(),
    )


def candidate(cubin: str, option: str) -> Candidate:
    step = SettingStep(kind=SettingKind.FLAGS, name="ptxas flags", before=None, after=option)
    return Candidate(
        setting=Setting(config=WIDE),
        steps=(step,),
        row=row(cubin),
        is_listed=False,
        explanation=("it spills less",),
        numerics=Numerics(known=Equivalence.COMPILED, reason="as compiled", rel_err=0.5),
        paste=(f'export PTXAS_OPTIONS="{option}"',),
    )


REPORT = WorkaroundReport(
    baseline=row("0"),
    survivor=row("0"),
    listed=(row("0"),),
    candidates=(candidate("1", "-O1"), candidate("2", "--minnctapersm 1")),
    patch=None,
    tried=9,
    seconds=240.0,
    left_out=(SettingKind.CONFIG,),
    notes=("-O0: not shown, for it is not proved: the time is up (--max-time)",),
)


@pytest.fixture(autouse=True)
def an_assembler(stage: Stage) -> None:
    stage.ptxas("2.0")


def keep_a_batch(stage: Stage, samples: int = 30) -> str:
    """Three cubins of one launch; the name of their pack."""
    artifacts = stage.store.artifacts
    for cubin in "012":
        artifacts.put(cubin.encode())
    emulation = Emulation(
        ptx=artifacts.put(b".version 8.0"),
        entry="k",
        grid=(1, 1, 1),
        block=(1, 1, 1),
        cluster=(1, 1, 1),
        dynamic_shared=0,
        buffers=(JobBuffer(name="out", file=artifacts.put(b"\1\2\3\4"), size=4),),
        arguments=(),
        trials=(),
        budget=Budget(),
    )
    cell = CellId(
        kernel="kernel",
        launch="default",
        config=WIDE,
        target=Target(capability=80),
        compiler="acted-1.1",
        ptxas="2.0",
        on="gpu",
    )
    return keep_batch(
        stage.store,
        GpuBatch(
            launches=(Launch(emulation=emulation, tensors=(), digest="whole"),),
            cases=tuple(BatchCase(cell=cell, compiled=row(name), launch=0) for name in "012"),
            command="triage workaround",
            timings=((0, 1, 2),),
            samples=samples,
        ),
    )


def results(path: Path, pack: str, times: dict[int, float]) -> Path:
    """What a machine gives that launched these cases: so many milliseconds each."""
    lines: list[dict[str, Any]] = [{"results": 1, "pack": pack, "cases": 3, "gpu": GPU}]
    left = hashlib.sha256(b"left").hexdigest()
    for case in times:
        ended = {"case": case, "status": "ended", "buffers": [left], "guards": [], "seconds": 1.0}
        # A number looked at afterwards: one float32.
        lines += [{**ended, "run": run, "glimpses": ["0000803f"]} for run in (0, 1)]
    for case, ms in times.items():
        lines.append({"case": case, "status": "timed", "ms": [ms] * 3, "sm_mhz": [1980] * 3})
    lines.append({"end": True, "seconds": 1.0})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_candidates_come_from_the_store_and_get_their_times(stage: Stage) -> None:
    pack, chosen = keep_a_batch(stage), stage.selection(**WORDS)
    keep_packed(stage.store, pack, chosen, REPORT)
    file = results(stage.folder / "results.jsonl", pack, {0: 40.0, 1: 6.0, 2: 5.0})
    found = import_workarounds([file], chosen, stage.store)
    assert stage.acted.asked == [], "nothing is compiled"
    assert found.baseline.time_ms is not None
    assert found.baseline.time_ms.median == 40.0
    # The fastest first, each with all that was known of it.
    assert [each.change for each in found.candidates] == [
        "ptxas flags none -> --minnctapersm 1",
        "ptxas flags none -> -O1",
    ]
    first = found.candidates[0]
    assert first.speedup is not None
    assert (first.speedup.times, first.speedup.is_bit_identical) == (8.0, True)
    assert (first.explanation, first.paste) == (
        REPORT.candidates[1].explanation,
        REPORT.candidates[1].paste,
    )
    assert (found.notes, found.is_time_up, found.tried) == (REPORT.notes, True, 9)
    [kept] = stage.store.workarounds()
    assert kept.change == first.change
    # A search without a GPU finds the times again.
    [times] = kept_times(stage.store, found.baseline).values()
    assert {cubin: time.median for cubin, time in times.items()} == {
        found.baseline.cubin_sha256: 40.0,
        REPORT.candidates[0].row.cubin_sha256: 6.0,
        REPORT.candidates[1].row.cubin_sha256: 5.0,
    }


def test_a_run_that_was_killed_leaves_what_it_measured(stage: Stage) -> None:
    pack, chosen = keep_a_batch(stage), stage.selection(**WORDS)
    keep_packed(stage.store, pack, chosen, REPORT)
    file = results(stage.folder / "results.jsonl", pack, {0: 40.0, 1: 6.0})
    found = import_workarounds([file], chosen, stage.store)
    assert [each.change for each in found.candidates] == [REPORT.candidates[0].change]
    assert found.notes[1].startswith(f"{REPORT.candidates[1].change}: not shown: on Test GPU, ")


def test_results_of_another_pack_or_of_several_are_one_line(stage: Stage) -> None:
    chosen = stage.selection(**WORDS)
    mine, theirs = keep_a_batch(stage), keep_a_batch(stage, samples=3)
    keep_packed(stage.store, mine, chosen, REPORT)
    of_mine, of_theirs, of_none = (
        results(stage.folder / f"{pack[:8]}.jsonl", pack, {0: 40.0})
        for pack in (mine, theirs, "f" * 64)
    )
    for files, said in (
        ([of_theirs], "which `triage workaround --pack` did not write"),
        ([of_none], "import them where `--pack` was given"),
        ([of_mine, of_theirs], "the results are of 2 packs"),
    ):
        with pytest.raises(UsageError, match=said):
            import_workarounds(files, chosen, stage.store)


@pytest.mark.parametrize("words", [{"sm": ["90"]}, {"config": "width=1"}])
def test_results_for_something_else_are_one_line(stage: Stage, words: dict[str, Any]) -> None:
    pack = keep_a_batch(stage)
    keep_packed(stage.store, pack, stage.selection(**WORDS), REPORT)
    file = results(stage.folder / "results.jsonl", pack, {0: 40.0})
    with pytest.raises(UsageError, match=r"sm_80, width=2: select what was packed"):
        import_workarounds([file], stage.selection(**{**WORDS, **words}), stage.store)
