"""What a verdict answers: the one definition of "could not tell". Pure.

A question is about one failure, the one that is *followed*; without one, it is whether a kernel
works. `answer_of` answers it for one verdict:

| verdict                                                    | of another failure | followed |
|------------------------------------------------------------|--------------------|----------|
| `ok`                                                       | ok                 | -        |
| `sick` in the machine code (spills, occupancy)             | ok (1)             | same     |
| `sick` before ptxas (the kernel is gone from the PTX)      | other              | same     |
| `trap_stub`, `out_of_resources`, `rejected`,               |                    |          |
| `pass_failure`, `compiler_crash`, `ptxas_ice`, `ptxas_error` | other            | same     |
| `timeout`, `out_of_memory` (limits of `triage`)            | untestable (2)     | same (3) |
| `unsupported`                                              | untestable         | same (3) |
| `infra`                                                    | infra              | infra    |
| `right`, `ran` (executed)                                  | ok (4)             | -        |
| `wrong_result`, `race`, `nondeterministic`, `memory_fault`, |                   |          |
| `uninitialised`, `hang`, `launch_failed`                   | other              | same     |
| `not_run`                                                  | untestable         | -        |

"Followed" means an equal signature. Only *same* and *ok* move a bound of a bisection; only *ok* is
a fix; *untestable* and *infra* are "could not tell": no regression when they begin, no fix when
they end.

(1) Other, where the failure that is followed is `sick` itself: a kernel that is sick in another way
    is not proof that it is well.
(2) Another limit or a faster machine may show anything: the kernel works, or fails.
(3) Who follows a hang, or asks since when a target is supported, has made the limit or the target
    part of the question. Nothing but `infra` is untestable by its nature.
(4) `ran` has nothing to be compared with: untestable, where a wrong result is followed.
"""

from __future__ import annotations

from enum import StrEnum

from harness.values.verdict import Says, Stage, VerdictKind

LIMITS_OF_OURS = frozenset(kind for kind in VerdictKind if kind.facts.says is Says.OUR_LIMIT)
"""Verdicts of what our own limits ended: another limit may end it otherwise."""

COULD_NOT_TELL = LIMITS_OF_OURS | {kind for kind in VerdictKind if kind.tells_nothing}
"""Verdicts that tell nothing of a kernel, unless they are the failure that is followed."""

_BEFORE_PTXAS = frozenset(stage.value for stage in Stage.all()) - {
    Stage.CUBIN.value,
    Stage.LAUNCH.value,
    Stage.RUN.value,
}


class VerdictAnswer(StrEnum):
    """What one verdict answers; see the table above."""

    SAME = "same"
    OK = "ok"
    OTHER = "other"
    UNTESTABLE = "untestable"
    INFRA = "infra"

    @property
    def moves_a_bound(self) -> bool:
        """Whether it says anything of the failure that is looked for."""
        return self in (VerdictAnswer.SAME, VerdictAnswer.OK)


def answer_of(
    kind: VerdictKind,
    *,
    stage: str | None,
    signature: str | None = None,
    followed: str | None = None,
    followed_kind: VerdictKind | None = None,
) -> VerdictAnswer:
    """What a verdict says of the failure with the signature `followed`, None for no failure.

    `stage` and `signature` are the verdict's; `followed_kind` is the kind of the failure.
    """
    if kind is VerdictKind.INFRA:
        return VerdictAnswer.INFRA
    if signature is not None and signature == followed:
        return VerdictAnswer.SAME
    is_unjudged = kind is VerdictKind.RAN and followed_kind is VerdictKind.WRONG_RESULT
    if kind in COULD_NOT_TELL or is_unjudged:
        return VerdictAnswer.UNTESTABLE
    is_sick_otherwise = kind is VerdictKind.SICK and followed_kind is VerdictKind.SICK
    return VerdictAnswer.OK if works(kind, stage) and not is_sick_otherwise else VerdictAnswer.OTHER


def works(kind: VerdictKind, stage: str | None) -> bool:
    """Whether a kernel came out that does the work; `stage` is the verdict's."""
    if kind is VerdictKind.SICK:
        return stage not in _BEFORE_PTXAS
    return kind.compiles
