"""A hunt with a ptxas that fails on two opcodes of one program: found, reduced, joined, resumed."""

from __future__ import annotations

import asyncio
import html
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec
import pytest

from harness.cells.places import CompileOptions
from harness.hunt.causes import Cause, LeastProgram, said_of
from harness.hunt.changes import Program
from harness.hunt.generator import Generator
from harness.hunt.hunt_words import hunt_document, hunt_said
from harness.hunt.hunted_repros import write_repros
from harness.hunt.hunting import hunt, hunt_in
from harness.hunt.oracles import AskedTogether, HuntCase, Oracles
from harness.hunt.plan import (
    Hit,
    HuntPlan,
    HuntReport,
    HuntState,
    keep_hunt,
    kept_hunts,
    known_causes,
    state_of,
)
from harness.hunt.ptxas_hunt import HuntedPtxas
from harness.hunt.voting import HuntAnswer, Vote
from harness.io.processes.hub import Hub, ResourceLimits
from harness.io.toolchains.installed import digest_of
from harness.site.pages_of_store import write_site
from harness.store.store import Store
from harness.store.trim import trim_store
from harness.values.errors import StorageError
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, Assembler

CUBIN = next((Path(__file__).parents[2] / "data/cubins/12.9.86").glob("*.cubin"))
# One entry that has both opcodes is an internal error at -O3; modules are as good as their entries.
FAKE = f"""#!/bin/sh
for word; do
  case "$word" in *.ptx) file=$word;; esac
  last=$word
done
case "$*" in *-O3*)
  awk '/[.]entry/ {{a=0; b=0}} /sad[.]u32/ {{a=1}} /brev[.]b32/ {{b=1}} a && b {{bad=1}}
    END {{exit !bad}}' "$file" &&
    {{ echo "ptxas fatal   : (C7907) Internal compiler error." >&2; exit 255; }}
esac
cp {CUBIN} "$last"
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HuntPlan:
    monkeypatch.setenv("TRIAGE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "ptxas"
    path.write_text(FAKE)
    path.chmod(0o755)
    digest = digest_of(path)
    fake = Assembler(version="13.0.88", origin="bundled", path=path, sha256=digest)
    return HuntPlan(
        tool=fake, targets=(Target.parse("90"),), seed=3, seconds=300.0, on=EMULATOR, most=384
    )


def hunted(plan: HuntPlan, home: Path, said: list[str]) -> HuntReport:
    with Store.open(home) as store:
        job = hunt(plan, store, CompileOptions(jobs=2), said.append, lambda words: None)
        return asyncio.run(job)


def test_a_cause_is_found_reduced_joined_and_known_the_next_time(
    plan: HuntPlan, tmp_path: Path
) -> None:
    said: list[str] = []
    report = hunted(plan, tmp_path / "home", said)
    [cause] = report.state.causes
    assert {"brev.b32", "sad.u32"} <= set(cause.least.opcodes)
    assert cause.least.instructions <= 10
    assert cause.least.answer.vote is Vote.FAILS
    assert cause.least.answer.levels == (3,)
    assert "C7907" in said[0]
    assert len(said) == 1
    [folder] = write_repros(report, tmp_path)
    text = (Path(folder) / "case.ptx").read_text()
    assert text == cause.least.text.replace(".entry k", f".entry {Path(folder).name}")
    document = hunt_document(report, [folder])
    assert document["causes"][0]["opcodes"] == list(cause.least.opcodes)
    assert document["hunt"]["tried"] == report.state.tried
    [(_, _, count, cpu)] = document["hunt"]["curve"]
    assert count == 1
    assert 0 < cpu <= report.state.cpu
    assert any("C7907" in getattr(block, "text", "") for block in hunt_said(report, [folder]))

    with Store.open(tmp_path / "home") as store:
        write_site(store, tmp_path / "site", cell_pages=10)
    page = (tmp_path / "site/hunts.html").read_text()
    assert "ptxas 13.0.88 for sm_90, seed 3" in page
    assert f"{report.state.tried} programs" in page
    assert html.escape(cause.name) in page
    assert page.count("<polyline") == 1

    again = hunted(plan, tmp_path / "home", said)
    assert again.state.tried > report.state.tried
    assert again.state.batch > 0
    assert len(again.state.causes) == 1
    assert again.state.causes[0].hits >= cause.hits
    assert len(said) == 1

    # A hunt with another seed knows of it, and does not report it again.
    other = hunted(msgspec.structs.replace(plan, seed=4), tmp_path / "home", said)
    assert other.state.new == []
    assert [one.is_known for one in other.state.causes] == [True]
    assert len(said) == 1


# A hunt without an end, in a process of its own.
ENDLESS = """
import asyncio, pickle, sys
from pathlib import Path
from harness.cells.places import CompileOptions
from harness.hunt.hunting import hunt
from harness.store.store import Store
plan = pickle.loads(bytes.fromhex(sys.argv[1]))
with Store.open(Path(sys.argv[2])) as store:
    report = asyncio.run(hunt(plan, store, CompileOptions(jobs=2), print, lambda words: None))
