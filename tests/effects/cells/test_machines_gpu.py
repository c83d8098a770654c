"""The GPU of this machine is the target where nothing names another."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import HERE

from harness.cells.selection import select, select_all
from harness.cells.spelling import SelectionOptions
from harness.io.processes import machine
from harness.values.errors import UsageError

FILE = str(HERE / "kernels" / "scale.cu")


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "_GPUS", tmp_path)
    return tmp_path


def put(folder: Path, number: int, name: str) -> None:
    # As driver 580 writes it.
    (folder / str(number)).mkdir()
    (folder / str(number) / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 41\n")


def test_its_gpu_is_the_default_and_is_said(gpus: Path) -> None:
    put(gpus, 0, "NVIDIA H200")
    put(gpus, 1, "NVIDIA H200")
    words = SelectionOptions(kernel=FILE)
    for selection in (select(words), select_all(words)[0]):
        assert [str(target) for target in selection.targets] == ["sm_90a"]
        assert selection.notes[0] == "--sm is this machine's GPU: NVIDIA H200"


def test_what_is_named_comes_first(gpus: Path) -> None:
    put(gpus, 0, "NVIDIA H200")
    selection = select(SelectionOptions(kernel=FILE, sm=["t4"]))
    assert [str(target) for target in selection.targets] == ["sm_75"]
    assert not [note for note in selection.notes if "machine" in note]


def test_without_one_the_error_lists_names(gpus: Path) -> None:
    with pytest.raises(UsageError, match=r"--sm is missing.*H100 \(sm_90a\), B200 \(sm_100a\)"):
        select(SelectionOptions(kernel=FILE))
