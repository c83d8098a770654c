"""Bugs: failures with one signature, what people say of them, and what the results say."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from harness.values.kernel import Scalar
from harness.values.row import BugFacts, Row
from harness.values.verdict import VerdictKind

REPRODUCER = "minimized"
"""The kind of evidence: it may be trimmed, and the folder of the reduction has it still."""


class HumanState(StrEnum):
    """What people have decided about a bug."""

    UNTRIAGED = "untriaged"
    REPORTED = "reported"
    DUPLICATE = "duplicate"
    EXPECTED = "expected"
    INVALID = "invalid"
    WONTFIX = "wontfix"


class MachineState(StrEnum):
    """What the results say of a bug; derived from them, and never kept.

    `new`: one run has seen it, once. `confirmed`: the last run to see it was the one that
    reproduced it. `present`: seen before that too. `mutated`: fails in another way. `absent`: works
    with the newest versions that were tried, in some cells or outside a night. `fixed-candidate`: a
    whole night (a run of a matrix) found it nowhere; `fixed-verified`: so many nights in a row.
    `regressed`: seen again after that, where it was gone. `flaky`: comes and goes within one run.
    `untestable`: cannot be determined any more. `gone`: no cell that had it is in the source any
    more.
    """

    NEW = "new"
    CONFIRMED = "confirmed"
    PRESENT = "present"
    MUTATED = "mutated"
    ABSENT = "absent"
    GONE = "gone"
    FLAKY = "flaky"
    UNTESTABLE = "untestable"
    FIXED_CANDIDATE = "fixed-candidate"
    FIXED_VERIFIED = "fixed-verified"
    REGRESSED = "regressed"


OPEN = {
    *(MachineState.NEW, MachineState.CONFIRMED),
    *(MachineState.PRESENT, MachineState.REGRESSED),
}
"""What the newest results still have."""


class Seen(StrEnum):
    """What one cell of one run says of one bug."""

    HERE = "here"
    CLEAN = "clean"
    OTHER = "other"
    UNTOLD = "untold"
    FLAKY = "flaky"


class BugRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a bug: its number and what people say. All else is derived from results.

    `key` is that of its signature, with the program where the failure is wordless (see
    `harness.store.bug_identity`). `other_keys` are those of other
    programs with the same PTX, and those of bugs that were joined with it. `duplicate_of` is a
    number. Times are seconds since the epoch.
    """

    number: int
    key: str
    state: HumanState = HumanState.UNTRIAGED
    url: str | None = None
    duplicate_of: int | None = None
    note: str = ""
    created: float = 0.0
    changed: float | None = None
    other_keys: tuple[str, ...] = ()


