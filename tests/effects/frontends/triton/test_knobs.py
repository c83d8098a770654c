"""Which of the user's settings reach the compiler, and so are part of what results are kept by."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.frontends.triton.front_end import NO_KNOBS, TRITON_FRONT_END, is_knob, listed_knobs
from harness.io.toolchains.install import installed_package, installed_triton
from harness.values.toolchain import Compiler

knobs = TRITON_FRONT_END.user_settings


def test_settings_of_the_compiler_are_keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALLOW_LHS_TMEM_LAYOUT_CONVERSION", "USE_IR_LOC", "DISABLE_LLVM_OPT"):
        monkeypatch.setenv(name, "1")
        assert knobs(installed_triton())[name] == "1"


def test_settings_that_would_move_cache_ptxas_or_target_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TRITON_OVERRIDE_ARCH", "TRITON_PTXAS_PATH", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "x")
    assert (
        not {"TRITON_OVERRIDE_ARCH", "TRITON_PTXAS_PATH", "TRITON_CACHE_DIR"}
        & knobs(installed_triton()).keys()
    )


def test_settings_of_something_else_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before = knobs(installed_triton())
    for name in ("FORCE_COLOR", "ENABLE_SOMETHING", "DISABLE_TELEMETRY", "LLVM_DIR", "ALLOW_ROOT"):
        monkeypatch.setenv(name, "1")
    assert knobs(installed_triton()) == before


def test_a_triton_that_lists_its_settings_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "triton").mkdir()
    text = (
        'class m:\n    a: env_bool = env_bool("SWAP_WARPS")\n    b = env_str("TRITON_HOME", "")\n'
    )
    (tmp_path / "triton" / "knobs.py").write_text(text)
    monkeypatch.setenv("SWAP_WARPS", "1")
    monkeypatch.setenv("TRITON_HOME", "/tmp")
    newer = Compiler(version="9.9.9", origin="triton", path=tmp_path)
    assert knobs(newer)["SWAP_WARPS"] == "1"
    assert "TRITON_HOME" not in knobs(newer)
    assert "SWAP_WARPS" not in knobs(installed_triton())


def test_the_installed_triton_lists_nothing_that_we_do_not_know() -> None:
    """Its own list is read: a setting that it names is keyed unless we decide it ourselves."""
    package = installed_package()
    assert package
    listed = listed_knobs((package / "knobs.py").read_text())
    assert {"PTXAS_OPTIONS", "USE_IR_LOC", "TRITON_F32_DEFAULT"} <= listed
    assert all(is_knob(name, listed) or name in NO_KNOBS for name in listed)
