"""Assemble and inspect with a ptxas that does as it is told; what is cached, and what is not."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from harness.frontends.assemble import inspect_cubin
from harness.frontends.back_end import PTXAS_BACK_END, LoweredProgram
from harness.frontends.bench import Workbench, has_died, still_valid
from harness.frontends.readings import read_stored
from harness.frontends.registry import OpenSessions
from harness.io.processes.hub import FILE_SIZE, Hub, ResourceLimits
from harness.judging.ptxas.cubin import Cubin, read_cubin
from harness.store.artifacts import DamagedArtifactError
from harness.store.store import Store
from harness.values.errors import InfrastructureError
from harness.values.outcome import ProcessEnd
from harness.values.toolchain import Assembler, Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from harness.frontends.bench import Kept
    from harness.values.outcome import Assembly

FAKE = Path(__file__).parents[3] / "fakes" / "ptxas"
FLAGS = ("-v", "--gpu-name=sm_80")
PTX = """\
.version 8.8
.target sm_80
.address_size 64
.visible .entry kernel()
{{
    // fake: {word}
    ret;
}}
"""


@pytest.fixture
def ptxas() -> Assembler:
    digest = hashlib.sha256(FAKE.read_bytes()).hexdigest()
    return Assembler(version="99.1.7", origin="fake", path=FAKE, sha256=digest)


class Bench:
    """Runs one body with a fresh workbench on the same store; counts the fake's runs."""

    def __init__(self, home: Path, count: Path) -> None:
        self.home = home
        self.count = count
        self.limits = ResourceLimits(timeout=60, memory=1 << 30)
        self.use_cache = True

    def __call__(self, body: Callable[[Workbench], Coroutine[Any, Any, Any]]) -> Any:
        async def main() -> Any:
            with Store.open(self.home) as store:
                async with Hub() as hub:
                    bench = Workbench(
                        hub=hub,
                        store=store,
                        sessions=OpenSessions(hub, timeout=10, memory=0),
                        jobs=2,
                        limits=self.limits,
                        use_cache=self.use_cache,
                    )
                    return await asyncio.wait_for(body(bench), 60)

        return asyncio.run(main())

    @property
    def runs(self) -> int:
        return len(self.count.read_text().splitlines()) if self.count.exists() else 0


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    count = tmp_path / "count"
    monkeypatch.setenv("FAKE_PTXAS_COUNT", str(count))
    return Bench(tmp_path / "home", count)


def stored(bench: Workbench, text: str, target: str | None = None) -> LoweredProgram:
    sha256 = bench.store.artifacts.put(text.encode())
    reading = read_stored(bench, sha256).value
    return LoweredProgram(sha256=sha256, reading=reading, flags=FLAGS, target=target)


async def assemble(
    bench: Workbench, program: LoweredProgram, *, ptxas: Assembler, flags: tuple[str, ...]
) -> Kept[Assembly]:
    return await PTXAS_BACK_END.assemble(bench, replace(program, flags=flags), ptxas)


def assembling(ptxas: Assembler, text: str) -> Callable[[Workbench], Coroutine[Any, Any, Any]]:
    async def body(bench: Workbench) -> Kept[Assembly]:
        return await assemble(bench, stored(bench, text), ptxas=ptxas, flags=FLAGS)

    return body


@pytest.mark.parametrize(
    ("word", "exit_code", "number", "has_cubin", "attempts", "stderr"),
    [
        ("ok", 0, None, True, 1, "ptxas info    : Used 4 registers\n"),
        ("ice", 255, None, False, 1, "ptxas fatal   : (C7907) Internal compiler error.\n"),
        ("segv", None, signal.SIGSEGV, False, 2, ""),
        ("exit139", 139, None, False, 2, ""),
        ("truncate", 0, None, False, 1, ""),
        ("nothing", 0, None, False, 1, ""),
        ("binary", 1, None, False, 1, bytes(range(256)).decode(errors="replace")),
    ],
)
def test_evidence_of_one_run(
    bench: Bench,
    ptxas: Assembler,
    word: str,
    exit_code: int | None,
    number: int | None,
    has_cubin: bool,
    attempts: int,
    stderr: str,
) -> None:
    kept = bench(assembling(ptxas, PTX.format(word=word)))
    value = kept.value
    assert (value.end.exit_code, value.end.signal) == (exit_code, number)
    assert not value.end.killed_by_us
    assert (value.has_cubin, "cubin" in kept.artifacts) == (has_cubin, has_cubin)
    assert (value.attempts, bench.runs) == (attempts, attempts)
    assert (value.stderr, value.flags) == (stderr, FLAGS)
    again = bench(assembling(ptxas, PTX.format(word=word)))
    assert again.cached
    assert (again.value, again.artifacts) == (value, kept.artifacts)
    assert bench.runs == attempts


