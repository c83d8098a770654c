"""The launches of one kernel are told apart by what it is called with, not by their configs."""

from __future__ import annotations

import re

import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

FILE = HERE / "kernels" / "launches.py"
NEW, OLD = "3.9.0", "3.8.0"
BOTH = ("--triton", NEW, "--triton", OLD, "--sm", "90a")
_HEADING = re.compile(
    r"^\*\*.*::(\w+) · (launch(?:#\d)?) \((.*)\) · sm_90a · Triton ([0-9.]+) ", re.MULTILINE
)


def test_a_launch_has_one_number_whatever_configs_a_release_tries(module_triage: Triage) -> None:
    done = module_triage("compile", "--kernel", str(FILE), *BOTH, "--markdown")
    assert done.returncode == 1, done.stderr
    found: dict[str, dict[str, dict[str, str]]] = {}
    for kernel, label, words, triton in _HEADING.findall(done.stdout.replace("\\", "")):
        found.setdefault(triton, {}).setdefault(kernel, {})[label] = words
    # The new one does not try a config of the first launch of `pruned`.
    assert "pruned · launch (BLOCK=64, x=float32" in done.stdout.replace("\\", "")
    assert found[NEW] == found[OLD]
    of_four = ["launch", "launch#2", "launch#3", "launch#4"]
    words = [f"x={t}, y={t}, n={n}" for t in ("float32", "float16") for n in (64, 128)]
    assert found[OLD]["plain"] == dict(zip(of_four, words, strict=True))
    blocks = [f"BLOCK={64 << (n % 2)}, {word}" for n, word in enumerate(words)]
    assert found[OLD]["tuned"] == found[OLD]["pruned"] == dict(zip(of_four, blocks, strict=True))
    # Configs that the caller lists himself are those of one launch; so are sizes of one code.
    assert found[OLD]["swept"] == {
        "launch": "x=float32, y=float32",
        "launch#2": "x=float16, y=float16",
    }


def test_each_launch_has_its_own_configs(module_triage: Triage) -> None:
    document = module_triage.compile("--kernel", str(FILE), *BOTH, code=1)
    counts = {
        (each["triton"], each["kernel"].rpartition("::")[2], each["launch"]): each["headline"]
        for each in document["summary"]["survivorship"]
    }
    assert {counts[OLD, "plain", f"launch#{n}"] for n in (2, 3, 4)} == {"1 config: 1 compiles."}
    assert counts[NEW, "plain", "launch#4"] == "1 config: 0 compile; 1 does not work."
    assert [counts[triton, "pruned", "launch"] for triton in (OLD, NEW)] == [
        "2 configs: 2 compile.",
        "1 config: 1 compiles.",
    ]
    assert counts[NEW, "pruned", "launch#4"] == "2 configs: 2 compile."
    assert counts[OLD, "swept", "launch"] == "4 configs: 4 compile."
    none = module_triage("compile", "--kernel", f"{FILE}::plain", *BOTH, "--launch", "launch#5")
    assert f"--launch launch#5: {FILE}::plain is launched 4 times there" in none.stderr
