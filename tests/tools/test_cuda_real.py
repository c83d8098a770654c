"""CUDA C++ through a real nvcc of the package index, and any ptxas."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

NVCC = ("--compiler", "nvcc==13.0.88")


@pytest.fixture(scope="module")
def cuda(module_triage: Triage) -> Triage:
    for name in ("scale.cu", "factor.h"):
        shutil.copy(HERE / "kernels" / name, module_triage.folder)
    sources = {
        "rejected.cu": "__global__ void k(float *x) { x[0] = undefined_name; }\n",
        "bogus.cu": '__global__ void k(float *x) { asm volatile("bogus.f32 %0;" :: "f"(x[0])); }\n',
        "large.cu": "// config BYTES = 1024 400000\n__global__ void k(char *x) {\n"
        "    __shared__ char s[BYTES]; s[threadIdx.x] = x[0];\n"
        "    __syncthreads(); x[1] = s[BYTES / 2];\n}\n",
        "dynamic.cu": "// config BYTES = 4096 400000\n// launch block=128 shared=BYTES\n"
        "extern __shared__ char s[];\n__global__ void k(char *x) {\n"
        "    s[threadIdx.x] = x[0]; __syncthreads(); x[1] = s[64];\n}\n",
        "none.cu": "int f() { return 1; }\n",
    }
    for name, text in sources.items():
        (module_triage.folder / name).write_text(text)
    return module_triage


def test_every_kernel_of_a_file_with_every_config(cuda: Triage) -> None:
    words = ("--kernel", "scale.cu", "--sm", "90a", *NVCC)
    rows = cuda.compile(*words, code=0)["cells"]
    assert [(row["kernel"], row["config"]["UNROLL"]) for row in rows] == [
        ("scale.cu::scale", 1), ("scale.cu::zero", 1),
        ("scale.cu::scale", 4), ("scale.cu::zero", 4),
    ]  # fmt: skip
    row = rows[0]
    assert row["cell"] == "scale.cu::scale/file/UNROLL=1@sm_90a/nvcc-13.0.88/ptxas-13.0.88-bundled"
    assert {each.partition("==")[0]: each.partition("==")[2] for each in row["partners"]} == {
        "nvidia-nvvm": "13.0.88",
        "nvidia-cuda-crt": "13.0.88",
        "nvidia-cuda-runtime": "13.0.88",
        "nvidia-cuda-cccl": "13.0.85",
    }
    assert (row["compiler"], row["triton"], row["ptx_version"]) == ("nvcc", None, "9.0")
    # The block is what the launch bounds allow; where there are none, nothing is known.
    assert [(row["threads"], row["occupancy"] is None) for row in rows[:2]] == [
        (64, False),
        (None, True),
    ]
    # Four numbers for each thread take more instructions than one.
    memory = {each["config"]["UNROLL"]: each["instructions"]["memory"] for each in rows[::2]}
    assert memory[4] > memory[1]
    assert all(each["cached"] for each in cuda.compile(*words, code=0)["cells"])
    # A header of the user's is part of what is compiled.
    (cuda.folder / "factor.h").write_text("#define FACTOR 2.0f\n")
    assert not any(each["cached"] for each in cuda.compile(*words, code=0)["cells"][::2])
    (one,) = cuda.compile(
        "--kernel", "scale.cu::zero", "--sm", "100f", *NVCC, "--ptxas", "13.1.115", "--config",
        "UNROLL=1", code=0,
    )["cells"]  # fmt: skip
    assert (one["target"], one["ptxas"], one["verdict"]) == ("sm_100f", "13.1.115", "ok")


def test_a_kernel_of_a_header_that_does_nothing_is_left_out_unless_it_is_named(
    cuda: Triage,
) -> None:
    (cuda.folder / "empty.h").write_text("template <class T> __global__ void Empty() {}\n")
    text = "__global__ void none() {}\n__global__ void k(int *x) { x[0] = 1; }\n"
    call = "void f() { Empty<int><<<1, 1>>>(); }\n"
    (cuda.folder / "calls.cu").write_text(f'#include "empty.h"\n{text}{call}')
    for name, found in (("calls.cu", {"none", "k"}), ("calls.cu::Em*", {"Empty"})):
        rows = cuda.compile("--kernel", name, "--sm", "90a", *NVCC, code=0)["cells"]
        assert {row["kernel"].partition("::")[2] for row in rows} == found


@pytest.mark.parametrize(
    ("file", "verdict", "stage", "said"),
    [
        ("rejected.cu", "rejected", "nvcc", 'nvcc refuses it: identifier "undefined_name"'),
        ("bogus.cu", "ptxas_error", "cubin", "Not a name of any known instruction: 'bogus'"),
        ("dynamic.cu", "out_of_resources", "launch", "400,000 B of shared memory"),
        ("large.cu", "out_of_resources", "cubin", "needs 400,000 B"),
    ],
)
def test_failures_by_the_tool_at_fault(
    cuda: Triage, file: str, verdict: str, stage: str, said: str
) -> None:
    row, again = (
        cuda.compile("--kernel", file, "--sm", "90a", *NVCC, code=1)["cells"][-1] for _ in range(2)
    )
    assert (row["cached"], again["cached"]) == (False, True)
    assert (row["verdict"], row["stage"]) == (verdict, stage)
    assert said in row["reason"]
    assert "tmpxft" not in row["reason"]


@pytest.mark.long
def test_the_ptx_of_one_kernel_is_reduced(cuda: Triage) -> None:
    done = cuda("minimize", "--kernel", "bogus.cu", "--sm", "90a", *NVCC, "--out", "min")
    assert done.returncode == 0, done.stderr
    assert "bogus" in (cuda.folder / "min" / "min.ptx").read_text()


def test_what_cannot_be_compiled_is_one_line(cuda: Triage, tmp_path: Path) -> None:
    (cuda.folder / "binary.cu").write_bytes(b"\xff\xfe\x00")
    for words, line in (
        (("--kernel", "none.cu"), "none.cu: it defines no __global__ function"),
        (("--kernel", "scale.cu::other"), "kernel 'other' is never launched; launched are scale"),
        (("--kernel", "scale.cu::scal"), "is never launched; did you mean scale? launched are"),
        (("--kernel", "binary.cu"), "binary.cu: not CUDA C++: it holds binary data"),
        (("--kernel", "absent.cu"), "absent.cu: no such file"),
        (("--kernel", "scale.cu", "--triton", "3.6.0"), "--triton does not apply"),
    ):
        done = cuda("compile", *words, "--sm", "90a", *(NVCC if "--triton" not in words else ()))
        assert done.returncode in (1, 2, 4), (words, done.stderr)
        assert done.stdout == ""
        assert line in done.stderr, (words, done.stderr)
        assert "Traceback" not in done.stderr


@pytest.mark.long
def test_one_kernel_of_our_own_for_each_verdict(triage: Triage) -> None:
    rows = triage.compile("--kernel", "cuda_*", code=1)["cells"]
    found = {
        (row["kernel"].removeprefix("cuda_"), *map(str, row["config"].values())): row["verdict"]
        for row in rows
    }
    assert found == {
        ("ok", "1"): "ok",
        ("ok", "4"): "ok",
        ("sick_spills", "8"): "ok",
        ("sick_spills", "64"): "sick",
        ("sick_local_memory",): "sick",
        ("out_of_resources", "4096"): "ok",
        ("out_of_resources", "400000"): "out_of_resources",
        ("out_of_resources_dynamic", "4096"): "ok",
        ("out_of_resources_dynamic", "400000"): "out_of_resources",
        ("rejected",): "rejected",
        ("ptxas_error",): "ptxas_error",
        ("unsupported", "4"): "unsupported",
    }
    assert {row["compiler_version"] for row in rows} == {"13.0.88"}


@pytest.mark.long
def test_source_that_nvcc_refuses_is_reduced_as_source(cuda: Triage) -> None:
    (cuda.folder / "wrong.h").write_text("#pragma once\n#define TWICE(x) ((x) + missing_name)\n")
    (cuda.folder / "wrong.cu").write_text(
        '// config N = 3\n#include "wrong.h"\n__device__ int other(int x) { return x * N; }\n'
        "__global__ void k(int *x, int n) {\n  for (int i = 0; i < n; ++i) x[i] = other(i);\n"
        "  if (n > N) { x[0] = TWICE(n); }\n}\n"
    )
    cuda.compile("--kernel", "wrong.cu", "--sm", "90a", *NVCC, code=1)
    words = ("minimize", "--kernel", "wrong.cu", "--sm", "90a", *NVCC, "--out", "min-source")
    # Every version refuses it: none is to be installed to find one that does not.
    offline = dataclasses.replace(cuda, env={**cuda.env, "TRIAGE_OFFLINE": "1"})
    done = offline(*words)
    assert done.returncode == 0, done.stderr
    left = (cuda.folder / "min-source" / "min.cu").read_text()
    assert "missing_name" in left
    assert "include" not in left
    assert "other" not in left
    assert len(left.splitlines()) <= 4  # the macro has parameters, and stays
    document = cuda.compile("--kernel", "min-source/min.cu", "--sm", "90a", *NVCC, code=1)
    assert 'identifier "missing_name" is undefined' in document["cells"][0]["reason"]


EXECUTED = """
__global__ void halves(const float *x, float *out, int n) {
    __shared__ float parts[128];
    parts[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) out[threadIdx.x] = parts[threadIdx.x] + parts[threadIdx.x + n];
}

