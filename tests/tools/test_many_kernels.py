"""Several kernels in one command: one capture for those that share a launch, one summary."""

from __future__ import annotations

import msgspec
import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

LAUNCH = """
import torch, triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": 64}, num_warps=warps) for warps in (1, 2)]

@triton.autotune(CONFIGS, key=[])
@triton.jit
def _tuned(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)

@triton.jit
def _refused(x, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 64, "too wide for me")
    tl.store(x + tl.arange(0, BLOCK), 1.0)

def default(*, n=64, block=64):
    open("captures", "a").write("x")
    x = torch.empty(n, device="cuda")
    _tuned[(1,)](x)
    _refused[(1,)](x, BLOCK=block)

def other(*, m=64):
    _tuned[(1,)](torch.empty(m, device="cuda"))
"""

REPRO = """
kernels:
  own_tuned: {kernel: _tuned, configs: 3}
  own_refused: {kernel: _refused, launches: [default], configs: 1, triton: 3.6.0}
triton: 3.6.0
targets: [90a]
"""


@pytest.fixture
def pair(triage: Triage) -> Triage:
    """A folder with a repro of two kernels that share a launch, and one that cannot be captured."""
    for name, text in (("pair", LAUNCH), ("own_broken", "def default(): raise OSError('no')\n")):
        folder = triage.folder / "repros" / name
        folder.mkdir(parents=True)
        (folder / "launch.py").write_text(text)
    (triage.folder / "repros" / "pair" / "repro.yaml").write_text(REPRO)
    broken = triage.folder / "repros" / "own_broken" / "repro.yaml"
    broken.write_text("kernel: k\ntriton: 3.6.0\ntargets: [90a]\n")
    triage.env["TRIAGE_CONFINE"] = "off"  # the launch counts its captures in a file beside it
    return triage


def test_a_pattern_compiles_all_and_ends_in_one_summary(pair: Triage) -> None:
    done = pair("compile", "--kernel", "own_[rt]*", "--sm", "80", "--sm", "90a")
    assert done.returncode == 1, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]
    assert lines[0] == "kernel sm_80 sm_90a"
    assert lines[2:5] == [
        "own_refused 1 rejected 1 rejected",
        "own_tuned 2 ok 2 ok",
        "2 kernels on 2 targets, 6 configs in all: 4 ok, 2 rejected.",
    ]
    assert lines[5].startswith("1 rejected on sm_80 [own_refused]: ")
    assert lines[6].startswith("1 rejected on sm_90a [own_refused]: ")
    assert "too wide for me" in lines[5]
    assert lines[-1].startswith(
        "triage compile --kernel own_refused --sm 80 --sm 90a --confine off # each config of it"
    )
    # One capture a target served both kernels.
    assert (pair.folder / "repros" / "pair" / "captures").read_text() == "xx"
    # What the repro counts was counted wrongly.
    assert "own_tuned: its repro.yaml counts 3 configs, there are 2" in done.stderr
    assert "own_refused: its repro.yaml counts" not in done.stderr

    markdown = pair("compile", "--kernel", "pair", "--sm", "80", "--sm", "90a", "--markdown")
    assert markdown.stdout.startswith("| kernel | sm_80 | sm_90a |\n| --- | --- | --- |\n")
    assert "| own_tuned | 2 ok | 2 ok |" in markdown.stdout


def test_one_that_fails_to_be_captured_does_not_stop_the_others(pair: Triage) -> None:
    document = pair.compile("--kernel", "own_[bt]*", "--sm", "90a", code=4)
    assert [row["kernel"] for row in document["cells"]] == ["own_tuned", "own_tuned"]
    [failure] = document["summary"]["failures"]
    assert "OSError: no" in failure


@pytest.mark.long
def test_options_that_only_some_of_the_kernels_have(pair: Triage) -> None:
    done = pair("compile", "--kernel", "pair", "--launch", "other", "--set", "m=32", "--json")
    assert done.returncode == 0, done.stderr
    rows = msgspec.json.decode(done.stdout)["cells"]
    assert {(row["kernel"], row["launch"]) for row in rows} == {("own_tuned", "other:m=32")}
    assert "left out: --launch other: own_refused has default" in done.stderr
    none = pair("compile", "--kernel", "pair", "--launch", "nope")
    assert none.returncode == 2
    assert "--launch nope: own_tuned has default, other" in none.stderr


def test_the_list_tells_source_launches_and_number_of_configs(pair: Triage) -> None:
    done = pair("kernels", "--json")
    found = {kernel["name"]: kernel for kernel in msgspec.json.decode(done.stdout)["kernels"]}
    assert found["own_tuned"]["configs"] == 3
    assert found["own_broken"]["configs"] is None
    assert [launch["name"] for launch in found["own_tuned"]["launches"]] == ["default", "other"]
    assert [launch["name"] for launch in found["own_refused"]["launches"]] == ["default"]


def test_each_kernel_of_a_folder_has_its_name(pair: Triage) -> None:
    """Configs of two kernels are not those of one, which would be ranked against each other."""
    done = pair("compile", "--kernel", "pair::_*", "--launch", "default", "--sm", "90a", "--json")
    assert done.returncode == 1, done.stderr
    rows = msgspec.json.decode(done.stdout)["cells"]
    assert sorted((row["kernel"], row["verdict"]) for row in rows) == [
        ("pair::_refused", "rejected"),
        ("pair::_tuned", "ok"),
        ("pair::_tuned", "ok"),
    ]