print("stopped" if report.is_stopped else "ended", report.state.tried)
"""


def ended_by(number: signal.Signals, plan: HuntPlan, home: Path) -> tuple[HuntState, str]:
    """What a hunt had found before it got a signal, and what it printed."""
    body = pickle.dumps(msgspec.structs.replace(plan, most=100_000)).hex()
    child = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, body, str(home)], stdout=subprocess.PIPE, text=True
    )
    try:
        state, deadline = HuntState(), time.monotonic() + 120
        while not state.causes and not state.waiting and time.monotonic() < deadline:
            time.sleep(0.3)
            state = kept(plan, home)
        assert child.poll() is None
        os.kill(child.pid, number)
        printed, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert state.causes or state.waiting
    return state, printed


@pytest.mark.long
def test_a_kill_loses_nothing_that_was_found(plan: HuntPlan, tmp_path: Path) -> None:
    home = tmp_path / "home"
    state, _ = ended_by(signal.SIGKILL, plan, home)
    after = kept(plan, home)
    assert after.tried >= state.tried
    report = hunted(plan, home, [])
    [cause] = report.state.causes
    assert {"brev.b32", "sad.u32"} <= set(cause.least.opcodes)
    assert report.state.tried >= after.tried


@pytest.mark.long
def test_a_stop_ends_a_hunt_which_says_what_it_found(plan: HuntPlan, tmp_path: Path) -> None:
    home = tmp_path / "home"
    state, printed = ended_by(signal.SIGINT, plan, home)
    words, tried = printed.splitlines()[-1].split()
    assert words == "stopped"
    after = kept(plan, home)
    assert after.tried == int(tried) >= state.tried
    assert after.causes or after.waiting


def kept(plan: HuntPlan, home: Path) -> HuntState:
    if not home.is_dir():
        return HuntState()
    with Store.for_reading(home) as store:
        return state_of(store, plan)


KERNEL = """.version 8.6
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 out)
{
.reg .b32 %r<4>;
.reg .b64 %rd<2>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x;
brev.b32 %r2, %r1;
bar.sync 0;
xor.b32 %r3, %r2, %r1;
st.global.u32 [%rd1], %r3;
ret;
}
"""
# An entry that has no barrier any more is an internal error.
FORGETFUL = f"""#!/bin/sh
for word; do
  case "$word" in *.ptx) file=$word;; esac
  last=$word
done
awk '/brev/ {{a=1}} /bar[.]sync/ {{b=1}} /^}}/ {{if (a && !b) bad=1; a=b=0}}
  END {{exit !bad}}' "$file" &&
  {{ echo "ptxas fatal   : (C7907) Internal compiler error." >&2; exit 255; }}
cp {CUBIN} "$last"
"""


def test_changed_ptx_is_reduced_to_the_change_that_matters(plan: HuntPlan, tmp_path: Path) -> None:
    path = tmp_path / "forgetful"
    path.write_text(FORGETFUL)
    path.chmod(0o755)
    fake = msgspec.structs.replace(plan.tool, path=path, sha256=digest_of(path))
    said: list[str] = []
    changing = msgspec.structs.replace(plan, tool=fake, corpus=(KERNEL,), most=48)
    report = hunted(changing, tmp_path / "home", said)
    [cause] = report.state.new
    assert cause.least.answer.vote is Vote.FAILS
    assert [opcode.partition(".")[0] for opcode in cause.least.opcodes] == ["brev"]
    assert cause.least.instructions <= 3
    assert len(said) == 1
    assert report.state.votes[Vote.ASSEMBLED.value] > 0


# An entry that turns bits round spills, where it has no barrier any more.
SPILLING = f"""#!/bin/sh
for word; do
  case "$word" in *.ptx) file=$word;; esac
  last=$word
