"""Runs variants of a launch, or every config of it, in Triton's interpreter, and compares.

It computes as a GPU does, in forks, on small real CPU tensors that say that they are on a GPU.

`python -m` this module and FOLDER, with `TRITON_INTERPRET=1`: reads `request.json` there and
leaves `result.json`.

For configs the launch code runs once. Where it comes to a tuned kernel, every config runs in a fork
of its own, on its own copy of the tensors: one that reads outside them takes nothing with it.

A variant has overrides of the launch's parameters, and configs to inject. Each runs in a fork with
the same seed; what all return is compared with the first one. How far they may be apart is measured
too, tensor by tensor: by the first variant against itself with every rounding to bfloat16 made at
random. A chain of kernels makes more of a rounding than one kernel does, and of some results more
than of others.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import contextlib
import math
import mmap
import os
import re
import signal
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from fnmatch import fnmatchcase
from functools import partial
from json import dumps, loads
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle
from triton.runtime.jit import JITFunction

from harness.frontends.pretend.pretend_driver import pretend_triton
from harness.frontends.pretend.recorded import Injected, Replaced, method, replacing
from harness.frontends.pretend.small import plain_torch
from harness.frontends.triton.child.recording import (
    bind,
    config_of,
    describe_arguments,
    pruned_configs,
    storages_of,
    suspicion,
)
from harness.io.children.captures import leave
from harness.io.children.confine import settle
from harness.io.children.launch_code import describe_error, run_launch, stand_aside
from harness.io.children.reads import ReadsWatch
from harness.io.children.supervisor import forked, split, wait_until

SEED = 20_240_531
"""Of the random numbers that launch code makes: equal in everything that is compared."""


def run_with_values(
    ask: Mapping[str, Any],
    folder: Path,
    *around: contextlib.AbstractContextManager[Any],
    rounding: int | None = None,
    assembles: bool = True,
    on_empty: Callable[[torch.Tensor], None] | None = None,
) -> tuple[Any, BaseException | None, dict[str, Any]]:
    """What the launch code returns, what it raised, and what it read; it runs within `around`.

    With `assembles` the interpreter takes inline assembly; `rounding` is the seed of
    `round_as_gpus_do`. `on_empty` hears of memory that was only asked for.
    """
    mode = pretend_triton(ask["device"], values="computed", on_empty=on_empty)
    round_as_gpus_do(rounding)
    if assembles:
        take_inline_assembly()
    torch.manual_seed(SEED)
    reads = ReadsWatch([*ask["bare"], *ask["paths"], str(folder)], ask["file"])
    reads.start()
    returned, error = None, None
    with contextlib.ExitStack() as stack:
        for context in (mode, *around):
            stack.enter_context(context)
        try:
            returned = run_launch(ask["file"], ask["function"], ask["overrides"])
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - the user's code raises anything
            if not (isinstance(raised, SystemExit) and not raised.code):
                error = raised
    return returned, error, reads.stop()


def launch_with(tuner: Any, config: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """As the autotuner launches the config that it has chosen, after it has timed them all."""
    current = {**kwargs, **config.all_kwargs()}
    named = {**tuner.nargs, **current}
    # Of a tuner with one config, it asks for none of this.
    if len(tuner.configs) > 1:
        tuner.pre_hook(named, reset_only=True)
    if config.pre_hook:
        config.pre_hook(named)
    tuner.fn.run(*args, **current)


def round_as_gpus_do(seed: int | None = None) -> None:
    """Have the interpreter of this process compute with bfloat16 in float32, for good.

    With a seed, every rounding goes up or down at random, as often to the nearer as that is nearer
    (stochastic rounding). How far such runs are apart is what rounding does to a result.
    """
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    builder = InterpreterBuilder
    multiply, convert = builder.create_dot, builder.cast_impl

    def rounded(numbers: torch.Tensor) -> Any:
        """To bfloat16, as the bits that the interpreter keeps."""
        if generator is not None:
            numbers = _nudged(numbers.to(torch.float32), generator)
        bits = numbers.to(torch.bfloat16).view(torch.int16).numpy()
        return TensorHandle(bits.view("uint16"), tl.bfloat16)

    def dot(self: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        """A product, whose sum is in the accumulator's type."""
        return multiply(self, _widened(a), _widened(b), *args, **kwargs)

    def cast(self: Any, source: Any, target: Any) -> Any:
        """A conversion, where bfloat16 is at one end."""
        is_narrow = target.scalar == tl.bfloat16
        result = convert(self, _widened(source), tl.float32 if is_narrow else target)
        return rounded(torch.from_numpy(result.data)) if is_narrow else result

    def in_float32(operation: Callable[..., Any]) -> Callable[..., Any]:
        """An operation element by element, whose result has the type of its operands."""

        def apply(self: Any, first: Any, *args: Any) -> Any:
            if not _is_bfloat16(first):
                return operation(self, first, *args)
            result = operation(self, _widened(first), *map(_widened, args))
            # A comparison gives truth values.
            return result if result.data.dtype == bool else rounded(torch.from_numpy(result.data))

        return apply

    builder.create_dot, builder.cast_impl = dot, cast
    for name in ("unary_op", "binary_op", "ternary_op"):
        setattr(builder, name, in_float32(getattr(builder, name)))
    builder.get_bf16 = lambda _, value: rounded(torch.tensor([value]))


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, TensorHandle) and value.dtype.scalar == tl.bfloat16


