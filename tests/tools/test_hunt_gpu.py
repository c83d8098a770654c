"""`triage hunt ptxas --on gpu`: real ptxas, and a runner that executes PTX in the GPU's place."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Triage

from harness.cells.places import CompileOptions, at_bench
from harness.frontends.registry import front_end
from harness.hunt.causes import said_of
from harness.hunt.generator import comparable, launch_of, program_text
from harness.hunt.on_gpu import AssembledModule, Launcher
from harness.hunt.oracles import LEVELS, HuntCase, Oracles, body_of
from harness.hunt.triton_oracles import TritonOracles
from harness.hunt.voting import HuntAnswer, Voter, emulated_ptx
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.toolchains.install import install_ptxas
from harness.run.gpu.packing import CubinRunner
from harness.store.store import Store
from harness.values.errors import InfrastructureError
from harness.values.target import Target

pytestmark = pytest.mark.tools

RUNNER = Path(__file__).parents[1] / "fakes" / "gpu_runner"
HEAD = ".version 7.8\n.target sm_90\n.address_size 64\n"
LINES = """.reg .b32 %r0, %r1;
.reg .b64 %out;
ld.param.u64 %out, [out];
mov.u32 %r0, %tid.x;
mad.wide.u32 %out, %r0, 64, %out;
OPCODE %r1, %r0;
st.global.u32 [%out], %r1;
ret;"""


def asked(lines: str, seed: int = 1) -> HuntCase:
    return HuntCase(program_text(HEAD, lines.splitlines()), seed)


def launcher(hub: Hub) -> Launcher:
    place = CubinRunner(words=(sys.executable, str(RUNNER)), name="the runner")
    return Launcher(hub=hub, target=Target.parse("90"), destination=place)


def oracles_of(hub: Hub) -> Oracles:
    return Oracles(
        hub=hub,
        ptxas=install_ptxas("13.0.88"),
        target=Target.parse("90"),
        nvdisasm=None,
        limits=ResourceLimits(timeout=120, memory=2 << 30),
        jobs=1,
        slots=asyncio.Semaphore(1),
        gpu=launcher(hub),
    )


async def ask(programs: list[HuntCase], *levels: int, screens: bool = False) -> list[HuntAnswer]:
    async with Hub() as hub:
        oracles = oracles_of(hub)
        answers = await oracles.ask(programs, levels=levels or LEVELS, screens=screens)
        assert oracles.gpu is not None
        assert oracles.gpu.device == "Emulated GPU"
        return answers


@pytest.mark.parametrize("screens", [False, True])
def test_what_cubins_leave_is_held_to_the_ptx(
    toolchain_cache: Path, monkeypatch: pytest.MonkeyPatch, screens: bool
) -> None:
    assert toolchain_cache.parent
    opcodes = ("not.b32", "brev.b32", "clz.b32", "popc.b32", "cnot.b32")
    programs = [asked(LINES.replace("OPCODE", one), n) for n, one in enumerate(opcodes)]
    # What the PTX itself does wrong is not launched.
    wild = asked(LINES.replace("OPCODE %r1, %r0;", "mov.u32 %r1, 1;\nmov.u64 %out, 8;"))
    does = (
        "folds=,-O3=>brev.b32=>not.b32",
        "folds=,-O[03]=>clz.b32=>not.b32",
        "folds=,-O3=>cnot.b32=>popc.b32",
        "folds=,-O0=>cnot.b32=>not.b32",
        "fault=3::",
    )
    monkeypatch.setenv("FAKE_RUNNER", "|".join(does))
    answers = asyncio.run(ask([*programs, wild], screens=screens))
    assert list(map(said_of, answers)) == [
        "right",
        "wrong -O3",
        "wrong -O0 -O3",
        "wrong -O0 -O3",
        "untold -O0 -O3",
        "left_out",
    ]
    words = [answer.words for answer in answers]
    assert re.fullmatch(r"thread 0, bytes 0-3 of 64: 0xffffffff, PTX 0x00000000", words[1])
    assert words[3] == "; ".join(f"-O{n}: fault CUDA_ERROR_ILLEGAL_ADDRESS" for n in LEVELS)
    assert words[4] == "no two of three agree"


def test_results_that_do_not_come_back_accuse_nobody(
    toolchain_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toolchain_cache.parent
    programs = [asked(LINES.replace("OPCODE", opcode)) for opcode in ("not.b32", "brev.b32")]
    monkeypatch.setenv("FAKE_RUNNER", "cut")
    answers = asyncio.run(ask(programs, 3))
    assert list(map(said_of, answers)) == ["right", "untold"]
    assert answers[1].words == "-O3: no results came back"
    monkeypatch.setenv("FAKE_RUNNER", "silent")
    with pytest.raises(InfrastructureError, match="gave no results: exit code 1: no route"):
        asyncio.run(ask(programs))


def test_questions_of_several_modules_travel_together(
    toolchain_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert toolchain_cache.parent
    monkeypatch.setenv("FAKE_RUNNER", "folds=::k0.*,-O3=>brev.b32=>not.b32")
    monkeypatch.setenv("FAKE_RUNNER_LOG", str(tmp_path / "trips"))
    both = [asked(LINES.replace("OPCODE", opcode)) for opcode in ("brev.b32", "not.b32")]

    async def work() -> list[list[HuntAnswer]]:
        async with Hub() as hub:
            oracles, gpu = oracles_of(hub), launcher(hub)
            modules = []
            for some in (both, both[::-1]):
                folder = hub.new_folder("module")
                bodies = [body_of(one.text).replace("k(", f"k{n}(") for n, one in enumerate(some)]
                await oracles.assemble(folder, HEAD + "".join(bodies), 3, oracles.limits)
                voters = [Voter(text=one.text, seed=1, entry=f"k{n}") for n, one in enumerate(some)]
                results = [emulated_ptx(launch_of(1, one.text)).allocations[1].data for one in some]
                modules.append(
                    AssembledModule(
                        text=HEAD + "".join(bodies),
                        ptxas="13.0.88",
                        cubins={3: (folder / "level-3.cubin").read_bytes()},
                        programs=voters,
                        right=list(map(comparable, results)),
                        is_thorough=False,
                    )
                )
            return await asyncio.gather(*map(gpu.ask, modules))

    answers = asyncio.run(work())
    assert [list(map(said_of, some)) for some in answers] == [["wrong -O3", "right"], ["right"] * 2]
    assert (tmp_path / "trips").read_text().count("\n") == 1


KERNEL = """
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({}, num_warps=1), triton.Config({}, num_warps=4)]


