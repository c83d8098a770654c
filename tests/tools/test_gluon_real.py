"""Gluon, a dialect of Triton: its own first stage, and an interface that moves."""

from __future__ import annotations

import msgspec
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

REMOVED = """\
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def twice(x, OTHER: gl.constexpr):
    places = gl.arange(0, 128, layout=gl.BlockedLayout([1], [32], [4], [0]))
    if OTHER == 1:
        gl.no_such_name(places)
    if OTHER == 2:
        gl.store(x + places, gl.load(x + places, no_such_option=True))
    if OTHER == 3:
        gl.static_assert(OTHER < 3, "three is too many")
    gl.store(x + places, gl.load(x + places) * 2)


def launch(other=0):
    twice[(1,)](torch.randn(128, device="cuda"), OTHER=other, num_warps=4)
"""


def test_stages_of_its_own(module_triage: Triage) -> None:
    (row,) = module_triage.compile("--kernel", "gluon_wgmma_matmul", code=0)["cells"]
    assert row["instructions"]["tensor"] > 0
    glir = module_triage("show", row["short"], "--stage", "glir").stdout
    assert "gluon" in glir
    assert "ttg.warp_group_dot" in module_triage(
        "show", row["short"], "--stage", "ttgir"
    ).stdout or ("warp_group_dot" in glir)
    done = module_triage("show", row["short"], "--stage", "ttir")
    assert done.returncode == 3
    assert "has no ttir" in done.stderr


@pytest.mark.parametrize(
    ("other", "verdict", "said", "code"),
    [
        (0, "ok", "", 0),
        (1, "unsupported", "no_such_name", 4),
        (2, "unsupported", "no_such_option", 4),
        (3, "rejected", "three is too many", 1),
    ],
)
def test_another_interface_is_no_regression(
    module_triage: Triage, other: int, verdict: str, said: str, code: int
) -> None:
    (module_triage.folder / "moved.py").write_text(REMOVED)
    words = ("--kernel", "moved.py", "--sm", "90a", "--set", f"other={other}")
    (row,) = module_triage.compile(*words, code=code)["cells"]
    assert (row["verdict"], row["stage"]) == (verdict, "glir" if other else None), row["reason"]
    assert said in row["reason"]


@pytest.mark.long
def test_its_ttgir_is_reduced(module_triage: Triage) -> None:
    words = ("--kernel", "gluon_wgmma_matmul", "--sm", "90a", "--level", "ttgir")
    done = module_triage("minimize", *words, "--while", "n_regs>=32", "--out", "smaller")
    assert done.returncode == 0, done.stderr
    assert "ttg." in (module_triage.folder / "smaller" / "min.ttgir").read_text()


@pytest.mark.parametrize(
    ("kernel", "sm"),
    [
        ("copy_pipeline", "sm_80"),
        pytest.param("wgmma_matmul", "sm_90a", marks=pytest.mark.long),
        pytest.param("tcgen05_matmul", "sm_100a", marks=pytest.mark.long),
    ],
)
def test_what_is_never_interpreted_is_executed(triage: Triage, kernel: str, sm: str) -> None:
    """`TRITON_INTERPRET` means nothing to Gluon: its launches are handed over all the same."""
    done = triage("run", "--kernel", f"gluon_{kernel}", "--sm", sm, "--triton", "3.8.0", "--json")
    assert done.returncode == 0, done.stderr
    [row] = msgspec.json.decode(done.stdout)["runs"]
    assert (row["run"], row["target"]) == ("right", sm)
    assert row["instructions_run"] > 100_000
