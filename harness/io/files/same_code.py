"""Code that was moved or written again, and makes what older code made: it counts as that code.

`make same-code BASE=COMMIT` writes this file. To run it is to say that evidence of the children is
the same as that of the commit: results that are stored are not made again.

Pure.
"""

from __future__ import annotations

PAIRS: tuple[tuple[str, str], ...] = (
    (
        "8bff212a9715ceca150598f01ca3ae871e262943fb23ab402cbca4ee4a966901",
        "f75f1193955c9cf5273d18a86540bfa74180be08eb111684d47f66a56fa0c9fe",
    ),
    (
        "09e4c1a5d7f94ea79b7a78c75968607ddb32657245634102e7af28493ca160e9",
        "31d28cedc17cddf12e7556632724c14cd1792ba6619ee15c8ef7cd72a3a575d5",
    ),
    (
        "00907b27e3d80dc6596b9e74e33d62cc3926814559d7f96f29925f288e507303",
        "e5fffe643d3b8b0e0ed48050f06ed3890c134a71c428eba980c71fe3debda657",
    ),
    (
        "edd0e1dfb86eab29b7d781c401142fe23939171c7c1fbd1693f7d6c4dcaca6d1",
        "b8caa000eb81ac3eb9c65cc2a64d5a40d339e244ca2b49fc74dfbbcace4afa8e",
    ),
    (
        "1a4f40bbdf0cb3214ec71e87727360a19ce6c02e45c428ac98154193f03f041f",
        "c08028bf5af90ab1618700d69e60772784ee000f76856ea90cf25e976bb87a98",
    ),
)
"""The hash of code that is here, and that of the older code."""
SAME = dict(PAIRS)
