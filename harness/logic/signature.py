"""Signatures: the part of a failure that stays the same when the same bug strikes again.

Folded: colours, directories, line and column numbers, addresses, temporary names, SSA values,
layout aliases, shapes. Kept: dtypes, operation names, targets, codes, the assertion's file and
expression. `RULE` goes up with every change, so that history can be re-keyed from its raw text.
"""

from __future__ import annotations

import re

from harness.values.verdict import Signature, Stage, VerdictKind

__all__ = ["RULE", "failing_pass", "make_signature", "template"]

RULE = 1
_MAX_TEMPLATE = 600

_FAILING_PASS = re.compile(r"Pipeline failed while executing \[[^\]]*?`([\w-]+)`")
_PASS_OF_ANCHOR = re.compile(r"`([A-Z]\w+)`\s+on\b")

_FOLDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\x1b\[[0-9;]*[A-Za-z]"), ""),
    # An assertion names its file by path and the function by its whole type: keep file, expression.
    (re.compile(r"\S*?([\w.+-]+\.(?:cpp|cc|c|h|hpp|inc)):\d+: .*?: Assertion [`']"), r"\1: Assertion `"),
    (re.compile(r"(?:/[\w.@+=-]+)+/([\w.@+=-]+)"), r"\1"),
    (re.compile(r"\btmp[\w]{6,}(\.\w+)?"), r"TMP\1"),
    (re.compile(r":\d+:\d+"), ":L:C"),
    (re.compile(r"\bline \d+"), "line L"),
    (re.compile(r"(?<=\.py):\d+"), ":L"),
    (re.compile(r"0x[0-9a-fA-F]+"), "HEX"),
    (re.compile(r"%[A-Za-z_]*\d+(?:#\d+)?"), "%V"),
    (re.compile(r"#(blocked|shared|mma|linear|smem|slice|loc|tmem)\d*\b"), r"#\1"),
    (re.compile(r"\bt\d+: "), "tN: "),
    # tensor<64x128xbf16> keeps bf16.
    (re.compile(r"\b(?:\d+x)+(?=[a-z!])"), "SHAPEx"),
    (re.compile(r"(?<![\w.])\d+(?![\w.])"), "N"),
    (re.compile(r"\s+"), " "),
)


def template(text: str) -> str:
    """A message with everything folded that differs between two strikes of one bug."""
    for pattern, replacement in _FOLDS:
        text = pattern.sub(replacement, text)
    return text.strip()[:_MAX_TEMPLATE]


def failing_pass(log: str) -> str | None:
    """The pass that MLIR names in a failing pipeline, if it does."""
    match = _FAILING_PASS.search(log) or (
        _PASS_OF_ANCHOR.search(log) if "Pipeline failed" in log else None
    )
    return match[1] if match else None


def make_signature(
    *, stage: Stage, kind: VerdictKind, message: str, code: str | None = None, log: str = ""
) -> Signature:
    """Fingerprint of one failure; `message` is the one line that says what failed."""
    return Signature(
        rule=RULE,
        stage=stage.value,
        kind=kind.value,
        failing_pass=failing_pass(log),
        code=code,
        template=template(message),
    )
