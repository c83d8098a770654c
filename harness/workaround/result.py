"""What a search for workarounds ends with. Values only; nothing here is computed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from harness.values.kernel import Config, Scalar
from harness.values.row import Row
from harness.workaround.settings import Setting, SettingKind, SettingStep


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """With each of these releases of Triton, configs with all of these values fail.

    `either` holds one mapping from name to values for each family of failing configs.
    """

    releases: tuple[str, ...]
    either: tuple[tuple[tuple[str, tuple[Scalar | None, ...]], ...], ...]
    reason: str

    def fails(self, config: Config) -> bool:
        """Whether this config is one of them."""
        values = config.as_dict()
        return any(
            all(values.get(name) in allowed for name, allowed in family) for family in self.either
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """`capability` is (major, minor); `arguments` are those of the launch that was compiled."""

    capability: tuple[int, int]
    arguments: tuple[tuple[str, Scalar], ...]
    clauses: tuple[Clause, ...]
    tested: tuple[str, ...]


class Equivalence(StrEnum):
    """What is known of whether the same function is computed."""

    COMPILED = "compiled"
    INTERPRETED = "interpreted"
    EMULATED = "emulated"
    DIFFERS = "differs"
    NOT_CHECKED = "not checked"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """What is known, and why; the measures are those of `triage check`, of the worst tensor."""

    known: Equivalence
    reason: str
    tensor: str | None = None
    rel_err: float | None = None
    stable_max_rel: float | None = None
    bad_frac: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """What a GPU says of a candidate: so many `times` as fast as today's config, by the medians.

    None where today's config has no time. `is_ambiguous`: the intervals are not apart.
    `is_bit_identical`: it leaves the same bytes as today's config, None where either differs from
    run to run.
    """

    device: str
    times: float | None = None
    is_ambiguous: bool = False
    is_bit_identical: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedSpeed:
    """A candidate is expected to be so many `times` as fast as today's config.

    The truth lies between `least` and `most` with a probability of 90 %. `device` measured the
    cubins before; else it is what the model of `triage rank` says. `not_apart` are the changes of
    its list that may be faster or slower than it: that cannot be determined.
    """

    times: float
    least: float
    most: float
    device: str | None = None
    not_apart: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A setting that is better, compiled again from nothing (`row`).

    `is_listed` says that the tuner has the config already: nothing has to be added for it.
    `explanation` has a line for each step, and `paste` what a user does to have it.
    """

    setting: Setting
    steps: tuple[SettingStep, ...]
    row: Row
    is_listed: bool
    explanation: tuple[str, ...]
    numerics: Numerics
    paste: tuple[str, ...]
    speedup: Speedup | None = None
    expected: ExpectedSpeed | None = None

    @property
    def is_for_today(self) -> bool:
        """Whether a user has it without a change of any source."""
        return all(
            step.kind.keeps_source or (step.kind is SettingKind.CONFIG and self.is_listed)
            for step in self.steps
        )

    @property
    def change(self) -> str:
        """All steps in one line."""
        return ", ".join(step.words for step in self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """A change of the kernel's file; `proof` is what the patched file was seen to compile to.

    `is_proved`: it was applied to a copy, captured and compiled, and no config fails that is left.
    `left_out` are the configs that it leaves out on the Triton that was asked about.
    """

    file: str
    diff: str
    guard: Guard | None
    added: tuple[str, ...]
    is_proved: bool
    proof: str
    rows: tuple[Row, ...] = ()
    left_out: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkaroundReport:
    """`baseline` is the config that the search started from, `survivor` the best of today's list.

    `is_needed` is False where every config works: then there is nothing to work around.
    """

    baseline: Row
    survivor: Row | None
    listed: tuple[Row, ...]
    candidates: tuple[Candidate, ...]
    patch: Patch | None
    tried: int
    seconds: float
    is_needed: bool = True
    is_time_up: bool = False
    notes: tuple[str, ...] = ()
