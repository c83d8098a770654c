"""Two compilers' IR of one kernel, stage by stage: where they begin to differ.

Any two releases differ in names and order. What tells most is an operation that one of them uses
and the other does not; then, how often each is used. Reads the surface of MLIR, LLVM IR and PTX,
line by line.

Pure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpu_emulator.ptx.text.facts import opcodes, without_debug

_MLIR = re.compile(r'^\s*(?:%[^=\n]{1,400}= )?"?([a-z_]\w*(?:\.\w+)+)"?', re.MULTILINE)
_LLVM = re.compile(
    r"^\s+(?:%[\w.$-]+ = )?(?:(?:tail|musttail|notail) )?([a-z_]+)\b(?:[^@\n]*@(llvm\.[\w.]+))?",
    re.MULTILINE,
)
_OVERLOAD = re.compile(r"(?:\.(?:[pv]?\d*[iuf]\d+|p\d+|bf16|f16|f32|f64))+$")
_MODIFIER = re.compile(r"\.[a-z][\w:]*")
_MAX_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDifference:
    """One stage on both sides: the kinds of operation that only one of them has.

    `counts` are the operations (of PTX by the whole opcode) that one side has more often, with how
    many more the later one has: those that come or go first, then by the share that changed.
    `missing` names the side (`before` or `after`) that never came to this stage.
    """

    stage: str
    gained: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    counts: tuple[tuple[str, int], ...] = ()
    missing: str | None = None

    @property
    def differs(self) -> bool:
        """Whether it differs in kind."""
        return bool(self.gained or self.lost or self.missing)

    @property
    def words(self) -> str:
        """What differs, in a few words; `+` is what the later version has."""
        if self.missing:
            return (
                f"the {'earlier' if self.missing == 'before' else 'later'} version never makes it"
            )
        if not self.differs:
            some = [f"{name} {more:+d}" for name, more in self.counts[:_MAX_NAMED]]
            more = len(self.counts) - len(some)
            counted = f": {', '.join(some)}{f' and {more} more' if more else ''}" if some else ""
            return f"the same kinds of operation{counted}"
        parts = [f"+{name}" for name in self.gained[:_MAX_NAMED]]
        parts += [f"-{name}" for name in self.lost[:_MAX_NAMED]]
        more = len(self.gained) + len(self.lost) - len(parts)
        return " ".join(parts) + (f" and {more} more" if more else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStory:
    """What lies between two compilers: their IR by stage, and what they are made of.

    `failing_pass` is the pass in which the failing side fails, dies or makes its trap, `trap_stage`
    the first stage in which it has a trap that the other has not. `llvm` and `ptxas` are (earlier,
    later): the LLVM commit that each wheel carries, and the ptxas that it bundles for this target.
    """

    stages: tuple[StageDifference, ...]
    failing_pass: str | None = None
    trap_stage: str | None = None
    llvm: tuple[str | None, str | None] = (None, None)
    ptxas: tuple[str | None, str | None] = (None, None)

    @property
    def first(self) -> StageDifference | None:
        """See `first_difference`."""
        return first_difference(self.stages)


def first_difference(stages: Sequence[StageDifference]) -> StageDifference | None:
    """The first stage that differs in kind; where none does, the first that differs in number."""
    counted = (stage for stage in stages if stage.counts)
    return next((stage for stage in stages if stage.differs), next(counted, None))


def compare_stages(
    before: Mapping[str, str], after: Mapping[str, str], message: str = ""
) -> list[StageDifference]:
    """Compare the texts by stage; both are in the order of the front end's stages.

    `message` is the failure: of what it names in PTX, the modifiers matter too.
    """
    stages = []
    for stage in dict.fromkeys([*before, *after]):
        sides = before.get(stage), after.get(stage)
        if sides[0] is None or sides[1] is None:
            missing = "before" if sides[0] is None else "after"
            stages.append(StageDifference(stage=stage, missing=missing))
            continue
        old, new = (kinds_of(stage, side, message) for side in (sides[0], sides[1]))
        stages.append(
            StageDifference(
                stage=stage,
                gained=tuple(sorted(new - old)),
                lost=tuple(sorted(old - new)),
                counts=_counts(stage, sides[0], sides[1]),
            )
        )
    return stages


def _counts(stage: str, before: str, after: str) -> tuple[tuple[str, int], ...]:
    old, new = (Counter(_operations(stage, text)) for text in (before, after))
    changed = [name for name in old | new if old[name] != new[name]]
    changed.sort(key=lambda name: (min(old[name], new[name]) / max(old[name], new[name]), name))
    return tuple((name, new[name] - old[name]) for name in changed)


def _operations(stage: str, text: str) -> list[str]:
    """Each operation of a text of this stage, as often as it is there; types do not matter."""
    if stage == "ptx":
        return [opcode for opcode, _ in opcodes(without_debug(text).partition("{")[2])]
    if stage == "llir":
        return [_OVERLOAD.sub("", call or word) for word, call in _LLVM.findall(text)]
    return _MLIR.findall(text)


def kinds_of(stage: str, text: str, message: str = "") -> frozenset[str]:
    """The operations that a text of this stage uses; types and counts do not matter.

    Of PTX also the whole opcodes with a modifier that the message names.
    """
    names = _operations(stage, text)
    if stage != "ptx":
        return frozenset(names)
    modifiers = frozenset(_MODIFIER.findall(message))
    whole = (name for name in names if modifiers.intersection(_MODIFIER.findall(name)))
    return frozenset((*(name.split(".", 1)[0] for name in names), *whole))


def first_trap(failing: Mapping[str, str], working: Mapping[str, str]) -> str | None:
    """The first stage in which the failing side has an operation that traps and the other none."""
    for stage in failing:
        if _traps(stage, failing[stage]):
            return None if _traps(stage, working.get(stage, "")) else stage
    return None


def _traps(stage: str, text: str) -> bool:
    return any(kind.rpartition(".")[2] == "trap" for kind in kinds_of(stage, text))