def test_ptxas_gets_the_flags_and_short_names(bench: Bench, ptxas: Assembler) -> None:
    bench(assembling(ptxas, PTX.format(word="ok")))
    assert bench.count.read_text() == "-v --gpu-name=sm_80 kernel.ptx -o kernel.cubin\n"


def test_without_the_cache_everything_is_made_once_in_a_run(bench: Bench, ptxas: Assembler) -> None:
    bench(assembling(ptxas, PTX.format(word="ok")))
    bench.use_cache = False

    async def twice(workbench: Workbench) -> list[bool]:
        source = stored(workbench, PTX.format(word="ok"))
        jobs = [assemble(workbench, source, ptxas=ptxas, flags=FLAGS) for _ in range(5)]
        return sorted(kept.cached for kept in await asyncio.gather(*jobs))

    assert bench(twice) == [False, True, True, True, True]
    assert bench.runs == 2


def test_other_flags_targets_and_binaries_are_other_runs(bench: Bench, ptxas: Assembler) -> None:
    text = PTX.format(word="ok")

    async def body(workbench: Workbench) -> None:
        source = stored(workbench, text)
        other = replace(ptxas, sha256="0" * 64)
        await assemble(workbench, source, ptxas=ptxas, flags=FLAGS)
        await assemble(workbench, source, ptxas=ptxas, flags=(*FLAGS, "-O0"))
        await assemble(workbench, source, ptxas=other, flags=FLAGS)
        await assemble(workbench, stored(workbench, text, "sm_90a"), ptxas=ptxas, flags=FLAGS)

    bench(body)
    assert bench.runs == 4


def test_ptx_with_other_debug_information_is_assembled_once(bench: Bench, ptxas: Assembler) -> None:
    plain = PTX.format(word="ok")
    debug = plain.replace("    ret;", "    .loc 1 7 3\n    ret;") + '\t.file\t1 "/a/b/kernel.py"\n'
    bench(assembling(ptxas, plain))
    assert bench(assembling(ptxas, debug)).cached
    assert bench.runs == 1
    bench(assembling(ptxas, plain.replace("    ret;", "    bar.sync 0;\n    ret;")))
    assert bench.runs == 2


def test_a_missing_artifact_is_made_again(bench: Bench, ptxas: Assembler) -> None:
    text = PTX.format(word="ok")
    first = bench(assembling(ptxas, text))

    async def lose(workbench: Workbench) -> None:
        workbench.store.artifacts.remove(first.artifacts["cubin"])

    bench(lose)
    again = bench(assembling(ptxas, text))
    assert not again.cached
    assert again.artifacts == first.artifacts
    assert bench.runs == 2


def test_a_damaged_artifact_is_found_out_and_made_again(bench: Bench, ptxas: Assembler) -> None:
    text = PTX.format(word="ok")

    async def body(workbench: Workbench) -> str:
        kept = await assemble(workbench, stored(workbench, text), ptxas=ptxas, flags=FLAGS)
        cubin = kept.artifacts["cubin"]
        path = workbench.store.artifacts._path(cubin)
        path.chmod(0o644)
        path.write_bytes(b"\x7fELF" + path.read_bytes()[:100])
        with pytest.raises(DamagedArtifactError):
            await inspect_cubin(workbench, cubin, ())
        again = await assemble(workbench, stored(workbench, text), ptxas=ptxas, flags=FLAGS)
        inspection = await inspect_cubin(workbench, again.artifacts["cubin"], ())
        assert inspection.value.cubin.entries
        assert inspection.value.mixes == {}
        return str(again.artifacts["cubin"] == cubin)

    assert bench(body) == "True"
    assert bench.runs == 2


def test_a_run_that_we_killed_is_tried_again_with_a_looser_limit(
    bench: Bench, ptxas: Assembler
) -> None:
    text = PTX.format(word="sleep1.5")
    bench.limits = ResourceLimits(timeout=0.5, memory=1 << 30)
    killed = bench(assembling(ptxas, text)).value
    assert killed.end.timed_out
    assert (killed.attempts, killed.has_cubin) == (1, False)
    assert bench(assembling(ptxas, text)).cached
    bench.limits = ResourceLimits(timeout=60, memory=1 << 30)
    done = bench(assembling(ptxas, text))
    assert (done.cached, done.value.end.ok, done.value.has_cubin) == (False, True, True)
    # And what ended by itself stands, whatever the limit.
    bench.limits = ResourceLimits(timeout=0.5, memory=1 << 30)
    assert bench(assembling(ptxas, text)).cached


