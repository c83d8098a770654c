"""What the issues of each upstream have to hold, and the words for each kind of failure. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from harness.report.dossier import Upstream
from harness.tables.templates import markdown_code
from harness.values.verdict import VerdictKind

_PLAIN_NAME = re.compile(r"(?!.*www\.)[\w.:-]+", re.ASCII)

REQUIRED: Mapping[Upstream, Sequence[str]] = {
    Upstream.NVIDIA: (
        *("Component", "Description", "Impact", "How to reproduce", "Output", "ptxas version"),
        *("Operating system", "Minimal input", "Last good and first bad"),
        *("By optimisation level and flag", "By target", "Workaround", "Attachments"),
        "Redistribution",
    ),
    Upstream.TRITON: (
        *("Describe the bug", "Reproduce", "Observed", "Versions", "Environment details"),
    ),
    Upstream.PROJECT: (
        *("Who is affected", "What happens", "Root cause", "Workaround", "Reproduce"),
        *("Upstream", "Environment"),
    ),
    Upstream.PYTORCH: ("🐛 Describe the bug", "Minimal repro", "Error logs", "Versions"),
}
"""Headings that a report must have, with something below them."""

_OBSERVED = {
    VerdictKind.SICK: "compiles to poor code",
    VerdictKind.TRAP_STUB: "compiles without an error to a kernel that only traps",
    VerdictKind.OUT_OF_RESOURCES: "compiles without an error, but needs more than the target has",
    VerdictKind.REJECTED: "is rejected",
    VerdictKind.PASS_FAILURE: "makes a pass of the compiler fail",
    VerdictKind.COMPILER_CRASH: "crashes the compiler",
    VerdictKind.PTXAS_ICE: "ends ptxas with an internal compiler error",
    VerdictKind.PTXAS_ERROR: "is refused by ptxas",
    VerdictKind.TIMEOUT: "does not finish compiling",
    VerdictKind.OUT_OF_MEMORY: "takes more memory to compile than the machine has",
    VerdictKind.RIGHT: "compiles to PTX that computes what it must",
    VerdictKind.RAN: "compiles to PTX that comes to its end",
    VerdictKind.WRONG_RESULT: "compiles to PTX that computes a wrong result",
    VerdictKind.RACE: "compiles to PTX with accesses that nothing orders",
    VerdictKind.NONDETERMINISTIC: "compiles to PTX whose result depends on the schedule",
    VerdictKind.MEMORY_FAULT: "compiles to PTX that accesses memory out of bounds or misaligned",
    VerdictKind.UNINITIALISED: "compiles to PTX whose result depends on what nothing wrote",
    VerdictKind.HANG: "compiles to PTX that never comes to its end",
    VerdictKind.LAUNCH_FAILED: "compiles to PTX that traps",
}
_EXPECTED = {
    VerdictKind.SICK: "Expected: code without these costs.",
    VerdictKind.TRAP_STUB: "Expected: code that works, or an error when it is compiled.",
    VerdictKind.OUT_OF_RESOURCES: "Expected: an error when it is compiled, or code that fits.",
    VerdictKind.REJECTED: "Expected: that it compiles, or that the message says what to change.",
}
_EXECUTED = {
    VerdictKind.WRONG_RESULT: "Expected: the same result, whatever the number of stages and warps.",
    VerdictKind.RACE: (
        "Expected: a barrier, a fence or a wait between the two accesses; of lanes of one store, "
        "that one lane stores, or all the same."
    ),
}
_ELSE_EXECUTED = "Expected: PTX that stays within its buffers, and comes to an end with one result."
_ELSE_EXPECTED = "Expected: code, or a message that names what is wrong with the input."


def named(function: str) -> str:
    """A kernel in a title; what could be markup, a link or a mention is code there."""
    return function if _PLAIN_NAME.fullmatch(function) else markdown_code(function)


def observed_words(kind: VerdictKind) -> str:
    """What the kernel does, as the end of a sentence.

    Raises:
        KeyError: it is not a failure that can be reported.
    """
    return _OBSERVED[kind]


def expected_words(kind: VerdictKind) -> str:
    """What should happen instead, where no version shows it."""
    if kind.is_of_run:
        return _EXECUTED.get(kind, _ELSE_EXECUTED)
    return _EXPECTED.get(kind, _ELSE_EXPECTED)
