"""Which packages go with which CuTe DSL."""

from __future__ import annotations

import pytest
from packaging.version import Version

from harness.frontends import partners as versions
from harness.frontends.partners import PINS
from harness.io.packages.index import Release
from harness.values.errors import InfrastructureError, UsageError

OFFERED = {
    "nvidia-cutlass-dsl": ("4.3.5", "4.4.2", "4.5.2", "4.6.3", "4.8.1", "5.0"),
    "nvidia-cuda-nvcc-cu12": ("12.8.93", "12.9.41", "12.9.86", "12.9.99"),
    "cuda-bindings": ("12.6.2", "13.5.0"),
    "cuda-pathfinder": ("1.9.0",),
    "protobuf": ("7.36.2",),
    "apache-tvm-ffi": ("0.1.15",),
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
    ("version", "libraries"), [("4.4.2", 1), ("4.5.2", 1), ("4.6.3", 3), ("4.8.1", 3), ("5.0", 3)]
)
def test_its_libraries_and_a_ptxas_like_the_one_inside(
    offered: object, version: str, libraries: int
) -> None:
    pins = [str(pin) for pin in PINS["cutedsl"].environment(version).pins]
    assert pins[0] == f"nvidia-cutlass-dsl=={version}"
    assert [each.endswith(f"=={version}") for each in pins].count(True) == 1 + libraries
    assert "nvidia-cuda-nvcc-cu12==12.9.86" in pins


def test_what_is_not_offered(offered: dict[str, tuple[str, ...]]) -> None:
    assert Version("4.3.5") not in PINS["cutedsl"].available()
    with pytest.raises(UsageError, match=r"there is no CuTe DSL 4\.3\.5 that works here"):
        PINS["cutedsl"].environment("4.3.5")
    offered["protobuf"] = ()
    with pytest.raises(InfrastructureError, match="no protobuf, which goes with CuTe DSL"):
        PINS["cutedsl"].environment("4.5.2")
