"""Our own repros: one small kernel for each verdict, and a tuned kernel with invalid configs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Triage

pytestmark = pytest.mark.tools

REPROS = Path(__file__).parents[2] / "repros"
QUICK = ("--timeout", "5")
SMALL = ("--memory", "1")

# By kernel: the verdict, the stage, what the reason names; and words that make it compile.
SHOWN: dict[str, tuple[str, str | None, tuple[str, ...], tuple[str, ...]]] = {
    "sick_spills": ("sick", "cubin", ("spills",), ("--set", "num_warps=8")),
    "sick_local_memory": ("sick", "cubin", ("2,048 B", "local memory"), ("--set", "size=256")),
    "sick_occupancy": ("sick", "cubin", ("occupancy 1.6%", "shared"), ("--set", "num_stages=3")),
    "trap_stub": ("trap_stub", "llir", ("784 columns", "has 512"), ("--set", "block_n=64")),
    "trap_stub_assume": ("trap_stub", "llir", ("to a trap",), ("--set", "least=128")),
    "out_of_resources_shared_memory": (
        "out_of_resources",
        "launch",
        ("262,144 B of shared memory", "232,448 B"),
        ("--set", "num_stages=3"),
    ),
    "out_of_resources_threads": (
        "out_of_resources",
        "launch",
        ("2,048 threads", "1,024"),
        ("--set", "num_warps=32"),
    ),
    "out_of_resources_registers": (
        "out_of_resources",
        "launch",
        ("registers for each of 1,024 threads", "65,536"),
        ("--set", "maxnreg=64"),
    ),
    "rejected": ("rejected", "ttir", ("power of 2",), ("--set", "block=128")),
    "pass_failure": (
        "pass_failure",
        "ttgir",
        ("TritonGPUAccelerateMatmul", "colStride"),
        ("--set", "dtype=float16"),
    ),
    "pass_failure_recovered": (
        "pass_failure",
        "llir",
        ("ConvertTritonGPUToLLVM",),
        ("--set", "rounding=rtne"),
    ),
    "compiler_crash": (
        "compiler_crash",
        "llir",
        ("SIGABRT", "number of input constraints"),
        ("--set", "constraints==r,r"),
    ),
    "compiler_crash_exit": (
        "compiler_crash",
        "ptx",
        ("exit code 1", "constraint 'x'"),
        ("--set", "constraints==r,r"),
    ),
    "compiler_crash_ptxas": (
        "compiler_crash",
        "cubin",
        ("ptxas died by SIGFPE",),
        ("--set", "divisor=1"),
    ),
    "ptxas_error": ("ptxas_error", "cubin", ("requires .target sm_90",), ("--sm", "90a")),
    "unsupported": ("unsupported", "cubin", ("sm_120a",), ("--triton", "3.6.0")),
}
# Other neighbours that do not have the verdict: another target, or a Triton where it is fixed.
ELSEWHERE = [
    # Three sums in registers spill, which takes ptxas its time.
    pytest.param("trap_stub", ("--sm", "90a"), marks=pytest.mark.long),
    ("pass_failure", ("--sm", "90a")),
    ("pass_failure", ("--triton", "3.8.0")),
]
CANNOT_TELL = {"unsupported", "timeout", "out_of_memory"}


def one(triage: Triage, name: str, *words: str, code: int) -> dict[str, Any]:
    [row] = triage.compile("--kernel", f"verdict_{name}", *words, code=code)["cells"]
    return dict(row)


def exit_code(verdict: str) -> int:
    return 0 if verdict in ("ok", "sick") else 4 if verdict in CANNOT_TELL else 1


@pytest.fixture(scope="module")
def stored(module_triage: Triage) -> Triage:
    """With the verdicts of most kernels in the store: a process of Triton makes many of them."""
    for pattern in ("verdict_[!otu]*", "verdict_trap_*", "verdict_out_of_res*"):
        module_triage.compile("--kernel", pattern, code=1)
    return module_triage


def test_ok(module_triage: Triage) -> None:
    row = one(module_triage, "ok", code=0)
    assert (row["verdict"], row["stage"], row["reason"]) == ("ok", None, "compiled")


# Compile longest.
LONG = ("sick_spills", "sick_local_memory", "unsupported")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] if n in LONG else []) for n in SHOWN]
)
def test_a_kernel_shows_its_verdict_and_its_neighbour_does_not(stored: Triage, name: str) -> None:
    verdict, stage, said, neighbour = SHOWN[name]
    row = one(stored, name, code=exit_code(verdict))
    assert (row["verdict"], row["stage"]) == (verdict, stage)
    assert row["signature"] is not None
    for words in said:
        assert words in row["reason"]
    near = one(stored, name, *neighbour, code=0)
    assert near["verdict"] == ("sick" if name.endswith("_registers") else "ok")
    assert near["signature"] != row["signature"]


@pytest.mark.parametrize(("name", "words"), ELSEWHERE)
def test_it_is_the_target_or_the_triton(
    module_triage: Triage, name: str, words: tuple[str, str]
) -> None:
    assert one(module_triage, name, *words, code=0)["verdict"] in ("ok", "sick")


@pytest.mark.long
def test_a_compile_time_explosion_ends_in_time(module_triage: Triage) -> None:
    row = one(module_triage, "timeout", *QUICK, code=exit_code("timeout"))
    assert row["verdict"] == "timeout"
    assert "was not finished: killed after 5 s; --timeout allows more" in row["reason"]
    # Not the limit: the same with fewer steps ends in a fraction of it.
    assert one(module_triage, "timeout", "--set", "steps=5", code=0)["verdict"] == "ok"


@pytest.mark.long
def test_memory_is_limited(module_triage: Triage) -> None:
    row = one(module_triage, "out_of_memory", *SMALL, code=exit_code("out_of_memory"))
    assert (row["verdict"], row["stage"]) == ("out_of_memory", "cubin")
    # The supervisor looks every so often, so what it finds is a little over the limit.
    assert re.search(
        r"ptxas was not finished: killed at 1\.[0-4] GiB; --memory allows more", row["reason"]
    ), row["reason"]
    near = one(module_triage, "out_of_memory", *SMALL, "--set", "registers=1000", code=0)
    assert near["verdict"] == "ok"


@pytest.mark.long
@pytest.mark.parametrize("version", ["3.7.1", "3.8.0", "3.9.0"])
@pytest.mark.parametrize("name", [n for n in SHOWN if n != "unsupported"])
def test_verdicts_of_newer_tritons(module_triage: Triage, name: str, version: str) -> None:
    verdict, stage, _, _ = SHOWN[name]
    if version != "3.7.1":
        # 3.8 keeps such products off the tensor cores; its LLVM goes on after such an error.
        changed = {"pass_failure": ("ok", None), "compiler_crash_exit": ("pass_failure", "ptx")}
        verdict, stage = changed.get(name, (verdict, stage))
    row = one(module_triage, name, "--triton", version, code=exit_code(verdict))
    assert (row["verdict"], row["stage"]) == (verdict, stage)


def test_signatures_hold_over_tritons_that_were_built_elsewhere(module_triage: Triage) -> None:
    document = module_triage.compile(
        "--kernel", "verdict_compiler_crash", "--triton", "3.6.0", "--triton", "3.8.0", code=1
    )
    assert len({row["triton"] for row in document["cells"]}) == 2
    assert len({row["signature"] for row in document["cells"]}) == 1


# -- the chunk scan

INTERPRET = """
import json, sys, torch
from torch.overrides import TorchFunctionMode

class OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)

sys.path.insert(0, sys.argv[1])
import launch

SHAPE = {"batch": 2, "seqlen": 100, "nheads": 2, "headdim": 40, "ngroups": 1, "dstate": 64,
         "chunk_size": 64, "dtype": "float16"}

def reference(cb, x, dt, cs, c, states, nheads, ngroups, chunk_size, seqlen, **_):
    batch, nchunks = states.shape[:2]
    short = nchunks * chunk_size - seqlen
    pad = lambda t: torch.nn.functional.pad(t.float(), (0, 0, 0, 0, 0, short)).reshape(
        batch, nchunks, chunk_size, *t.shape[2:])
    x, c = pad(x), pad(c).repeat_interleave(nheads // ngroups, 3)
    cb = cb.float().repeat_interleave(nheads // ngroups, 2)
    before = torch.einsum("bzlhn,bzhpn,bhzl->bzlhp", c, states.float(), cs.exp())
    decay = (cs[..., :, None] - cs[..., None, :]).tril().exp().tril()
    inside = torch.einsum("bzhls,bhzls,bhzs,bzshp->bzlhp", cb, decay, dt, x)
    return (before + inside).reshape(batch, -1, *x.shape[3:])[:, :seqlen]

class EveryConfig:
    def __getitem__(self, grid):
        def run(*args):
            *_, out = args[:7]
            wanted = reference(*args[:6], **SHAPE)
            for config in launch.CONFIGS:
                out.fill_(float("nan"))
                launch.chunk_scan_fwd_kernel[grid(config.kwargs)](*args, **config.kwargs)
                error = (out.float() - wanted).norm() / wanted.norm()
                print(json.dumps([config.kwargs["BLOCK_SIZE_DSTATE"], error.item()]))
        return run

torch.manual_seed(0)
with OnCpu():
    launch._launch(EveryConfig(), *[SHAPE[name] for name in (
        "batch", "seqlen", "nheads", "headdim", "ngroups", "dstate", "chunk_size", "dtype")])
"""


@pytest.mark.long
def test_the_chunk_scan_is_right_where_its_block_covers_the_state() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERPRET, str(REPROS / "chunk_scan_dstate")],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    errors = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(errors) == 27
    assert all(error < 0.01 for block, error in errors if block >= 64)
    # Half of the state is left out: not a rounding error.
    assert all(error > 0.1 for block, error in errors if block < 64)


@pytest.mark.long
def test_pruning_leaves_the_valid_configs(module_triage: Triage) -> None:
    words = ["--kernel", "chunk_scan_dstate", "--sm", "90a", "--set", "dstate=64"]
    some = "BLOCK_SIZE_M=64,BLOCK_SIZE_K=32,num_stages=3"
    pruned = module_triage.compile(*words, "--config", some, code=0)["cells"]
    assert {row["config"]["BLOCK_SIZE_DSTATE"] for row in pruned} == {64, 128}
    every = module_triage.compile(*words, "--config", some, "--launch", "unpruned", code=0)["cells"]
    assert {row["config"]["BLOCK_SIZE_DSTATE"]: row["verdict"] for row in every} == {
        32: "ok",
        64: "ok",
        128: "ok",
    }


@pytest.mark.long
def test_the_chunk_scan_compiles_everywhere(module_triage: Triage) -> None:
    targets = [word for sm in ("80", "90a", "100a", "120a") for word in ("--sm", sm)]
    rows = module_triage.compile("--kernel", "chunk_scan_dstate", *targets, code=0)["cells"]
    assert len(rows) == 4 * 9
    assert {row["verdict"] for row in rows} <= {"ok", "sick"}
    assert all(row["instructions"]["tensor"] > 0 for row in rows)
