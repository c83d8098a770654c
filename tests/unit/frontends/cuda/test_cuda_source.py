from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from harness.frontends.cuda.compilers import judge_nvcc, only_its_check_failed
from harness.frontends.cuda.source import (
    block_of,
    bounds_in,
    configs_of,
    display_name,
    kernels_in,
    kernels_of,
    parameters_in,
    sources_sha256,
)
from harness.values.errors import UsageError
from harness.values.outcome import Lowering, ProcessEnd

FILE = Path("k.cu")


@pytest.mark.parametrize(
    ("body", "is_empty"),
    [
        ("\n\n\tret;\n\n", True),
        ("\n\t.loc\t1 3 5\n$L__func_begin0:\n// %bb.0:\n\tret;\n$L__end:\n", True),
        (".reg .b32 %r<2>;\n\tmov.u32 %r1, 0;\n\tret;\n", False),
        ("bra done;\ndone:\nret;\n", False),
    ],
)
def test_a_kernel_that_returns_at_once_is_empty(body: str, *, is_empty: bool) -> None:
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    other = ".visible .entry kk()\n{\n.reg .b32 %r<2>;\nmov.u32 %r1, 0;\nret;\n}\n"
    kernels = kernels_of(f"{head}{other}.visible .entry k(.param .u64 p)\n{{{body}}}\n")
    assert [(kernel.name, kernel.is_empty) for kernel in kernels] == [
        ("kk", False),
        ("k", is_empty),
    ]


def test_configs_are_every_combination() -> None:
    text = "// config A = 1 2\n   //  config TYPE = float half\nint x; // config of something\n"
    assert configs_of(text, FILE) == [
        {"A": 1, "TYPE": "float"}, {"A": 1, "TYPE": "half"},
        {"A": 2, "TYPE": "float"}, {"A": 2, "TYPE": "half"},
    ]  # fmt: skip
    assert configs_of("int x;", FILE) == [{}]
    assert configs_of("// config A = -1\n", FILE) == [{"A": -1}]
    with pytest.raises(UsageError, match="write `// config NAME = VALUE"):
        configs_of("// config A = \n", FILE)
    many = "\n".join(f"// config A{n} = {' '.join(map(str, range(20)))}" for n in range(5))
    with pytest.raises(UsageError, match="over 4,096 combinations"):
        configs_of(many, FILE)


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z1kPfi", "k"),
        ("_Z5scaleILi4EEvPff", "scale"),
        ("_ZN3abc4deep6kernelEPf", "kernel"),
        ("zero", "zero"),
        ("_Zoops", "_Zoops"),
    ],
)
def test_names_without_arguments(mangled: str, name: str) -> None:
    assert display_name(mangled) == name


def test_kernels_of_a_text_that_does_not_compile() -> None:
    text = """
template <int N> __global__ void __launch_bounds__(64, max(1, 2)) scale(float *x) {}
template __global__ void scale<4>(float *);
extern "C" __global__ void zero(float *x) {}
__device__ int helper(int x) { return x; }
"""
    assert kernels_in(text) == ["scale", "zero"]
    assert kernels_in("int f();") == []


@pytest.mark.parametrize(
    ("head", "parameters"),
    [
        ("k(const float* __restrict__ x, int n)", {"x": "f32", "n": ""}),
        ("k(unsigned char x[], const uint32_t *y = nullptr)", {"x": "u8", "y": "u32"}),
        ("k(pair<int, float>* x, const __half *const y)", {"x": "u8", "y": "f16"}),
        ("k()", {}),
        ("other(int n)", {}),
    ],
)
def test_parameters_have_the_names_and_the_types_of_the_source(
    head: str, parameters: dict[str, str]
) -> None:
    text = f"template <int N> __global__ void __launch_bounds__(64, 2) {head} {{ g(n, x); }}"
    assert parameters_in(text, "k") == parameters


def test_the_block_of_a_launch() -> None:
    text = "// launch block=64,2 shared=BYTES\n  // launch scale block=N\nint launch;\n"
    config = {"BYTES": 4096, "N": 32}
    assert block_of(text, "zero", config, FILE) == {"threads": 128, "shared": 4096}
    assert block_of(text, "scale", config, FILE) == {"threads": 32, "shared": 4096}
    assert block_of("int x;", "scale", config, FILE) == {"threads": None, "shared": None}
    with pytest.raises(UsageError, match="'BYTES' is neither a size nor a macro"):
        block_of(text, "zero", {"N": 1}, FILE)
    for line in ("// launch blocks=1", "// launch scale", "// launch"):
        with pytest.raises(UsageError, match=r"write `// launch \[KERNEL\] block="):
            block_of(line, "zero", config, FILE)


