from __future__ import annotations

import contextlib
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_binaries import CUBIN, PACKED, PTX, cubin, entry, fatbin

from harness.judging.ptxas.fatbin import FatbinError, read_fatbins

CODE = cubin("13.5.37/two_entries-sm_100a")
TEXT = b".version 8.7\n.target sm_90a\n" * 50
MOST = 1 << 24


def unpacked(data: bytes) -> list[tuple[int, bytes]]:
    return [
        (found.kind, found.unpacked(MOST).rstrip(b"\0"))
        for found in read_fatbins(data, 0, len(data))
    ]


@pytest.mark.parametrize("packed", PACKED)
def test_entries_are_unpacked(packed: str) -> None:
    one = fatbin(entry(CUBIN, CODE, packed), entry(PTX, TEXT, packed))
    other = fatbin(entry(PTX, TEXT))
    expected = [(CUBIN, CODE.rstrip(b"\0")), (PTX, TEXT), (PTX, TEXT)]
    assert unpacked(one + bytes(40) + other + bytes(8)) == expected


def test_no_fatbin_has_no_entries() -> None:
    assert unpacked(b"") == unpacked(bytes(100)) == unpacked(fatbin()) == []


@pytest.mark.parametrize("left", [4, 15, 16, 40, 80, 500])
def test_what_is_cut_off_is_said(left: int) -> None:
    with pytest.raises(FatbinError, match="cut off"):
        unpacked(fatbin(entry(CUBIN, CODE))[:left])


def test_an_entry_that_leads_out_of_its_fatbin_is_said() -> None:
    whole = bytearray(fatbin(entry(PTX, TEXT)))
    whole[24:32] = (1 << 40).to_bytes(8, "little")
    with pytest.raises(FatbinError, match="damaged entry"):
        unpacked(bytes(whole))


@pytest.mark.parametrize("packed", ["lz4", "zstd"])
@pytest.mark.parametrize("size", [0, len(CODE) - 1, len(CODE) + 1, MOST + 1, 1 << 60])
def test_a_wrong_size_is_said_before_memory_is_taken(packed: str, size: int) -> None:
    with pytest.raises(FatbinError, match=r"damaged entry|more than is unpacked"):
        unpacked(fatbin(entry(CUBIN, CODE, packed, size=size)))


@pytest.mark.parametrize(("packed", "package"), [("lz4", "lz4"), ("zstd", "zstandard")])
def test_a_missing_library_is_named(
    packed: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fatbin(entry(CUBIN, CODE, packed))
    for module in (package, f"{package}.block"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FatbinError, match=f"install the package {package}$"):
        unpacked(whole)


@given(
    st.sampled_from(list(PACKED)),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_damage_raises_our_error_or_nothing(packed: str, damage: list[tuple[int, int]]) -> None:
    whole = bytearray(fatbin(entry(CUBIN, CODE, packed), entry(PTX, TEXT, packed)))
    for at, byte in damage:
        whole[at] = byte
    found = []
    with contextlib.suppress(FatbinError):
        found = unpacked(bytes(whole))
    assert len(found) <= len(whole) // 64
