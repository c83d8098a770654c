"""Code that was moved or written again, and makes what older code made: it counts as that code.

`make same-code BASE=COMMIT` writes this file. To run it is to say that evidence of the children is
the same as that of the commit: results that are stored are not made again.

Pure.
"""

from __future__ import annotations

PAIRS: tuple[tuple[str, str], ...] = (
    (
        "764f7bdb242f75c5633a138cd77b1d93018343018e609324f3ecaa45798866bf",
        "f75f1193955c9cf5273d18a86540bfa74180be08eb111684d47f66a56fa0c9fe",
    ),
    (
        "4960e4f0b156eb19fdf51aa91eedbed061791571d32624b77caa50d44b8d7f2e",
        "31d28cedc17cddf12e7556632724c14cd1792ba6619ee15c8ef7cd72a3a575d5",
    ),
    (
        "be4a8fe26d2984a4df53415d55b6643d4d225b415ee20f0464ba564a9328cc0f",
        "e5fffe643d3b8b0e0ed48050f06ed3890c134a71c428eba980c71fe3debda657",
    ),
    (
        "0e75a368f772a5a7b1999f79161dad2437539b27eaa815c82871b2a94f8db0ac",
        "b8caa000eb81ac3eb9c65cc2a64d5a40d339e244ca2b49fc74dfbbcace4afa8e",
    ),
    (
        "1a4f40bbdf0cb3214ec71e87727360a19ce6c02e45c428ac98154193f03f041f",
        "c08028bf5af90ab1618700d69e60772784ee000f76856ea90cf25e976bb87a98",
    ),
)
"""The hash of code that is here, and that of the older code."""
SAME = dict(PAIRS)