class Occasion(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as bugs see it; `started` is in seconds. A run of a whole matrix is a night."""

    number: int
    started: float = 0.0
    is_night: bool = False


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """What one result says of one bug, at a place that ever had it; its verdict, and the reason.

    Cells of one `line` differ in the version of one tool only; `version` is that one. `compiled`
    says how often the compilers were run for it: 0 where it was read from the store. One that does
    not `count` is of a variant that was not asked for: other flags, another target.
    """

    line: tuple[str, ...]
    version: str
    seen: Seen
    compiled: int
    counts: bool = True
    verdict: VerdictKind = VerdictKind.INFRA
    reason: str = ""


class VersionMark(msgspec.Struct, frozen=True, kw_only=True):
    """What the last results with one version say of a bug; `counts` are the cells that say what."""

    version: str
    seen: Seen
    counts: Mapping[Seen, int]


class AffectedRange(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of one tool that have a bug, in all places taken together (last results count).

    `first_bad` begins, `last_bad` ends the stretch of failures that the newest one belongs to, as
    far as versions were tried; `last_good` and `first_fixed` are None where no version works
    before, or after it. The change is at any of the `candidates`. `clean_between` lie between the
    oldest and the newest bad one; `untestable` gave no answer and `not_tried` were not tried, and
    both lie between the last good and the first bad one, or the last bad and the first fixed one.
    `words` says so in the sentences of a bisection, `short` in a list; `marks` are the versions
    that were tried, oldest first.
    """

    tool: str
    last_good: str | None
    first_bad: str
    last_bad: str
    first_fixed: str | None
    clean_between: tuple[str, ...] = ()
    untestable: tuple[str, ...] = ()
    first_bad_candidates: tuple[str, ...] = ()
    first_fixed_candidates: tuple[str, ...] = ()
    not_tried: tuple[str, ...] = ()
    words: str = ""
    short: str = ""
    marks: tuple[VersionMark, ...] = ()


class Likeness(msgspec.Struct, frozen=True, kw_only=True):
    """How the history of another bug that says the same compares with this one's.

    `number` is the other bug's; `agrees` is None where nothing can be compared yet.
    """

    number: int
    agrees: bool | None
    words: str


class Bug(msgspec.Struct, frozen=True, kw_only=True):
    """A bug with all that the results say of it.

    `cells` counts those that ever had it, `cells_now` those whose last result has it and that the
    source still has. `compiled` is how often one cell was compiled, not read from the store, and
    had it. `clean_nights` are whole nights in a row without it, up to the last one. `first_seen`
    and `last_seen` are runs. `title` is the template of its message. `related` are the numbers of
    bugs that look alike; `likeness` compares the histories of those that say the same, where that
    is nothing. `joined` are bugs whose results count as this one's: their records, with the reason
    in the note. `untried` is the version that has to accept its smallest input before it is
    `fixed-verified`.
    """

    record: BugRecord
    machine: MachineState
    stage: str | None
    kind: str
    code: str | None
    failing_pass: str | None
    title: str
    reason: str
    cells: int
    cells_now: int
    kernels: Mapping[str, int]
    targets: tuple[str, ...]
    first_seen: int
    last_seen: int
    compiled: int
    clean_nights: int
    ranges: tuple[AffectedRange, ...]
    example: BugFacts
    related: tuple[int, ...] = ()
    likeness: tuple[Likeness, ...] = ()
    joined: tuple[BugRecord, ...] = ()
    issues: tuple[str, ...] = ()
    untried: str | None = None


class KeptReproducer(msgspec.Struct, frozen=True, kw_only=True):
    """What a reduction left, of which kernel and for which target.

    `text` is the file that a reader is shown, `name` its name, `level` what was reduced. `sizes`
    has a name, the number before and that now; `ablation` each instruction with what happens
    without it, as found by running. `is_minimal`: nothing can go alone; None where that was not
    tried out. `command` is the one that reduced it. `accepted_by` are the versions of the tool
    `kind` that accept it, `flags` those that ptxas gets; no `kind`: it is executed, not compiled.
    """

    kernel: str
    target: str
    tool: str
    level: str
    name: str
    text: str
    sizes: tuple[tuple[str, int, int], ...]
    ablation: tuple[tuple[str, str], ...] = ()
    not_ablated: int = 0
    is_minimal: bool | None = None
    command: str = ""
    kind: str = ""
    flags: tuple[str, ...] = ()
    accepted_by: tuple[str, ...] = ()


def reproducer_key(signature: str, kernel: str) -> str:
    """By which the smallest input of a failure is kept: one for each kernel that shows it."""
    return f"{signature}@{kernel}"


class KeptSetting(msgspec.Struct, frozen=True, kw_only=True):
    """All that a workaround sets, so that it can be compiled again.

    `overrides` are those of the launch, `options` what ptxas is given besides; None is what the
    installed toolchain has.
    """

    config: dict[str, Scalar]
    overrides: tuple[tuple[str, Scalar | None], ...] = ()
    options: str | None = None
    ptxas: str | None = None
    triton: str | None = None


class KeptWorkaround(msgspec.Struct, frozen=True, kw_only=True):
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
