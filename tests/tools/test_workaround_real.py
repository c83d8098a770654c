"""Workarounds found, proved and pasted, with the real Triton and the real ptxas."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conftest import HERE, Triage

pytestmark = pytest.mark.tools

FILE = HERE / "kernels" / "workable.py"
TRITON = ["--triton", "3.6.0"]
TILES = ["--sm", "90a", *TRITON, "--change", "config", "--max-time", "10m", "--most", "4"]


def workaround(triage: Triage, *words: str, code: int = 0) -> dict[str, Any]:
    done = triage("workaround", *words, "--json")
    assert done.returncode == code, done.stderr + done.stdout[-2000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    return document


@pytest.fixture(scope="module")
def found(module_triage: Triage) -> dict[str, Any]:
    words = ["--kernel", f"{FILE}::mixing", "--sm", "90a", *TRITON, "--change", "config"]
    patch = ["--patch", str(module_triage.folder / "mixing.diff"), "--max-time", "10m"]
    return workaround(module_triage, *words, *patch, "--most", "4")


@pytest.mark.long
def test_more_registers_are_found_and_ranked_by_what_they_gain(found: dict[str, Any]) -> None:
    baseline, candidates = found["baseline"], found["candidates"]
    assert baseline["config"]["maxnreg"] == 32
    assert baseline["verdict"] == "sick"
    assert {each["verdict"] for each in candidates} == {"ok"}
    assert 4 * candidates[0]["spill_stores"] < baseline["spill_stores"]
    assert [each for each in candidates if each["config"].get("maxnreg") in (None, 255)]
    # A small step is shown beside it: one change is easier to have than two.
    assert 1 in {len(each["change"]) for each in candidates}
    for each in candidates:
        assert each["evidence"]["proved"] == "compiled again from nothing"
        assert each["cached"] is False
        assert each["evidence"]["numerics"] == "compiled"
        assert any("spill stores" in line for line in each["evidence"]["explanation"])


@pytest.mark.long
def test_another_tile_is_run_against_the_users_own(module_triage: Triage) -> None:
    found = workaround(module_triage, "--kernel", f"{FILE}::tiled", *TILES)
    by_names = {
        tuple(step["name"] for step in each["change"]): each["evidence"]
        for each in found["candidates"]
    }
    assert by_names["BLOCK",]["numerics"] == "interpreted"
    for names, evidence in by_names.items():
        assert evidence["numerics"] == ("interpreted" if "BLOCK" in names else "compiled")


@pytest.mark.long
@pytest.mark.parametrize(
    ("triton", "pasted"),
    [
        ("3.3.1", None),
        ("3.5.1", ["kernel[grid](..., ptx_options="]),
        ("3.6.0", ["export PTXAS_OPTIONS=", "kernel[grid](..., ptx_options="]),
    ],
)
def test_an_option_of_ptxas_goes_through_triton_as_a_user_would_give_it(
    module_triage: Triage, triton: str, pasted: list[str] | None
) -> None:
    """One warp, 64 registers: as few as keep all blocks resident. One option gives it the rest."""
    words = ["--kernel", f"{FILE}::tiled", "--sm", "90a", "--triton", triton, "--change", "flags"]
    found = workaround(module_triage, *words, "--max-time", "10m", code=0 if pasted else 1)
    if pasted is None:
        assert found["candidates"] == []
        return
    first = found["candidates"][0]
    [step] = first["change"]
    words = step["after"].split()
    assert not {"-O0", "-O1", "--Ofast-compile"} & set(words), "optimising less comes behind"
    assert (found["baseline"]["n_regs"], first["n_regs"]) == (64, 255)
    assert 2 * first["spill_stores"] < found["baseline"]["spill_stores"]
    # Compiled again by the command that Triton itself made.
    flags = first["ptxas_flags"]
    assert flags[flags.index(words[0]) :][: len(words)] == words
    assert [line.partition('"')[0] for line in first["evidence"]["paste"]] == pasted
    assert all(f'"{step["after"]}"' in line for line in first["evidence"]["paste"])


@pytest.mark.long
def test_a_tile_that_computes_something_else_is_no_workaround(module_triage: Triage) -> None:
    found = workaround(module_triage, "--kernel", f"{FILE}::untiled", *TILES, code=1)
    assert found["candidates"] == []
    assert [note for note in found["notes"] if "computes something else" in note]


@pytest.mark.long
def test_the_patch_leaves_out_what_fails_and_is_proved(
    found: dict[str, Any], module_triage: Triage, tmp_path: Path
) -> None:
    patch = found["patch"]
    assert patch["proved"] is True
    assert {row["config"]["BLOCK"] for row in patch["cells"]} == {2048}
    assert len(patch["added"]) == 1
    assert patch["guard"]["tested"] == ["3.6.0"]
    assert [each["releases"] for each in patch["guard"]["clauses"]] == [["3.6.0"]]
    assert "imported there" in patch["proof"]
    # As a user would: the file that was written, on a copy, compiled by the ordinary command.
    shutil.copy(FILE, tmp_path / FILE.name)
    diff = module_triage.folder / "mixing.diff"
    assert diff.read_text() == patch["diff"]
    subprocess.run(["git", "apply", str(diff)], cwd=tmp_path, check=True)
    copy = f"{tmp_path / FILE.name}::mixing"
    document = module_triage.compile("--kernel", copy, "--sm", "90a", *TRITON, code=0)
    assert len(document["cells"]) == 3
    assert {row["verdict"] for row in document["cells"]} == {"sick", "ok"}
    # Another GPU is none of its business.
    document = module_triage.compile("--kernel", copy, "--sm", "80", *TRITON, code=1)
    assert "rejected" in {row["verdict"] for row in document["cells"]}


WRAPPED = """
import torch
import triton
import triton.language as tl


