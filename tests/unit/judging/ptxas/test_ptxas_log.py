from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scaling import assert_linear

from harness.judging.ptxas.ptxas_log import (
    FunctionUsage,
    Message,
    Overflow,
    PtxasLog,
    overflow_of,
    parse_ptxas_log,
)

LOGS = Path(__file__).parents[3] / "data" / "ptxas_logs"
VERSIONS = ["11.7.99", "12.4.99", "12.8.93", "12.9.86", "13.1.115", "13.5.37"]
SINCE_12_8 = VERSIONS[2:]
EVERY = sorted(LOGS.glob("*/*.log"))
USAGE = re.compile(r"info +: (Compiling|Function|Used|Compile time|\d+ bytes gmem)")

# What ptxas 13.1.115 writes for Mamba-3's backward kernel at chunk 32, num_warps 8, on sm_100a.
CRASH = "ptxas fatal   : (C7907) Internal compiler error.\n"
NOTHING = PtxasLog(functions=(), messages=())


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def text_of(version: str, case: str) -> str:
    return (LOGS / version / f"{case}.log").read_text()


def read(version: str, case: str) -> PtxasLog:
    return parse_ptxas_log(text_of(version, case))


def overflow(message: Message) -> Overflow:
    found = overflow_of(message)
    assert found is not None
    return found


def function(log: PtxasLog, name: str) -> FunctionUsage:
    usage = log.function(name)
    assert usage is not None
    return usage


def facts(messages: tuple[Message, ...]) -> list[tuple[Any, ...]]:
    return [(m.severity, m.code, m.file, m.line, m.text) for m in messages]


def test_the_data_is_there() -> None:
    assert sorted({path.parent.name for path in EVERY}) == sorted(VERSIONS)
    assert len(EVERY) == 22 * len(VERSIONS)


@pytest.mark.parametrize("path", EVERY, ids=label)
def test_every_line_is_taken_in(path: Path) -> None:
    text = path.read_text()
    log = parse_ptxas_log(text)
    lines = text.splitlines()
    usage = [line for line in lines if USAGE.search(line) or line.startswith("    ")]
    assert len(log.messages) == len(lines) - len(usage)
    assert len(log.functions) == sum("Function properties" in line for line in lines)
    assert sum(usage.n_regs is not None for usage in log.functions) == text.count("Used ")


@pytest.mark.parametrize("version", SINCE_12_8)
def test_entries_and_a_function(version: str) -> None:
    called, helper, shared = read(version, "two_entries-sm_80").functions
    assert called.compile_ms
    assert shared.compile_ms
    assert called == FunctionUsage(
        name="calls_helper",
        is_entry=True,
        target="sm_80",
        n_regs=24,
        spill_stores=0,
        spill_loads=0,
        stack=256,
        cumulative_stack=256,
        static_shared=0,
        constants=((0, 360),),
        barriers=0,
        compile_ms=called.compile_ms,
    )
    assert helper == FunctionUsage(
        name="_helper", is_entry=False, stack=16, spill_stores=16, spill_loads=16
    )
    assert (shared.name, shared.is_entry, shared.n_regs) == ("uses_shared", True, 8)
    assert (shared.static_shared, shared.barriers, shared.stack) == (4096, 2, 0)


def test_what_11_7_does_not_print_is_unknown() -> None:
    called, helper, shared = read("11.7.99", "two_entries-sm_80").functions
    assert (called.n_regs, called.stack, called.static_shared) == (24, 256, 0)
    assert (shared.n_regs, shared.static_shared, shared.constants) == (8, 4096, ((0, 360),))
    assert (helper.is_entry, helper.n_regs, helper.static_shared) == (False, None, None)
    for usage in (called, helper, shared):
        assert (usage.barriers, usage.compile_ms, usage.cumulative_stack) == (None, None, None)


def test_12_4_prints_the_stack_but_not_the_barriers() -> None:
    called, _, shared = read("12.4.99", "two_entries-sm_90a").functions
    assert (called.cumulative_stack, called.barriers, called.compile_ms) == (256, None, None)
    assert (shared.cumulative_stack, shared.static_shared, shared.constants) == (None, 4096, ())


@pytest.mark.parametrize("version", SINCE_12_8)
def test_constants_are_not_printed_for_new_targets(version: str) -> None:
    log = read(version, "two_entries-sm_100a")
    assert [usage.constants for usage in log.functions] == [(), (), ()]
    assert function(log, "uses_shared").static_shared == 4096
    assert log.function("absent") is None


