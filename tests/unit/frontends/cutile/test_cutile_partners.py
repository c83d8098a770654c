"""Which packages go with which cuTile, and with which tileiras."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from harness.frontends import partners as versions
from harness.frontends.cutile.front_end import CUTILE_FRONT_END, CuTileForm
from harness.frontends.partners import PINS
from harness.io.packages.index import Release
from harness.values.errors import InfrastructureError, UsageError
from harness.values.toolchain import Assembler

OFFERED = {
    "cuda-tile": ("1.2.0", "1.3.0", "1.5.0", "1.7.0", "2.0"),
    "nvidia-cuda-tileiras": ("13.1.80", "13.2.51", "13.2.86", "13.3.36", "13.4.92", "13.5.37"),
    "nvidia-nvvm": ("13.1.80", "13.2.51", "13.2.86", "13.3.33", "13.3.73", "13.4.92", "13.5.37"),
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
    ("version", "tileiras", "nvvm"),
    [
        ("1.3.0", "13.2.86", "13.2.86"),
        ("1.5.0", "13.3.36", "13.3.33"),
        ("1.7.0", "13.4.92", "13.4.92"),
        ("2.0", "13.5.37", "13.5.37"),
    ],
)
def test_the_newest_tileiras_that_it_asks_for(
    offered: object, version: str, tileiras: str, nvvm: str
) -> None:
    pins = [str(pin) for pin in PINS["cutile"].environment(version).pins]
    partners = [f"nvidia-cuda-tileiras=={tileiras}", f"nvidia-nvvm=={nvvm}"]
    assert pins == [f"cuda-tile=={version}", *partners]
    alone = PINS["tileiras"].environment(tileiras)
    assert [str(pin) for pin in alone.pins] == partners
    assert (alone.kind, alone.version) == ("tileiras", tileiras)


def test_what_comes_to_a_cubin_by_itself(offered: dict[str, tuple[str, ...]]) -> None:
    offered["nvidia-cuda-nvcc"] = ("13.2.86", "13.3.33", "13.3.73", "13.4.92")
    tileiras = Assembler(
        version="13.3.36", origin="", path=Path("tileiras"), sha256="", kind="tileiras"
    )
    install = CuTileForm(CUTILE_FRONT_END).install("1.5.0", tileiras)
    assert list(install.packages) == [
        "cuda-tile==1.5.0",
        "nvidia-cuda-tileiras==13.3.36",
        "nvidia-nvvm==13.3.33",
        "nvidia-cuda-nvcc==13.3.33",
    ]


def test_what_is_not_offered(offered: dict[str, tuple[str, ...]]) -> None:
    assert Version("1.2.0") not in PINS["cutile"].available()
    with pytest.raises(UsageError, match=r"there is no cuTile 1\.2\.0 that works here"):
        PINS["cutile"].environment("1.2.0")
    with pytest.raises(UsageError, match=r"there is no tileiras 13\.1\.80 that works here"):
        PINS["tileiras"].environment("13.1.80")
    offered["nvidia-cuda-tileiras"] = ("13.5.37",)
    with pytest.raises(InfrastructureError, match=r"which goes with cuTile 1\.7\.0"):
        PINS["cutile"].environment("1.7.0")
