"""`triage doctor` in the cases that it is for: what is missing is said, and nothing is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import uv
from click.testing import CliRunner
from packaging.version import Version

from harness.cli import doctor, toolchain
from harness.frontends.registry import front_end, kinds
from harness.io.toolchains.installed import MARKER
from harness.values.toolchain import PTX, PTXAS, TRITON


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRIAGE_HOME", raising=False)
    monkeypatch.setenv("TRIAGE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRIAGE_OFFLINE", "1")
    return tmp_path


def found(name: str) -> doctor.Check:
    return doctor._try(name, dict(doctor._CHECKS)[name])


def raising(error: Exception) -> Callable[..., object]:
    def fail(*_args: object, **_more: object) -> object:
        raise error

    return fail


def test_nothing_is_left_behind(here: Path) -> None:
    assert "0 runs" in found("results").found
    assert found("cache").found.startswith(f"{here / 'cache'}, ")
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("tritons", "said"),
    [([], "no Tritons, 1 ptxas (13.1.115 - 13.1.115)"), ([Version("3.6.0")], "1 Tritons (3.6.0")],
)
def test_an_index_without_a_wheel_for_this_python(
    monkeypatch: pytest.MonkeyPatch, tritons: list[Version], said: str
) -> None:
    monkeypatch.delenv("TRIAGE_OFFLINE")
    wheels = {TRITON: tritons, PTXAS: [Version("13.1.115")]}
    monkeypatch.setattr(
        doctor,
        "available_wheels",
        lambda kind: [SimpleNamespace(version=version) for version in wheels[kind]],
    )
    check = found("package index")
    assert check.ok is bool(tritons)
    assert said in check.found


def test_what_is_listed_has_versions_or_says_that_they_are_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolchain, "available_wheels", lambda _: [])
    done = CliRunner().invoke(toolchain.command, ["list", "--available"])
    listed = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert listed.keys() & set(kinds()) == set(kinds()) - {PTX}
    # The cache is empty and the index is not asked; of what was asked, nothing fits.
    assert (listed["cutile"], listed["triton"]) == ("not known", "none for this machine")
    done = CliRunner().invoke(toolchain.command, ["list", "--available", "--json"])
    available = json.loads(done.stdout)["available"]
    assert (available["cutile"], available["triton"]) == (None, [])


def test_uv_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uv, "find_uv_bin", raising(FileNotFoundError("no uv in /usr/bin")))
    check = found("uv")
    assert (check.ok, check.found) == (False, "FileNotFoundError: no uv in /usr/bin")
    assert "pip install uv" in check.advice


@pytest.mark.parametrize("name", ["cache", "results"])
def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    variable = {"cache": "TRIAGE_CACHE_DIR", "results": "TRIAGE_HOME"}[name]
    monkeypatch.setenv(variable, "/proc/triage")
    check = found(name)
    assert check.ok is False
    assert variable in check.advice


def test_a_user_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIAGE_HOME", "~nosuchuser/results")
    check = found("results")
    assert check.ok is False
    assert "no such user" in check.found


def test_a_damaged_toolchain_is_named(here: Path) -> None:
    place = here / "cache" / "toolchains" / "ptxas-13.1.115"
    place.mkdir(parents=True)
    (place / MARKER).write_text("{")
    check = found("toolchains")
    assert (check.ok, check.found) == (False, "none installed yet; damaged: ptxas-13.1.115")
    assert "toolchain remove ptxas-13.1.115" in check.advice


def test_each_language_has_a_line() -> None:
    checks = {check.name: check for check in doctor.examine()}
    # What is assembled as it is has no compiler that could be installed.
    assert PTX not in checks
    for kind in set(kinds()) - {TRITON, PTX}:
        title = front_end(kind).title
        assert checks[kind].found == f"no {title} is installed; it is when a kernel needs it"
        assert checks[kind].ok is None
    assert checks["toolchains"].brief == ""
