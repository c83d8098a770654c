"""What running the configs of a launch against one another said."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from harness.values.kernel import Scalar
from harness.values.outcome import RaisedError, Reads


class Agreement(StrEnum):
    """Whether a config computes what the others of its launch do, as far as that is known."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_CHECKED = "not checked"


class SameProgram(msgspec.Struct, frozen=True, kw_only=True):
    """Configs that are one program to the interpreter.

    `described` are the arguments of the launch as `LaunchFacts` has them, but for those that the
    kernel's own decorators add. `suspect` is what reading the source says of them at these sizes.
    `group` 0 is the one that the others are held to, None where `error` says why there is no
    result. The measures
    (`Distance` in Triton's child) are of the worst tensor against group 0, None where they are
    infinite or where there is nothing to measure; `allowed` is the most that `stable_max_rel` may
    be.
    """

    configs: list[dict[str, Scalar]]
    described: list[dict[str, object]]
    group: int | None
    error: str = ""
    suspect: str = ""
    tensor: str = ""
    allowed: float | None = None
    rel_err: float | None = None
    stable_max_rel: float | None = None
    bad_frac: float | None = None
    unequal: float | None = None
    within_1e_3: float | None = None
    within_1_percent: float | None = None


class LaunchComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of one kernel with all of its configs.

    `level` says what was compared: `source` (nothing: the source does not see what tells configs
    apart), `buffers` (all that the kernel wrote) or `results` (all that the launch returned).
    """

    kernel: str
    level: str
    variants: list[SameProgram]


class Interpretation(msgspec.Struct, frozen=True, kw_only=True):
    """A launch run in Triton's interpreter; `skipped` maps kernels it cannot run to the reason."""

    findings: list[LaunchComparison] = msgspec.field(default_factory=list)
    skipped: dict[str, str] = msgspec.field(default_factory=dict)
    error: RaisedError | None = None
    reads: Reads = msgspec.field(default_factory=Reads)


class Departure(msgspec.Struct, frozen=True, kw_only=True):
    """A variant of a launch against the original: `error` says why they could not be compared.

    The measures are of the worst tensor that the launch returns; None is infinite.
    """

    error: str = ""
    differs: bool = False
    tensor: str = ""
    allowed: float | None = None
    rel_err: float | None = None
    stable_max_rel: float | None = None
    bad_frac: float | None = None


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """A launch run in Triton's interpreter, each variant against the first one.

    `reads` is what each of the runs read.
    """

    variants: list[Departure]
    reads: tuple[Reads, ...] = ()


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What one config of a launch computes in the interpreter, against the others of the launch.

    The measures are as in `SameProgram`, None where there is nothing to measure.
    """

    status: Agreement
    reason: str
    level: str | None = None
    group: int | None = None
    tensor: str | None = None
    rel_err: float | None = None
    stable_max_rel: float | None = None
    bad_frac: float | None = None
    unequal: float | None = None
    within_1e_3: float | None = None
    within_1_percent: float | None = None
