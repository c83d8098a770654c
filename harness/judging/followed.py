"""What is followed from one compiler to the next: a failure, or a condition on its numbers. Pure.

A failure is recognised by its signature. A kernel that compiles and is sick has no message to be
recognised by: it is followed by a condition on its numbers, which the user gives, or which is
derived here from the row and from what the best toolchain makes of the same kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from harness.judging.answers import VerdictAnswer, answer_of, works
from harness.judging.conditions import (
    Comparison,
    Condition,
    fields_of,
    parse_condition,
    row_fields,
    spell,
    truth,
)
from harness.values.kernel import Scalar
from harness.values.row import Row
from harness.values.toolchain import EMULATOR
from harness.values.verdict import DEFAULT_THRESHOLDS, Stage, Thresholds, VerdictKind

PAIRING = "pairing"
"""Who is at fault where no component is, but the choice of versions."""

_PTXAS_STAGES = (Stage.CUBIN.value, Stage.LAUNCH.value)
_CRASHES = (VerdictKind.PTXAS_ICE, VerdictKind.COMPILER_CRASH)
# MLIR catches what ends a pass, an assertion say, and `judge` has these words for it. The same is a
# check of the compiler's own that fails (TVM's `ICHECK`, say), or that says what is left to do.
_CAUGHT = re.compile(
    r"(?:pass|stage) \S+ crashed\b|.*\b(?:TODO\b|Check failed\b|InternalError\b|UNREACHABLE\b"
    r"|Assertion\b.* failed\b)",
    re.DOTALL,
)
_VERSION = re.compile(r"\d+(?:\.\d+)*")

# The numbers by which a kernel is sick, each with its words; for the last one, less is worse.
_MEASURES = {
    "spill_stores": "{:,} B of spill stores",
    "spill_loads": "{:,} B of spill loads",
    "stack": "{:,} B of local memory",
    "occupancy": "occupancy {:.1%}",
    "n_regs": "{:,} registers",
    "shared": "{:,} B of shared memory",
    "tmem_size": "{:,} columns of tensor memory",
}


class FollowedFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One failure, or one condition on a row's numbers; with a `condition`, that alone decides.

    `kind` and `stage` are those of the row in which it was seen; where only a signature is known,
    the kind is `ok` and the stage None. `said` is that row's reason. `why` explains a condition
    that was derived, in words. `is_over_limit`: the kernel asks for more than the target has,
    whatever came of that.
    """

    kind: VerdictKind = VerdictKind.OK
    stage: str | None = None
    signature: str | None = None
    condition: Condition | None = None
    said: str | None = None
    why: str | None = None
    is_over_limit: bool = False

    @property
    def before_ptxas(self) -> bool:
        """Whether it has happened, or is in the PTX, before ptxas begins."""
        return self.stage not in _PTXAS_STAGES

    @property
    def is_pairing(self) -> bool:
        """Versions that do not go together: one does not know what the other writes or asks for.

        No component is at fault, whichever of the two is exchanged.
        """
        return self.condition is None and self.kind is VerdictKind.UNSUPPORTED

    @property
    def is_crash(self) -> bool:
        """A compiler fell over: no input may do that to it."""
        caught = self.kind is VerdictKind.PASS_FAILURE and _CAUGHT.match(self.said or "")
        return self.condition is None and bool(self.kind in _CRASHES or caught)

    @property
    def fields(self) -> tuple[str, ...]:
        """The numbers that it is about; none where it is a failure."""
        if self.condition is None:
            return ()
        names = [name for name in fields_of(self.condition) if name in _MEASURES]
        # Spills are read beside the registers at which they happen.
        with_registers = any(name.startswith("spill") for name in names)
        return tuple(dict.fromkeys([*(["n_regs"] if with_registers else []), *names]))

    @property
    def words(self) -> str | None:
        """The condition, with its reason where it was derived; None where it is a failure."""
        if self.condition is None:
            return None
        return f"{spell(self.condition)}{f' ({self.why})' if self.why else ''}"

    def of(self, row: Row) -> VerdictAnswer:
        """The answer of a row to what is followed."""
        return self.outcome(row.verdict, row.stage, row.signature, row_fields(row), row.reason)

    def outcome(
        self,
        kind: VerdictKind,
        stage: str | None,
        signature: str | None,
        fields: Mapping[str, Scalar | None] | None = None,
        reason: str = "",
    ) -> VerdictAnswer:
        """What a verdict says of it; `fields` are the numbers, named as in a row."""
        if kind is VerdictKind.INFRA:
            return VerdictAnswer.INFRA
        if self._is_same(kind, signature, fields or {}, reason):
            return VerdictAnswer.SAME
        followed = self.kind if self.condition is None else None
        return answer_of(kind, stage=stage, followed_kind=followed)

    def _is_same(
        self,
        kind: VerdictKind,
        signature: str | None,
        fields: Mapping[str, Scalar | None],
        reason: str,
    ) -> bool:
        if self.condition is not None:
            return truth(self.condition, fields) is True
        if signature is not None and signature == self.signature:
            return True
        # Each version names itself when it says what it does not know.
        is_refusal = kind is VerdictKind.UNSUPPORTED and self.kind is kind
        return is_refusal and self.said is not None and _nameless(reason) == _nameless(self.said)


def _nameless(reason: str) -> str:
    return _VERSION.sub("N", reason)


def read_while(text: str | None) -> Condition | None:
    """The condition of `--while`; None where the option is not given.

    Raises:
        UsageError: it is empty, malformed, or names a field or a word that does not exist.
    """
    return None if text is None else parse_condition(text)


def is_followable(row: Row) -> bool:
    """Whether a row shows something that can be followed: it says something of the kernel."""
    return row.signature is not None and not row.verdict.tells_nothing


