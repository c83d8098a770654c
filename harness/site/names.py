"""How pages are named, and which letter and tone a verdict has on them. Pure."""

from __future__ import annotations

import hashlib
import re

from harness.tables.said import Tone, verdict_said
from harness.values.verdict import VerdictKind

LETTERS = {
    VerdictKind.OK: "O",
    VerdictKind.SICK: "S",
    VerdictKind.TRAP_STUB: "T",
    VerdictKind.OUT_OF_RESOURCES: "R",
    VerdictKind.REJECTED: "J",
    VerdictKind.PASS_FAILURE: "P",
    VerdictKind.COMPILER_CRASH: "C",
    VerdictKind.PTXAS_ICE: "I",
    VerdictKind.PTXAS_ERROR: "E",
    VerdictKind.TIMEOUT: "H",
    VerdictKind.OUT_OF_MEMORY: "M",
    VerdictKind.UNSUPPORTED: "U",
    VerdictKind.INFRA: "F",
    VerdictKind.RIGHT: "G",
    VerdictKind.RAN: "N",
    VerdictKind.WRONG_RESULT: "W",
    VerdictKind.RACE: "A",
    VerdictKind.NONDETERMINISTIC: "D",
    VerdictKind.MEMORY_FAULT: "B",
    VerdictKind.UNINITIALISED: "V",
    VerdictKind.HANG: "X",
    VerdictKind.LAUNCH_FAILED: "L",
    VerdictKind.NOT_RUN: "Z",
}
"""A letter for each verdict, so that no page depends on colour."""

_NO_NAME = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST = 60


def kernel_page(kernel: str, target: str) -> str:
    """The file of a kernel on one target."""
    return f"kernel-{_slug(kernel, target)}.html"


def rows_page(kernel: str, target: str, number: int) -> str:
    """The file of a part of the rows of a kernel on one target; parts are numbered from 1."""
    return f"rows-{_slug(kernel, target)}-{number}.html"


def cell_page(cell: str) -> str:
    """The file of one cell."""
    return f"cell-{_slug(cell)}.html"


def bug_page(number: int) -> str:
    """The file of one bug."""
    return f"bug-{number}.html"


def tone_of(verdict: str) -> Tone:
    """The tone of a verdict, as in the tables of the terminal."""
    return verdict_said(verdict).parts[0][1]


def _slug(*words: str) -> str:
    """Words as a file name: readable, safe everywhere, and different for different words."""
    readable = _NO_NAME.sub("-", "-".join(words)).strip("-")[:_LONGEST]
    digest = hashlib.sha256("\0".join(words).encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable}-{digest}"