done
awk '/[.]entry/ {{sub(/[(].*/, "", $3); name=$3; a=b=0}} /brev/ {{a=1}} /bar[.]sync/ {{b=1}}
  /^}}/ {{
    print "ptxas info    : Compiling entry function \047" name "\047 for \047sm_90\047"
    print "ptxas info    : Function properties for " name
    n = a && !b ? 512 : 0
    print "    " n " bytes stack frame, " n " bytes spill stores, " n " bytes spill loads"
    print "ptxas info    : Used 32 registers"
  }}' "$file" >&2
cp {CUBIN} "$last"
"""


def test_what_spills_behind_a_change_is_reduced_to_the_change(
    plan: HuntPlan, tmp_path: Path
) -> None:
    path = tmp_path / "spilling"
    path.write_text(SPILLING)
    path.chmod(0o755)
    fake = msgspec.structs.replace(plan.tool, path=path, sha256=digest_of(path))
    spills = KERNEL.replace("kernel(", "as_it_is(").replace("bar.sync 0;\n", "")
    said: list[str] = []
    changing = msgspec.structs.replace(plan, tool=fake, corpus=(KERNEL, spills), most=48)
    report = hunted(changing, tmp_path / "home", said)
    [cause] = report.state.new
    assert said_of(cause.least.answer) == "grows -O3"
    assert cause.name == "spills out of proportion (brev)"
    assert cause.least.instructions <= 3
    [words] = said
    assert "1,024 bytes of spill stores and loads with 32 registers, where at most" in words
    # A file that spills by itself would make a hit of each of its changes.
    [note] = report.notes
    assert note.startswith("as_it_is is not changed: as it is, it has 1,024 bytes of spill stores")


# An entry that turns bits round is worked on without an end, at one level.
ENDLESS_PTXAS = f"""#!/bin/sh
for word; do
  case "$word" in *.ptx) file=$word;; esac
  last=$word