def test_a_run_that_ate_our_memory_is_not_taken_for_a_crash(bench: Bench, ptxas: Assembler) -> None:
    text = PTX.format(word="memory")
    bench.limits = ResourceLimits(timeout=60, memory=150 << 20)
    end = bench(assembling(ptxas, text)).value.end
    assert end.over_memory
    assert not has_died(end)
    assert bench(assembling(ptxas, text)).cached
    assert still_valid(end, ResourceLimits(timeout=60, memory=100 << 20))
    assert not still_valid(end, ResourceLimits(timeout=60, memory=8 << 30))


def test_a_flood_is_kept_whole_but_shown_in_part(bench: Bench, ptxas: Assembler) -> None:
    bench.limits = ResourceLimits(timeout=60, memory=1 << 30, file_size=8 << 20)

    async def body(workbench: Workbench) -> tuple[Assembly, int]:
        source = stored(workbench, PTX.format(word="flood-die"))
        kept = await assemble(workbench, source, ptxas=ptxas, flags=FLAGS)
        return kept.value, len(workbench.store.artifacts.get(kept.artifacts["stdout"]))

    value, size = bench(body)
    assert value.end.flooded
    assert value.attempts == 1
    assert size == 8 << 20
    assert 2 << 20 < len(value.stdout) < 3 << 20
    assert "\n[...]\n" in value.stdout


@pytest.mark.parametrize(
    ("end", "limits", "valid"),
    [
        (ProcessEnd(exit_code=1), ResourceLimits(timeout=1, memory=1), True),
        (ProcessEnd(signal=11), ResourceLimits(timeout=1, memory=1), True),
        (ProcessEnd(signal=9, timed_out=True, wall=5), ResourceLimits(timeout=5, memory=1), True),
        (ProcessEnd(signal=9, timed_out=True, wall=5), ResourceLimits(timeout=6, memory=1), False),
        (ProcessEnd(signal=25, flooded=True), ResourceLimits(timeout=1, memory=1), True),
        (
            ProcessEnd(signal=25, flooded=True),
            ResourceLimits(timeout=1, memory=1, file_size=2 * FILE_SIZE),
            False,
        ),
    ],
)
def test_what_is_stored_stands_unless_our_limit_made_it(
    end: ProcessEnd, limits: ResourceLimits, valid: bool
) -> None:
    assert still_valid(end, limits) is valid


def test_a_ptxas_that_is_not_there_is_our_trouble(bench: Bench, ptxas: Assembler) -> None:
    gone = replace(ptxas, path=Path("/no/such/ptxas"))
    with pytest.raises(InfrastructureError, match="cannot start /no/such/ptxas"):
        bench(assembling(gone, PTX.format(word="ok")))


def test_an_nvdisasm_that_was_killed_is_asked_again(
    bench: Bench, ptxas: Assembler, tmp_path: Path
) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text(f"#!/bin/sh\necho x >> {tmp_path}/asked\nsleep 1000\n")
    tool.chmod(0o755)
    nvdisasm = Tool(name="nvdisasm", version="1", path=tool)
    bench.limits = ResourceLimits(timeout=0.5, memory=1 << 30)
    data = (FAKE.parent.parent / "data/cubins/12.9.86/two_entries-sm_80.cubin").read_bytes()

    async def inspect(workbench: Workbench) -> Any:
        cubin = workbench.store.artifacts.put(data)
        return await inspect_cubin(workbench, cubin, (nvdisasm,))

    kept = bench(inspect)
    assert re.fullmatch(r"nvdisasm 1: killed after \d+ s", kept.value.problem or "")
    assert kept.value.mixes == {}
    tool.write_text(f"#!/bin/sh\necho x >> {tmp_path}/asked\necho not today >&2; exit 1\n")
    for cached in (False, True):
        kept = bench(inspect)
        assert kept.value.problem == "nvdisasm 1: not today"
        assert kept.cached is cached
    assert (tmp_path / "asked").read_text() == "x\nx\n"


