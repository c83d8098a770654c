"""Runs: the inputs that a launch has, and what came out when it was executed, or interpreted."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from harness.values.kernel import Scalar
from harness.values.outcome import RaisedError, Reads
from harness.values.row import CellNames, Row
from harness.values.timing import TimeMs
from harness.values.verdict import VerdictKind


class Agreement(StrEnum):
    """Whether a config computes what the others of its launch do, as far as that is known."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_CHECKED = "not checked"


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """How far the worst `tensor` is from what it is held to, as `Distance` in Triton's child.

    None where that is infinite, or where there is nothing to measure.
    """

    tensor: str | None = None
    rel_err: float | None = None
    stable_max_rel: float | None = None
    bad_frac: float | None = None
    unequal: float | None = None
    within_1e_3: float | None = None
    within_1_percent: float | None = None


class SameProgram(Measures, frozen=True, kw_only=True):
    """Configs that are one program to the interpreter.

    `described` are the arguments of the launch as `LaunchFacts` has them, but for those that the
    kernel's own decorators add. `suspect` is what reading the source says of them at these sizes.
    `group` 0 is the one that the others are held to, None where `error` says why there is no
    result. The measures are against group 0; `allowed` is the most that `stable_max_rel` may be.
    """

    configs: list[dict[str, Scalar]]
    described: list[dict[str, object]]
    group: int | None
    error: str = ""
    suspect: str = ""
    allowed: float | None = None


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


class Departure(Measures, frozen=True, kw_only=True):
    """A variant of a launch against the original: `error` says why they could not be compared.

    The measures are of what the launch returns.
    """

    error: str = ""
    differs: bool = False
    allowed: float | None = None


class Operations(msgspec.Struct, frozen=True, kw_only=True):
    """A launch run in Triton's interpreter, each variant against the first one.

    `reads` is what each of the runs read.
    """

    variants: list[Departure]
    reads: tuple[Reads, ...] = ()


class Checked(Measures, frozen=True, kw_only=True):
    """What one config of a launch computes in the interpreter, against the others of the launch."""

    status: Agreement
    reason: str
    level: str | None = None
    group: int | None = None


class ArgumentKind(StrEnum):
    """What a launch was given for a parameter of the kernel."""

    TENSOR = "tensor"
    DESCRIPTOR = "descriptor"
    SCALAR = "scalar"
    NONE = "none"
    CONSTEXPR = "constexpr"
    TUPLE = "tuple"
    OBJECT = "object"


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument by its parameter's name.

    A tensor is `offset` bytes into `buffer` (its number in the variant), with shape and strides in
    elements. A descriptor is its base tensor with shape and strides of its own, and a `block`.
    A scalar's `value` is its text (a float's in hexadecimal, exactly), as is that of a constexpr
    which is a number or a text. `items` are of a tuple.
    """

    name: str
    kind: ArgumentKind
    buffer: int = 0
    offset: int = 0
    dtype: str = ""
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    nan_padding: bool = False
    round_to_tf32: bool = False
    type: str = ""
    value: str = ""
    items: tuple[Argument, ...] = ()

    @classmethod
    def flat(cls, name: str, buffer: int, dtype: str, size: int) -> Argument:
        """A whole buffer, as a tensor of `size` elements in a row."""
        tensor, shape = ArgumentKind.TENSOR, (size,)
        return cls(name=name, kind=tensor, buffer=buffer, dtype=dtype, shape=shape, strides=(1,))


class Buffer(msgspec.Struct, frozen=True, kw_only=True):
    """One storage, however many arguments are views of it: its bytes as an artifact (`.npy`).

    `unwritten`: the launch code only asked for the memory, and nothing has written to it.
    `holds_addresses`: the launch code has put addresses of tensors (`data_ptr`) into it.
    """

    sha256: str
    size: int
    unwritten: bool = False
    holds_addresses: bool = False


class Assertion(msgspec.Struct, frozen=True, kw_only=True):
    """What the launch code asserts (`where`: FILE:LINE) of the values that a launch left.

    `buffers` (sha256) are those that it sees, None for the others; `kernels` are all of which it
    sees values. Of one that does not hold, `message` is what was raised, and `relative` how far the
    compared tensors are apart, against their scale; None where that is not known.
    """

    where: str
    holds: bool
    buffers: tuple[str | None, ...]
    kernels: tuple[str, ...]
    message: str = ""
    relative: float | None = None


class LaunchVariant(msgspec.Struct, frozen=True, kw_only=True):
    """A launch with one config: what the kernel gets, and the grid in programs.

    `described` is what Triton specialises on, as `LaunchFacts.arguments` has it. `interpreted` are
    the buffers after Triton's interpreter ran it, where it did; `error` says why it could not.
    `interpreted_otherwise`: after it ran the launch with another config on the same buffers.
    `is_sampled`: it ran the programs that the emulator runs of a large grid, and no other.
    `asserted` is what the launch code asserts of what the launch left, whichever config it went on
    with.
    """

    config: dict[str, Scalar]
    grid: tuple[int, ...]
    arguments: tuple[Argument, ...]
    buffers: tuple[Buffer, ...]
    described: list[dict[str, object]]
    interpreted: tuple[Buffer, ...] = ()
    interpreted_otherwise: tuple[Buffer, ...] = ()
    is_sampled: bool = False
    error: str = ""
    asserted: tuple[Assertion, ...] = ()


class LaunchInputs(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of one kernel, in the order of the launch code, with every config of its tuner.

    `values` says what computed the buffers that the launch code goes on with; `is_whole`: all
    programs of the launch did, to their end.
    """

    kernel: str
    variants: tuple[LaunchVariant, ...]
    values: str = ""
    is_whole: bool = True


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """All launches of a launch function that was run with values; what came of `tests`."""

    launches: tuple[LaunchInputs, ...] = ()
    error: RaisedError | None = None
    reads: Reads = msgspec.field(default_factory=Reads)
    tests: tuple[str, ...] = ()


class OutputFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor (or raw buffer) that the kernel wrote.

    `elements` is how many it has, `differing` how many of them are not what they must be, `max_abs`
    and `rel_err` how far they are; None where there is nothing to compare with. `unequal`,
    `within_1e_3` and `within_1_percent` are shares (0 to 1): that differ at all, by at most 0.001,
    and by at most a hundredth. `error_ratio` is `rel_err` divided by that of the repro's baseline.
    `where` names the first that differs. `sha256` is of its bytes after
    the run.
    """

    name: str
    dtype: str
    elements: int
    differing: int | None = None
    max_abs: float | None = None
    rel_err: float | None = None
    stable_max_rel: float | None = None
    unequal: float | None = None
    within_1e_3: float | None = None
    within_1_percent: float | None = None
    error_ratio: float | None = None
    sha256: str = ""
    where: str | None = None
    expected: float | None = None
    actual: float | None = None


class RaceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Two accesses that nothing orders; the lines are of the first and of the second.

    `formal`: the letter of the memory model alone is broken, or, of `lanes`, rounding is all that
    comes of it. `words` stay the same in other configs and versions: kind, space, and the two
    opcodes.
    """

    kind: str
    space: str
    formal: bool
    ptx_lines: tuple[int, int]
    source_lines: tuple[str | None, str | None]
    what: str
    words: str


class TraceStep(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction on the way of a difference: its value in either run.

    `thread` is its number in its block, None where its warp acts as one.
    """

    ptx_line: int
    instruction: str
    source_line: str | None
    thread: int | None
    warp: int
    values: tuple[str, str]


class TraceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An element in two runs, and its way from where they first differ (`begins`).

    `runs` are their schedules, `values` what they leave there, `program` is the block that wrote
    it. `reason` says why it was not followed.
    """

    element: str
    runs: tuple[str, str] | None = None
    values: tuple[str, str] | None = None
    program: tuple[int, int, int] | None = None
    begins: str = ""
    steps: tuple[TraceStep, ...] = ()
    reason: str = ""


class SanitizerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What one tool found: how many errors, None where it gave no answer; `words` say what or why.

    Of several errors the words are of the first.
    """

    tool: str
    errors: int | None
    words: str = ""


class RunRow(CellNames, frozen=True, kw_only=True):
    """A cell that was executed; `compiled` is its row of `triage compile`, None for raw PTX.

    `reference` says what it was compared with, `schedule` under which ones it went wrong, else all
    that were run. `seconds` is wall time of executing it, `ptx_sha256` that of what was executed.
    `time_ms` is that of a kernel that was timed, `time_samples` (milliseconds) and `sm_mhz` (the
    clock beside them) are what it follows from, in their order. `printed` is what threads printed
    in the first run in which they did. `sanitizers` is what the tools of compute-sanitizer say of a
    cubin that was launched under them, or `schedule`, which reads its SASS. `check` is what its
    source computes against the other configs of its launch; None where that was not looked at.
    `suspect` is as in `Row`, of a cell that is not `compiled`.
    """

    on: str
    run: VerdictKind
    run_reason: str
    run_signature: str | None = None
    ptx_sha256: str | None = None
    device: str | None = None
    reference: str | None = None
    schedule: str | None = None
    outputs: tuple[OutputFacts, ...] = ()
    races: tuple[RaceFacts, ...] = ()
    printed: tuple[str, ...] = ()
    instructions_run: int | None = None
    ctas_run: int | None = None
    ctas: int | None = None
    seconds: float | None = None
    time_ms: TimeMs | None = None
    time_samples: tuple[float, ...] = ()
    sm_mhz: tuple[int, ...] = ()
    sanitizers: tuple[SanitizerFacts, ...] = ()
    compiled: Row | None = None
    trace: TraceFacts | None = None
    check: Checked | None = None
    suspect: str | None = None

    @property
    def is_accused(self) -> bool:
        """Whether it ran wrong, a sanitizer found an error, or other configs compute otherwise."""
        differs = self.check is not None and self.check.status is Agreement.DIFFERS
        return differs or self.run.is_failure or any(tool.errors for tool in self.sanitizers)

    @property
    def counted_races(self) -> tuple[RaceFacts, ...]:
        """Those that are not notes: formal ones only where they alone are the verdict."""
        serious = tuple(race for race in self.races if not race.formal)
        return serious or (self.races if self.run is VerdictKind.RACE else ())
