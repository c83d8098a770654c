"""Kernels of other packages, captured from the unmodified sources of their pinned sdists."""

from __future__ import annotations

import msgspec
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

# One launch function each: those of a folder share the capture.
CAPTURED = {
    "liger_rms_norm_*": {"liger_rms_norm_fwd", "liger_rms_norm_bwd"},
    "liger_geglu_*": {"liger_geglu_fwd", "liger_geglu_bwd"},
    "conch_silu_and_mul": {"conch_silu_and_mul"},
}


@pytest.mark.parametrize("pattern", CAPTURED)
def test_kernels_of_a_package_compile(module_triage: Triage, pattern: str) -> None:
    document = module_triage.compile("--kernel", pattern, "--sm", "90a", code=0)
    assert {row["kernel"] for row in document["cells"]} == CAPTURED[pattern]
    assert {row["verdict"] for row in document["cells"]} == {"ok"}


@pytest.mark.long
def test_helion_is_compiled_for_each_of_its_configs(module_triage: Triage) -> None:
    document = module_triage.compile("--kernel", "helion_*", "--sm", "90a", code=0)
    configs = {row["config"].get("block_sizes_0") for row in document["cells"]}
    assert [row["kernel"] for row in document["cells"]].count("helion_matmul") == 2
    assert {64, 128} <= configs
    assert {row["verdict"] for row in document["cells"]} == {"ok"}


@pytest.mark.long
def test_helion_is_executed_on_the_tensors_that_it_is_called_with(module_triage: Triage) -> None:
    done = module_triage("run", "--kernel", "helion_softmax", "--sm", "80", "--json")
    assert done.returncode == 0, done.stderr
    [row] = msgspec.json.decode(done.stdout)["runs"]
    assert row["run"] in ("right", "as_interpreted", "consistent", "ran")
    assert row["ctas_run"] == row["ctas"] > 1


def test_a_refusal_of_upstream_is_told_in_its_words(module_triage: Triage) -> None:
    words = ["--kernel", "fla_gated_delta_rule_bwd_dqkwg", "--sm", "90a", "--triton", "3.6.0"]
    done = module_triage("compile", *words)
    assert done.returncode == 2
    assert "produces incorrect results" in done.stderr