@pytest.mark.parametrize(
    ("stack", "code", "asked"),
    [
        (0, "IADD3 R1, R2, R3, RZ ;", ["-ndf -c"]),
        (None, "IADD3 R1, R2, R3, RZ ;", ["-ndf -c"]),
        (0, "BRX R2 -0x10 ;", ["-ndf -c", "-c"]),
        (None, "LDL R1, [R2] ;", ["-ndf -c", "-c"]),
        (256, "LDL R1, [R2] ;", ["-c"]),
    ],
)
def test_the_slow_analysis_is_left_to_code_that_it_can_annotate(
    bench: Bench,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stack: int | None,
    code: str,
    asked: list[str],
) -> None:
    def read(data: bytes) -> Cubin:
        [entry, *_] = read_cubin(data).entries
        return Cubin(target=80, entries=(replace(entry, stack=stack, max_stack=stack),))

    monkeypatch.setattr("harness.frontends.assemble.read_cubin", read)
    tool = tmp_path / "nvdisasm"
    text = f".text.one:\n        /*0000*/                   {code}\n"
    tool.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\nprintf "%s" "{text}"\n')
    tool.chmod(0o755)
    data = (FAKE.parent.parent / "data/cubins/12.9.86/two_entries-sm_80.cubin").read_bytes()

    async def inspect(workbench: Workbench) -> Any:
        cubin = workbench.store.artifacts.put(data)
        return await inspect_cubin(
            workbench, cubin, (Tool(name="nvdisasm", version="1", path=tool),)
        )

    kept = bench(inspect)
    assert kept.value.mixes["one"].total == 1
    said = (tmp_path / "asked").read_text().splitlines()
    assert said == [f"{words} kernel.cubin" for words in asked]


def test_slots_are_given_back_by_those_that_stop_waiting(bench: Bench) -> None:
    async def body(workbench: Workbench) -> list[str]:
        order = []

        async def alone() -> None:
            async with workbench.slot(alone=True):
                order.append("alone")

        async with workbench.slot():
            stopped = asyncio.create_task(alone())
            await asyncio.sleep(0.01)
            stopped.cancel()
            await asyncio.gather(stopped, return_exceptions=True)
            waits = asyncio.create_task(alone())
            await asyncio.sleep(0.01)
            order.append("one")
        await asyncio.wait_for(waits, 5)
        return order

    assert bench(body) == ["one", "alone"]


def test_what_was_made_is_not_remembered_by_a_lock(bench: Bench) -> None:
    async def body(bench: Workbench) -> tuple[int, int]:
        async def one(number: int) -> int:
            async with bench.once(f"key {number % 5}"):
                await asyncio.sleep(0)
                return len(bench.making)

        most = max(await asyncio.gather(*map(one, range(50))))
        return most, len(bench.making)

    assert bench(body) == (5, 0)


@pytest.mark.parametrize("word", ["segv", "ice"])
def test_a_damaged_ptxas_is_not_believed(
    bench: Bench, ptxas: Assembler, tmp_path: Path, word: str
) -> None:
    damaged = tmp_path / "ptxas"
    shutil.copy2(FAKE, damaged)
    with damaged.open("ab") as file:
        file.write(b"\n# a byte too many\n")
    changed = replace(ptxas, path=damaged)
    for _ in range(2):  # nothing of it is kept
        with pytest.raises(InfrastructureError, match=r"ptxas 99\.1\.7 is damaged: .*not the file"):
            bench(assembling(changed, PTX.format(word=word)))
    assert bench(assembling(ptxas, PTX.format(word=word))).cached is False


def test_a_ptxas_inside_a_triton_is_compared_with_the_record_of_its_wheel(
    bench: Bench, ptxas: Assembler, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    inner = site / "triton" / "bin" / "ptxas"
    inner.parent.mkdir(parents=True)
    shutil.copy2(FAKE, inner)
    record = site / "triton-3.6.0.dist-info" / "RECORD"
    record.parent.mkdir()
    digest = base64.urlsafe_b64encode(bytes.fromhex(ptxas.sha256)).rstrip(b"=").decode()
    record.write_text(f"triton/bin/ptxas,sha256={digest},1\n")
    bundled = replace(ptxas, path=inner)
    assert not bench(assembling(bundled, PTX.format(word="ice"))).value.has_cubin
    with inner.open("ab") as file:
        file.write(b"\n# a byte too many\n")
    # As one that is described after it was damaged.
    described = replace(bundled, sha256=hashlib.sha256(inner.read_bytes()).hexdigest())
    with pytest.raises(InfrastructureError, match="is damaged"):
        bench(assembling(described, PTX.format(word="ice")))