def autotune(configs, key):
    return triton.autotune(configs, key)


@autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})], key=[])
@triton.jit
def copying(x, out, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK < 64)
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at))


def launch():
    x, out = (torch.zeros(64, device="cuda") for _ in range(2))
    copying[(1,)](x, out)
    return out
"""


@pytest.mark.long
def test_a_patch_with_which_the_file_cannot_be_imported_is_not_shown(triage: Triage) -> None:
    """A tuner of the file's own takes no pruning: only running the decorator shows it."""
    (triage.folder / "wrapped.py").write_text(WRAPPED)
    words = ["--kernel", "wrapped.py::copying", "--sm", "90a", *TRITON, "--change", "config"]
    found = workaround(triage, *words)
    assert found["baseline"]["verdict"] == "rejected"
    assert found["patch"] is None
    [said] = [note for note in found["notes"] if note.startswith("no patch")]
    assert "TypeError" in said
    assert "prune_configs_by" in said


@pytest.mark.long
def test_a_kernel_without_a_tuner_gets_options(module_triage: Triage) -> None:
    words = ["--kernel", f"{FILE}::alone", "--sm", "90a", *TRITON, "--change", "config"]
    found = workaround(module_triage, *words, "--max-time", "10m")
    assert found["patch"] is None
    assert found["candidates"][0]["verdict"] == "ok"
    assert found["candidates"][0]["config"]["BLOCK"] == 4096


def test_where_nothing_is_wrong_nothing_is_done(module_triage: Triage) -> None:
    plain = HERE / "kernels" / "plain.py"
    found = workaround(module_triage, "--kernel", str(plain), "--sm", "90a", *TRITON)
    assert found["needed"] is False
    assert found["candidates"] == []


DATED = HERE / "kernels" / "dated.py"
MATRIX = """\
version: 1
toolchains:
  triton: {{spec: [{versions}]}}
  ptxas: {{spec: [bundled]}}
targets: [sm_80]
kernels: ["{kernel}"]
"""


def night(triage: Triage, *versions: str) -> dict[str, Any]:
    text = MATRIX.format(versions=", ".join(versions), kernel=HERE / "kernels" / "plain.py")
    (triage.folder / "matrix.yaml").write_text(text)
    done = triage("matrix", "run", "--json")
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    document: dict[str, Any] = msgspec.json.decode(done.stdout)
    return document


@pytest.mark.long
def test_every_night_runs_what_a_workaround_is_for_until_it_is_not_needed(triage: Triage) -> None:
    words = ["--kernel", f"{DATED}::doubled", "--sm", "90a", "--triton", "3.3.1"]
    found = workaround(triage, *words, "--change", "config")
    assert found["baseline"]["verdict"] == "rejected"
    assert found["patch"]["proved"] is True
    assert found["patch"]["guard"]["tested"] == ["3.3.1"]
    # The matrix names neither the kernel nor the GPU. That it fails is known, and no surprise.
    first = night(triage, "3.3.1")
    # The workaround itself too: what was found for it still compiles.
    assert first["cells"] == {"ok": 3, "rejected": 1}
    assert first["diff"]["broken_workarounds"] == []
    assert first["diff"]["expired_workarounds"] == []
    second = night(triage, "3.3.1", "3.6.0")
    [told] = second["diff"]["expired_workarounds"]
    assert "doubled on sm_90a: it is ok with Triton 3.6.0" in told
    assert "found for Triton 3.3.1" in told
    assert told in triage("diff").stdout


