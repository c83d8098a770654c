"""The real ptxas 13.0.88 loses the vote on a generated program, and on what is left of others.

The least programs below were found by `triage hunt ptxas --ptxas 13.0.88`; their SASS was read.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest
from acted_machines import Threads

from gpu_emulator.ptx.forms import OpcodeForm
from gpu_emulator.sass.cubin import read_entry
from gpu_emulator.sass.listing import code_sections, read_section
from harness.cells.places import CompileOptions, at_bench
from harness.frontends.registry import front_end
from harness.hunt import growth
from harness.hunt import oracles as asked_oracles
from harness.hunt.causes import Cause, join, said_of
from harness.hunt.generator import Generator, opcode_forms, some_forms
from harness.hunt.gluon_sources import gluon_program
from harness.hunt.hunting import hunt
from harness.hunt.oracles import LEVELS, AskedTogether, HuntCase, Oracles, body_of
from harness.hunt.plan import Hit, HuntPlan, HuntState, keep_hunt
from harness.hunt.ptxas_hunt import HuntedPtxas
from harness.hunt.triton_hunt import has_gluon, least_kernel
from harness.hunt.triton_oracles import Care, TritonOracles
from harness.hunt.voting import HuntAnswer, Vote
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.toolchains.install import find_nvdisasm, install_ptxas
from harness.matrix.elsewhere import ToolsElsewhere
from harness.matrix.workers import worker_loop
from harness.store.store import Store
from harness.values.target import Target

pytestmark = pytest.mark.tools

HEAD = ".version 7.8\n.target sm_90\n.address_size 64\n"
BASES = (
    "bfe",
    "add",
    "sub",
    "and",
    "or",
    "xor",
    "not",
    "shl",
    "shr",
    "min",
    "max",
    "selp",
    "setp",
    "set",
    "slct",
    "prmt",
    "lop3",
    "abs",
    "mad",
    "neg",
    "popc",
    "bfind",
)
MOST_SEEDS = 128
PARAMETERS = ".param .u64 in, .param .u64 out, .param .u32 n, .param .u32 m"
# pos is 32: past the end of the number, so that each bit is its sign, 0 for a thread's number.
PAST_THE_END = """
mov.u32 %r0, %tid.x;
bfe.s32 %r1, %r0, 32, 1;
add.u32 %r0, %r1, %r1;
st.b32 [%out], %r0;
"""
# A pass of Triton 3.9.0 fails on this loop for sm_100a.
SPECIALIZED = """
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({}, num_stages=3, num_warps=4)]


@triton.autotune(configs=CONFIGS, key=[])
@triton.jit
def generated(x, out):
    x_d = tl.make_tensor_descriptor(x, [256, 64], [64, 1], [128, 64])
    out_d = tl.make_tensor_descriptor(out, [128, 128], [128, 1], [128, 64])
    for step in tl.range(0, 2, warp_specialize=True):
        tile = x_d.load([step * 128, 0])
        out_d.store([0, step * 64], tl.cumsum(tile.to(tl.float32), 1))


def launch():
    triton.set_allocator(lambda size, *_: torch.empty(size, device="cuda", dtype=torch.int8))
    x = torch.zeros(256, 64, device="cuda", dtype=torch.float16)
    generated[(1,)](x, torch.zeros(128, 128, device="cuda"))
"""
# Where the guard does not hold, the register keeps the thread's number.
GUARDED = """
mov.u32 %r0, %tid.x;
mad.wide.u32 %out, %r0, 64, %out;
setp.gt.s32 %p0, %r0, 0;
@!%p0 set.nan.or.f32.f32 %r0, %r0, %r0, %p0;
st.b32 [%out], %r0;
"""
# The least number, negated, is taken for positive. One thread alone has it: where all write one
# place, a GPU may keep what another one wrote.
OWN_PLACE = """
mov.u32 %r0, %tid.x;
mad.wide.u32 %out, %r0, 64, %out;
bmsk.wrap.b32 %r1, 31, %r0;
neg.s32 %r0, %r1;
slct.s32.s32 %r0, %r0, 0, %r0;
st.b32 [%out], %r0;
"""
ONE_PLACE = OWN_PLACE.replace("mad.wide.u32 %out, %r0, 64, %out;", "")


# What a hunt in 13.5.37 found that ends it without code: see `docs/measured/hunting-results.md`.
FAILING = {
    "two branches": (
        """
