from __future__ import annotations

import random
from io import BytesIO
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

from harness.judging.ptxas.cubin import Cubin, CubinEntry, CubinError, read_cubin
from harness.judging.ptxas.ptxas_log import PtxasLog, parse_ptxas_log

DATA = Path(__file__).parents[3] / "data"
CUBINS = sorted((DATA / "cubins").glob("*/*.cubin"))
NEWEST = DATA / "cubins" / "13.5.37" / "two_entries-sm_100a.cubin"
OLDEST = DATA / "cubins" / "11.7.99" / "two_entries-sm_80.cubin"


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def log_of(path: Path) -> PtxasLog:
    return parse_ptxas_log(
        (DATA / "ptxas_logs" / path.parent.name / f"{path.stem}.log").read_text()
    )


def entry_of(cubin: Cubin, name: str) -> CubinEntry:
    entry = cubin.entry(name)
    assert entry is not None
    return entry


def read_or_none(data: bytes) -> Cubin | None:
    """None for a CubinError; any other exception fails the test."""
    try:
        return read_cubin(data)
    except CubinError as error:
        if not str(error):
            raise AssertionError("an error without words") from error
        return None


def test_the_data_is_there() -> None:
    assert {path.parent.name for path in CUBINS} == {
        "11.7.99",
        "12.4.99",
        "12.8.93",
        "12.9.86",
        "13.1.115",
        "13.5.37",
    }
    targets = {path.stem.rpartition("-")[2] for path in CUBINS}
    assert targets == {"sm_75", "sm_80", "sm_86", "sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120"}


@pytest.mark.parametrize("path", CUBINS, ids=label)
def test_agrees_with_the_log(path: Path) -> None:
    cubin = read_cubin(path.read_bytes())
    log = log_of(path)
    entries = [usage for usage in log.functions if usage.is_entry]
    assert {entry.name for entry in cubin.entries} == {usage.name for usage in entries}
    for usage in entries:
        entry = entry_of(cubin, usage.name)
        assert usage.target is not None
        assert usage.target == path.stem.rpartition("-")[2]
        assert str(cubin.target) == usage.target.removeprefix("sm_").rstrip("af")
        assert entry.n_regs == usage.n_regs
        assert entry.stack == usage.stack
        assert entry.static_shared == usage.static_shared
        if entry.barriers is not None and usage.barriers is not None:
            assert entry.barriers == usage.barriers
        if usage.constants:
            assert entry.constants == usage.constants


def test_a_cubin_of_the_newest_dialect() -> None:
    cubin = read_cubin(NEWEST.read_bytes())
    assert cubin.target == 100
    helped, shared = (entry_of(cubin, name) for name in ("calls_helper", "uses_shared"))
    assert (helped.n_regs, helped.stack, helped.max_stack) == (24, 256, None)
    assert (helped.static_shared, helped.barriers) == (0, 0)
    assert (shared.n_regs, shared.stack, shared.max_stack) == (10, 0, 0)
    assert (shared.static_shared, shared.barriers) == (4096, 2)
    assert shared.constants == ((0, 904),)
    assert cubin.entry("_helper") is None


def test_a_cubin_of_the_oldest_dialect() -> None:
    cubin = read_cubin(OLDEST.read_bytes())
    shared = entry_of(cubin, "uses_shared")
    assert cubin.target == 80
    assert (shared.n_regs, shared.static_shared, shared.constants) == (8, 4096, ((0, 360),))
    assert shared.barriers is None


def test_registers_come_from_the_text_section_where_the_attribute_is_gone() -> None:
    data = bytearray(OLDEST.read_bytes())
    info = ELFFile(BytesIO(bytes(data))).get_section_by_name(".nv.info")
    start = info["sh_offset"]
    at, renamed = start, 0
    while at < start + info["sh_size"]:
        if data[at + 1] == 0x2F:
            data[at + 1] = 0xEE
            renamed += 1
        at += 4 + (int.from_bytes(data[at + 2 : at + 4], "little") if data[at] == 4 else 0)
    assert renamed == 2
    assert entry_of(read_cubin(bytes(data)), "calls_helper").n_regs == 24


def test_registers_are_unknown_where_the_file_does_not_say() -> None:
    data = NEWEST.read_bytes()
    section = ELFFile(BytesIO(data)).get_section_by_name(".nv.info")
    start, end = section["sh_offset"], section["sh_offset"] + section["sh_size"]
    blank = data[:start] + bytes(end - start) + data[end:]
    entry = entry_of(read_cubin(blank), "uses_shared")
    assert (entry.n_regs, entry.stack, entry.max_stack) == (None, None, None)
    assert entry.static_shared == 4096


def test_an_unknown_dialect_has_no_target() -> None:
    data = bytearray(NEWEST.read_bytes())
    data[7] = 99
    cubin = read_cubin(bytes(data))
    assert cubin.target is None
    # Whether the size includes the driver's part depends on the target.
    assert entry_of(cubin, "uses_shared").static_shared is None
    assert entry_of(cubin, "calls_helper").static_shared == 0


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ", b"// PTX\n.version 8.0\n", bytes(4096)])
def test_what_is_not_a_cubin(data: bytes) -> None:
    with pytest.raises(CubinError):
        read_cubin(data)


def test_an_elf_file_of_another_machine() -> None:
    data = bytearray(NEWEST.read_bytes())
    data[18:20] = (62).to_bytes(2, "little")
    with pytest.raises(CubinError, match="EM_X86_64, not a cubin"):
        read_cubin(bytes(data))


@pytest.mark.parametrize("path", [NEWEST, OLDEST], ids=label)
def test_cut_off_anywhere(path: Path) -> None:
    data = path.read_bytes()
    whole = read_cubin(data)
    # Only what lies behind the last thing that is read may be missing.
    read = {read_or_none(data[:size]) for size in range(0, len(data), 7)}
    assert None in read
    assert read <= {None, whole}


def test_a_cut_in_the_section_table_says_so() -> None:
    data = NEWEST.read_bytes()
    end = ELFFile(BytesIO(data))["e_shoff"]
    with pytest.raises(CubinError, match="cut off"):
        read_cubin(data[: end + 100])


@pytest.mark.parametrize("path", CUBINS[::5], ids=label)
def test_damage_raises_one_type_only(path: Path) -> None:
    original = path.read_bytes()
    rng = random.Random(path.stem)
    outcomes = set()
    for _ in range(150):
        data = bytearray(original)
        for _ in range(rng.choice([1, 3, 9])):
            data[rng.randrange(len(data) if rng.random() < 0.6 else 64)] = rng.randrange(256)
        outcomes.add(type(read_or_none(bytes(data))))
    assert outcomes == {Cubin, type(None)}


@given(st.binary(max_size=300))
def test_noise_raises_one_type_only(noise: bytes) -> None:
    with pytest.raises(CubinError):
        read_cubin(b"\x7fELF\x02\x01\x01\x33\x07" + noise)


@pytest.mark.parametrize("version", ["11.8.89", "13.5.37"])
def test_threads_where_the_ptx_fixes_them(version: str) -> None:
    """`threads.ptx`, assembled for sm_80: `.reqntid 32, 4, 2`, and `.maxntid`, which is a limit."""
    cubin = read_cubin((DATA / "cubins_threads" / f"{version}.cubin").read_bytes())
    assert entry_of(cubin, "k").threads == 32 * 4 * 2
    assert entry_of(cubin, "m").threads is None
