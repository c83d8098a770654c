"""A kernel is named alike in every command, by an argument or `--kernel`; shells complete it."""

from __future__ import annotations

import pytest
from click.shell_completion import ShellComplete
from conftest import Triage
from printed_commands import parse

from harness.cli.main import cli

VERBS = ("compile", "run", "bisect", "blame", "minimize", "workaround", "rank", "history")


@pytest.mark.parametrize("verb", VERBS)
def test_the_argument_is_the_kernel(verb: str) -> None:
    assert parse(f"triage {verb} soft.py::k --sm 80").params["kernel"] == "soft.py::k"
    assert parse(f"triage {verb} --sm 80 --kernel soft.py").params["kernel"] == "soft.py"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("words", "said"),
    [(("a.py", "--kernel", "b.py"), "a.py and --kernel b.py: which one"), ((), "--kernel")],
)
def test_two_kernels_or_none_are_a_wrong_usage(
    triage: Triage, verb: str, words: tuple[str, ...], said: str
) -> None:
    done = triage(verb, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Missing option" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_report_for_somebody_unknown_names_those_who_are_known(triage: Triage) -> None:
    done = triage("report", "absent.py", "--sm", "90a", "--for", "nobody")
    assert done.returncode == 2
    assert "'nobody' is not one of triton, nvidia, " in done.stderr


@pytest.mark.parametrize(("word", "is_told"), [("b.py", True), ("c.py", False)])
def test_a_pattern_that_the_shell_took_apart_is_to_be_quoted(
    triage: Triage, word: str, *, is_told: bool
) -> None:
    for name in ("a.py", "b.py"):
        (triage.folder / name).write_text("")
    done = triage("pr", "--base", "main", "--kernel", "a.py", word)
    assert done.returncode == 2
    assert f"unexpected extra argument ({word})" in done.stderr
    assert ("quote a pattern of files" in done.stderr) is is_told


def completed(*words: str) -> list[str]:
    *before, begun = words
    shell = ShellComplete(cli, {}, "triage", "_TRIAGE_COMPLETE")
    return [item.value for item in shell.get_completions(before, begun)]


def test_a_shell_completes_kernels_targets_and_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "harness.io.toolchains.installed.installed_versions",
        lambda kind: {"triton": ["3.6.0"], "ptxas": ["13.0.88", "13.1.115"]}[kind],
    )
    assert "mamba3_siso_bwd_dqkv" in completed("compile", "mamba3_")
    assert "mamba3_siso_bwd_dqkv" in completed("blame", "--kernel", "mamba3_siso")
    assert completed("compile", "--sm", "100") == ["100", "100a", "100f"]
    assert "sm_90a" in completed("compile", "k", "--sm", "sm_9")
    assert completed("compile", "--ptxas", "13.") == ["13.0.88", "13.1.115"]
    assert completed("compile", "--triton", "") == ["3.6.0", "latest", "installed"]
    assert completed("comp") == ["compile"]
