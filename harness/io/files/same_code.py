"""Code that was moved or written again, and makes what older code made: it counts as that code.

`make same-code BASE=COMMIT` writes this file. To run it is to say that evidence of the children is
the same as that of the commit: results that are stored are not made again.

Pure.
"""

from __future__ import annotations

PAIRS: tuple[tuple[str, str], ...] = (
    (
        "fea01f86d47b27c37338cd99c71eedb14af571ae8dd8f81d57b0d24ae12e9e4d",
        "31d28cedc17cddf12e7556632724c14cd1792ba6619ee15c8ef7cd72a3a575d5",
    ),
    (
        "e8aff231a38cec78028f57746a61c3cfa72b8d50c25d1042cea49e893957569f",
        "e5fffe643d3b8b0e0ed48050f06ed3890c134a71c428eba980c71fe3debda657",
    ),
    (
        "92ab69ba6b9d7cdb9c06034dab19831b7786255b91cb8c21a3f6a1972bbdef12",
        "b8caa000eb81ac3eb9c65cc2a64d5a40d339e244ca2b49fc74dfbbcace4afa8e",
    ),
    (
        "d18a6f9aef88fd30387fe13d12cedba3980d8467ca220be48e6e8ff61e0935c5",
        "c08028bf5af90ab1618700d69e60772784ee000f76856ea90cf25e976bb87a98",
    ),
)
"""The hash of code that is here, and that of the older code."""
SAME = dict(PAIRS)