def _widened(value: Any) -> Any:
    """The same numbers in float32; whatever is not bfloat16 as it is."""
    if not _is_bfloat16(value):
        return value
    # A copy: what was broadcast cannot be written to, and torch does not like that.
    bits = torch.from_numpy(value.data.copy().view("int16"))
    return TensorHandle(bits.view(torch.bfloat16).float().numpy(), tl.float32)


def _nudged(numbers: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Moved by less than half a unit in bfloat16's last place: the nearest may be another one."""
    bits = numbers.contiguous().view(torch.int32)
    half = 1 << 15
    noise = torch.randint(-half + 1, half, bits.shape, generator=generator, dtype=torch.int32)
    moved = (bits + noise).view(torch.float32)
    return torch.where(numbers.isfinite() & moved.isfinite() & (numbers != 0), moved, numbers)


def leave_values(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any, deadline: float
) -> str:
    """Have a fork interpret a kernel that is there to be compiled, and take over what it leaves.

    The tensors are on the CPU. Why it did not come to its end by the deadline (of `monotonic()`).
    """
    storages = storages_of(bind(function, args, kwargs).values())
    shared = [mmap.mmap(-1, max(int(storage.nbytes()), 1)) for storage in storages]

    def interpret() -> None:
        round_as_gpus_do()
        take_inline_assembly()
        # As if they had been decorated in the interpreter's mode: what it calls, too.
        JITFunction.__call__ = lambda called, *a, **k: InterpretedFunction(called.fn)(*a, **k)
        # The interpreter works on plain CPU tensors, and knows it.
        with plain_torch():
            launch = InterpretedFunction(function.fn)
            launch.run(*args, grid=grid, warmup=False, **kwargs)
            for storage, memory in zip(storages, shared, strict=True):
                _bytes_of(memory, storage).copy_(storage)

    if (status := wait_until(forked(interpret), deadline)) != 0:
        how = ended_badly(status) or "it raised an error"
        return f"{function.fn.__name__} was interpreted for its values: {how}"
    with plain_torch():
        for storage, memory in zip(storages, shared, strict=True):
            storage.copy_(_bytes_of(memory, storage))
    return ""


def _bytes_of(memory: mmap.mmap, storage: Any) -> Any:
    """Shared memory as a storage of the same size."""
    if not storage.nbytes():
        return storage
    size = int(storage.nbytes())
    return torch.frombuffer(memory, dtype=torch.uint8, count=size).untyped_storage()


_ONE = re.compile(r"\s*(\w+)\.approx(?:\.ftz)?\.f32\s+\$0\s*,\s*\$1\s*;?\s*")
_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cos": torch.cos,
    "ex2": torch.exp2,
    "lg2": torch.log2,
    "rcp": torch.reciprocal,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "sqrt": torch.sqrt,
    "tanh": torch.tanh,
}


