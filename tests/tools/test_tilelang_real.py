"""TileLang through its real packages: launch code captured, lowered, compiled by nvcc and ptxas."""

from __future__ import annotations

import json

import pytest
from conftest import Triage

pytestmark = [pytest.mark.tools, pytest.mark.long]

HOUR = 3600

# By kernel: the verdict, the stage, and what the reason names.
SHOWN = {
    "ok": ("ok", None, ""),
    "sick_spills": ("sick", "cubin", "spills"),
    "out_of_resources": ("out_of_resources", "launch", "B of shared memory"),
    "rejected": ("rejected", "tir", "K shape check failed"),
    "rejected_nvcc": ("rejected", "nvcc", 'identifier "undefined_name"'),
    "ptxas_error": ("ptxas_error", "cubin", "'bogus'"),
    "pass_failure": ("pass_failure", "cuda", "pass "),
    "unsupported": ("unsupported", "cuda", "the launch compiles for hip"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_kernel_of_our_own_for_each_verdict(module_triage: Triage, name: str) -> None:
    triage, (verdict, stage, said) = module_triage, SHOWN[name]
    code = {"ok": 0, "sick": 0, "unsupported": 4}.get(verdict, 1)
    (row,) = triage.compile("--kernel", f"tilelang_{name}", "--sm", "90a", code=code)["cells"]
    assert (row["verdict"], row["stage"]) == (verdict, stage), row["reason"]
    assert said in row["reason"]
    assert (row["compiler"], row["triton"]) == ("tilelang", None)
    partners = dict(each.split("==") for each in row["partners"])
    assert partners["apache-tvm-ffi"] == "0.1.9"
    assert partners["nvidia-cuda-nvcc"] == partners["nvidia-nvvm"]


def test_a_tuner_and_what_only_tilelang_knows(module_triage: Triage) -> None:
    triage = module_triage
    words = ("--kernel", "tilelang_tuned", "--sm", "90a")
    rows = triage.compile(*words, code=1)["cells"]
    configs = [(row["config"]["block_k"], row["config"]["num_stages"]) for row in rows]
    assert configs == [(32, 2), (32, 6), (128, 2), (128, 6)]
    # Two tiles of half precision a stage, and barriers; the sums leave through the same memory.
    tiles = [2 * 2 * 128 * block_k * stages for block_k, stages in configs]
    assert all(
        0 <= row["shared"] - size < 2048 for row, size in zip(rows[1:], tiles[1:], strict=True)
    )
    assert [row["verdict"] for row in rows] == ["ok", "ok", "ok", "out_of_resources"]
    # TileLang adds a warp group that only copies.
    assert {row["threads"] for row in rows} == {256}
    assert all(row["occupancy"] for row in rows[:3])
    assert all(row["cached"] for row in triage.compile(*words, code=1)["cells"])
    done = triage("show", rows[0]["short"], "--stage", "cuda")
    assert "__global__" in done.stdout
    (row,) = triage.compile(
        *words, "--config", "block_k=32,num_stages=2", "--ptxas", "13.1.115", code=0
    )["cells"]
    assert (row["ptxas"], row["verdict"]) == ("13.1.115", "ok")


def test_launch_code_in_a_file(module_triage: Triage) -> None:
    triage = module_triage
    text = (
        "import torch\nimport tilelang\nimport tilelang.language as T\n\n\n"
        "@tilelang.jit(out_idx=[-1])\ndef twice(n):\n    @T.prim_func\n"
        "    def twice_kernel(A: T.Tensor((n,), 'float32'), B: T.Tensor((n,), 'float32')):\n"
        "        with T.Kernel(T.ceildiv(n, 128), threads=128) as bx:\n"
        "            for i in T.Parallel(128):\n"
        "                B[bx * 128 + i] = A[bx * 128 + i] * 2\n\n    return twice_kernel\n\n\n"
        "def launch(n=1024):\n    x = torch.randn(n, device='cuda')\n"
        "    y = twice(n)(x)\n    assert y.shape == x.shape\n    assert y.is_cuda\n"
    )
    (triage.folder / "twice.py").write_text(text)
    words = ("--sm", "90a", "--compiler", "tilelang==0.1.8")
    (row,) = triage.compile("--kernel", "twice.py", *words, code=0)["cells"]
    assert row["cell"] == (
        "twice.py::twice_kernel/launch/default@sm_90a/tilelang-0.1.8/ptxas-13.0.88-bundled"
    )
    for body, code, said in (
        ("import os\n    os.abort()", 4, "ended its process"),
        ("raise ValueError('no')", 4, "raised ValueError: no"),
        ("import absent_package", 4, "No module named 'absent_package'"),
    ):
        (triage.folder / "bad.py").write_text(f"import tilelang\n\n\ndef launch():\n    {body}\n")
        done = triage("compile", "--kernel", "bad.py", *words)
        assert done.returncode in (2, code), done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    done = triage("compile", "--kernel", "twice.py", "--sm", "90a", "--compiler", "tilelang==9.9")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_upstreams_mimo_kernels(module_triage: Triage) -> None:
    triage = module_triage
    words = ("--sm", "90a", "--timeout", "1800")
    rows = [
        triage.compile("--kernel", f"mamba3_mimo_{name}", *words, code=0, timeout=HOUR)["cells"][0]
        for name in ("fwd", "bwd_fwd", "bwd_bwd")
    ]
    assert [row["n_regs"] for row in rows] == [223, 255, 255]
    assert [row["shared"] for row in rows] == [59_520, 65_664, 146_080]
    assert [row["occupancy"] for row in rows] == [0.125] * 3
    (row,) = triage.compile(
        "--kernel", "mamba3_mimo_bwd_fwd", "--set", "tma=true", *words, code=1, timeout=HOUR
    )["cells"]
    assert (row["verdict"], row["stage"]) == ("pass_failure", "cuda")
    assert "Cannot detect TMA layout" in row["reason"]


def test_where_the_backward_pass_stops_being_lowered(module_triage: Triage) -> None:
    words = ("--kernel", "mamba3_mimo_bwd_bwd", "--sm", "90a", "--axis", "compiler", "--json")
    ends = ("--good", "0.1.12", "--bad", "0.1.13", "--timeout", "1800")
    done = json.loads(module_triage("bisect", *words, *ends, timeout=HOUR).stdout)
    assert (done["last_good"], done["first_bad"]) == ("0.1.12", "0.1.13")


def test_a_kernel_of_our_own_fails_as_the_backward_pass_does(module_triage: Triage) -> None:
    triage, words = module_triage, ("--kernel", "tilelang_reduced_view")
    (row,) = triage.compile(*words, code=1)["cells"]
    assert (row["verdict"], row["stage"]) == ("pass_failure", "cuda")
    big = ("--kernel", "mamba3_mimo_bwd_bwd", "--launch", "backward", "--set", "rank=2")
    less = ("--set", "has_z=false", "--set", "has_d=false")
    (other,) = triage.compile(*big, *less, "--compiler", "tilelang==0.1.13", code=1, timeout=HOUR)[
        "cells"
    ]
    assert row["signature"] == other["signature"]
    (plain,) = triage.compile(*words, "--set", "rows=1", code=0)["cells"]
    (older,) = triage.compile(*words, "--compiler", "tilelang==0.1.12", code=0)["cells"]
    assert (plain["verdict"], older["verdict"]) == ("ok", "ok")


def test_a_failure_is_reduced_to_a_file_that_tilelang_alone_takes(module_triage: Triage) -> None:
    triage = module_triage
    words = (
        "--kernel",
        "tilelang_pass_failure",
        "--sm",
        "90a",
        "--max-tries",
        "40",
        "--out",
        "min",
    )
    done = json.loads(triage("minimize", *words, "--json", timeout=HOUR).stdout)
    assert (done["level"], done["measure"]) == ("source", "lines of functions")
    assert done["bytes"] < done["original"]["bytes"]
    text = (triage.folder / "min" / "min.py").read_text()
    assert "tilelang.lower(kernel, target=target)" in text
    again = ("--kernel", "min/min.py", "--sm", "90a", "--compiler", "tilelang==0.1.8")
    (row,) = triage.compile(*again, code=1)["cells"]
    assert (row["verdict"], row["signature"]) == ("pass_failure", done["signature"])
    script = (triage.folder / "min" / "repro.sh").read_text()
    assert "--no-deps tilelang==0.1.8 apache-tvm-ffi==0.1.9" in script


def test_a_night_takes_the_version_that_the_repro_names(module_triage: Triage) -> None:
    """And not the newest that happens to be installed."""
    triage = module_triage
    triage.compile("--kernel", "tilelang_ok", "--compiler", "tilelang==0.1.12", code=0)
    (triage.folder / "matrix.yaml").write_text(
        "version: 1\ntoolchains: {ptxas: {spec: [bundled]}}\ntargets: [sm_90a]\n"
        "kernels: [tilelang_ok]\n"
    )
    done = json.loads(triage("matrix", "run", "--json", timeout=HOUR).stdout)
    assert done["cells"] == {"ok": 1}
    (row,) = [
        json.loads(line) for line in triage("export", "--format", "jsonl").stdout.splitlines()
    ]
    assert row["compiler_version"] == "0.1.8"
