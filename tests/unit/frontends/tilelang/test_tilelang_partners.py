"""Which packages go with which TileLang."""

from __future__ import annotations

import pytest
from packaging.version import Version

from harness.frontends import partners as versions
from harness.frontends.partners import PINS
from harness.io.packages.index import Release
from harness.values.errors import InfrastructureError, UsageError

OFFERED = {
    "tilelang": ("0.1.7", "0.1.8", "0.1.9", "0.1.10", "0.1.12", "0.1.15", "0.2.0"),
    "apache-tvm-ffi": ("0.1.9", "0.1.10", "0.1.11", "0.1.12", "0.1.13"),
    "z3-solver": ("4.15.4.0", "4.15.5.0", "5.0"),
    "torch-c-dlpack-ext": ("0.1.5",),
    "cloudpickle": ("3.1.2",),
    "psutil": ("7.2.2",),
    "tqdm": ("4.70.1",),
    "nvidia-cuda-nvcc": ("13.0.88", "13.1.80"),
    "nvidia-nvvm": ("13.0.88", "13.1.80"),
    "nvidia-cuda-crt": ("13.0.88", "13.1.80"),
    "nvidia-cuda-runtime": ("13.0.96", "13.1.80"),
    "nvidia-cuda-cccl": ("13.0.85", "13.1.78"),
}


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, ...]]:
    found = dict(OFFERED)

    def wheels(name: str, **_: object) -> list[Release]:
        return [
            Release(name=name, version=Version(each), filename="", url="", sha256="")
            for each in found[name]
        ]

    monkeypatch.setattr(versions, "wheels", wheels)
    return found


@pytest.mark.parametrize(
    ("version", "ffi"),
    [("0.1.8", "0.1.9"), ("0.1.10", "0.1.11"), ("0.1.12", "0.1.11"), ("0.1.15", "0.1.12")],
)
def test_the_ffi_that_works(offered: object, version: str, ffi: str) -> None:
    pins = {pin.name: pin.version for pin in PINS["tilelang"].environment(version).pins}
    assert pins["tilelang"] == version
    assert pins["apache-tvm-ffi"] == ffi
    assert pins["z3-solver"] == "4.15.4.0"
    assert {pins[f"nvidia-{name}"] for name in ("cuda-nvcc", "nvvm", "cuda-crt")} == {"13.0.88"}


def test_what_is_not_offered(offered: dict[str, tuple[str, ...]]) -> None:
    assert Version("0.1.7") not in PINS["tilelang"].available()
    with pytest.raises(UsageError, match=r"there is no TileLang 0\.1\.7 that works here"):
        PINS["tilelang"].environment("0.1.7")
    offered["apache-tvm-ffi"] = ("0.1.13",)
    with pytest.raises(InfrastructureError, match=r"no apache-tvm-ffi==0\.1\.9, which goes with"):
        PINS["tilelang"].environment("0.1.8")
