"""The real index, the real uv and NVIDIA's and Triton's real wheels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from packaging.version import Version

from harness.frontends.triton.front_end import llvm_of
from harness.io.packages.archives import fetch_sdist, fetch_wheel
from harness.io.packages.versions import parse_banner
from harness.io.processes.hub import run_tool
from harness.io.toolchains.install import (
    available_wheels,
    describe_ptxas,
    install_nvdisasm,
    install_ptxas,
    install_triton,
    installed_triton,
    select_versions,
    verify,
)
from harness.values.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.tools

MAMBA = "104cc47e9101e5401a675fa2b784f2952b9b037f3b1dd83b5ac544394e95d028"
EINOPS = "54058201ac7087911181bfec4af6091bb59380360f069276601256a76af08193"


@pytest.mark.parametrize(
    ("version", "project"), [("13.1.115", "nvidia-cuda-nvcc"), ("11.7.99", "nvidia-cuda-nvcc-cu11")]
)
def test_ptxas(toolchain_cache: Path, version: str, project: str) -> None:
    ptxas = install_ptxas(version)
    assert (ptxas.version, ptxas.origin) == (version, project)
    assert ptxas.path.is_relative_to(toolchain_cache)
    assert ptxas.build.startswith(f"cuda_{version[:4]}")
    folder = ptxas.path.parents[1]
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 100 << 20
    assert describe_ptxas(ptxas.path, project) == ptxas
    assert verify(f"ptxas-{version}").executable_sha256 == ptxas.sha256


def test_the_llvm_of_the_installed_triton_is_named() -> None:
    found = llvm_of(installed_triton())
    assert found is not None
    assert re.fullmatch("[0-9a-f]{8}", found)


def test_triton(toolchain_cache: Path) -> None:
    triton = install_triton("3.8.0")
    assert triton.path is not None
    assert triton.path.is_relative_to(toolchain_cache)
    assert verify("triton-3.8.0").banner == "3.8.0"
    bundled = triton.path / "triton" / "backends" / "nvidia" / "bin" / "ptxas"
    assert describe_ptxas(bundled, "bundled").label == "12.9.86-bundled"


def test_nvdisasm(toolchain_cache: Path) -> None:
    tool = install_nvdisasm()
    assert Version(tool.version) == available_wheels("nvdisasm")[-1].version
    banner = parse_banner(run_tool([tool.path, "--version"], timeout=60).stdout)
    assert banner is not None
    assert banner[0] == tool.version


def test_available(toolchain_cache: Path) -> None:
    ptxas = {wheel.version: wheel.name for wheel in available_wheels("ptxas")}
    assert ptxas[Version("11.8.89")] == "nvidia-cuda-nvcc-cu11"
    assert ptxas[Version("12.9.86")] == "nvidia-cuda-nvcc-cu12"
    assert min(ptxas) >= Version("11.7"), "the placeholders are not offered"
    assert {Version("3.6.0"), Version("3.8.0")} <= {
        wheel.version for wheel in available_wheels("triton")
    }
    assert len(select_versions("ptxas", "==13.1.*")) >= 2
    with pytest.raises(UsageError, match=r"no Triton 3\.6\.99; the nearest are 3\.6\.0 and"):
        install_triton("3.6.99")


def test_sources(toolchain_cache: Path) -> None:
    mamba = fetch_sdist("mamba-ssm", "2.3.2.post1", MAMBA)
    assert (mamba / "mamba_ssm/ops/triton/mamba3/mamba3_siso_bwd.py").is_file()
    assert (fetch_wheel("einops", "0.8.2", EINOPS) / "einops" / "__init__.py").is_file()
