"""Runs a launch with values, and hands each Triton launch to the caller, who computes it.

What launch code asserts of the values that its kernels left is found, and what came of it: each
value is followed from the launch that wrote it through torch's functions to where Python reads it.

A fork of the server (`serving`), with Triton in its interpreter's mode, reads `request.json` in a
folder and leaves `result.json` there. The launch code runs once, on CPU tensors that say they are
on a GPU. Where it comes to a kernel, `launch-N.json` says what each config of it is given, and this
process waits for `answer-N.json`: either the buffers after the launch, or that Triton's interpreter
is to compute them here. What it computes for the kernels that are asked about is left in the
result, too, unless the launch hangs.

Every interpretation happens in a fork: one that reads outside its tensors takes nothing with it.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import contextlib
import hashlib
import inspect
import linecache
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from json import loads
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

import torch
from torch.overrides import TorchFunctionMode
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import GridExecutor, interpreter_builder
from triton.runtime.jit import JITFunction

from harness.frontends.pretend.passed_over import assert_lines
from harness.frontends.pretend.recorded import Injected, Replaced, method, replacing
from harness.frontends.pretend.small import plain_torch
from harness.frontends.triton.child import generators
from harness.frontends.triton.child.interpreting import (
    ended_badly,
    in_a_line,
    launch_with,
    run_with_values,
)
from harness.frontends.triton.child.recording import (
    bind,
    config_of,
    constexprs_of,
    describe_arguments,
    describe_values,
    grid_dims,
    identity,
    injected_options,
    plain_config,
    pruned_configs,
    storages_of,
)
from harness.io.children.captures import leave
from harness.io.children.confine import settle
from harness.io.children.launch_code import TESTED, TESTS_ENDED, describe_error, stand_aside
from harness.io.children.supervisor import split, wait_until

_POLL_SECONDS = 0.02


class _Call(NamedTuple):
    """A kernel as Triton compiles it, or what says the same; what would interpret it, if any."""

    kernel: Any
    executor: Any
    grid: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def storages(self) -> list[Any]:
        return storages_of(bind(self.kernel, self.args, self.kwargs).values())


@dataclass
class _Launch:
    """A launch that was handed over; `variants` are its configs, `variant` the one to go on with.

    `buffers` are files with the storages after it, None where they are to be interpreted;
    one that `hangs` is not interpreted. `is_whole`: they are what all of its programs leave.
    `programs` are the numbers of those that are executed, and interpreted, of a large grid.
    `interpreted` waits for what Triton's interpreter leaves, where it is asked. `results` are the
    sha256 of the storages that the launch code went on with.
    """

    kernel: str
    variants: list[dict[str, Any]]
    variant: int
    buffers: list[str] | None
    values: str
    hangs: bool
    is_whole: bool
    programs: list[int]
    interpreted: Callable[[], dict[str, Any]] | None = None
    results: list[str] = field(default_factory=list)


@dataclass
class HandedLaunches:
    """Stands in for tuner and interpreter while the launch code runs."""

    folder: Path
    kernels: Sequence[str]
    patience: float
    following: Following
    injected: Injected = field(default_factory=dict)
    launches: list[_Launch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.snapshots = Snapshots(self.folder)
        # While a tuner lists its configs: the one at work, and what was noted of them.
        self._listing: dict[str, Any] | None = None
        self._noted: list[dict[str, Any]] = []
        # The config of a tuner of its own: see `tuned_to`.
        self._tuned_to: dict[str, Any] | None = None
        # The launch that a tuner makes after it has listed them.
        self._follow: _Launch | None = None
        self._interpret: Callable[..., Any] = GridExecutor.__call__

    def replaced(self) -> Replaced:
        """Triton's ends, and what takes their place."""
        return [
            (Autotuner, "run", method(self._tuned)),
            (GridExecutor, "__call__", method(self._interprets)),
            (JITFunction, "run", method(self._compiles)),
        ]

    def _interprets(self, executor: Any, /, *args: Any, **kwargs: Any) -> None:
        self._launched(_Call(_kernel_of(executor), executor, executor.grid, args, kwargs))

    def _compiles(
        self, function: JITFunction, /, *args: Any, grid: Any, warmup: bool, **kwargs: Any
    ) -> None:
        # Gluon compiles whatever `TRITON_INTERPRET` says.
        if not warmup:
            self._launched(_Call(function, None, grid, args, kwargs))

    @contextlib.contextmanager
    def tuned_to(self, config: dict[str, Any], _call: object) -> Iterator[None]:
        """Launches in the `with` block are those of this config of a tuner of its own."""
        self._tuned_to = config
        try:
            yield
        finally:
            self._tuned_to = None

    def _tuned(self, tuner: Any, /, *args: Any, **kwargs: Any) -> None:
        """Note what every config would be launched with; then launch the one that is asked for."""
        configs = pruned_configs(tuner, args, kwargs, self.injected)
        noted: list[dict[str, Any]] = []
        for config in configs:
            # Hooks write to what they are given: each config starts from the same values.
            has_hooks = tuner.reset_to_zero or tuner.user_defined_pre_hook or config.pre_hook
            storages = storages_of([*tuner.nargs.values(), *kwargs.values()]) if has_hooks else []
            with plain_torch():
                saved = [storage.clone() for storage in storages]
            self._listing, self._noted = config_of(config), []
            try:
                launch_with(tuner, config, args, kwargs)
            finally:
                self._listing = None
                with plain_torch():
                    for storage, values in zip(storages, saved, strict=True):
                        storage.copy_(values)
            noted += self._noted[:1]
        tuner.best_config = configs[0]
        if not noted:
            return
        launch = self._hand_over(tuner.base_fn.__name__, noted)
        chosen = tuner.best_config = configs[launch.variant]
        self._follow = launch
        try:
            launch_with(tuner, chosen, args, kwargs)
        finally:
            self._follow = None

    def _launched(self, call: _Call) -> None:
        if self._listing is not None:
            self._noted.append(self._variant(call, self._listing))
            return
        launch = self._follow
        if launch is None:
            name = call.kernel.fn.__name__
            configs = (
                [self._tuned_to]
                if self._tuned_to
                else [
                    plain_config(call.kernel, call.args, {**call.kwargs, **options})
                    for options in ({}, *injected_options(name, self.injected))
                ]
            )
            variant = self._variant(call, configs[0])
            variants = [{**variant, "config": config} for config in configs]
            launch = self._hand_over(name, variants)
        self._complete(launch, call)

    def _variant(self, call: _Call, config: dict[str, Any]) -> dict[str, Any]:
        kernel, _, grid, args, kwargs = call
        return {
            "config": config,
            "grid": grid_dims(kernel, args, kwargs, grid),
            "described": describe_arguments(kernel, args, kwargs),
            "arguments": describe_values(
                bind(kernel, args, kwargs), constexprs_of(kernel), call.storages
            ),
            "buffers": [
                {**self.snapshots.keep(storage), "holds_addresses": self.following.is_in(storage)}
                for storage in call.storages
            ],
        }

    def _hand_over(self, kernel: str, variants: list[dict[str, Any]]) -> _Launch:
        """Tell the caller of a launch, and wait for the answer."""
        number = len(self.launches) + 1
        message = {"kernel": kernel, "variants": variants}
        leave(message, self.folder, f"launch-{number}.json")
        path = self.folder / f"answer-{number}.json"
        while not path.exists():
            time.sleep(_POLL_SECONDS)
        answer = loads(path.read_text())
        words = ("variant", "buffers", "values", "hangs", "is_whole", "programs")
        launch = _Launch(kernel, variants, *(answer[word] for word in words))
        self.launches.append(launch)
        return launch

    def _complete(self, launch: _Launch, call: _Call) -> None:
        """Give the launch code the values that the launch leaves."""
        storages = call.storages
        is_selected = any(fnmatchcase(launch.kernel, name) for name in self.kernels)
        if launch.buffers is None or (is_selected and not launch.hangs):
            path = self.folder / f"interpreted-{len(self.launches)}.json"
            child = split()
            if child == 0:
                if launch.programs and call.executor:
                    grid = launch.variants[launch.variant]["grid"]
                    call.executor.grid = _only(launch.programs, (*grid, 1, 1)[:3])
                self._interpret_into(path, call, storages)
            deadline = time.monotonic() + self.patience
            launch.interpreted = cache(partial(_collected, child, path, deadline))
        names = launch.buffers
        if names is None:
            assert launch.interpreted is not None
            outcome = launch.interpreted()
            launch.values = f"{launch.values}; {outcome['error'] or 'interpreted'}"
            launch.is_whole = not outcome["error"]
            names = [f"{buffer['sha256']}.bin" for buffer in outcome["buffers"]]
        with plain_torch():
            for storage, name in zip(storages, names, strict=False):
                if data := bytearray((self.folder / name).read_bytes()):
                    values = torch.frombuffer(data, dtype=torch.uint8)
                    torch.empty(0, dtype=torch.uint8).set_(storage).copy_(values)
        launch.results = [name.removesuffix(".bin") for name in names]
        before = [buffer["sha256"] for buffer in launch.variants[launch.variant]["buffers"]]
        pairs = list(zip(before, launch.results, strict=False))
        written = [index for index, (was, is_now) in enumerate(pairs) if was != is_now]
        # What leaves all as it was may have had to write to any of them.
        number = len(self.launches)
        self.following.wrote(number, storages, written or range(len(storages)))
        if not launch.is_whole:
            # The programs that were not executed may be those that fill them.
            self.snapshots.forget(storages)

    def _interpret_into(self, path: Path, call: _Call, storages: list[Any]) -> NoReturn:
        """Interpret a launch in this fork, on its own copy of all tensors."""
        try:
            if call.executor is None:
                raise TypeError(f"Triton's interpreter does not take {call.kernel.fn.__name__}")
            # The interpreter works on plain CPU tensors, and knows it.
            with plain_torch():
                self._interpret(call.executor, *call.args, **call.kwargs)
                buffers = [self.snapshots.keep(storage) for storage in storages]
            leave({"buffers": buffers, "error": ""}, path.parent, path.name)
        except BaseException as error:  # noqa: BLE001 - this process has no other way to report it
            leave({"buffers": [], "error": in_a_line(error)}, path.parent, path.name)
        finally:
            os._exit(0)

    def result(self, error: BaseException | None) -> list[dict[str, Any]]:
        """All launches, once the launch code has ended, perhaps with this error."""
        errors = [raised for _, raised in TESTS_ENDED] or [error]
        asserted = self._asserted(
            [
                assertion
                for test, raised in enumerate(errors)
                for assertion in self.following.assertions(raised, test)
            ]
        )
        return [
            {
                "kernel": launch.kernel,
                "variants": self._with_outcomes(launch, asserted.get(number, [])),
                "values": launch.values,
                "is_whole": launch.is_whole,
            }
            for number, launch in enumerate(self.launches, 1)
        ]

    def _with_outcomes(
        self, launch: _Launch, asserted: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Its variants with what is asserted of them, and what the interpreter left."""
        variants = [{**variant, "asserted": asserted} for variant in launch.variants]
        if launch.interpreted:
            outcome = launch.interpreted()
            # The interpreter knows no warps and no stages.
            chosen = {**variants[launch.variant], "config": None}
            for variant in variants:
                if {**variant, "config": None} == chosen:
                    variant.update(interpreted=outcome["buffers"], error=outcome["error"])
                    variant["is_sampled"] = bool(launch.programs)
                elif variant["buffers"] == chosen["buffers"] and not launch.programs:
                    variant.update(interpreted_otherwise=outcome["buffers"])
        return variants

    def _asserted(self, assertions: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
        """What the launch code asserts, by the numbers of the launches that it sees values of."""
        asserted: dict[int, list[dict[str, Any]]] = {}
        for assertion in assertions:
            places = assertion.pop("places")
            launches = {number: self.launches[number - 1] for number, _ in sorted(places)}
            if not all(launch.is_whole and launch.results for launch in launches.values()):
                continue
            assertion["kernels"] = list(
                dict.fromkeys(launch.kernel for launch in launches.values())
            )
            for number, launch in launches.items():
                results = enumerate(launch.results)
                names = [name if (number, n) in places else None for n, name in results]
                asserted.setdefault(number, []).append({**assertion, "buffers": names})
        return asserted


def _collected(child: int, path: Path, deadline: float) -> dict[str, Any]:
    """What a fork that interprets a launch left; how it ended where it left nothing."""
    reason = ended_badly(wait_until(child, deadline)) or "ended without a message"
    return loads(path.read_text()) if path.exists() else {"buffers": [], "error": reason}


def _only(programs: Sequence[int], grid: Sequence[int]) -> tuple[int]:
    """Have the interpreter of this process run these programs of a grid alone: as which grid."""
    set_sizes, set_place = interpreter_builder.set_grid_dim, interpreter_builder.set_grid_idx
    x, y, _ = grid

    def place(at: int, *_: int) -> None:
        number = programs[at]
        set_place(number % x, number // x % y, number // (x * y))

    interpreter_builder.set_grid_dim = lambda *_: set_sizes(*grid)
    interpreter_builder.set_grid_idx = place
    return (len(programs),)


def main(place: str) -> None:
    """Do what `request.json` in this folder asks for."""
    folder = Path(place)
    ask = loads((folder / "request.json").read_text())
    handing = HandedLaunches(
        folder=folder,
        kernels=ask["kernels"],
        patience=ask["timeout"],
        following=Following(ask["file"]),
        injected=ask["injected"],
    )
    generators.stand_by(handing.tuned_to)
    if ask["confined"]:
        settle(str(folder))
    stand_aside(ask)
    around = (handing.following, replacing(handing.replaced()))
    on_empty = handing.snapshots.heard_of
    _, error, reads = run_with_values(ask, folder, *around, on_empty=on_empty)
    described = describe_error(error, ask["file"]) if error else None
    tests = [*TESTED, *(f"{name}: {in_a_line(raised)}" for name, raised in TESTS_ENDED if raised)]
    result = {"launches": handing.result(error), "error": described, "reads": reads}
    leave({**result, "tests": tests}, folder)


_LARGEST = 128 << 20
"""Bytes of the largest storage that is kept: a file that a job writes may have 256 MiB."""


class TooLargeError(Exception):
    """An argument is more than can be kept; the message is for the user."""


class Snapshots:
    """Writes what launches are given into `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # What memory held when the launch code asked for it, by address.
        self._empty: dict[int, str] = {}

    def heard_of(self, tensor: torch.Tensor) -> None:
        """Remember what a tensor holds before anything is written to it."""
        with plain_torch():
            storage = tensor.detach().untyped_storage()
            if 0 < storage.nbytes() <= _LARGEST:
                self._empty[storage.data_ptr()] = hashlib.sha256(_bytes(storage)).hexdigest()

    def forget(self, storages: Iterable[Any]) -> None:
        """From now on something may have been written to them."""
        for storage in storages:
            self._empty.pop(storage.data_ptr(), None)

    def keep(self, storage: Any) -> dict[str, Any]:
        """Write one storage, unless its bytes are written already.

        Raises:
            TooLargeError: it is too large to be kept.
        """
        if storage.nbytes() > _LARGEST:
            raise TooLargeError(
                f"an argument of {storage.nbytes():,} bytes is too large to be executed on a CPU; "
                "make the launch smaller with --set"
            )
        data = _bytes(storage)
        sha256 = hashlib.sha256(data).hexdigest()
        path = self._folder / f"{sha256}.bin"
        if not path.exists():
            path.write_bytes(data)
        unwritten = self._empty.get(storage.data_ptr()) == sha256 and storage.nbytes() > 0
        return {"sha256": sha256, "size": len(data), "unwritten": unwritten}


def _bytes(storage: Any) -> bytes:
    with plain_torch():
        view: bytes = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes()
    return view


def _kernel_of(executor: Any) -> Any:
    """A kernel that the interpreter is about to run, with what a compiled one would say."""
    params = [
        SimpleNamespace(name=p.name, default=p.default, is_constexpr=p.name in executor.constexprs)
        for p in inspect.signature(executor.fn).parameters.values()
    ]
    names = [parameter.name for parameter in params]
    return SimpleNamespace(fn=executor.fn, arg_names=names, params=params)


_COMPARISONS = ("isclose", "allclose", "equal")
_READS = frozenset(
    {
        *("item", "tolist", "numpy", "is_nonzero"),
        *("__bool__", "__int__", "__float__", "__index__", "__array__", "__contains__"),
        *_COMPARISONS,
    }
)

_ADDRESS_BYTES = 8

Place = tuple[int, int]
"""A launch by its number, from 1 on, and one of its buffers."""


@dataclass(frozen=True)
class _Read:
    """Python reads what launches left: which, and in which functions at which lines.

    `relative` is how far two tensors that it compares are apart, against their own scale; `test`
    says how many tests had ended before.
    """

    places: frozenset[Place]
    direct: frozenset[Place]
    frames: tuple[tuple[Any, int], ...]
    relative: float | None
    test: int


class Following(TorchFunctionMode):  # type: ignore[misc]
    """Follows what launches leave, while the launch code runs; `file` is the launch code."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file
        # By the address of a storage: what it holds comes from; and what a launch wrote itself.
        self._from: dict[int, tuple[frozenset[Place], frozenset[Place]]] = {}
        self._reads: list[_Read] = []
        self._addresses: set[int] = set()

    def is_in(self, storage: Any) -> bool:
        """Whether a storage holds addresses that the launch code has asked tensors for."""
        if not self._addresses or storage.nbytes() < _ADDRESS_BYTES:
            return False
        numbers = memoryview(_bytes(storage)[: storage.nbytes() & -_ADDRESS_BYTES]).cast("q")
        return not self._addresses.isdisjoint(numbers)

    def wrote(self, number: int, storages: Sequence[Any], written: Iterable[int]) -> None:
        """A launch, by its number, has written these of its storages, from what is in all."""
        addresses = list(map(identity, storages))
        origins, _ = self._places_at(addresses)
        for index in written:
            own = frozenset({(number, index)})
            self._from[addresses[index]] = origins | own, own

    def _places_at(self, addresses: Iterable[int]) -> tuple[frozenset[Place], frozenset[Place]]:
        there = [self._from[address] for address in addresses if address in self._from]
        empty: frozenset[Place] = frozenset()
        return empty.union(*(all_ for all_, _ in there)), empty.union(*(own for _, own in there))

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        result = func(*args, **kwargs)
        if name == "data_ptr":
            self._addresses.update({result} - {0})
        if not self._from or name == "__get__":
            return result
        inputs = list(map(identity, storages_of([*args, *kwargs.values()])))
        places, direct = self._places_at(inputs)
        if places and name in _READS:
            relative = _apart(args) if name in _COMPARISONS else None
            caller = sys._getframe(1)  # noqa: SLF001 - nothing else tells
            frames = tuple((frame.f_code, line) for frame, line in traceback.walk_stack(caller))
            self._reads.append(_Read(places, direct, frames, relative, len(TESTS_ENDED)))
        outputs = [args[0]] if name == "__setitem__" else [result]
        for address in map(identity, storages_of(outputs)):
            if address not in inputs:
                # What lay at this address before is gone.
                self._from.pop(address, None)
            if places:
                self._from[address] = self._places_at([*inputs, address])
        return result

    def assertions(self, error: BaseException | None, test: int = 0) -> list[dict[str, Any]]:
        """The assertions that values of launches went into, in their order: which hold, which not.

        Of all tests of a file, it is one that has raised this error, if any. The places of an
        assertion that holds are those that it sees without another kernel between.
        """
        test_reads = [read for read in self._reads if read.test == test]
        failed = self._failed(error, test_reads)
        asserts = assert_lines(self._file)
        holding = []
        by_line: dict[int, list[_Read]] = {}
        for read in test_reads:
            lines = (line for code, line in read.frames if code.co_filename == self._file)
            line = next(lines, None)
            is_assertion = line in asserts or any(
                code.co_name.startswith("assert") for code, _ in read.frames
            )
            if line is not None and is_assertion:
                by_line.setdefault(line, []).append(read)
        for line, reads in by_line.items():
            if failed is None or failed["where"] != self._where(line):
                places = frozenset().union(*(read.direct for read in reads))
                holding.append({"where": self._where(line), "holds": True, "places": places})
        return [*holding, failed] if failed else holding

    def _where(self, line: int) -> str:
        return f"{Path(self._file).name}:{line}"

    def _failed(
        self, error: BaseException | None, test_reads: Sequence[_Read]
    ) -> dict[str, Any] | None:
        if not isinstance(error, AssertionError):
            return None
        raised = [
            (frame.f_code, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename == self._file
        ]
        if not raised:
            return None
        code, line = raised[-1]
        here = [read for read in test_reads if (code, line) in read.frames]
        near = here or [read for read in test_reads if code in dict(read.frames)]
        if not near:
            return None
        measured = [read.relative for read in near if read.relative is not None]
        return {
            "where": self._where(line),
            "holds": False,
            "places": frozenset().union(*(read.places for read in near)),
            "relative": max(measured) if here and measured else None,
            "message": " ".join(str(error).split())[:200]
            or linecache.getline(code.co_filename, line).strip(),
        }


def _apart(args: tuple[Any, ...]) -> float | None:
    """How far the first two tensors are apart, against the scale of the second."""
    pair = [value for value in args[:2] if isinstance(value, torch.Tensor)]
    if len(pair) != len(args[:2]) or pair[0].shape != pair[-1].shape:
        return None
    with plain_torch(), torch.no_grad():
        left, right = (tensor.detach().double() for tensor in pair)
        if not left.numel() or not bool(torch.isfinite(torch.stack([left, right])).all()):
            return None
        scale = right.abs() + right.square().mean().sqrt()
        tiny = torch.finfo(torch.float64).tiny
        return float(((left - right).abs() / scale.clamp_min(tiny)).max())