def test_launch_bounds_are_read_off_the_ptx() -> None:
    ptx = ".visible .entry a(.param .u64 x)\n{\n}\n.visible .entry b()\n.maxntid 64, 2, 1\n{\n}\n"
    assert bounds_in(ptx, "a") is None
    assert bounds_in(ptx, "b") == 128


def test_headers_beside_the_file_count(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('#include "a.h"\n#include <cuda_fp16.h>\n#include "no.h"\n')
    (tmp_path / "a.h").write_text('#include "b.h"\n#include "a.h"\n')
    (tmp_path / "b.h").write_text("1")
    before = sources_sha256(tmp_path / "k.cu")
    assert sources_sha256(tmp_path / "k.cu") == before
    (tmp_path / "b.h").write_text("2")
    assert sources_sha256(tmp_path / "k.cu") != before


def lowering(log: str, **end: int) -> Lowering:
    return Lowering(end=ProcessEnd(**end), stage="nvcc", log=log)  # type: ignore[arg-type]


UNDEFINED = """\
k.cu(1): error: identifier "q" is undefined

1 error detected in the compilation of "k.cu".
"""
NO_GCC = """\
gcc: No such file or directory
nvcc fatal   : Failed to preprocess host compiler properties.
"""
NO_CICC = "sh: 1: /c/nvidia/cu13/bin/../nvvm/bin/cicc: not found\n"
DIED = "nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)\n"
OLD = "nvcc fatal   : Unsupported gpu architecture 'sm_50'\n"


@pytest.mark.parametrize(
    ("log", "code", "verdict", "said"),
    [
        (UNDEFINED, 1, "rejected", 'identifier "q" is undefined'),
        (OLD, 1, "unsupported", "Unsupported gpu architecture 'sm_50'"),
        (NO_GCC, 1, "infra", "Failed to preprocess"),
        (NO_CICC, 127, "infra", "this nvcc has no cicc"),
        (DIED, 139, "compiler_crash", "cicc died by a signal"),
        ("something else\n", 2, "pass_failure", "something else"),
    ],
)
def test_what_nvcc_says(log: str, code: int, verdict: str, said: str) -> None:
    judged = judge_nvcc(lowering(log, exit_code=code))
    assert judged.kind.value == verdict
    assert said in judged.reason


def test_temporary_names_are_no_part_of_a_failure() -> None:
    texts = [f"/tmp/tmpxft_{n}-00000000-6_k.cpp1.ii: something else went wrong\n" for n in (1, 2)]
    keys = {judge_nvcc(lowering(text, exit_code=2)).signature for text in texts}
    assert len(keys) == 1


def test_its_own_check_is_told_apart() -> None:
    failed = ProcessEnd(exit_code=255)
    log = "ptxas kernel.ptx, line 43; error   : Not a name\nptxas fatal   : Ptx assembly aborted\n"
    assert only_its_check_failed(failed, log)
    assert not only_its_check_failed(ProcessEnd(exit_code=0), log)
    assert not only_its_check_failed(failed, "k.cu(1): error: no\n")


def test_partners_follow_the_release(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.frontends import partners as pins
    from harness.io.packages.index import Release

    offered = {
        "nvidia-cuda-nvcc": ("12.9.86", "13.0.48", "13.0.88", "13.1.80", "13.4.59", "13.5.1"),
        "nvidia-nvvm": ("13.0.48", "13.0.88", "13.1.80", "13.4.59"),
        "nvidia-cuda-crt": ("13.0.48", "13.0.88", "13.1.80", "13.4.59"),
        "nvidia-cuda-runtime": ("13.0.48", "13.0.88", "13.0.96", "13.1.90", "13.4.49"),
        "nvidia-cuda-cccl": ("13.0.50", "13.0.85", "13.1.78", "13.3.3.4.1", "13.3.4.2.1"),
    }

    def wheels(name: str, **_: object) -> list[Release]:
        return [
            Release(name=name, version=Version(each), filename="", url="", sha256="")
            for each in offered[name]
        ]

    monkeypatch.setattr(pins, "wheels", wheels)
    nvcc = pins.PINS["nvcc"]
    assert list(map(str, nvcc.available())) == ["13.0.88", "13.1.80", "13.4.59"]
    for version, partners in (
        ("13.1.80", ["13.1.80", "13.1.80", "13.1.90", "13.1.78"]),
        ("13.0.88", ["13.0.88", "13.0.88", "13.0.88", "13.0.85"]),
        ("13.4.59", ["13.4.59", "13.4.59", "13.4.49", "13.3.4.2.1"]),
    ):
        found = nvcc.environment(version).pins
        assert [pin.version for pin in found] == [version, *partners]
    with pytest.raises(
        UsageError, match=r"there is no nvcc 13\.5\.1 that works here; there are 13\.0\.88"
    ):
        nvcc.environment("13.5.1")