def take_inline_assembly() -> None:
    """Have the interpreter of this process take one instruction of inline assembly, for good."""
    refuse = InterpreterBuilder.create_inline_asm

    def create(self: Any, asm: str, constraints: str, values: Any, *args: Any) -> Any:
        match = _ONE.fullmatch(asm)
        function = _FUNCTIONS.get(match[1]) if match else None
        if function is None or len(values) != 1 or values[0].dtype.scalar != tl.float32:
            return refuse(self, asm, constraints, values, *args)
        # A copy: what was broadcast cannot be written to, and torch does not like that.
        numbers = function(torch.from_numpy(values[0].data.copy()))
        # What Triton's builder gives for a piece of assembly: its results, by number.
        result = TensorHandle(numbers.numpy(), tl.float32)
        return types.SimpleNamespace(get_result=[result].__getitem__)

    InterpreterBuilder.create_inline_asm = create


# Each of a few intermediate results may be rounded the other way when a tile has another size.
_ROUNDINGS = 4
# Sums of thousands of terms, in another order.
_TERMS = 1000
_NARROW_BITS = 16


class Distance(NamedTuple):
    """How far one tensor is from another: the measures of `harness.run.comparing`, in torch.

    `bad_frac` is the share of elements with `|a - b| > tolerance * (|b| + rms(b))`, where `rms` is
    the root of the mean square. A NaN or an infinity that does not agree makes its element bad, and
    `rel_err` and `stable_max_rel` infinite.
    """

    rel_err: float
    stable_max_rel: float
    bad_frac: float
    unequal: float = 0.0
    within_1e_3: float = 1.0
    within_1_percent: float = 1.0


_WHOLLY_APART = Distance(math.inf, math.inf, 1.0, 1.0, 0.0, 0.0)


def tolerance(dtypes: list[torch.dtype]) -> float:
    """How large `stable_max_rel` may be where these dtypes meet in one computation.

    In units of the coarsest one's `torch.finfo(dtype).eps`: 4 for types of 16 bits and fewer, whose
    intermediate roundings show; 1000 for wider ones, in which only the order of sums differs.
    Integers have to be equal: 0 where there is nothing else.
    """
    types = [torch.finfo(dtype) for dtype in dtypes if dtype.is_floating_point]
    allowed = (info.eps * (_ROUNDINGS if info.bits <= _NARROW_BITS else _TERMS) for info in types)
    return float(max(allowed, default=0.0))


