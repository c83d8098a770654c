"""A workaround as it is kept, so that every night can say whether it is still needed."""

from __future__ import annotations

from dataclasses import dataclass

from harness.values.kernel import Scalar
from harness.values.row import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSetting:
    """All that a workaround sets, so that it can be compiled again.

    `overrides` are those of the launch, `options` what ptxas is given besides; None is what the
    installed toolchain has.
    """

    config: dict[str, Scalar]
    overrides: tuple[tuple[str, Scalar | None], ...] = ()
    options: str | None = None
    ptxas: str | None = None
    triton: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWorkaround:
    """What was found for one cell, the last time that somebody looked.

    `baseline` is the cell that it is for, `change` what was changed in words, `proof` the row of
    the best candidate and `setting` all that it sets. `diff` is the patch, `left_out` the configs
    that it leaves out on the baseline's Triton, and `signatures` the keys of their failures and the
    baseline's: the bugs that it works around. `overrides` are the launch's, as they were set.
    `created` is in seconds since the epoch.
    """

    baseline: Row
    change: str
    proof: Row | None
    setting: KeptSetting | None = None
    signatures: tuple[str, ...] = ()
    diff: str = ""
    is_patch_proved: bool = False
    left_out: tuple[dict[str, Scalar], ...] = ()
    overrides: tuple[tuple[str, Scalar | None], ...] = ()
    created: float = 0.0