done
case "$*" in *-O3*) grep -q "brev[.]b32" "$file" && exec sleep 600;; esac
cp {CUBIN} "$last"
"""


@pytest.mark.long
def test_a_hang_is_reduced_to_what_hangs(plan: HuntPlan, tmp_path: Path) -> None:
    path = tmp_path / "endless"
    path.write_text(ENDLESS_PTXAS)
    path.chmod(0o755)
    head, _, body = KERNEL.partition(".visible")
    hanging = f"{head}.visible{body.replace('kernel(', 'k(').replace('bar.sync 0;', '')}"
    programs = [HuntCase(hanging.replace("brev", word), 1) for word in ("not", "brev", "clz")]

    async def work() -> tuple[list[HuntAnswer], LeastProgram | str]:
        async with Hub() as hub:
            oracles = Oracles(
                hub=hub,
                ptxas=Assembler(
                    version="13.0.88", origin="bundled", path=path, sha256=digest_of(path)
                ),
                target=plan.targets[0],
                nvdisasm=None,
                limits=ResourceLimits(timeout=3.0, memory=1 << 30),
                jobs=2,
                # What sleeps needs no core.
                slots=asyncio.Semaphore(32),
            )
            answers = await oracles.ask(programs)
            ptxas = HuntedPtxas(
                plan=plan,
                state=HuntState(),
                program=Generator("", ()).program,
                oracles=oracles,
                together=AskedTogether(oracles),
            )
            least = await ptxas.reduce(Hit(programs[1], answers[1]), is_time_up=lambda: False)
            return answers, least

    answers, least = asyncio.run(work())
    assert [said_of(answer) for answer in answers] == ["assembled", "fails -O3", "assembled"]
    assert isinstance(least, LeastProgram)
    assert least.opcodes == ("brev.b32",)
    assert least.instructions == 2  # one that writes what the other one reads
    assert "killed after 3 s" in least.name


@pytest.mark.parametrize("small_disk", ["16m"], indirect=True)
def test_a_full_disk_loses_nothing_that_was_found(plan: HuntPlan, small_disk: Path) -> None:
    home, ballast = small_disk / "home", small_disk / "ballast"
    said: list[str] = []

    def fill(words: str) -> None:
        said.append(words)
        with pytest.raises(OSError, match="No space"):
            ballast.write_bytes(bytes(1 << 25))

    with Store.open(home) as store, pytest.raises(StorageError, match="no space left"):
        asyncio.run(hunt(plan, store, CompileOptions(jobs=2), fill, lambda words: None))
    assert len(said) == 1
    ballast.unlink()
    state = kept(plan, home)
    assert state.tried > 0
    assert state.waiting
    # The hit goes on from there: its batch is not made again.
    [cause] = hunted(msgspec.structs.replace(plan, most=1), home, said).state.new
    assert {"brev.b32", "sad.u32"} <= set(cause.least.opcodes)
    assert len(said) == 2


def test_what_two_hunts_find_at_the_same_time_is_kept_once(plan: HuntPlan, tmp_path: Path) -> None:
    answer = HuntAnswer(vote=Vote.WRONG, levels=(3,))

    def found(text: str, version: str) -> Cause:
        least = LeastProgram.of(HuntCase(text, 1), answer)
        return Cause(programs=[msgspec.structs.replace(least, versions={version: "wrong -O3"})])

    one, two = found(KERNEL, "13.0.88"), found(KERNEL.replace("%tid.x", "7"), "13.0.88")
    fixed = found(KERNEL.replace("%tid.x", "9"), "13.0.88")
    fixed.least.versions["13.5.37"] = "right"
    other = found(KERNEL.replace("%tid.x", "8"), "13.5.37")
    with Store.open(tmp_path / "home") as store:

        def keep(seed: int, cause: Cause) -> None:
            hunt = msgspec.structs.replace(plan, seed=seed)
            keep_hunt(store, hunt, HuntState(causes=[cause]))

        keep(1, one)
        keep(2, two)
        assert known_causes(store, plan) == [two]
        # What one ptxas has right and the other has not is no cause of both.
        keep(3, fixed)
        keep(4, other)
        assert known_causes(store, plan) == [fixed, other]
        # Neither is lost to the other, nor to a trim.
        trim_store(store, max_bytes=0)
        assert len(kept_hunts(store)) == 4
        assert known_causes(store, plan) == [fixed, other]


class _Stuck(HuntedPtxas):
    """What is hunted in takes for ever: to compile, or when other versions are asked."""

    async def ask(self, programs: Sequence[HuntCase], number: int) -> list[HuntAnswer]:
        await asyncio.sleep(1000 if self.plan.most is None else 0)
        return [HuntAnswer(vote=Vote.ASSEMBLED) for _ in programs]

    def spent(self) -> dict[str, float]:
        return {}

    @property
    def device(self) -> str:
        return ""

    async def spread(self, *_: object) -> None:
        await asyncio.sleep(1000)


@pytest.mark.parametrize("spreads", [False, True], ids=["at work", "other versions"])
def test_a_hunt_ends_when_its_time_is_up_whatever_is_under_way(
    plan: HuntPlan, tmp_path: Path, spreads: bool
) -> None:
    plan = msgspec.structs.replace(plan, seconds=2.0, most=3 if spreads else None)
    least = LeastProgram.of(HuntCase(KERNEL, 1), HuntAnswer(vote=Vote.WRONG, levels=(3,)))
    with Store.open(tmp_path / "home") as store:
        keep_hunt(store, plan, HuntState(causes=[Cause(programs=[least])]))
        oracles = cast("Oracles", None)  # nothing is asked
        stuck = _Stuck(
            plan=plan,
            state=state_of(store, plan),
            program=lambda seed: Program(seed, KERNEL, ()),
            oracles=oracles,
            together=AskedTogether(oracles),
        )
        hunted_in = hunt_in(stuck, store, lambda words: None, lambda words: None)
        report = asyncio.run(asyncio.wait_for(hunted_in, 60))
        assert state_of(store, plan).new
    assert not report.is_stopped
