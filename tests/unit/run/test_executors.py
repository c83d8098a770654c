"""What executes, by the name that `--on` takes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.run.executing import Executor, OnEmulator
from harness.run.executors import executed_selection, executor_on
from harness.run.gpu.evaluating import OnCubins
from harness.run.gpu.packing import place_of
from harness.run.recorded_launch import RecordedLaunch
from harness.values.errors import UsageError
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
    assert executed_selection(selection, GPU) is selection
    with pytest.raises(UsageError, match="a file of PTX is executed by"):
        executed_selection(selection, EMULATOR)
