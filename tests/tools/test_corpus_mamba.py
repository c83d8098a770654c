"""Mamba's kernels, captured from upstream's own launch code; counts from the facts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

# Kernel -> configs that fit / that ask for too much shared memory / trap stubs, on each target, as
# measured by hand before this program was written; without `maxnreg`, which upstream added later.
SM_80, SM_90A, SM_100A, SM_120A = range(4)
FACTS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "mamba3_siso_fwd": ((9, 0, 0), (9, 0, 0), (9, 0, 0), (6, 3, 0)),
    "mamba3_siso_bwd_dqkv": ((6, 3, 0), (7, 2, 0), (3, 0, 6), (3, 6, 0)),
    "mamba3_siso_bwd_rotary_bias_angles": ((9, 0, 0),) * 4,
    "mamba3_siso_bwd_dzdo": ((18, 0, 0),) * 4,
    "mamba3_siso_bwd_ddt_dtrap_dinput_states": ((27, 0, 0),) * 4,
    "mamba3_siso_bwd_dk_state_post": ((1, 0, 0),) * 4,
    "mamba3_angle_dt_fwd": ((9, 0, 0),) * 4,
    "mamba3_angle_dt_bwd": ((9, 0, 0),) * 4,
    "mamba2_chunk_cumsum_fwd": ((7, 0, 0),) * 4,
    "mamba2_chunk_cumsum_bwd": ((7, 0, 0),) * 4,
    "mamba2_bmm_chunk_fwd": ((9, 0, 0),) * 4,
    "mamba2_bmm_chunk_bwd": ((9, 0, 0), (9, 0, 0), (9, 0, 0), (8, 1, 0)),
    "mamba2_chunk_state_fwd": ((9, 0, 0), (9, 0, 0), (9, 0, 0), (8, 1, 0)),
    "mamba2_state_passing_fwd": ((6, 0, 0),) * 4,
    "mamba2_state_passing_bwd": ((6, 0, 0),) * 4,
    "mamba2_chunk_scan_fwd": ((11, 0, 0), (10, 1, 0), (11, 0, 0), (8, 3, 0)),
    "mamba2_chunk_scan_chunk_state_bwd_dx": ((9, 0, 0), (8, 1, 0), (9, 0, 0), (8, 1, 0)),
    "mamba2_chunk_state_bwd_db": ((8, 0, 0),) * 4,
    "mamba2_chunk_scan_bwd_dc": ((8, 0, 0),) * 4,
    "mamba2_chunk_scan_bwd_dcb": ((6, 0, 0),) * 4,
    "mamba2_chunk_scan_bwd_ddacs_stable": ((6, 0, 0),) * 4,
    "mamba2_chunk_scan_bwd_dstates": ((9, 0, 0),) * 4,
    "mamba2_chunk_scan_bwd_dz": ((4, 0, 0),) * 4,
}
TARGETS = {"sm_80": SM_80, "sm_90a": SM_90A, "sm_100a": SM_100A, "sm_120a": SM_120A}


def counts(rows: list[dict[str, Any]]) -> tuple[int, int, int]:
    found = Counter(row["verdict"] for row in rows)
    compiles = found.pop("ok", 0) + found.pop("sick", 0)
    too_large, stubs = found.pop("out_of_resources", 0), found.pop("trap_stub", 0)
    assert not found, found
    return compiles, too_large, stubs


def agree(document: dict[str, Any]) -> set[str]:
    """Check every kernel and target of a document; the kernels that it holds."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in document["cells"]:
        groups.setdefault((row["kernel"], row["launch"], row["target"]), []).append(row)
    for (kernel, launch, target), rows in groups.items():
        assert counts(rows) == FACTS[kernel][TARGETS[target]], (kernel, launch, target)
    return {kernel for kernel, _, _ in groups}


@pytest.mark.long
@pytest.mark.parametrize("target", ["80", "90a", "100a", "120a"])
def test_every_kernel_agrees_with_the_facts(module_triage: Triage, target: str) -> None:
    words = ["--kernel", "mamba*", "--config", "maxnreg=none", "--sm", target]
    document = module_triage.compile(*words, code=0 if target == "80" else 1, timeout=3000)
    assert agree(document) == set(FACTS)


@pytest.mark.long
@pytest.mark.parametrize("kernel", ["mamba2_state_passing_bwd", "mamba3_angle_dt_bwd"])
def test_a_backward_kernel_reached_through_autograd(module_triage: Triage, kernel: str) -> None:
    document = module_triage.compile("--kernel", kernel, "--sm", "90a", code=0)
    assert agree(document) == {kernel}


@pytest.mark.long
def test_kernels_of_one_launch_share_its_capture(module_triage: Triage) -> None:
    words = ["--kernel", "mamba2_c*_fwd", "--sm", "120a", "--config", "num_warps=8"]
    document = module_triage.compile(*words, code=1)
    too_large = [row for row in document["cells"] if row["verdict"] == "out_of_resources"]
    assert {row["kernel"] for row in too_large} <= {
        "mamba2_chunk_scan_fwd",
        "mamba2_chunk_state_fwd",
    }
    assert all(row["shared"] > 101_376 for row in too_large)


@pytest.mark.parametrize(
    "launch", [pytest.param("gqa", marks=pytest.mark.long), "without_d", "states", "varlen"]
)
def test_the_main_kernel_in_its_other_launches(module_triage: Triage, launch: str) -> None:
    words = ["--kernel", "mamba3_siso_bwd_dqkv", "--launch", launch]
    config = ["--config", "num_warps=8,num_stages=1,maxnreg=none"]
    [row] = module_triage.compile(*words, *config, "--sm", "100a", code=1)["cells"]
    assert (row["verdict"], row["tmem_size"], row["launch"]) == ("trap_stub", 544, launch)