@pytest.mark.parametrize("version", VERSIONS)
def test_spills(version: str) -> None:
    log = read(version, "spills-sm_80")
    (usage,) = log.functions
    assert (usage.n_regs, usage.spill_stores, usage.spill_loads) == (32, 648, 736)
    assert (usage.stack, usage.barriers) == (560, None if version in VERSIONS[:2] else 1)
    (warning,) = log.messages
    assert warning.severity == "warning"
    assert warning.text == (
        "Registers are spilled to local memory in function 'spills', "
        "648 bytes spill stores, 736 bytes spill loads"
    )
    assert log.errors == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_too_much_shared_memory(version: str) -> None:
    log = read(version, "shared_over-sm_80")
    (error,) = log.errors
    found = overflow(error)
    assert (found.function, found.resource) == ("shared_over", "shared data")
    assert found.used == 300_000
    assert found.limit == (167_936 if version == "12.4.99" else 49_152)
    assert function(log, "shared_over").static_shared == 300_000


def test_the_limit_that_ptxas_enforces_depends_on_its_version() -> None:
    limits = {
        version: overflow(read(version, "shared_over-sm_90a").errors[0]).limit
        for version in SINCE_12_8
    }
    assert limits["12.8.93"] == 49_152
    assert limits["13.5.37"] == 232_448


@pytest.mark.parametrize(
    ("text", "resource", "used", "limit"),
    [
        ("shared data (0x100 bytes + 0x10 bytes system, 0xc000 max)", "shared data", 272, 49152),
        ("local data (0x80000 bytes, 0x7ffff max)", "local data", 524288, 524287),
        ("constant data (bank 0, 0x11000 bytes, 0x10000 max)", "constant data", 69632, 65536),
        ("parameter space (0x1104 bytes, 0x1100 max).", "parameter space", 4356, 4352),
    ],
)
def test_other_overflows(text: str, resource: str, used: int, limit: int) -> None:
    # These words are in the executable of ptxas 13.5.37.
    log = parse_ptxas_log(f"ptxas error   : Entry function 'k' uses too much {text}\n")
    found = overflow(log.messages[0])
    assert (found.resource, found.used, found.limit) == (resource, used, limit)


@pytest.mark.parametrize("version", VERSIONS)
def test_errors_with_a_place(version: str) -> None:
    log = read(version, "syntax_error-sm_80")
    assert log.functions == ()
    errors = facts(log.errors)
    assert errors[2] == (
        "error",
        None,
        "syntax_error.ptx",
        10,
        "Not a name of any known instruction: 'frobnicate'",
    )
    assert errors[-1] == ("fatal", None, None, None, "Ptx assembly aborted due to errors")
    assert [line for _, _, _, line, _ in errors] == [8, 9, 10, 8, 9, None]


