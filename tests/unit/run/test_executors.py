"""What executes, by the name that `--on` takes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpu_emulator.values import Budget
from harness.cells.places import CompileOptions
from harness.run import executors
from harness.run.executing import Executed, Executor, OnEmulator, RunReport
from harness.run.executors import executor_on, run_selections
from harness.run.gpu.evaluating import OnCubins
from harness.run.gpu.packing import place_of
from harness.run.launch_sources import RecordedLaunch, small_selection
from harness.values.errors import TriageError, UsageError
from harness.values.toolchain import EMULATOR, EXECUTORS, GPU, PTX, SASS, takes_cubins


@pytest.mark.parametrize("on", [None, *EXECUTORS])
def test_each_name_is_one_executor_of_its_own(on: str | None) -> None:
    def made(name: str | None) -> Executor:
        source = RecordedLaunch(bench=bench, selection=cast(Any, None), tell=print)
        return executor_on(name, bench, source, print, runner="true")

    bench = cast(Any, SimpleNamespace())
    executor = made(on)
    assert isinstance(executor, OnCubins if takes_cubins(on) else OnEmulator)
    if isinstance(executor, OnCubins):
        assert executor.destination.on == on
    assert executor.device == ""


def test_a_runner_is_found_where_the_command_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "run.py").touch()
    monkeypatch.chdir(tmp_path)
    place = place_of("python3 tools/run.py -q tools/other.py")
    script = str(tmp_path / "tools" / "run.py")
    assert place.words == ("python3", script, "-q", "tools/other.py")


def test_a_file_of_ptx_goes_to_what_takes_its_cubin() -> None:
    repro = SimpleNamespace(name="case.ptx", ptx=Path("case.ptx"), front_end=PTX)
    selection = cast(Any, SimpleNamespace(repro=repro, launches=()))
    assert [name for name in EXECUTORS if takes_cubins(name)] == [GPU, SASS]
    assert not takes_cubins(None)
    assert small_selection(selection, GPU) is selection
    with pytest.raises(UsageError, match="a file of PTX is executed by"):
        small_selection(selection, EMULATOR)


class _Executes:
    """Raises for one cell, ends never for another, and has all others done at once."""

    def __init__(self, fails: int | None, waits: int | None) -> None:
        self.fails, self.waits = fails, waits

    async def execute(self, _: object, planned: Any) -> Executed:
        cell = planned.cell
        if cell == self.waits:
            await asyncio.Event().wait()
        # The first cells are the last to be done.
        await asyncio.sleep(0.001 * (27 - cell))
        if cell == self.fails:
            raise TriageError("no disk")
        return Executed(row=cell, evaluated=cast(Any, None))


@pytest.mark.parametrize(("fails", "waits"), [(None, None), (26, None), (3, None), (None, 26)])
def test_what_is_executed_is_kept_whatever_becomes_of_the_other_cells(
    monkeypatch: pytest.MonkeyPatch, fails: int | None, waits: int | None
) -> None:
    kept: list[int] = []

    @contextlib.asynccontextmanager
    async def work(*_: object) -> AsyncIterator[Any]:
        yield SimpleNamespace(), 1

    async def nothing(*_: object) -> Any:
        return SimpleNamespace(launches=())

    async def plan(*_: object) -> Any:
        cells = [SimpleNamespace(cell=number) for number in range(27)]
        return SimpleNamespace(session=None, notes=(), warnings=(), cells=cells)

    async def unchecked(*_: object) -> Any:
        return {}

    source = SimpleNamespace(
        notes=(), selection=None, kernels=(), inputs=nothing, sessions=set, recordings=()
    )
    launch = SimpleNamespace(spec=SimpleNamespace(file=None), label="main")
    repro = SimpleNamespace(name="k", file="k.py", kernel="k")
    for name, value in {
        "work": work,
        "RecordedLaunch": lambda **_: source,
        "replace": lambda row, **_: row,
        "check_place": unchecked,
        "small_launch": lambda *_: launch,
        "executor_on": lambda *_, **__: _Executes(fails, waits),
        "places_of": lambda _: [SimpleNamespace(target="sm_90")],
        "takes_inputs": lambda _: False,
        "plan_launch": plan,
        "require_values": lambda _: None,
        "_is_refused": lambda *_: False,
        "keep_execution": lambda _, __, executed: kept.append(executed.row),
    }.items():
        monkeypatch.setattr(executors, name, value)

    async def run() -> RunReport:
        selection = cast(Any, SimpleNamespace(repro=repro, launches=(launch,)))
        store, how = cast(Any, None), CompileOptions()
        job = asyncio.ensure_future(
            run_selections([selection], store, how, (), Budget(), print, heard.append)
        )
        if waits is not None:
            await asyncio.sleep(0.2)
            # Ctrl-C does this.
            job.cancel()
        return await job

    heard: list[Any] = []
    if waits is None:
        report = asyncio.run(run())
        assert cast(Any, list(report.rows)) == [cell for cell in range(27) if cell != fails]
        assert report.failures == (() if fails is None else ("no disk",))
    else:
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(run())
    expected = [cell for cell in range(27) if cell not in (fails, waits)]
    assert sorted(kept) == sorted(heard) == expected
