"""Results of a GPU's machine: what is as a runner writes it is read, anything else is refused."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_emulator.values import Budget
from harness.run.emulator_jobs import Emulation, JobBuffer
from harness.run.gpu.gpu_batch import BatchCase, GpuBatch
from harness.run.gpu.packing import Answers, manifest_bytes, read_answers, read_head
from harness.run.launch import Launch
from harness.values.cell import CellId
from harness.values.errors import UsageError
from harness.values.kernel import Config
from harness.values.row import Row
from harness.values.target import Target
from harness.values.verdict import VerdictKind

GPU = {
    "name": "Test GPU",
    "capability": 90,
    "cuda": "13.0",
    "memory": 1 << 37,
    "max_threads": 1024,
    "multiprocessors": 132,
    "max_shared": 232448,
}
INPUT, OUTPUT = b"\1\2\3\4", b"\5\6\7\x08"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def gpu_batch() -> GpuBatch:
    emulation = Emulation(
        ptx="0" * 64,
        entry="k",
        grid=(1, 1, 1),
        block=(1, 1, 1),
        cluster=(1, 1, 1),
        dynamic_shared=0,
        buffers=(JobBuffer(name="out", file=sha256(INPUT), size=4),),
        arguments=(),
        trials=(),
        budget=Budget(),
    )
    cell = CellId(
        kernel="k",
        launch="ptx",
        config=Config(),
        target=Target(capability=90, suffix="a"),
        compiler="ptx",
        ptxas="13.0.88,-O3",
        on="gpu",
    )
    row = Row(
        cell=str(cell),
        short=cell.short,
        kernel="k",
        launch="ptx",
        config={},
        target="sm_90a",
        triton=None,
        ptxas="13.0.88",
        ptxas_origin="x",
        verdict=VerdictKind.OK,
        reason="",
        cubin_sha256="1" * 64,
    )
    case = BatchCase(cell=cell, compiled=row, launch=0)
    return GpuBatch(
        launches=(Launch(emulation=emulation, tensors=()),),
        cases=(case, BatchCase(cell=cell, compiled=row, problem="no inputs"), case),
        command="triage run",
    )


TRIP = gpu_batch()
PACK = sha256(manifest_bytes(TRIP))
HEAD: dict[str, Any] = {"results": 1, "pack": PACK, "cases": 2, "gpu": GPU}
BLOB = {"blob": sha256(OUTPUT), "size": 4, "data": base64.b64encode(zlib.compress(OUTPUT)).decode()}


def ended(case: int = 0, run: int | None = 0, **changes: Any) -> dict[str, Any]:
    said = {"case": case, "run": run, "status": "ended", "buffers": [sha256(OUTPUT)]}
    return {**said, "guards": [], "seconds": 1e-5, **changes}


def timed(case: int = 0, **changes: Any) -> dict[str, Any]:
    return {"case": case, "status": "timed", "ms": [1.0, 2.0], "sm_mhz": [1980, 1980], **changes}


def sanitized(case: int = 0, **changes: Any) -> dict[str, Any]:
    said = {"case": case, "status": "sanitized", "tool": "memcheck", "errors": 0, "words": ""}
    return {**said, **changes}


def fault(case: int = 0) -> dict[str, Any]:
    return {"case": case, "run": None, "status": "fault", "code": 700, "name": "E", "words": "w"}


GUARD = {"buffer": 0, "side": "behind", "bytes": 1, "first": 0, "last": 0}
END = {"end": True, "seconds": 1.0}


def read(*lines: dict[str, Any], rest: bytes = b"") -> Answers:
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines) + rest
    return read_answers(text.splitlines(keepends=True), TRIP, PACK, {sha256(INPUT): 4})


def test_runs_are_read_with_what_they_left() -> None:
    found = read(HEAD, BLOB, ended(), ended(run=1), fault(1), END)
    assert found.gpu.name == "Test GPU"
    assert found.blobs == {sha256(OUTPUT): OUTPUT}
    assert [run.run for run in found.measured[0].runs] == [0, 1]
    assert found.measured[1].runs[0].code == 700
    assert found.is_whole


def test_what_a_kernel_left_as_it_was_need_not_be_sent() -> None:
    assert read(HEAD, ended(buffers=[sha256(INPUT)]), END).blobs == {}


@pytest.mark.parametrize("rest", [b'{"case":1,"ru', b'{"blob":"', b"\0\0"])
def test_a_run_that_was_cut_off_keeps_what_it_had(rest: bytes) -> None:
    found = read(HEAD, BLOB, ended(), rest=rest)
    assert len(found.measured[0].runs) == 1
    assert not found.is_whole


def test_times_are_read_and_what_has_none_says_why() -> None:
    untimed = {"case": 1, "status": "untimed", "words": "it faulted"}
    found = read(HEAD, BLOB, ended(), timed(), untimed, END)
    times = [measured.times for measured in found.measured]
    assert times[0]
    assert times[0].ms == (1.0, 2.0)
    assert times[1]
    assert times[1].words == "it faulted"


def test_of_a_launch_of_which_only_digests_come_back_no_bytes_are_read() -> None:
    launch = replace(TRIP.launches[0], digest="windows")
    digests = replace(TRIP, launches=(launch,))
    pack = sha256(manifest_bytes(digests))

    def read_digests(*lines: dict[str, Any]) -> Answers:
        text = [json.dumps(line).encode() + b"\n" for line in lines]
        return read_answers(text, digests, pack, {})

    head = {**HEAD, "pack": pack}
    assert read_digests(head, ended(glimpses=["00"])).measured[0].runs[0].glimpses == ("00",)
    with pytest.raises(UsageError, match="the largest buffer has 0"):
        read_digests(head, BLOB)


def test_the_pack_is_named_by_the_first_line() -> None:
    assert read_head(json.dumps(HEAD).encode()).pack == PACK


LIES = [
    ([{**HEAD, "pack": "0" * 64}], "another pack"),
    ([{**HEAD, "cases": 3}], "3 cases"),
    ([{**HEAD, "results": 2}], "version 2"),
    ([{**HEAD, "gpu": {**GPU, "capability": "x"}}], "line 1"),
    ([{"results": 1}], "line 1"),
    ([HEAD, ended()], "never given"),
    ([HEAD, BLOB, ended(case=2)], "no case 2"),
    ([HEAD, BLOB, ended(case=-1)], "no case -1"),
    ([HEAD, BLOB, ended(run=2)], "no run 2"),
    ([HEAD, BLOB, ended(run=None)], "does not fit"),
    ([HEAD, BLOB, ended(), ended()], "already"),
    ([HEAD, fault(), BLOB, ended()], "already"),
    ([HEAD, BLOB, ended(buffers=[])], "0 buffers"),
    ([HEAD, BLOB, ended(status="fine")], "line 3"),
    ([HEAD, BLOB, ended(glimpses=["", ""])], "no hexadecimal digits of each buffer"),
    ([HEAD, BLOB, ended(glimpses=["0x"])], "no hexadecimal digits of each buffer"),
    (
        [HEAD, BLOB, ended(guards=[{**GUARD, "buffer": 4}])],
        "a guard of no buffer",
    ),
    ([HEAD, {**BLOB, "blob": sha256(INPUT)}], "not those that the line names"),
    ([HEAD, {**BLOB, "size": 1 << 40}], "the largest buffer has 4"),
    ([HEAD, {**BLOB, "size": 3}], "not those that the line names"),
    ([HEAD, {**BLOB, "data": "!!!"}], "line 2"),
    ([HEAD, {**BLOB, "data": base64.b64encode(b"no zlib").decode()}], "line 2"),
    ([HEAD, timed(case=2)], "no case 2"),
    ([HEAD, sanitized(case=2)], "no case 2"),
    ([HEAD, sanitized(), sanitized()], "no answer of one tool"),
    ([HEAD, sanitized(tool="leakcheck")], "no answer of one tool"),
    ([HEAD, sanitized(errors=-1)], "says no such thing"),
    ([HEAD, sanitized(words="x" * 2000)], "says no such thing"),
    ([HEAD, timed(), timed()], "timed already"),
    ([HEAD, timed(ms=[1.0] * 31)], "no times of 30 runs"),
    ([HEAD, timed(ms=[-1.0])], "no times of 30 runs"),
    ([HEAD, timed(ms=[1e12])], "no times of 30 runs"),
    ([HEAD, timed(sm_mhz=[0])], "no clock"),
    ([HEAD, timed(ms="fast")], "line 2"),
    ([HEAD, {"other": 1}], "neither bytes nor a run"),
    ([HEAD, END, fault()], "follows the last line"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "said"), LIES)
def test_a_lie_is_refused_with_its_line(lines: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        read(*lines)
    assert str(raised.value).startswith("line ")
    assert "\n" not in str(raised.value).strip()


def test_an_empty_file_is_no_result() -> None:
    with pytest.raises(UsageError, match="no results"):
        read()


def test_bytes_that_unpack_to_more_than_they_say_are_not_unpacked() -> None:
    bomb = base64.b64encode(zlib.compress(bytes(1 << 24))).decode()
    with pytest.raises(UsageError, match="not those"):
        read(HEAD, {**BLOB, "data": bomb})


@given(st.lists(st.binary(max_size=60).filter(lambda line: b"\n" not in line), max_size=4))
def test_any_bytes_are_read_or_refused(lines: list[bytes]) -> None:
    head = json.dumps(HEAD).encode() + b"\n"
    for first in (b"", head):
        text = [first] * bool(first) + [line + b"\n" for line in lines]
        try:
            read_answers(text, TRIP, PACK, {})
        except UsageError as error:
            assert str(error)  # noqa: PT017 - whether it is raised depends on the bytes