__global__ void unordered(const float *x, float *out) {
    __shared__ float parts[128];
    parts[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = parts[127 - threadIdx.x];
}

__global__ void beyond(const float *x, float *out) {
    out[threadIdx.x] = x[threadIdx.x + 1];
}
"""


def test_kernels_are_executed_on_inputs_by_the_names_of_their_parameters(cuda: Triage) -> None:
    (cuda.folder / "executed.cu").write_text(EXECUTED)
    buffers = ("--buffer", "x=f32[128]:random", "--buffer", "out=f32[128]")
    inputs = (*buffers, "--block", "128", "--sm", "80", *NVCC, "--json")

    def run(kernel: str, *words: str, code: int) -> dict[str, Any]:
        done = cuda("run", f"executed.cu::{kernel}", *inputs, *words)
        assert done.returncode == code, done.stderr + done.stdout[-2000:]
        [row] = msgspec.json.decode(done.stdout)["runs"]
        found: dict[str, Any] = row
        return found

    row = run("halves", "--scalar", "n=64", code=0)
    assert (row["run"], row["triton"]) == ("consistent", None)
    assert row["reference"] == "nvcc 13.0.88 with -Xcicc -O0, emulated"
    assert [(one["name"], one["differing"]) for one in row["outputs"]] == [("out", 0)]
    # What the source itself does is no matter of a level: it has it at all of them.
    row = run("unordered", code=1)
    assert "the same source with -Xcicc -O0 or -Xcicc -O1 has a race, too" in row["run_reason"]
    assert row["races"][0]["source_lines"] == ["executed.cu:12", "executed.cu:11"]
    row = run("beyond", code=1)
    assert row["run"] == "memory_fault"
    assert "-O1 has a fault, too" in row["run_reason"]
    assert "(executed.cu:16)" in row["run_reason"]


def test_an_input_that_fits_no_parameter_names_those_of_the_source(cuda: Triage) -> None:
    (cuda.folder / "executed.cu").write_text(EXECUTED)
    words = ("run", "executed.cu::beyond", "--sm", "80", *NVCC)
    done = cuda(*words, "--buffer", "x=f32[8]", "--buffer", "y=f32[8]", "--buffer", "z=f32[8]")
    assert "z: no parameter of _Z6beyondPKfPf is left; it has x, out" in done.stderr
    assert "Traceback" not in done.stderr


CONTRACTED = """
__global__ void apart(const float *a, const float *b, float *out) {
    float x = a[blockIdx.x], y = b[blockIdx.x];
    float u = x * 1.000001f, v = y * 0.999999f;
    out[blockIdx.x] = x * y - u * v;
}
"""


def test_levels_that_round_in_other_ways_accuse_nobody_and_a_sample_is_held_to_them(
    cuda: Triage,
) -> None:
    """At -O0 no product is contracted to fma, so that two that nearly cancel differ."""
    (cuda.folder / "apart.cu").write_text(CONTRACTED)
    inputs = [f"{name}=f32[64]:random" for name in "ab"] + ["out=f32[64]"]
    words = [word for each in inputs for word in ("--buffer", each)]
    words += ["--sm", "80", *NVCC, "--grid", "64", "--block", "1", "--programs", "4", "--json"]
    done = cuda("run", "apart.cu", *words)
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    [row] = msgspec.json.decode(done.stdout)["runs"]
    assert row["run"] == "consistent", row["run_reason"]
    assert "4 of 64 programs were run" in row["run_reason"]
