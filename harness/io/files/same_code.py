"""Code that was moved or written again, and makes what older code made: it counts as that code.

`make same-code BASE=COMMIT` writes this file. To run it is to say that evidence of the children is
the same as that of the commit: results that are stored are not made again.

Pure.
"""

from __future__ import annotations

PAIRS: tuple[tuple[str, str], ...] = (
    (
        "bc2ec445b194ec6e70d59b08ca6f6dcd322979f8f735bd090f17d4070a4d3c90",
        "f75f1193955c9cf5273d18a86540bfa74180be08eb111684d47f66a56fa0c9fe",
    ),
    (
        "d4be686163a728f4f676af691f061c6551a922fdaa572e8a8f59064beb179b6e",
        "31d28cedc17cddf12e7556632724c14cd1792ba6619ee15c8ef7cd72a3a575d5",
    ),
    (
        "099a45be499a9fe4d512c6bc84c11886d3405270e4918c8322447ed583014394",
        "e5fffe643d3b8b0e0ed48050f06ed3890c134a71c428eba980c71fe3debda657",
    ),
    (
        "9a6e8c9fc74effb398396aa8315d4f4a05d19153516ff2f1830abb75dc00add5",
        "b8caa000eb81ac3eb9c65cc2a64d5a40d339e244ca2b49fc74dfbbcace4afa8e",
    ),
    (
        "1a4f40bbdf0cb3214ec71e87727360a19ce6c02e45c428ac98154193f03f041f",
        "c08028bf5af90ab1618700d69e60772784ee000f76856ea90cf25e976bb87a98",
    ),
)
"""The hash of code that is here, and that of the older code."""
SAME = dict(PAIRS)