def gravest(rows: Sequence[Row]) -> Row | None:
    """The row with the gravest failure, the last one of its kind; None where nothing fails."""
    failing = [row for row in reversed(rows) if is_followable(row) and row.verdict.facts.gravity]
    return max(failing, key=lambda row: row.verdict.facts.gravity, default=None)


def rank(row: Row, followed: FollowedFailure) -> int:
    """Zero for the failure that is asked about, more for what is less likely to be meant.

    Where nothing is asked, any failure is meant; then what is sick, then what is unsupported.
    """
    kind = row.verdict
    if followed.condition is not None or followed.signature is not None:
        if followed.of(row) is VerdictAnswer.SAME:
            return 0
    elif row.signature is not None:
        return 2 if kind.tells_nothing else int(kind.compiles)
    return 4 if kind is VerdictKind.INFRA else 3


def follow(
    row: Row,
    *,
    condition: Condition | None = None,
    others: Iterable[Row] = (),
    is_over_limit: bool = False,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> FollowedFailure:
    """What is to be followed of a row: the `condition` that is asked, else its own failure.

    For a sick row the condition is derived; `others` are what other toolchains make of the kernel.
    """
    sickness = None if condition else sickness_of(row, others, thresholds)
    condition = sickness.condition if sickness else condition
    return FollowedFailure(
        kind=row.verdict,
        # What holds of a kernel that compiles is known of what ptxas made.
        stage=row.stage or (Stage.CUBIN.value if condition else None),
        signature=row.signature,
        condition=condition,
        said=row.reason,
        why=sickness.words if sickness else None,
        is_over_limit=is_over_limit,
    )


class Sickness(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that holds of a sick row, and of those that are about as sick as it is.

    `words` say how it was derived, with the numbers of the row and of the `best` other one.
    """

    condition: Condition
    words: str
    best: Row | None


def sickness_of(
    row: Row, others: Iterable[Row] = (), thresholds: Thresholds = DEFAULT_THRESHOLDS
) -> Sickness | None:
    """The condition by which a sick row is followed; None where it is not a matter of degree.

    Where the row is so many times worse than the best toolchain as `thresholds.worse` says, that
    much worse than the best is the condition. Else it is half of what the row has: what is nearly
    as sick is no better.
    """
    name = _measure_of(row, thresholds)
    if name is None:
        return None
    value = _number(row, name)
    healthy = [
        row_elsewhere
        for row_elsewhere in others
        if works(row_elsewhere.verdict, row_elsewhere.stage)
        and row_fields(row_elsewhere).get(name) is not None
    ]
    if name == "occupancy":
        best = max(healthy, key=lambda candidate: _number(candidate, name), default=None)
        condition = Comparison(field=name, operator="<=", value=round(value, 6))
        words = "as low as in the row that is followed"
        return Sickness(condition=condition, words=_with_best(words, best, (name,)), best=best)
    best = min(healthy, key=lambda candidate: _number(candidate, name), default=None)
    floor = thresholds.spill_bytes // 16
    least = max(_number(best, name), floor) if best else value
    for factor in thresholds.worse:
        if value >= factor * least:
            bound = int(factor * least)
            words = f"{factor} times the best toolchain or worse"
            break
    else:
        bound = int(-(-value // 2))
        words = "half of what the row that is followed has, or worse"
    condition = Comparison(field=name, operator=">=", value=bound)
    return Sickness(condition=condition, words=_with_best(words, best, ("n_regs", name)), best=best)


def _with_best(words: str, best: Row | None, names: Sequence[str]) -> str:
    if best is None:
        return words
    return f"{words}; the best, {toolchain_of(best)}: {measured(names, [best])}"


def severity(row: Row, thresholds: Thresholds = DEFAULT_THRESHOLDS) -> float:
    """How sick a row is, beside others of its kind: more is worse; 0 for what is not sick."""
    name = _measure_of(row, thresholds)
    if name is None:
        return 0.0
    return -_number(row, name) if name == "occupancy" else _number(row, name)


def toolchain_of(row: Row) -> str:
    """`Triton 3.6.0, ptxas 12.8.93`."""
    if row.ptxas == EMULATOR:
        return f"{row.compiler_name}, on the emulator"
    return f"{row.compiler_name}, {row.tool}" if row.compiler else row.tool


def _measure_of(row: Row, thresholds: Thresholds) -> str | None:
    """The number by which a row is sick."""
    if row.verdict is not VerdictKind.SICK or not works(VerdictKind.SICK, row.stage):
        return None
    stores, loads = row.spill_stores or 0, row.spill_loads or 0
    if stores + loads >= thresholds.spill_bytes:
        return "spill_stores" if stores else "spill_loads"
    if (row.stack or 0) >= thresholds.stack_bytes:
        return "stack"
    return "occupancy" if row.occupancy is not None else None


def _number(row: Row, name: str) -> float:
    value = row_fields(row)[name]
    assert isinstance(value, (int, float))
    return value


def measured(names: Iterable[str], rows: Iterable[Row]) -> str:
    """The numbers of these rows in words, as a range where they differ; empty where none is known.

    `32 registers, 616 - 740 B of spill stores`.
    """
    values = [row_fields(row) for row in rows]
    return ", ".join(filter(None, (_range(name, values) for name in names)))


def _range(name: str, rows: Sequence[Mapping[str, Scalar | None]]) -> str:
    values = [fields[name] for fields in rows if isinstance(fields.get(name), (int, float))]
    form = _MEASURES.get(name)
    if not values or form is None:
        return ""
    least, most = min(values), max(values)  # type: ignore[type-var]
    text = form.format(most)
    if least == most:
        return text
    number = form[form.index("{") : form.index("}") + 1]
    return text.replace(number.format(most), f"{number.format(least)} - {number.format(most)}", 1)