LAUNCH = """
import torch
import triton
import triton.language as tl


@triton.jit
def summing(x, out, n, CHUNK: tl.constexpr):
    for start in range(0, n, CHUNK):
        at = start + tl.arange(0, CHUNK)
        a, b = tl.load(x + at, mask=at < n, other=0.0), tl.load(x + n + at, mask=at < n, other=0.0)
        c, d = tl.load(x + 2 * n + at, mask=at < n), tl.load(x + 3 * n + at, mask=at < n)
        # All four have to be kept until the largest is known.
        result = tl.where(tl.max(a) > 1e30, b * c * d, a * b + c * d)
        tl.store(out + at, result, mask=at < n)


def default(*, n=4096, chunk=4096, share=1):
    x, out = torch.randn(4, n, device="cuda"), torch.zeros(n, device="cuda")
    # With half of the work left out it is fast, and wrong.
    summing[(1,)](x, out, n // share, CHUNK=chunk // share**3, num_warps=1, maxnreg=32)
    return out
"""
REPRO = """\
kernel: summing
tunable: {chunk: [512], share: [2]}
operation: {kernel: summing_rows, launch: default, parameters: {n: 4096}}
"""


@pytest.mark.long
def test_a_parameter_of_the_launch_is_compared_at_the_level_of_its_operation(
    triage: Triage,
) -> None:
    folder = triage.folder / "repros" / "summing_rows"
    folder.mkdir(parents=True)
    (folder / "launch.py").write_text(LAUNCH)
    (folder / "repro.yaml").write_text(REPRO)
    words = ["--kernel", "summing_rows", "--sm", "90a", *TRITON, "--change", "launch"]
    found = workaround(triage, *words, "--max-time", "10m")
    [candidate] = found["candidates"]
    assert [(s["name"], s["before"], s["after"]) for s in candidate["change"]] == [
        ("chunk", 4096, 512)
    ]
    assert candidate["evidence"]["numerics"] == "interpreted"
    assert candidate["evidence"]["stable_max_rel"] == 0.0
    assert "launch it with chunk=512" in candidate["evidence"]["paste"]
    [said] = [note for note in found["notes"] if "share 1 -> 2" in note]
    assert "computes something else" in said


@pytest.mark.long
def test_the_main_kernel(module_triage: Triage) -> None:
    """The bar of the project: less tensor memory, under 1 KB of spill stores, and no stub left."""
    words = ["--kernel", "mamba3_siso_bwd_dqkv", "--sm", "100a", *TRITON]
    done = module_triage("workaround", *words, "--max-time", "20m", "--json", timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    found = msgspec.json.decode(done.stdout)
    small = [
        each
        for each in found["candidates"]
        if (each["tmem_size"] or 0) <= 256 and each["spill_stores"] < 1000
    ]
    assert small
    by_chunk = next(
        each for each in small if {"chunk_size"} <= {step["name"] for step in each["change"]}
    )
    assert any("a smaller tile, chunk_size" in line for line in by_chunk["evidence"]["explanation"])
    assert by_chunk["evidence"]["numerics"] in ("interpreted", "not checked")
    # Today's answer needs no source and optimises as before; both options are kept.
    lists = [each["evidence"]["list"] for each in found["candidates"]]
    assert lists == sorted(lists, reverse=True)
    options = [
        step["after"]
        for each in found["candidates"]
        for step in each["change"]
        if step["kind"] == "flags" and each["evidence"]["list"] == "today"
    ]
    assert options[0] == found["candidates"][0]["change"][0]["after"]
    assert options.index("-O1") > 0
    best = next(each for each in found["candidates"] if each["evidence"]["list"] == "best")
    assert best["verdict"] == "ok"
    registers = next(
        each
        for each in found["candidates"]
        if [step["name"] for step in each["change"]] == ["maxnreg"]
    )
    assert found["baseline"]["spill_stores"] > 5 * registers["spill_stores"]
    assert found["patch"]["proved"] is True
    assert not [row for row in found["patch"]["cells"] if row["verdict"] == "trap_stub"]


CALLS = HERE / "kernels" / "calls.py"


@pytest.mark.long
def test_clusters_that_do_not_compile_are_of_one_block_in_every_launch(
    module_triage: Triage,
) -> None:
    words = ["--kernel", f"{CALLS}::prefix", "--sm", "90a", *TRITON]
    found = workaround(module_triage, *words, "--change", "config")
    [first, *_] = found["candidates"]
    assert (first["config"]["num_ctas"], first["verdict"]) == (1, "ok")
    assert "num_ctas 2 -> 1" in first["evidence"]["change"]
    assert first["launch"] == found["baseline"]["launch"]


@pytest.mark.long
def test_a_tile_that_the_call_passes_is_changed_by_the_parameter_of_the_launch(
    module_triage: Triage,
) -> None:
    words = ["--kernel", f"{CALLS}::squares", "--sm", "90a", *TRITON]
    found = workaround(module_triage, *words, "--change", "launch", "--change", "config")
    assert found["baseline"]["config"]["TILE"] == 512
    for each in found["candidates"]:
        changed = {step["name"]: step["after"] for step in each["change"]}
        # What is told of a setting was compiled with exactly that setting.
        assert each["config"]["TILE"] == changed.get("tile", 512)
        assert each["config"]["R"] == 256
    assert any(each["config"]["TILE"] == 256 for each in found["candidates"])
    assert any("R" in note for note in found["notes"])