mov.u32 %r0, %tid.x;
lop3.b32 %r1, %r0, %r0, %r0, 0xff;
setp.ne.u32 %p0, %r1, 0;
@!%p0 bra FIRST;
mov.u32 %r0, 63;
FIRST:
@%p0 bra SECOND;
add.u32 %r0, %r0, 1;
SECOND:
st.global.b32 [%out], %r0;
""",
        "fails -O3",
    ),
    "store by register": ("st.param.b64 [%out], %out;\n", "fails -O0 -O3"),
    "right": ("st.global.b64 [%out], %out;\n", "assembled"),
}


def is_plain(form: OpcodeForm) -> bool:
    kinds = {*form.results, *form.operands}
    return form.base in BASES and kinds <= {"u32", "s32", "b32", "pred"}


def program(lines: str) -> HuntCase:
    registers = ".reg .b32 %r0, %r1;\n.reg .pred %p0;\n.reg .b64 %out;\nld.param.u64 %out, [out];"
    return HuntCase(f"{HEAD}.visible .entry k({PARAMETERS})\n{{\n{registers}{lines}ret;\n}}\n", 1)


async def asked(version: str, programs: list[HuntCase]) -> list[HuntAnswer]:
    async with Hub() as hub:
        return await oracles(hub, version).ask(programs, is_thorough=True)


def oracles(hub: Hub, version: str, target: str = "90") -> Oracles:
    return Oracles(
        hub=hub,
        ptxas=install_ptxas(version),
        target=Target.parse(target),
        nvdisasm=find_nvdisasm(),
        limits=ResourceLimits(timeout=120, memory=2 << 30),
        jobs=2,
        slots=asyncio.Semaphore(2),
    )


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("13.0.88", ["wrong -O3", "wrong -O0 -O3", "wrong -O3", "left_out"]),
        ("13.5.37", ["right", "wrong -O0 -O3", "wrong -O3", "left_out"]),
    ],
)
def test_what_a_hunt_found_is_told_by_the_vote(
    toolchain_cache: Path, version: str, words: list[str]
) -> None:
    assert toolchain_cache.parent
    programs = [program(lines) for lines in (PAST_THE_END, GUARDED, OWN_PLACE, ONE_PLACE)]
    answers = asyncio.run(asked(version, programs))
    assert [said_of(answer) for answer in answers] == words


def test_machines_elsewhere_assemble_and_vote_alike(toolchain_cache: Path) -> None:
    assert toolchain_cache.parent
    programs = [program(lines) for lines in (PAST_THE_END, GUARDED, OWN_PLACE, ONE_PLACE)]
    machines, said = Threads(), list[str]()

    async def ask() -> list[HuntAnswer]:
        async with ToolsElsewhere(machines, CompileOptions(jobs=2), said.append) as hub:
            return await oracles(hub, "13.0.88").ask(programs, is_thorough=True)

    try:
        answers = asyncio.run(ask())
    finally:
        worker_loop().close()
    assert answers == asyncio.run(asked("13.0.88", programs))
    # nvdisasm is forked here.
    assert {name.partition(" ")[0] for name in machines.sent} == {"ptxas", "emulator"}
    assert said == []


def test_what_ends_the_newest_ptxas_is_told_of_a_module(toolchain_cache: Path) -> None:
    assert toolchain_cache.parent

    async def ask() -> list[HuntAnswer]:
        async with Hub() as hub:
            programs = [program(f"\n{lines}") for lines, _ in FAILING.values()]
            return await oracles(hub, "13.5.37").ask(programs, votes=False)

    assert [said_of(answer) for answer in asyncio.run(ask())] == [
        words for _, words in FAILING.values()
    ]


def test_opcodes_that_are_refused_only_where_others_are_right_are_left_out(
    toolchain_cache: Path,
) -> None:
    assert toolchain_cache.parent

    async def usable() -> list[OpcodeForm]:
        async with Hub() as hub:
            asked = oracles(hub, "13.0.88")
            return await asked.usable(await asked.head(), some_forms(2))

    forms = asyncio.run(usable())
    assert {"add", "bfe", "cvt", "lop3", "setp"} <= {form.base for form in forms}


@pytest.mark.parametrize(
    ("version", "target"),
    [
        ("13.0.88", "90"),
        ("13.5.37", "120a"),
        pytest.param("12.8.93", "80", marks=pytest.mark.long),
        pytest.param("13.5.37", "100a", marks=pytest.mark.long),
    ],
)
def test_words_say_what_nvdisasm_says_of_the_whole_cubin(
    toolchain_cache: Path, version: str, target: str
) -> None:
    assert toolchain_cache.parent

    async def work() -> None:
        async with Hub() as hub:
            asked = oracles(hub, version, target)
            assert asked.nvdisasm
            head = await asked.head()
            forms = await asked.usable(head, some_forms(1))
            texts = [Generator(head, forms).program(seed).text for seed in range(48)]
            folder = hub.new_folder("both")
            module = "".join(
                [head, *(body_of(t).replace("k(", f"k{n}(", 1) for n, t in enumerate(texts))]
            )
            for level in LEVELS:
                await asked.assemble(folder, module, level, asked.limits)
            assert not await asked.list_sass(folder, LEVELS)
            branches = 0
            for level in LEVELS:
                cubin = folder / f"level-{level}.cubin"
                argv = (asked.nvdisasm.path, "-c", "-ndf", "-hex", cubin)
                assert (await hub.execute(argv, folder=folder, limits=asked.limits)).ok
                whole = code_sections((folder / "stdout").read_text())
                words = code_sections((folder / f"level-{level}.sass").read_text())
                assert len(words) == len(texts)
                for name, code in words.items():
                    functions = read_entry(cubin.read_bytes(), name).functions
                    said, expected = (placed(one, functions) for one in (code, whole[name]))
                    assert said == expected
                    branches += sum("0x" in text and "BRA" in text for text in said)
            assert branches > 100

    asyncio.run(work())


def placed(code: str, functions: dict[str, int]) -> list[str]:
    """The instructions of a section, with offsets for labels."""
    lines, labels = read_section(code)
    labels |= functions
    return [re.sub(r"`\((.*?)\)", lambda label: hex(labels[label[1]]), line.text) for line in lines]


@pytest.mark.long
def test_a_generated_program_is_wrong_and_reduced_to_a_few_instructions(
    toolchain_cache: Path,
) -> None:
    assert toolchain_cache.parent

    async def work() -> None:
        async with Hub() as hub:
            asked = oracles(hub, "13.0.88")
            forms = await asked.usable(HEAD, [form for form in opcode_forms() if is_plain(form)])
            generator = Generator(HEAD, forms)
            state = HuntState()
            ptxas = HuntedPtxas(
                plan=HuntPlan(tool=asked.ptxas, targets=(asked.target,), seed=0, seconds=1.0),
                state=state,
                program=generator.program,
                oracles=asked,
                together=AskedTogether(asked),
            )
            programs = [HuntCase(generator.program(seed).text, seed) for seed in range(MOST_SEEDS)]
            answers = zip(programs, await asked.ask(programs, screens=True), strict=True)
            hit = Hit(*next(pair for pair in answers if said_of(pair[1]) == "wrong -O3"))
            least = await ptxas.reduce(hit, is_time_up=lambda: False)
            assert not isinstance(least, str), least
            assert said_of(least.answer) == "wrong -O3"
            assert len(least.opcodes) <= 10
            cause, is_new = join(state.causes, least, seconds=0.0, tried=1)
            assert is_new
            assert join(state.causes, least, seconds=1.0, tried=2) == (cause, False)
            # It is known from now on.
            assert await ptxas.walk_around(hit) is None

    asyncio.run(work())


@pytest.mark.long
def test_a_kernel_that_triton_fails_on_is_known_to_the_next_hunt(
    toolchain_cache: Path, tmp_path: Path
) -> None:
    triton = front_end("triton").install("3.9.0")
    plan = HuntPlan(tool=triton, targets=(Target.parse("100a"),), seed=1, seconds=60.0, most=1)
    asked, how = HuntCase(SPECIALIZED, 0), CompileOptions(jobs=2)

    async def ask(store: Store) -> HuntAnswer:
        async with at_bench(store, how) as bench:
            oracles = TritonOracles(bench=bench, compiler=triton, targets=plan.targets)
            [answer] = await oracles.ask([asked])
            return answer

    said: list[str] = []
    with Store.open(tmp_path / "home") as store:
        answer = asyncio.run(ask(store))
        least = least_kernel(plan, asked, answer)
        other = msgspec.structs.replace(plan, seed=2)
        keep_hunt(store, other, HuntState(causes=[Cause(programs=[least])]))
        report = asyncio.run(hunt(plan, store, how, said.append, lambda words: None))
    assert answer.vote is Vote.FAILS
    assert [cause.name for cause in report.state.causes if cause.is_known] == [least.name]
    assert (report.state.new, said) == ([], [])


# Five totals of 128 columns, and a product that is an operand: 704 columns of tensor memory.
TRAP = """
import torch
import triton
import triton.language as tl

