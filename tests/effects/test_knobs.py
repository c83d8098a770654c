"""Which of the user's settings reach the compiler, and so are part of what results are kept by."""

from __future__ import annotations

import pytest

from harness.effects.triton_sessions import knobs


def test_settings_of_the_compiler_are_keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ALLOW_LHS_TMEM_LAYOUT_CONVERSION", "USE_IR_LOC", "DISABLE_LLVM_OPT"):
        monkeypatch.setenv(name, "1")
        assert knobs()[name] == "1"


def test_settings_that_would_move_cache_ptxas_or_target_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TRITON_OVERRIDE_ARCH", "TRITON_PTXAS_PATH", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "x")
    assert not {"TRITON_OVERRIDE_ARCH", "TRITON_PTXAS_PATH", "TRITON_CACHE_DIR"} & knobs().keys()
