"""Tensor maps: what they say, as a value and as the 128 bytes that a program passes around.

PTX ISA 5.5 (tensors), 9.7.9.27 (`tensormap.replace`); CUDA driver API, `cuTensorMapEncodeTiled`,
for the limits. NVIDIA does not document the 128 bytes: the encoding here is our own, so that a map
can be copied, replaced field by field and read again, but means nothing to hardware.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAP_BYTES = 128
ELEMENTS = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f32_ftz", "f64", "bf16", "tf32",
    "tf32_ftz", "b4x16", "b4x16_p64", "b6x16_p32",
)  # fmt: skip
"""Element types in the order of `tensormap.replace.tile.elemtype`."""
_SIZES = {
    "u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8, "f16": 2, "f32": 4, "f32_ftz": 4,
    "f64": 8, "bf16": 2, "tf32": 4, "tf32_ftz": 4,
}  # fmt: skip
_INTERLEAVES = (0, 16, 32)
_SWIZZLES = (0, 32, 64, 128)
_ATOMS = ("16B", "32B", "32B_flip_8B", "64B")
_DIMENSIONS = 5
_LAYOUT = struct.Struct("<Q6B2x5Q4Q5I5B")
# Where each field of `replace` starts, and the struct code of one element.
_FIELDS = {
    "global_address": (0, "Q"),
    "rank": (8, "B"),
    "elemtype": (9, "B"),
    "interleave_layout": (10, "B"),
    "swizzle_mode": (11, "B"),
    "swizzle_atomicity": (12, "B"),
    "fill_mode": (13, "B"),
    "global_dim": (16, "Q"),
    "global_stride": (56, "Q"),
    "box_dim": (88, "I"),
    "element_stride": (108, "B"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TileMap:
    """A tensor in global memory and the tile that one instruction moves.

    Dimensions are innermost first, one to five. `sizes` and `box` are in elements, `strides` in
    bytes for all dimensions but the innermost. `element_strides`: every how manyth element of the
    box is taken. `swizzle` and `interleave` are in bytes, 0 for none; `atom` names the bytes that a
    swizzle of 128 bytes keeps together. Elements out of bounds read as a NaN with `nan_fill`, else
    as zero.
    """

    address: int
    element: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    atom: str = "16B"
    nan_fill: bool = False

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def element_bytes(self) -> int:
        """Size of an element.

        Raises:
            ValueError: elements are packed below a byte, which is not known here.
        """
        if self.element not in _SIZES:
            raise ValueError(f"tensor maps of {self.element} are not known")
        return _SIZES[self.element]

    def problem(self) -> str | None:
        """What the driver would refuse, as a sentence, or None.

        From `cuTensorMapEncodeTiled`: addresses and strides are multiples of 16 bytes, a box has 1
        to 256 elements a dimension and its rows are multiples of 16 bytes, no longer than the
        swizzle.
        """
        if self.element not in _SIZES:
            return f"tensor maps of {self.element} are not known"
        if self.interleave:
            return "interleaved tensor maps are not known"
        if self.atom != "16B" and (self.swizzle != 128 or self.atom != "32B"):
            return f"a swizzle of {self.swizzle} bytes with atoms of {self.atom} is not known"
        row = self.box[0] * self.element_bytes
        complaints = (
            (self.address % 16, f"its address {self.address:#x} is not a multiple of 16"),
            (any(s % 16 for s in self.strides), f"strides {self.strides}: not multiples of 16"),
            (not all(1 <= b <= 256 for b in self.box), f"its box {self.box} is not of 1 - 256"),
            (not all(self.sizes), f"a dimension of {self.sizes} has no elements"),
            (
                not all(1 <= e <= 8 for e in self.element_strides),
                f"element strides {self.element_strides} are not of 1 - 8",
            ),
            (row % 16, f"a row of the box has {row} bytes, not a multiple of 16"),
            (
                self.swizzle and row > self.swizzle,
                f"a row of the box has {row} bytes, more than its swizzle of {self.swizzle}",
            ),
        )
        return next((text for wrong, text in complaints if wrong), None)

    def encode(self) -> bytes:
        """The 128 bytes."""

        def filled(values: tuple[int, ...], count: int) -> list[int]:
            return [*values, *[0] * (count - len(values))]

        packed = _LAYOUT.pack(
            self.address,
            self.rank - 1,
            ELEMENTS.index(self.element),
            _INTERLEAVES.index(self.interleave),
            _SWIZZLES.index(self.swizzle),
            _ATOMS.index(self.atom),
            int(self.nan_fill),
            *filled(self.sizes, _DIMENSIONS),
            *filled(self.strides, _DIMENSIONS - 1),
            *filled(self.box, _DIMENSIONS),
            *filled(self.element_strides, _DIMENSIONS),
        )
        return packed.ljust(MAP_BYTES, b"\0")

    @classmethod
    def decode(cls, raw: bytes) -> TileMap:
        """Read the 128 bytes.

        Raises:
            ValueError: a field has a value that does not exist: this is not a tensor map.
        """
        address, rank, element, interleave, swizzle, atom, fill, *rest = _LAYOUT.unpack_from(raw)
        sizes, strides, box, steps = rest[:5], rest[5:9], rest[9:14], rest[14:19]
        count = rank + 1
        known = (
            count <= _DIMENSIONS
            and element < len(ELEMENTS)
            and interleave < len(_INTERLEAVES)
            and swizzle < len(_SWIZZLES)
            and atom < len(_ATOMS)
        )
        if not known:
            raise ValueError("these 128 bytes are no tensor map")
        return cls(
            address=address,
            element=ELEMENTS[element],
            sizes=tuple(sizes[:count]),
            strides=tuple(strides[: count - 1]),
            box=tuple(box[:count]),
            element_strides=tuple(steps[:count]),
            interleave=_INTERLEAVES[interleave],
            swizzle=_SWIZZLES[swizzle],
            atom=_ATOMS[atom],
            nan_fill=bool(fill),
        )


def replace(raw: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """`tensormap.replace.tile.field`: the 128 bytes with one field changed.

    Args:
        raw: a tensor map, or 128 zeros that are to become one.
        field: `global_address`, `rank` (the number of dimensions less one), `box_dim`, ...
        value: the new value; strides are in bytes.
        ordinal: the dimension, for the fields that have one.

    Raises:
        KeyError: there is no such field.
        ValueError: the value or the dimension does not fit.
    """
    start, code = _FIELDS[field]
    size = struct.calcsize(code)
    if not 0 <= ordinal < _DIMENSIONS or not 0 <= value < 1 << (8 * size):
        raise ValueError(f"tensormap.replace of {field}[{ordinal}] with {value}")
    changed = bytearray(raw)
    struct.pack_into(f"<{code}", changed, start + ordinal * size, value)
    return bytes(changed)