@pytest.mark.parametrize(
    ("version", "current"),
    [
        ("11.7.99", "7.7"),
        ("12.4.99", "8.4"),
        ("12.8.93", "8.7"),
        ("12.9.86", "8.8"),
        ("13.1.115", "9.1"),
        ("13.5.37", "9.5"),
    ],
)
def test_a_ptx_version_from_the_future(version: str, current: str) -> None:
    log = read(version, "future_version-sm_80")
    words = f"Unsupported .version 99.9; current version is '{current}'"
    assert facts(log.messages) == [
        ("fatal", None, "future_version.ptx", 1, words),
        ("fatal", None, None, None, "Ptx assembly aborted due to errors"),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_target(version: str) -> None:
    (message,) = read(version, "empty-sm_999").errors
    assert message.text == "Value 'sm_999' is not defined for option 'gpu-name'"


def test_triton_names_its_second_executable_differently() -> None:
    text = text_of("12.9.86", "tensor_memory-sm_100a")
    assert text.startswith("ptxas-blackwell info    : ")
    (usage,) = parse_ptxas_log(text).functions
    assert (usage.n_regs, usage.static_shared, usage.barriers) == (18, 4112, 1)


def test_a_remark_with_a_code_whose_words_drift() -> None:
    (older,) = read("12.8.93", "wgmma_serialized-sm_90a").messages
    (newer,) = read("13.5.37", "wgmma_serialized-sm_90a").messages
    assert (older.severity, older.code) == (newer.severity, newer.code) == ("info", "C7517")
    assert older.text.startswith("warpgroup.wait is injected in around line 16")
    assert newer.text.startswith("wgmma.wait_group is injected in around line 16")


def test_a_crash() -> None:
    log = parse_ptxas_log(CRASH)
    assert facts(log.errors) == [("fatal", "C7907", None, None, "Internal compiler error.")]


@pytest.mark.parametrize("code", ["C7600", "C7602", "C1", "C123456"])
def test_any_code_is_read(code: str) -> None:
    (message,) = parse_ptxas_log(
        f"ptxas /tmp/a b.ptx, line 7; error   : ({code}) x (C2)\n"
    ).messages
    assert (message.code, message.file, message.line) == (code, "/tmp/a b.ptx", 7)
    assert message.text == "x (C2)"


def test_other_parentheses_are_no_code() -> None:
    (message,) = parse_ptxas_log("ptxas error   : (see C7907) no\n").messages
    assert (message.code, message.text) == (None, "(see C7907) no")


def test_windows_line_ends() -> None:
    text = text_of("13.5.37", "two_entries-sm_80")
    assert parse_ptxas_log(text.replace("\n", "\r\n")) == parse_ptxas_log(text)


def known(usage: FunctionUsage) -> set[tuple[str, Any]]:
    """What a usage claims to know, without what silence says."""
    names = FunctionUsage.__struct_fields__
    return {(name, getattr(usage, name)) for name in names} - {(name, None) for name in names}


@pytest.mark.parametrize("path", EVERY, ids=label)
def test_cut_off_at_any_byte_nothing_false_is_said(path: Path) -> None:
    text = path.read_text()
    whole = parse_ptxas_log(text)
    for size in range(len(text)):
        part = parse_ptxas_log(text[:size])
        assert len(part.functions) <= len(whole.functions)
        for cut, full in zip(part.functions, whole.functions, strict=False):
            assert known(cut) - {("constants", ())} <= known(full), text[:size]
        for said, meant in zip(part.messages[:-1], whole.messages, strict=False):
            assert said == meant


@pytest.mark.parametrize("path", EVERY, ids=label)
def test_cut_off_at_any_line_keeps_what_came_before(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    seen = 0
    for count in range(len(lines) + 1):
        log = parse_ptxas_log("".join(lines[:count]))
        assert len(log.functions) + len(log.messages) >= seen
        seen = len(log.functions) + len(log.messages)
    whole = parse_ptxas_log(path.read_text())
    assert seen == len(whole.functions) + len(whole.messages)


def test_lines_without_a_function_are_skipped() -> None:
    text = (
        "    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 4 registers\n"
        "ptxas info    : Compile time = 1.0 ms\n"
    )
    assert parse_ptxas_log(text) == NOTHING


def test_noise_between_the_lines() -> None:
    text = text_of("13.5.37", "two_entries-sm_80")
    noisy = "".join(
        f"{line}\x00\xff garbage: {'x' * 50}\n\x0c\n" for line in text.splitlines(keepends=True)
    )
    assert parse_ptxas_log(noisy).functions == parse_ptxas_log(text).functions


@pytest.mark.parametrize("text", ["", "\n", "\r\n", "\x00" * 100, "Segmentation fault\n", ":::"])
def test_nothing_in_it(text: str) -> None:
    assert parse_ptxas_log(text) == NOTHING


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        " ",
        "a ",
        ", line 1",
        "ptxas error : ",
        "1",
        "(",
        "ptxas x, line 1; ",
        "\n",
        "'",
        "0x1 ",
    ],
)
@pytest.mark.parametrize(
    "start", ["", "ptxas ", "ptxas info    : Used 4 registers, ", "ptxas error : Entry function '"]
)
def test_huge_text_takes_linear_time(unit: str, start: str) -> None:
    def read(size: int) -> None:
        log = parse_ptxas_log(start + unit * (size // len(unit)))
        for message in log.messages[:10]:
            overflow_of(message)

    assert_linear(read, 125_000)


def test_numbers_too_long_are_not_numbers() -> None:
    digits = "9" * 5000
    log = parse_ptxas_log(
        "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
        f"ptxas info    : Used {digits} registers\n"
        f"    {digits} bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        f"ptxas k.ptx, line {digits}; error   : x\n"
    )
    assert (log.functions[0].n_regs, log.functions[0].stack) == (None, None)


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    assert isinstance(parse_ptxas_log(text), PtxasLog)


@given(
    st.lists(st.sampled_from("".join(p.read_text() for p in EVERY[::9]).split("\n")) | st.text())
)
def test_shuffled_lines_are_survived(lines: list[str]) -> None:
    log = parse_ptxas_log("\n".join(lines))
    assert all(m.severity in {"info", "warning", "error", "fatal"} for m in log.messages)
    assert all(usage.name is not None for usage in log.functions)
