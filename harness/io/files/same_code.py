"""Code that was moved or written again, and makes what older code made: it counts as that code.

`make same-code BASE=COMMIT` writes this file. To run it is to say that evidence of the children is
the same as that of the commit: results that are stored are not made again.

Pure.
"""

from __future__ import annotations

PAIRS: tuple[tuple[str, str], ...] = (
    (
        "2ca3b1004408dd5aa6d8d1e3a80c903e55bf30190820fcdda051b171ca0f1d72",
        "f75f1193955c9cf5273d18a86540bfa74180be08eb111684d47f66a56fa0c9fe",
    ),
    (
        "8aa4be014c8f9e9f5d91742b9e8d194a48c76b959f49d79e718d0e81ba41a3ff",
        "31d28cedc17cddf12e7556632724c14cd1792ba6619ee15c8ef7cd72a3a575d5",
    ),
    (
        "1f378a4e767b80745ced4561517f0ee7bb0e509ee6015ab41a1961899a747d4d",
        "e5fffe643d3b8b0e0ed48050f06ed3890c134a71c428eba980c71fe3debda657",
    ),
    (
        "644281b6363c630ab98f9581a82e8b64d4a1eea69b53355236efe1bf88aa68d5",
        "b8caa000eb81ac3eb9c65cc2a64d5a40d339e244ca2b49fc74dfbbcace4afa8e",
    ),
    (
        "1a4f40bbdf0cb3214ec71e87727360a19ce6c02e45c428ac98154193f03f041f",
        "c08028bf5af90ab1618700d69e60772784ee000f76856ea90cf25e976bb87a98",
    ),
)
"""The hash of code that is here, and that of the older code."""
SAME = dict(PAIRS)
