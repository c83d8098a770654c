"""The pair that a torch of the package index brings along, asked of a real Triton."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from conftest import Triage

from harness.io.toolchains.install import install_triton

pytestmark = pytest.mark.tools

# That torch needs exactly this Triton, which has two ptxas.
TORCH, TRITON = "2.10.0", "3.6.0"
PTXAS = {"sm_90a": "12.8.93", "sm_100a": "12.9.86"}


def document(triage: Triage, name: str, text: str, code: int) -> dict[str, Any]:
    (triage.folder / name).write_text(text)
    done = triage("pins", name, "--sm", "90a", "--sm", "100a", "--json")
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def test_the_pair_of_a_torch_is_asked_of_the_index_and_of_its_triton(triage: Triage) -> None:
    install_triton(TRITON)
    found = document(triage, "requirements.txt", f"torch=={TORCH}+cu128\n", 4)
    assert (found["torch"], found["triton"]) == (TORCH, TRITON)
    assert {pair["target"]: pair["ptxas"] for pair in found["targets"]} == PTXAS
    assert not any(pair["known"] for pair in found["targets"])


def test_a_triton_that_a_torch_does_not_go_with_is_refused(triage: Triage) -> None:
    lines = "[[package]]\nname = 'torch'\nversion = '{}'\n[[package]]\nname = 'triton'\nversion = "
    found = document(triage, "uv.lock", (lines + "'{}'\n").format(TORCH, "3.4.0"), 2)
    assert "no versions go together with torch==2.10.0, triton==3.4.0" in found["error"]