def distance(a: torch.Tensor, b: torch.Tensor, allowed: float) -> Distance:
    """How far `a` is from `b`, any shape; tensors of another shape or dtype are wholly apart."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return _WHOLLY_APART
    if not a.numel():
        return Distance(0.0, 0.0, 0.0)
    if not a.dtype.is_floating_point:
        unequal = float((a != b).double().mean())
        apart = float("inf") if unequal else 0.0
        # Of integers, flags and complex numbers alike.
        exact, other = b.to(torch.complex128), a.to(torch.complex128)
        off = torch.where(a == b, 0.0, (other - exact).abs())
        return Distance(apart, apart, unequal, unequal, *_near(off, exact.abs()))
    # In double precision: nothing is lost of the narrower ones, and squares do not overflow.
    left, right = a.detach().double(), b.detach().double()
    same = (left == right) | (left.isnan() & right.isnan())
    finite = left.isfinite() & right.isfinite()
    error = torch.where(same, 0.0, torch.where(finite, (left - right).abs(), float("inf")))
    size = torch.where(finite, right.abs(), 0.0)
    rms = float(size.square().mean().sqrt())
    # A result of zeros has no scale of its own: any other value is wholly wrong.
    scale = (size + rms).clamp_min(torch.finfo(torch.float64).tiny)
    relative = error / scale
    norm = float(size.square().sum().sqrt())
    whole = float(error.square().sum().sqrt())
    return Distance(
        whole / norm if norm else (float("inf") if whole else 0.0),
        float(relative.max()),
        float((relative > allowed).double().mean()),
        float((error > 0).double().mean()),
        *_near(error, size),
    )


def _near(error: torch.Tensor, size: torch.Tensor) -> tuple[float, float]:
    """The shares of elements off by at most 0.001, and by at most a hundredth of `size`."""
    return float((error <= 1e-3).double().mean()), float((error <= 1e-2 * size).double().mean())


class ConfigTrial(NamedTuple):
    """What one config left in each tensor, by name; `error` says why there is nothing."""

    tensors: dict[str, torch.Tensor] | None = None
    error: str = ""


class Apart(NamedTuple):
    """The tensor in which two trials are farthest apart, how far, and how far they may be."""

    tensor: str
    distance: Distance
    allowed: float

    @property
    def differs(self) -> bool:
        """Whether rounding does not explain it."""
        return self.distance.stable_max_rel > self.allowed


def compare(trial: ConfigTrial, reference: ConfigTrial, noise: Sequence[ConfigTrial] = ()) -> Apart:
    """The tensor of two complete trials that is farthest beyond, or nearest to, what is allowed.

    That is the tolerance of the types; of each tensor at least as much as those of `noise` are
    apart, in which the reference is rounded at random.
    """
    assert trial.tensors is not None
    assert reference.tensors is not None
    least = tolerance([tensor.dtype for tensor in reference.tensors.values()])
    distances: list[Apart] = []
    for name in {**reference.tensors, **trial.tensors}:
        left, right = trial.tensors.get(name), reference.tensors.get(name)
        if left is None or right is None:
            return Apart(name, _WHOLLY_APART, least)
        rounded = [run.tensors[name] for run in noise if run.tensors and name in run.tensors]
        by_rounding = (distance(tensor, right, least).stable_max_rel for tensor in rounded)
        allowed = max([least, *by_rounding])
        distances.append(Apart(name, distance(left, right, allowed), allowed))
    return max(
        distances,
        key=lambda apart: apart.distance.stable_max_rel / (apart.allowed or 1e-300),
        default=Apart("", Distance(0.0, 0.0, 0.0), least),
    )


def group(trials: Sequence[ConfigTrial], doubtful: Container[int] = ()) -> list[list[int]]:
    """Indices of trials that agree with the first of their group; the one to trust comes first.

    That is the largest of those that do not begin with a `doubtful` trial. Trials that ended in an
    error belong to none.
    """
    groups: list[list[int]] = []
    for index, trial in enumerate(trials):
        if trial.tensors is None:
            continue
        for members in groups:
            if not compare(trial, trials[members[0]]).differs:
                members.append(index)
                break
        else:
            groups.append([index])
    return sorted(groups, key=lambda members: (members[0] in doubtful, -len(members), members[0]))


_OUT_OF_BOUNDS = (signal.SIGSEGV, signal.SIGBUS)


class UnfollowedError(Exception):
    """Where a config leads to cannot be determined; the message is for the user."""


class Forks:
    """Forks of this process, each with a file in `folder`; none lives beyond the deadline."""

    def __init__(self, folder: Path, deadline: float) -> None:
        self._folder = folder
        self._deadline = deadline
        self._files = 0

    def fork(self) -> tuple[Path, int]:
        """Go on in two processes: where the new one leaves its results, and its id or 0."""
        self._files += 1
        path = self._folder / f"trial-{self._files}"
        return path, split()

    def all(
        self, bodies: Iterable[Callable[[], dict[str, torch.Tensor]]], jobs: int
    ) -> list[ConfigTrial]:
        """What each of these gives, in a fork of its own; `jobs` run side by side."""
        waiting: list[tuple[int, Path]] = []
        trials: list[ConfigTrial] = []
        for body in bodies:
            if len(waiting) == jobs:
                trials.append(self.collect(*waiting.pop(0)))
            path, child = self.fork()
            if child == 0:
                end_with(path, body)
            waiting.append((child, path))
        return trials + [self.collect(*fork) for fork in waiting]

    def collect(self, child: int, path: Path) -> ConfigTrial:
        """Wait for a fork until the deadline, and read what it left."""
        status = wait_until(child, self._deadline)
        error = ended_badly(status)
        if status is None or error:
            return ConfigTrial(error=error)
        code = os.WEXITSTATUS(status)
        if not path.exists():
            return ConfigTrial(error=f"the launch code ended its process, exit code {code}")
        try:
            if code:
                return ConfigTrial(error=path.read_text() or f"exit code {code}, saying nothing")
            with plain_torch():
                return ConfigTrial(tensors=torch.load(path, weights_only=True))
        finally:
            path.unlink(missing_ok=True)


def ended_badly(status: int | None) -> str:
    """What to say of a fork that was killed, or (None) had to be; empty where it ended itself."""
    if status is None:
        return "the time limit (--timeout) came first; make the launch smaller"
    if not os.WIFSIGNALED(status):
        return ""
    number = os.WTERMSIG(status)
    where = ": it reads or writes outside its tensors" * (number in _OUT_OF_BOUNDS)
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"  # a real-time signal has no name
    return f"died by {name}{where}"


def end_with(path: Path, body: Callable[[], dict[str, torch.Tensor]]) -> NoReturn:
    """End this fork: with the tensors that `body` gives, or with what it raised."""
    code = 1
    try:
        values = body()
        # Saving and loading are torch's own affair: no device is pretended to it.
        with plain_torch():
            torch.save(values, path)
        code = 0
    except BaseException as error:  # noqa: BLE001 - this process has no other way to report it
        path.write_text(in_a_line(error))
    finally:
        os._exit(code)


def tensors(values: Any, name: str = "") -> dict[str, torch.Tensor]:
    """All tensors below a value, by their path in it; their own copies."""
    if isinstance(values, torch.Tensor):
        return {name: values.detach().clone().contiguous()}
    if isinstance(values, dict):
        items = [(str(key), item) for key, item in values.items()]
    elif isinstance(values, list | tuple):
        items = [(str(index), item) for index, item in enumerate(values)]
    elif is_dataclass(values) and not isinstance(values, type):
        items = [(f.name, getattr(values, f.name)) for f in fields(values)]
    else:
        return {}
    below: dict[str, torch.Tensor] = {}
    for key, item in items:
        below |= tensors(item, f"{name}.{key}" if name else key)
    return below


def numbers(apart: Apart) -> dict[str, Any]:
    """How far two results are apart, for JSON: None is infinite."""
    measures = apart.distance._asdict().items()
    # JSON has no infinity.
    finite = {key: value if math.isfinite(value) else None for key, value in measures}
    return {"tensor": apart.tensor, "allowed": apart.allowed, **finite}


def in_a_line(error: BaseException) -> str:
    """The first cause, without what the interpreter wraps around it."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, UnfollowedError):
        return str(error)
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line}"[:300]