CONFIGS = [
    triton.Config({}, num_stages=1, num_warps=4),
]


@triton.autotune(configs=CONFIGS, key=[])
@triton.jit
def generated(x, o, n):
    r = tl.arange(0, 128)
    at = r[:, None] * 128 + r[None, :]
    v = tl.load(x + at)
    a = tl.zeros([128, 128], tl.float32)
    b = tl.zeros([128, 128], tl.float32)
    c = tl.zeros([128, 128], tl.float32)
    d = tl.zeros([128, 128], tl.float32)
    e = tl.zeros([128, 128], tl.float32)
    for step in range(0, n):
        a = tl.dot(v, v, a)
        b = tl.dot(v, tl.trans(v), b)
        c = tl.dot(tl.trans(v), v, c)
        d = tl.dot(tl.trans(v), tl.trans(v), d)
        e = tl.dot(a.to(tl.bfloat16), v, e)
    tl.store(o + at, a + b + c + d + e)


def launch():
    x = torch.randint(-2, 3, (128, 128), device="cuda").to(torch.bfloat16)
    o = torch.zeros(128 * 128, device="cuda")
    generated[(1,)](x, o, 3)
    return o
"""


@pytest.mark.long
def test_a_kernel_that_triton_lowers_to_a_trap_is_named_so(
    toolchain_cache: Path, tmp_path: Path
) -> None:
    triton = front_end("triton").install("3.9.0")

    async def ask(store: Store) -> list[HuntAnswer]:
        async with at_bench(store, CompileOptions(jobs=2)) as bench:
            targets = [Target.parse("100a")]
            oracles = TritonOracles(bench=bench, compiler=triton, targets=targets)
            return [(await oracles.ask([HuntCase(TRAP, 0)], care=care))[0] for care in Care]

    with Store.open(tmp_path / "home") as store:
        answers = asyncio.run(ask(store))
    assert {answer.vote for answer in answers} == {Vote.FAILS}
    assert all("trap_stub, asks for 704 columns" in answer.words for answer in answers)


# What it computes depends on its layout.
BY_LAYOUT = """
import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

