"""The stage for tests that run a command beside an acted compiler, named by `pytest_plugins`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from acted_front_end import Acted, Stage
from acted_line import BAD, NEW, OLD, Line
from packaging.version import Version

from harness.blame import blaming as pairs
from harness.frontends import back_end, registry
from harness.io.packages.versions import select
from harness.io.toolchains import install
from harness.minimize.ptx import level
from harness.store.store import Store
from harness.values.toolchain import name_kind


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A stage with the kernel `kernel.acted`, of the configs width=1 and width=2."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRIAGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRIAGE_HOME", str(tmp_path / "results"))
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    (tmp_path / "kernel.acted").write_text("kernel kernel\nconfig width = 1 2\n")
    acted = Acted()
    monkeypatch.setitem(registry._OURS, acted.kind, "acted_front_end:ACTED")
    monkeypatch.setattr("acted_front_end.ACTED", acted, raising=False)
    name_kind(acted.kind, acted.title)
    registry.front_end.cache_clear()
    with Store.open(tmp_path / "results") as store:
        yield Stage(folder=tmp_path, store=store, acted=acted)
    registry.front_end.cache_clear()


@pytest.fixture
def line(stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    stage.ptxas(OLD, BAD, NEW)
    versions = [
        SimpleNamespace(version=Version(each), name=f"ptxas-{each}") for each in (OLD, BAD, NEW)
    ]
    for module in (install, pairs, back_end, level):
        monkeypatch.setattr(module, "available_wheels", lambda *_, **__: versions)
    numbers = [wheel.version for wheel in versions]
    monkeypatch.setattr(
        back_end, "select_versions", lambda _, spec, **__: select(numbers, spec, what="ptxas")
    )
    stage.acted.versions = ("1.0", "1.1", "2.0")
    return Line(stage, capsys, monkeypatch)