def results(
    skipped: dict[str, str], returned: Any, error: BaseException | None
) -> dict[str, torch.Tensor]:
    """What a launch that was run to its end returned; `skipped` are kernels that could not be.

    Raises:
        UnfollowedError: it is not what the launch leads to.
    """
    if error:
        described = describe_error(error, "")
        message = described["message"][:200]
        raise UnfollowedError(f"the launch then raised {described['type']}: {message}")
    if skipped:
        names = ", ".join(skipped)
        raise UnfollowedError(f"the interpreter cannot run {names}, which may come after it")
    return tensors(returned, "returned")


# A kernel that is launched in a loop is checked this often; it is the same kernel.
_LAUNCHES = 3
# Seeds of the runs whose roundings are made at random: the worst of so many counts.
_SEEDS = (1, 2, 3)


class _Variant(NamedTuple):
    """Configs that are one program to the interpreter, which knows no warps and no stages."""

    config: Any
    labels: list[dict[str, Any]]
    suspect: str
    described: list[dict[str, Any]]


class Checker:
    """Stands in for the autotuner: compares its configs, and goes on with one that agrees."""

    def __init__(
        self, forks: Forks, *, kernels: Sequence[str], jobs: int, injected: Injected
    ) -> None:
        self.findings: list[dict[str, Any]] = []
        # Kernels that the interpreter cannot run, and why; the launch goes on without them.
        self.skipped: dict[str, str] = {}
        # Set in a fork that follows one config to the end of the launch: where its results go.
        self.leave_at: Path | None = None
        self._kernels = kernels
        self._forks = forks
        self._jobs = jobs
        self._injected = injected
        self._launches: Counter[str] = Counter()
        self._is_trial = False

    def replaced(self) -> Replaced:
        """Triton's two ends, and what takes their place."""
        return [
            (Autotuner, "run", method(self._tuned)),
            (InterpretedFunction, "run", method(self._interpreted, InterpretedFunction.run)),
        ]

    def _interpreted(self, interpret: Any, function: Any, /, *args: Any, **kwargs: Any) -> None:
        try:
            # The interpreter works on plain CPU tensors, and knows it.
            with plain_torch():
                interpret(function, *args, **kwargs)
        except Exception as error:
            if self._is_trial:
                raise
            self.skipped[function.fn.__name__] = in_a_line(error)

    def _tuned(self, tuner: Any, /, *args: Any, **kwargs: Any) -> None:
        configs = pruned_configs(tuner, args, kwargs, self._injected)
        chosen = configs[0]
        name = tuner.base_fn.__name__
        if self.leave_at is None and any(fnmatchcase(name, pattern) for pattern in self._kernels):
            self._launches[name] += 1
            if self._launches[name] <= _LAUNCHES:
                chosen = self._checked(tuner, configs, args, kwargs)
        tuner.best_config = chosen
        launch_with(tuner, chosen, args, kwargs)

    def _checked(
        self, tuner: Any, configs: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Compare the configs of one launch; the one to go on with."""
        variants = _variants(tuner, configs, args, kwargs)
        if len(variants) == 1:
            self._note(tuner, variants, [], [[0]], {}, "source")
            return configs[0]
        trials = self._try_all(tuner, variants, args, kwargs)
        doubtful = {n for n, variant in enumerate(variants) if variant.suspect}
        groups, level = group(trials, doubtful), "buffers"
        compared = dict(enumerate(trials))
        if len(groups) > 1:
            # Buffers may differ with good reason, as partial sums do; what is returned must not.
            finals = []
            for members in groups:
                path, child = self._forks.fork()
                if child == 0:
                    self.leave_at = path
                    return variants[members[0]].config
                finals.append(self._forks.collect(child, path))
            unfollowed = next((final.error for final in finals if final.error), "")
            if unfollowed:
                for members in groups[1:]:
                    reason = f"its buffers differ, which may be right (partial sums); {unfollowed}"
                    for index in members:
                        trials[index] = ConfigTrial(error=reason)
                groups = groups[:1]
            elif all(final.tensors for final in finals):
                level = "results"
                compared = {
                    members[0]: final for members, final in zip(groups, finals, strict=True)
                }
                parts_of = group(finals, {n for n, g in enumerate(groups) if g[0] in doubtful})
                groups = [[i for part in parts for i in groups[part]] for parts in parts_of]
        self._note(tuner, variants, trials, groups, compared, level)
        return variants[groups[0][0]].config if groups else configs[0]

    def _note(
        self,
        tuner: Any,
        variants: Sequence[_Variant],
        trials: Sequence[ConfigTrial],
        groups: Sequence[Sequence[int]],
        compared: dict[int, ConfigTrial],
        level: str,
    ) -> None:
        """Keep what was found of each variant; group 0 is the one that the others are held to."""
        number = {index: n for n, members in enumerate(groups) for index in members}
        outcomes = []
        for index, variant in enumerate(variants):
            # Of a group that was followed to the end, its first member stands for all.
            group_of = number.get(index)
            apart = None
            if group_of:
                head = next(i for i in groups[group_of] if i in compared)
                apart = compare(compared[head], compared[groups[0][0]])
            outcomes.append(
                {
                    "configs": variant.labels,
                    "suspect": variant.suspect,
                    "described": variant.described,
                    "group": group_of,
                    "error": trials[index].error if trials else "",
                    **(numbers(apart) if apart else {}),
                }
            )
        kernel = tuner.base_fn.__name__
        self.findings.append({"kernel": kernel, "level": level, "variants": outcomes})

    def _try_all(
        self,
        tuner: Any,
        variants: Sequence[_Variant],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> list[ConfigTrial]:
        """Each variant once, in forks side by side."""

        def trial(variant: _Variant) -> dict[str, torch.Tensor]:
            self._is_trial = True
            launch_with(tuner, variant.config, args, kwargs)
            return tensors({**tuner.nargs, **kwargs})

        return self._forks.all((partial(trial, variant) for variant in variants), self._jobs)


def _variants(
    tuner: Any, configs: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[_Variant]:
    """Configs by what the kernel's source can see of them."""
    variants: dict[str, _Variant] = {}
    for config in configs:
        visible = {k: repr(v) for k, v in config.all_kwargs().items() if k in tuner.arg_names}
        # Hooks are code: what they do is not known.
        key = dumps([sorted(visible.items()), repr(config.pre_hook)])
        if key not in variants:
            values = {**tuner.nargs, **kwargs, **config.kwargs}
            given = {**kwargs, **config.kwargs}
            described = [
                argument
                for argument in describe_arguments(JITFunction(tuner.base_fn), args, given)
                if argument["name"] in values
            ]
            suspect = suspicion(tuner.base_fn, values)
            variants[key] = _Variant(config, [], suspect, described)
        variants[key].labels.append(config_of(config))
    return list(variants.values())


def compare_configs(ask: dict[str, Any], folder: Path, deadline: float) -> dict[str, Any]:
    """What the configs of tuned kernels leave, against each other."""
    checker = Checker(
        Forks(folder, deadline), kernels=ask["kernels"], jobs=ask["jobs"], injected=ask["injected"]
    )
    around = replacing(checker.replaced())
    returned, error, reads = run_with_values(ask, folder, around, assembles=False)
    if checker.leave_at:
        end_with(checker.leave_at, partial(results, checker.skipped, returned, error))
    return {
        "findings": checker.findings,
        "skipped": checker.skipped,
        "error": describe_error(error, ask["file"]) if error else None,
        "reads": reads,
    }


def _returned(
    ask: dict[str, Any], variant: dict[str, Any], folder: Path
) -> dict[str, torch.Tensor]:
    """What the launch returns, with every tuner's first config (or the injected one)."""
    checker = Checker(Forks(folder, 0.0), kernels=[], jobs=1, injected=variant["injected"])
    launch = {**ask, "overrides": variant["overrides"]}
    around, rounding = replacing(checker.replaced()), variant.get("rounding")
    returned, error, reads = run_with_values(launch, folder, around, rounding=rounding)
    (folder / f"reads-{os.getpid()}.json").write_text(dumps(reads))
    return results(checker.skipped, returned, error)


def compare_variants(ask: dict[str, Any], folder: Path, deadline: float) -> dict[str, Any]:
    """What each variant of the launch returns, against the first one."""
    variants = ask["variants"]
    noisy = [{**variants[0], "rounding": seed} for seed in _SEEDS]
    bodies = (partial(_returned, ask, variant, folder) for variant in [*variants, *noisy])
    trials = Forks(folder, deadline).all(bodies, ask["jobs"])
    first, noise = trials[0], trials[len(variants) :]
    departures: list[dict[str, Any]] = []
    for trial in trials[1 : len(variants)]:
        error = (first.error and f"the original: {first.error}") or trial.error
        if not error and not first.tensors:
            error = "the launch returns nothing that could be compared"
        apart = None if error else compare(trial, first, noise)
        facts = {**numbers(apart), "differs": apart.differs} if apart else {}
        departures.append({"error": error, **facts})
    reads = [loads(path.read_text()) for path in sorted(folder.glob("reads-*.json"))]
    return {"variants": departures, "reads": reads}


def main() -> None:
    """Do what `request.json` asks for."""
    # Some of the time is left to say what was found until then.
    started, folder = time.monotonic(), Path(sys.argv[1])
    ask = loads((folder / "request.json").read_text())
    if ask["confined"]:
        settle(str(folder))
    stand_aside(ask)
    work = compare_variants if "variants" in ask else compare_configs
    leave(work(ask, folder, started + 0.9 * ask["timeout"]), folder)


if __name__ == "__main__":
    main()
