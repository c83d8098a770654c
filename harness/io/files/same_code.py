"""Code that was moved or written again, and makes what older code made: it counts as that code.

`make same-code BASE=COMMIT` writes this file. To run it is to say that evidence of the children is
the same as that of the commit: results that are stored are not made again.

Pure.
"""

from __future__ import annotations

PAIRS: tuple[tuple[str, str], ...] = (
    (
        "c8ff0eae4d6f6ad4b9b8bcb61c04f99df09d3a6ef1bc37a543291f9d6290d88f",
        "f75f1193955c9cf5273d18a86540bfa74180be08eb111684d47f66a56fa0c9fe",
    ),
    (
        "0e222ab54f04bdc7c83e01d3c76998ec3370d316e4592f6ca8a7b32e8f148aee",
        "31d28cedc17cddf12e7556632724c14cd1792ba6619ee15c8ef7cd72a3a575d5",
    ),
    (
        "e0c2acfe34ab7638e1f792697f8c1c60fb624b9cba8a1f1b2b41eaa154e8fe36",
        "e5fffe643d3b8b0e0ed48050f06ed3890c134a71c428eba980c71fe3debda657",
    ),
    (
        "96b145c812c4be1851c563a865d8fa9e2c1db0b7c2144d68d0492632c226a06b",
        "b8caa000eb81ac3eb9c65cc2a64d5a40d339e244ca2b49fc74dfbbcace4afa8e",
    ),
    (
        "d18a6f9aef88fd30387fe13d12cedba3980d8467ca220be48e6e8ff61e0935c5",
        "c08028bf5af90ab1618700d69e60772784ee000f76856ea90cf25e976bb87a98",
    ),
)
"""The hash of code that is here, and that of the older code."""
SAME = dict(PAIRS)
