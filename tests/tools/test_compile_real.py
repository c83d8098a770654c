"""The main job on the real kernel, real Tritons, real ptxas; figures from the project's facts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

KERNEL = ["--kernel", "mamba3_siso_bwd_dqkv"]
ONE_STAGE = ["--config", "num_stages=1"]


def cells(document: dict[str, Any], **config: int | None) -> list[dict[str, Any]]:
    return [
        row
        for row in document["cells"]
        if all(row["config"].get(name) == value for name, value in config.items())
    ]


@pytest.mark.long
def test_the_main_kernel_with_one_stage(module_triage: Triage) -> None:
    document = module_triage.compile(*KERNEL, "--sm", "100a", *ONE_STAGE, code=1)
    rows = document["cells"]
    assert document["schema"] == 1
    assert {(row["triton"], row["ptxas"], row["target"]) for row in rows} == {
        ("3.6.0", "12.9.86", "sm_100a")
    }
    check_traps_and_spills(rows, stages=1)


@pytest.mark.long
def test_every_config_of_the_main_kernel(module_triage: Triage) -> None:
    document = module_triage.compile(*KERNEL, "--sm", "100a", code=1)
    check_traps_and_spills(document["cells"], stages=3)
    [group] = document["summary"]["survivorship"]
    assert group["headline"] == "27 configs: 9 compile, all sick; 18 do not work."
    assert group["groups"][0]["where"] == "num_warps=4|8"


def check_traps_and_spills(rows: list[dict[str, Any]], *, stages: int) -> None:
    """With four and eight warps there is a stub, with two there are spills, at all stages."""
    assert len(rows) == 9 * stages
    stubs = [row for row in rows if row["verdict"] == "trap_stub"]
    assert len(stubs) == 6 * stages
    assert {row["config"]["num_warps"] for row in stubs} == {4, 8}
    assert {row["tmem_size"] for row in stubs} == {544}
    assert {row["stage"] for row in stubs} == {"llir"}
    assert all("544" in row["reason"] and "512" in row["reason"] for row in stubs)
    assert {row["exit_code"] for row in stubs} == {0}
    assert len({row["signature"] for row in stubs}) == 1
    sick = [row for row in rows if row["verdict"] == "sick"]
    assert len(sick) == 3 * stages
    assert {row["config"]["num_warps"] for row in sick} == {2}
    spills = {
        row["config"].get("maxnreg"): (row["n_regs"], row["spill_stores"], row["spill_loads"])
        for row in sick
        if row["config"]["num_stages"] == 1
    }
    assert spills == {None: (32, 44324, 50224), 128: (128, 14784, 16828), 256: (255, 7962, 9136)}
    assert all(
        row["instructions"]["local"] > 0 and row["instructions"]["tensor"] > 0 for row in sick
    )
    assert all(0 < row["occupancy"] < 0.3 and row["occupancy_limiter"] for row in sick)


@pytest.mark.parametrize(
    "config", ["num_warps=4,num_stages=1", pytest.param("num_stages=1", marks=pytest.mark.long)]
)
def test_a_repeat_compiles_nothing_and_says_the_same(module_triage: Triage, config: str) -> None:
    words = [*KERNEL, "--sm", "100a", "--config", config]
    first = module_triage.compile(*words, code=1)
    again = module_triage.compile(*words, code=1)
    assert all(row["cached"] for row in again["cells"])
    assert again["summary"]["cpu_seconds"] == 0
    for before, after in zip(first["cells"], again["cells"], strict=True):
        assert {**before, "cached": True} == after


def test_a_table_for_people(module_triage: Triage) -> None:
    done = module_triage("compile", *KERNEL, "--sm", "100a", "--config", "num_warps=4,num_stages=1")
    assert done.returncode == 1
    assert "trap_stub" in done.stdout
    assert "544 columns of tensor memory, sm_100a has 512" in done.stdout
    assert "ptxas never saw the real kernel" in done.stdout
    assert "triage compile --kernel mamba3_siso_bwd_dqkv --sm 100a --triton latest" in done.stdout
    assert "\x1b[" not in done.stdout


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        ("ttir", b"tt.func"),
        ("ttgir", b"ttg."),
        ("llir", b"define"),
        ("ptx", b"trap;"),
        ("sass", b"BPT"),
        ("log", b"Used 4 registers"),
        ("meta", b'"tmem_size": 544'),
        ("source", b"tt."),
        ("live", b"live registers, first at"),
    ],
)
def test_artifacts_can_be_shown(module_triage: Triage, stage: str, words: bytes) -> None:
    document = module_triage.compile(
        *KERNEL, "--sm", "100a", "--config", "num_warps=4,num_stages=1,maxnreg=none", code=1
    )
    [row] = document["cells"]
    shown = module_triage("show", row["short"], "--stage", stage)
    assert shown.returncode == 0
    assert words.decode() in shown.stdout
    whole = json.loads(module_triage("show", row["cell"]).stdout)
    assert whole["cell"] == row["cell"]


@pytest.mark.long
def test_the_ice_follows_the_ptxas_over_the_same_program(module_triage: Triage) -> None:
    words = [
        *KERNEL,
        "--sm",
        "100a",
        "--set",
        "chunk_size=32",
        "--config",
        "num_warps=8,maxnreg=none",
    ]
    seen = module_triage.compile(*words, "--ptxas", "13.1.115", code=1)
    frozen = module_triage.compile(*words, "--ptxas", "13.1.115", "--freeze-ptx", code=1)
    for document, version in ((seen, "9.1"), (frozen, "8.8")):
        by_stages = {row["config"]["num_stages"]: row for row in document["cells"]}
        assert [by_stages[stages]["verdict"] for stages in (1, 2, 3)] == [
            "ptxas_ice",
            "ptxas_ice",
            "sick",
        ]
        for row in document["cells"]:
            assert row["ptx_version"] == version
            assert row["ptx_same_as_bundled"] is True
            assert row["tmem_size"] == 256
        ice = by_stages[1]
        assert (ice["code"], ice["exit_code"], ice["stage"]) == ("C7907", 255, "cubin")
        assert ice["n_regs"] is None
    both = seen["cells"] + frozen["cells"]
    assert len({row["signature"] for row in both if row["verdict"] == "ptxas_ice"}) == 1
    assert len({row["ptx_body_sha256"] for row in both}) == 3


@pytest.mark.long
def test_raw_ptx_shows_the_same_history(module_triage: Triage) -> None:
    document = module_triage.compile(
        *KERNEL,
        "--sm",
        "100a",
        "--set",
        "chunk_size=32",
        "--config",
        "num_warps=8,num_stages=1,maxnreg=none",
        code=0,
    )
    [row] = document["cells"]
    ptx = module_triage("show", row["short"], "--stage", "ptx").stdout
    (module_triage.folder / "case.ptx").write_text(ptx)
    raw = module_triage.compile(
        "--kernel", "case.ptx", "--ptxas", "12.8.93", "--ptxas", ">=13.0.88,<=13.3.33", code=1
    )
    verdicts = {cell["ptxas"]: cell["verdict"] for cell in raw["cells"]}
    assert verdicts.pop("12.8.93") == "unsupported"
    assert verdicts == {
        "13.0.88": "sick",
        "13.1.80": "ptxas_ice",
        "13.1.115": "ptxas_ice",
        "13.2.51": "ptxas_ice",
        "13.2.78": "ptxas_ice",
        "13.2.86": "ptxas_ice",
        "13.3.33": "sick",
    }


@pytest.mark.parametrize(
    ("target", "shared", "limit"),
    [("90a", 255512, 232448), pytest.param("120a", None, 101376, marks=pytest.mark.long)],
)
def test_shared_memory_overflow_is_told_at_compile_time(
    module_triage: Triage, target: str, shared: int | None, limit: int
) -> None:
    document = module_triage.compile(
        *KERNEL, "--sm", target, "--config", "num_warps=4,num_stages=3,maxnreg=none", code=1
    )
    [row] = document["cells"]
    assert row["verdict"] == "out_of_resources"
    assert row["stage"] == "launch"
    assert row["shared"] > limit
    assert shared in (None, row["shared"])
    assert f"{row['shared']:,} B" in row["reason"]
    assert f"{limit:,} B" in row["reason"]


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.8.0", "3.9.0"])
def test_newer_tritons_halve_the_tensor_memory_of_one_stage(
    module_triage: Triage, version: str
) -> None:
    document = module_triage.compile(
        *KERNEL,
        "--sm",
        "100a",
        "--triton",
        version,
        "--config",
        "num_warps=4,num_stages=1|2,maxnreg=none",
        code=1,
    )
    one, two = document["cells"]
    assert one["verdict"] in ("ok", "sick")
    assert one["tmem_size"] == 256
    assert (two["verdict"], two["tmem_size"]) == ("trap_stub", 576)


def test_a_triton_that_rejects_the_kernel(module_triage: Triage) -> None:
    document = module_triage.compile(
        *KERNEL,
        "--sm",
        "100a",
        "--triton",
        "3.4.0",
        "--config",
        "num_warps=4,num_stages=1,maxnreg=none",
        code=1,
    )
    [row] = document["cells"]
    assert (row["verdict"], row["stage"]) == ("rejected", "ttir")
    assert "CompilationError" in row["reason"]
    assert row["ptx_sha256"] is None
    assert row["n_regs"] is None