CONFIGS = [
    triton.Config({"E0": 1}, num_warps=4),
    triton.Config({"E0": 2}, num_warps=4),
]


@triton.autotune(configs=CONFIGS, key=[])
@gluon.jit
def generated(o, E0: gl.constexpr):
    L0: gl.constexpr = gl.BlockedLayout([E0], [32], [4], [0])
    r = gl.arange(0, 512, layout=L0)
    gl.store(o + r, r * E0)


def launch():
    o = torch.zeros(512, device="cuda", dtype=torch.int32)
    generated[(1,)](o)
    return o
"""


@pytest.mark.long
def test_gluon_kernels_agree_in_all_their_layouts(toolchain_cache: Path, tmp_path: Path) -> None:
    triton = front_end("triton").install("3.9.0")
    assert has_gluon(triton)
    asked = [HuntCase(gluon_program(seed).text, seed) for seed in range(12)]

    async def ask(store: Store) -> tuple[list[HuntAnswer], list[HuntAnswer]]:
        async with at_bench(store, CompileOptions(jobs=1)) as bench:
            targets = [Target.parse("80"), Target.parse("90a")]
            oracles = TritonOracles(bench=bench, compiler=triton, targets=targets)
            other = [(await oracles.ask([HuntCase(BY_LAYOUT, 0)], care=care))[0] for care in Care]
            return await oracles.ask(asked), other

    with Store.open(tmp_path / "home") as store:
        answers, other = asyncio.run(ask(store))
    assert {answer.vote for answer in answers} == {Vote.RIGHT}
    assert {answer.vote for answer in other} == {Vote.WRONG}


def test_spills_that_the_text_does_not_ask_for_are_told_of_a_module(
    toolchain_cache: Path, tmp_path: Path
) -> None:
    assert toolchain_cache.parent
    real = install_ptxas("13.5.37")
    # As a ptxas that leaves registers unused and spills.
    miser = tmp_path / "ptxas"
    miser.write_text(f'#!/bin/sh\nexec {real.path} --maxrregcount=24 "$@"\n')
    miser.chmod(0o755)

    def holding(count: int, directives: str = "") -> HuntCase:
        places = range(1, count + 1)
        lines = [f"ld.volatile.shared.u32 %r{n}, [s+{4 * n}];" for n in places]
        lines += [f"st.volatile.shared.u32 [s+{4 * n}], %r{n};" for n in places]
        return HuntCase(
            f"{HEAD}.visible .entry k({PARAMETERS}) {directives}\n{{\n.reg .b32 %r<{count + 1}>;\n"
            f".shared .b32 s[{count + 1}];\n" + "\n".join(lines) + "\nret;\n}\n",
            1,
        )

    async def ask(ptxas: Path) -> list[HuntAnswer]:
        async with Hub() as hub:
            one = oracles(hub, "13.5.37")
            one.ptxas = msgspec.structs.replace(real, path=ptxas)
            programs = [holding(8), holding(80), holding(80, ".maxnreg 40")]
            return await one.ask(programs, votes=False)

    assert {said_of(answer) for answer in asyncio.run(ask(real.path))} == {"assembled"}
    few, many, asked_for = asyncio.run(ask(miser))
    assert [said_of(one) for one in (few, many, asked_for)] == [
        "assembled",
        "grows -O3",
        "assembled",
    ]
    assert "where at most 80 are live at once in the PTX" in many.words


def test_time_that_the_text_does_not_ask_for_is_told_where_programs_are_executed(
    toolchain_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toolchain_cache.parent
    # What is beyond the limit itself takes 4 GiB.
    for place in (growth, asked_oracles):
        monkeypatch.setattr(place, "SECONDS", 0.2)
    plain = f"{HEAD}.visible .entry k({PARAMETERS})\n{{\nret;\n}}\n"
    # ptxas takes memory for each register of a range, whether it is used or not.
    declared = plain.replace("ret;", ".reg .b32 spare<150000000>;\nret;")

    async def ask() -> list[HuntAnswer]:
        async with Hub() as hub:
            one = oracles(hub, "13.5.37")
            return await one.ask([HuntCase(plain, 1), HuntCase(declared, 1)], screens=True)

    short, long = asyncio.run(ask())
    assert short.vote is Vote.RIGHT
    assert (long.vote, long.signature, long.levels) == (Vote.GROWS, "time", LEVELS)
    assert "s of CPU, twice, where 0.2 are plenty" in long.words


# Each step is an operation; all of them become one.
STEPS = """
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({}, num_stages=3, num_warps=4)]


