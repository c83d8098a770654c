"""Code that was moved or written again, and makes what older code made: it counts as that code.

`make same-code BASE=COMMIT` writes this file. To run it is to say that evidence of the children is
the same as that of the commit: results that are stored are not made again.

Pure.
"""

from __future__ import annotations

PAIRS: tuple[tuple[str, str], ...] = (
    (
        "59a40acdd388999dd4e80b384d684d80b9f43098daf94902bf00148f051cc166",
        "f75f1193955c9cf5273d18a86540bfa74180be08eb111684d47f66a56fa0c9fe",
    ),
    (
        "5c3c05b444bf5015fd9249eae3cc9cc3be74fa6b8f306adcb7720a96b5aa2d1a",
        "31d28cedc17cddf12e7556632724c14cd1792ba6619ee15c8ef7cd72a3a575d5",
    ),
    (
        "d7b62b1abea30c225c2e087b0de8e14d947cba1554dfebb43de4e71172491459",
        "e5fffe643d3b8b0e0ed48050f06ed3890c134a71c428eba980c71fe3debda657",
    ),
    (
        "9f01cbb1fb8c893fe559a16ac1f1d6398ec64d97b38d8e3040d6ce02fef28e05",
        "b8caa000eb81ac3eb9c65cc2a64d5a40d339e244ca2b49fc74dfbbcace4afa8e",
    ),
    (
        "1a4f40bbdf0cb3214ec71e87727360a19ce6c02e45c428ac98154193f03f041f",
        "c08028bf5af90ab1618700d69e60772784ee000f76856ea90cf25e976bb87a98",
    ),
)
"""The hash of code that is here, and that of the older code."""
SAME = dict(PAIRS)
