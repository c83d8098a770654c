"""Capture, lowering and assembly work the same on every Triton that is supported."""

from __future__ import annotations

import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

MANY = ["--kernel", str(HERE / "kernels" / "many.py")]
ONE = ["--config", "BLOCK=64,num_warps=1"]


@pytest.mark.parametrize(
    "version",
    [
        "3.2.0",
        "latest",
        *(
            pytest.param(version, marks=pytest.mark.long)
            for version in ("3.3.1", "3.4.0", "3.5.1", "3.6.0", "3.7.1", "3.8.0")
        ),
    ],
)
def test_a_kernel_compiles(triage: Triage, version: str) -> None:
    words = [*MANY, *ONE, "--sm", "80", "--sm", "90a", "--triton", version]
    rows = triage.compile(*words, code=0)["cells"]
    assert [row["target"] for row in rows] == ["sm_80", "sm_90a"]
    for row in rows:
        assert row["verdict"] == "ok"
        assert row["config"] == {"BLOCK": 64, "num_warps": 1, "num_stages": 1}
        assert f"--gpu-name={row['target']}" in row["ptxas_flags"]
        assert row["n_regs"] > 0
        assert row["spill_stores"] == 0
        assert row["occupancy"] > 0
        assert row["instructions"]["memory"] > 0
        assert row["exit_code"] == 0


def test_a_triton_on_which_the_launch_fails_does_not_stop_the_others(triage: Triage) -> None:
    (triage.folder / "picky.py").write_text(
        (HERE / "kernels" / "many.py").read_text()
        + "\nif triton.__version__ == '3.2.0':\n    raise RuntimeError('too old for me')\n"
    )
    words = ["--kernel", "picky.py", *ONE, "--sm", "90a", "--triton"]
    alone = triage("compile", *words, "3.2.0")
    assert alone.returncode == 2
    assert "too old for me" in alone.stderr
    # The two ends of what is supported, and nothing between.
    document = triage.compile(*words, "==3.2.0", "--triton", "latest", code=4)
    assert [row["verdict"] for row in document["cells"]] == ["ok"]
    [failure] = document["summary"]["failures"]
    assert "too old for me" in failure
    assert "3.2.0" in failure