@triton.autotune(configs=CONFIGS, key=[])
@triton.jit
def generated(x, out):
    at = tl.arange(0, 128)
    value = tl.load(x + at)
    for step in tl.static_range(COUNT):
        value = value * 3 + step
    tl.store(out + at, value)


def launch():
    x = torch.zeros(128, device="cuda", dtype=torch.int32)
    generated[(1,)](x, torch.zeros(128, device="cuda", dtype=torch.int32))
"""


@pytest.mark.long
def test_a_pass_that_takes_time_out_of_proportion_to_the_ptx_is_named(
    toolchain_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is beyond the limit itself takes minutes.
    monkeypatch.setattr(growth, "_TRITON_SECONDS", 1.2)
    triton = front_end("triton").install("3.9.0")
    short, long = (HuntCase(STEPS.replace("COUNT", count), 1) for count in ("2", "1200"))
    plan = HuntPlan(seed=1, seconds=1.0, tool=triton, targets=(Target.parse("90a"),))

    async def ask(store: Store) -> list[HuntAnswer]:
        async with at_bench(store, CompileOptions(jobs=1)) as bench:
            oracles = TritonOracles(bench=bench, compiler=triton, targets=plan.targets)
            return await oracles.ask([short, long], care=Care.QUICK)

    with Store.open(tmp_path / "home") as store:
        right, grown = asyncio.run(ask(store))
    assert right.vote is Vote.RIGHT
    assert grown.vote is Vote.GROWS
    assert "s of CPU, twice, where 1." in grown.words
    name = least_kernel(plan, long, grown).name
    assert name == "compile time out of proportion (TritonGPUCoalesce)"