@triton.autotune(configs=CONFIGS, key=[])
@triton.jit
def generated(o):
    r = tl.arange(0, 128)
    tl.store(o + r, r * 3)


def launch():
    o = torch.zeros(128, device="cuda", dtype=torch.int32)
    generated[(1,)](o)
    return o
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("on", "does", "vote", "signature"),
    [
        ("gpu", "", "right", None),
        ("gpu", "folds=num_warps=4(?!.*-O0)=>, 3;=>, 5;", "wrong", "wrong_result"),
        ("sass", "", "right", None),
    ],
)
def test_cubins_of_kernels_are_held_to_the_interpreter(
    toolchain_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    on: str,
    does: str,
    vote: str,
    signature: str | None,
) -> None:
    assert toolchain_cache.parent
    monkeypatch.setenv("FAKE_RUNNER", does)
    triton = front_end("triton").install("3.9.0")

    async def work(store: Store) -> list[HuntAnswer]:
        async with at_bench(store, CompileOptions(jobs=1)) as bench:
            oracles = TritonOracles(
                bench=bench,
                compiler=triton,
                targets=[Target.parse("90a")],
                on=on,
                runner=shlex.join([sys.executable, str(RUNNER)]) if on == "gpu" else None,
            )
            return await oracles.ask([HuntCase(KERNEL, 0)])

    with Store.open(tmp_path / "home") as store:
        [answer] = asyncio.run(work(store))
    assert (answer.vote.value, answer.signature) == (vote, signature)
    assert not answer.is_latent


@pytest.mark.long
def test_a_hunt_reduces_what_is_measured(triage: Triage) -> None:
    does = "folds=-O3=>sub.s32=>add.s32"
    triage = replace(triage, env={**triage.env, "FAKE_RUNNER": does})
    runner = shlex.join([sys.executable, str(RUNNER)])
    hunt = ("hunt", "ptxas", "--ptxas", "13.0.88", "--seed", "5", "--max-tries", "128")
    done = triage(*hunt, "--runner", runner, "--for", "10m", "--json", timeout=900)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert (document["hunt"]["on"], document["hunt"]["device"]) == ("gpu", "Emulated GPU")
    assert document["hunt"]["cpu"]["launches"] > 0
    [cause] = document["causes"]
    assert (cause["name"], cause["levels"]) == ("sub at -O3", [3])
    assert cause["versions"]["13.0.88"] == "wrong -O3"
    assert cause["targets"] == {}


def test_without_a_gpu_one_line_says_so(triage: Triage) -> None:
    done = triage("hunt", "ptxas", "--ptxas", "13.0.88", "--on", "gpu", "--for", "10s")
    if "no NVIDIA driver" not in done.stderr:
        pytest.skip("this machine has a GPU")
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("triage: --on gpu: no NVIDIA driver")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--runner", "x", "--on", "sass"), "--runner is for a GPU: leave out --on sass"),
        (("--corpus", ".", "--on", "gpu"), "--corpus asks no GPU: leave out --on gpu"),
    ],
)
def test_what_does_not_go_with_a_gpu_is_refused(
    triage: Triage, words: tuple[str, ...], says: str
) -> None:
    done = triage("hunt", "ptxas", *words)
    assert done.returncode == 2
    assert says in done.stderr
