"""Signatures: the part of a failure that stays the same when the same bug strikes again.

Folded: colours, the classes of exceptions before a message, directories, line and column numbers,
addresses, temporary names, SSA values, layout aliases, shapes, plain numbers. Kept: dtypes,
operation names, targets, codes, versions, the assertion's file and expression.
"""

from __future__ import annotations

import re

from harness.values.verdict import Signature, Stage, VerdictKind

_MAX_MESSAGE = 4000
_MAX_TEMPLATE = 600

# `(kernel.py:12)` and `(kernel.py:12 in f)`, folded: where the source of what was executed lies.
_SOURCE = re.compile(r" \([^\s():]+:[LN](?: in [^\s()]+)?\)")

_RUNNING_PASSES = re.compile(r"Pipeline failed while executing \[([^\]]{0,2000})")
_PASS = re.compile(r"`([\w-]{1,200})`")

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_BLANKS = re.compile(r"\s+")
# glibc names the program, the file by its path, the line and the function by its whole type. Only
# the file and the expression, numbers and all, tell one bug from another.
_ASSERTION = re.compile(
    r"([\w.+-]{1,200}\.(?:cpp|cc|c|h|hpp|inc|td)):(?:\d+: .*?:)? Assertion [`'](.+?)(?:' failed|$)"
)
# How Python says which exceptions lead to a message: `CompilationError: ValueError: `. One release
# wraps what another raises as it is. Where only a name is left, the class says what is wrong.
_CLASS = r"[A-Za-z_][\w.]*(?:Error|Exception): "
_WRAPPED = re.compile(rf"^(?:{_CLASS})+(?=\S+ \S)|^(?:{_CLASS})+(?={_CLASS})")
# No replacement holds a digit that its match did not, or is longer without losing one: folding
# again and again comes to an end.
_FOLDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<![\w.])(?:~|\.{1,2})?(?:/[\w.@+=-]+)+/([\w.@+=-]+)"), r"\1"),
    (re.compile(r"(?<![\w./])(?:[\w.@+=-]+/)+([\w+-]+\.\w+)"), r"\1"),
    (re.compile(r"(?<![\w./])~?/([\w.@+=-]+\.\w+)"), r"\1"),
    (re.compile(r"\btmpxft_[0-9a-f]{8}_[0-9a-f]{8}(?:-\d+)?"), "TMP"),
    (re.compile(r"\btmp[a-z0-9_]{8}(?![a-z0-9_])"), "TMP"),
    (re.compile(r"(\.[A-Za-z]\w{0,3}):\d+(?::\d+)?(?!\w)"), r"\1:L"),
    (re.compile(r":\d+:\d+"), ":L"),
    (re.compile(r"\b(line|column) \d+"), r"\1 L"),
    # Wordings of one thing that changed: LLVM before and from Triton 3.9 on; shapes of operands
    # before and from Triton 3.7 on, which allow for dimensions in front.
    (re.compile(r"\bcouldn't\b"), "could not"),
    (re.compile(r"\[\.\.\., "), "["),
    # Sizes within a type, which some releases print as texts: <['16'], fp8e5>.
    (re.compile(r"""(?<=[\[(, ])(['"])(\d+)\1(?=[\]),])"""), r"\2"),
    (re.compile(r"\b0x[0-9a-fA-F]+(?![0-9a-zA-Z])"), "HEX"),
    # SSA values and virtual registers; not intrinsics (%llvm.nvvm.x), nor registers such as %tid.x,
    # nor those that ptxas calls a feature (Feature '%cluster_ctarank' requires .target sm_90).
    (re.compile(r"(?<!Feature ')%[A-Za-z0-9_$]+(?:#\d+)?(?![\w$#]|\.\w)"), "%V"),
    (re.compile(r"#([A-Za-z_]+)\d+\b"), r"#\1"),
    # Nodes of LLVM's instruction selection: t12, t7:1.
    (re.compile(r"\bt\d+(?::\d+)?\b"), "tN"),
    # tensor<64x?x128xbf16> keeps bf16.
    (re.compile(r"(?<![\w?])(?:(?:\d+|\?)x)+(?=[A-Za-z!])"), "SHAPEx"),
    # Not what is a part of a name, of a version (9.1) or of a dtype in words (16-bit).
    (re.compile(r"(?<![\w.])\d+(?!\w|\.\w|-bit)"), "N"),
)


def template(text: str) -> str:
    """A message with everything folded that differs between two strikes of one bug.

    Folding a template again changes nothing.
    """
    folded = _fold(text[:_MAX_MESSAGE])
    # What is cut off, or what one rule leaves, can be what another one folds.
    while (again := _fold(folded)) != folded:
        folded = again
    return folded


def _fold(text: str) -> str:
    text = _BLANKS.sub(" ", _COLOUR.sub("", text)).strip()
    assertion = _ASSERTION.search(text) if "Assertion" in text else None
    if assertion:
        text = f"{assertion[1]}: Assertion `{assertion[2].strip()}"
    else:
        text = _WRAPPED.sub("", text)
        for pattern, replacement in _FOLDS:
            text = pattern.sub(replacement, text)
    return text[:_MAX_TEMPLATE].strip()


def run_template(text: str) -> str:
    """The template of what an execution did: the same, whichever file its source lies in."""
    return _SOURCE.sub("", template(text))


def failing_pass(log: str) -> str | None:
    """The pass that MLIR names in a failing pipeline, if it does.

    Where a pass runs a pipeline of its own, MLIR names both, and the inner one last.
    """
    running = _RUNNING_PASSES.search(log)
    names = _PASS.findall(running[1]) if running else []
    return names[-1] if names else None


def make_signature(
    *, stage: Stage, kind: VerdictKind, message: str, code: str | None = None, log: str = ""
) -> Signature:
    """Fingerprint of one failure; `message` is the one line that says what failed."""
    return Signature(
        stage=stage.value,
        kind=kind.value,
        failing_pass=failing_pass(log),
        code=code,
        template=template(message),
    )
