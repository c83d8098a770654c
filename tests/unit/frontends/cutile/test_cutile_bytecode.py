"""Bytecode of Tile IR: what a file says of its functions."""

from __future__ import annotations

import pytest

from harness.frontends.cutile.tile_ir import BytecodeError, read_bytecode

MAGIC = b"\x7fTileIR\x00"


def number(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    low = [value & 0x7F]
    while value := value >> 7:
        low.append(value & 0x7F)
    return bytes([*(byte | 0x80 for byte in low[:-1]), low[-1]])


def section(kind: int, content: bytes, start: int, alignment: int) -> bytes:
    head = bytes([kind | 0x80]) + number(len(content)) + number(alignment)
    return head + b"\xcb" * (-(start + len(head)) % alignment) + content


def bytecode(names: list[str], first: int, functions: int = 1) -> bytes:
    """A file whose first function has this one of the names; the rest of it is not read."""
    data = MAGIC + bytes([13, 3, 0, 0])
    data += section(2, number(functions) + number(first) + b"\x07" * 200, len(data), 8)
    starts = [sum(len(each) for each in names[:index]) for index in range(len(names))]
    table = number(len(names)).ljust(4, b"\xcb")
    table += b"".join(start.to_bytes(4, "little") for start in starts)
    data += section(1, table + "".join(names).encode(), len(data), 4)
    return data + b"\x00"


def test_names_and_version() -> None:
    found = read_bytecode(bytecode(["sm_100", "added_Kt1", "x" * 300], 1))
    assert (found.version, found.functions, found.first) == ("13.3", 1, "added_Kt1")
    assert found.names == {"sm_100", "added_Kt1", "x" * 300}
    assert read_bytecode(bytecode(["a", "b"], 0, functions=2)).functions == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not bytecode"),
        (b".version 9.0", "is not bytecode"),
        (bytecode(["name"], 0)[:-7], "cannot be read whole"),
        (bytecode(["name"], 1), "cannot be read whole"),
        (MAGIC + bytes([13, 3, 0, 0, 0]), "cannot be read whole"),
        (bytecode(["name"], 0, functions=0), "holds no function"),
    ],
)
def test_what_is_none(data: bytes, said: str) -> None:
    with pytest.raises(BytecodeError, match=said):
        read_bytecode(data)
