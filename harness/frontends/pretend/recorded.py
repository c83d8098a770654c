"""What is alike in children that record the kernels of launch code, whatever their compiler.

One end of the compiler is replaced, where a kernel would be compiled: what would be is a record. A
fork lowers one record later.
"""

# ruff: noqa: ANN401 - records hold values of compilers, torch and the user

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from json import dumps
from pathlib import Path
from typing import Any

from harness.frontends.pretend import gpu, passed_over
from harness.frontends.pretend.gpu import UnknownFactError
from harness.frontends.pretend.passed_over import NeedsValuesError
from harness.io.children.captures import leave, run_for_error, time_limit
from harness.io.children.confine import settle
from harness.io.children.definitions import ExportError
from harness.io.children.jobs import JobLimits
from harness.io.children.launch_code import (
    SEEN,
    TESTED,
    TESTS_ENDED,
    TimeUpError,
    describe_error,
    stand_aside,
)
from harness.io.children.reads import ReadsWatch
from harness.io.children.supervisor import Message, Supervisor, connect, redirect

LIMIT = 5000
"""Records that are kept of one capture."""
raised = partial(describe_error, most=100_000)
"""Describes what a compiler raised, at length: it may print its IR."""
# What only a GPU could answer is not a fault of the kernel.
OURS = (NeedsValuesError, UnknownFactError)
# What may end a capture that has something: facts that are not there, time that is up, files that
# are not written.
_NO_FAULTS = frozenset({*(kind.__name__ for kind in (*OURS, TimeUpError)), "PermissionError"})
_VALUES = {
    "computed": "it reads values of tensors before a launch; torch computes them on the CPU",
    "interpreted": "it reads what its kernels leave before a launch; Triton's interpreter computes "
    "that, and torch all else, on the CPU",
}
Replaced = Sequence[tuple[Any, str, Any]]
"""Places, names in them, and what is put there."""
Injected = Mapping[str, Sequence[Mapping[str, Any]]]
"""Configs by a pattern for the name of a kernel."""

pretend = gpu.pretend_cuda
"""Shows torch, and Triton where there is one, a GPU that is not there."""
_OF_TRITON: list[Any] = []
with contextlib.suppress(ImportError):
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    from harness.frontends.pretend.pretend_driver import pretend_triton

    _OF_TRITON += [JITFunction, Autotuner, Heuristics]
    pretend = pretend_triton


_TOLD = ("key", "kernel", "file", "config", "autotuned", "arguments", "grid", "suspect", "values")


@dataclass(kw_only=True)
class Record:
    """One kernel with one config: what would be compiled. `key` hashes all that decides that.

    `call` is hashable: equal for what was called alike, but for the config, and for the configs
    that a tuner tries in one call. None where that is not known. `error` says what kept it from
    being built, so that nothing is there to compile. `values` say how launch code had got values by
    then, as in `passed_over.needs`. `views` are what a capture tells besides.
    """

    kernel: str
    file: str
    key: str = ""
    call: Any = None
    error: dict[str, Any] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    autotuned: bool = False
    arguments: list[dict[str, Any]] = field(default_factory=list)
    grid: Any = None
    suspect: str = ""
    values: str = ""
    views: dict[str, Any] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """What a capture tells of it."""
        return {**{name: getattr(self, name) for name in _TOLD}, **self.views}

    @property
    def refusal(self) -> list[str] | None:
        """What a key has of the error."""
        return [self.error["type"], self.error["message"]] if self.error else None


class CaughtError(BaseException):
    """Ends a launch where its kernel would be compiled; no launch code is to catch it."""

    def __init__(self, *compilation: Any) -> None:
        super().__init__()
        self.compilation = compilation


class NotCompiled:
    """What launch code gets in place of a compiled kernel: nothing can be read off it yet."""

    def __init__(self, name: str, noun: str = "kernel") -> None:
        self._name, self._noun = name, noun

    def __getattr__(self, name: str) -> Any:
        message = f"the launch code reads .{name} of the compiled {self._noun} {self._name}"
        raise AttributeError(message)


class Recorder:
    """Collects records while `active()`; equal ones of one config are kept once.

    `noted` are the numbers of what was launched, repeated ones too. `dropped` counts what was over
    the limit. `values` say how launch code gets values; `unexecuted` is why a kernel was not
    executed where that was asked. `injected` configs, by patterns for the name of a kernel, take
    the place of those that launch code or a tuner has.
    """

    # Kernels of Triton are not launched: what they would write has a shape already.
    silenced: Sequence[Any] = tuple(_OF_TRITON)

    def __init__(self, injected: Injected | None = None) -> None:
        self.injected = injected or {}
        # The config that a tuner is at, and which of its calls.
        self._tuning: tuple[dict[str, Any], object] | None = None
        self.records: list[Any] = []
        self.dropped = 0
        self.values = self.unexecuted = ""
        self.pruned: dict[str, tuple[int, int]] = {}
        self._known: dict[tuple[str, str], int] = {}
        self._same: dict[Any, Any] = {}
        self.noted: list[int] = []

    def replaced(self) -> Replaced:
        """The compiler's ends, and what takes their place."""
        raise NotImplementedError

    def active(self) -> contextlib.AbstractContextManager[None]:
        """Replace the compiler's ends for the time of the `with` block."""
        silent = [(kind, "run", lambda *_, **__: None) for kind in self.silenced]
        return replacing([*silent, *self.replaced()])

    @contextlib.contextmanager
    def tuned_to(self, config: dict[str, Any], call: object) -> Iterator[None]:
        """What comes in the `with` block is of this config, in this call of a tuner."""
        self._tuning = config, call
        try:
            yield
        finally:
            self._tuning = None

    @property
    def tuning(self) -> dict[str, Any]:
        """What a record has of the tuner at work."""
        config, call = self._tuning or ({}, None)
        return {"config": config, "autotuned": self._tuning is not None, "call": call}

    def keep(self, record: Any) -> bool:
        """Keep a record, which has its key, unless it is known or one too many; whether it was."""
        name = (record.key, dumps(record.config))
        if name in self._known:
            number = self._known[name]
            ends = [self._first_of(call) for call in (record.call, self.records[number].call)]
            if None not in ends and ends[0] != ends[1]:
                self._same[ends[0]] = ends[1]
            self.note([number])
            return False
        if len(self.records) >= LIMIT:
            self.dropped += 1
            return False
        record.values = self.values
        self._known[name] = len(self.records)
        self.note([len(self.records)])
        self.records.append(record)
        return True

    def described(self) -> list[dict[str, Any]]:
        """What a capture tells of the records; those with one number of `launch` are one launch.

        They have one call, or calls of which some config came to the same code.
        """
        calls = [self._first_of(record.call) for record in self.records]
        numbers = {call: number for number, call in enumerate(dict.fromkeys(calls))}
        return [
            {**record.describe(), "launch": numbers[call]}
            for record, call in zip(self.records, calls, strict=True)
        ]

    def _first_of(self, call: Any) -> Any:
        while call in self._same:
            call = self._same[call]
        return call

    def note(self, numbers: Sequence[int]) -> None:
        """Records with these numbers are launched by the test at work, if there is one."""
        self.noted += numbers
        if SEEN:
            SEEN[-1]["records"].update(numbers)


def method(function: Callable[..., Any], *first: Any) -> Callable[..., Any]:
    """For a class, in place of a method: calls `function` with `first` and what the method gets."""
    return lambda *args, **kwargs: function(*first, *args, **kwargs)


@contextlib.contextmanager
def replacing(replaced: Replaced) -> Iterator[None]:
    """Put these in their places for the time of the `with` block."""
    missing = object()
    saved = []
    for place, name, _ in replaced:
        static = inspect.getattr_static(place, name, missing)
        # A static method is not what its class gives.
        saved.append((place, name, getattr(place, name) if static is missing else static))
    for place, name, value in replaced:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in saved:
            setattr(place, name, value)


def hash_of(*parts: Any) -> str:
    """The key of a record that these decide."""
    return hashlib.sha256(dumps(parts, sort_keys=True).encode()).hexdigest()


def asked_configs(injected: Injected, *names: str, otherwise: Any = None) -> Any:
    """The configs that take the place of a kernel's own, by a pattern for one of its names."""
    for pattern, configs in injected.items():
        if any(fnmatchcase(name, pattern) for name in names):
            return configs
    return otherwise


class RecordedSession:
    """One capture, whose kernels are recorded, and kept alive so that each can be compiled by job.

    `packages` are those of the compiler, whose modules are not read by launch code. A lowering
    begins with the stage `first`, and goes on with `next` where the kernel was built. One that
    `has_values` can run launch code on tensors with values, where it asks for them.
    """

    packages: tuple[str, ...] = ()
    has_values = False
    first: str
    next: str
    mode: Any = None

    def __init__(self, message: Message) -> None:
        self.message = message
        self.folder = Path(message["folder"])
        self.records: dict[str, Any] = {}

    def __call__(self) -> None:
        """The body of the forked session."""
        redirect(str(self.folder / "capture.out"), str(self.folder / "capture.err"))
        supervisor = Supervisor(connect(self.message["socket"], self.message["name"]))

        def on_record(message: Message) -> None:
            folder, record = Path(message["folder"]), self.records.get(message["key"])
            if record is None:
                complaint = "run again, the launch code no longer makes this launch"
                supervisor.refuse(message["id"], complaint)
                return
            work = self.lower if message["op"] == "lower" else self.export
            streams = (str(folder / "stdout"), str(folder / "stderr"))
            limits = JobLimits(**message["limits"])
            supervisor.fork(message["id"], lambda: work(record, folder, message), limits, streams)

        supervisor.handle("lower", on_record)
        supervisor.handle("export", on_record)
        if self.message["capture"]["confined"]:
            settle(str(self.folder))
        captured = self.capture(self.message["capture"])
        # Where launch code took them away (a pipe's end that is not read, say), jobs write files.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        # Processes that the launch code started: from now on, all others are jobs.
        supervisor.clear()
        supervisor.send({"captured": captured})
        supervisor.serve()

    def settle(self, ask: Message) -> None:
        """Get ready to run launch code: caches of its own, and the target that was asked for."""

    def recorder(self, ask: Message, log: Path) -> Recorder:
        """What records the kernels; `log` is where this process writes its errors."""
        raise NotImplementedError

    def lowered(self, record: Any, folder: Path, message: Message, result: dict[str, Any]) -> None:
        """Lower a record in this (forked) process; what comes of each stage is left in the folder.

        `result` holds `stage` and `metadata`, and gets what is known of them besides.
        """
        raise NotImplementedError

    def exported(self, record: Any) -> dict[str, Any]:
        """The export, and what its file needs to know besides.

        Raises:
            ExportError: something of the record cannot be written down.
        """
        raise NotImplementedError

    def described(self, error: BaseException, record: Any) -> dict[str, Any]:
        return describe_error(error, record.file)

    @property
    def values(self) -> str:
        """How launch code gets values, as in `passed_over.needs`; empty if it gets none.

        `small`: torch computes those of small tensors.
        """
        return str(self.message.get("values", ""))

    @property
    def target(self) -> str:
        return str(self.message["capture"]["settings"]["target"])

    def run(self, ask: Message, log: Path) -> tuple[Recorder, dict[str, Any] | None]:
        """Run the launch code: the records, and what it raised."""
        self.mode = self.mode or pretend(ask["device"])
        recorder = self.recorder(ask, log)
        with self.mode, recorder.active():
            return recorder, run_for_error(ask, log)

    def capture(self, ask: Message) -> Message:
        """Run the launch code, which fills `records`; what the caller gets to know of them."""
        stand_aside(ask)
        self.settle(ask)
        own = [*ask["bare"], *ask["paths"], str(self.folder)]
        reads = ReadsWatch(own, ask["file"], packages=self.packages)
        reads.start()
        passed_over.begin(ask["file"])
        left, seconds = self.message.get("seconds", (0, 0))
        with time_limit(left, seconds, self.folder / "capture.late"):
            recorder, error = self.run(ask, self.folder / "capture.err")
        self.records = {record.key: record for record in recorder.records}
        is_cut_short = error is not None or any(raised for _, raised in TESTS_ENDED)
        is_late = error is not None and TimeUpError.__name__ in error["kinds"]
        notes = [*TESTED]
        if recorder.values:
            notes.append(f"{Path(ask['file']).name}: {_VALUES[recorder.values]}")
        if error and recorder.records and self._is_no_fault(error):
            line = f":{error['line']}" if error["line"] else ""
            place = f"{Path(ask['file']).name}{line}"
            why = f" ({recorder.unexecuted})" if recorder.unexecuted else ""
            lines = error["message"].strip().splitlines()
            words = "".join(lines[:1]) or error["type"]
            notes.append(f"{place}: the capture ends here: {words}{why}")
            error = None
        return {
            "error": error,
            "notes": notes,
            "passed_over": passed_over.sentence(),
            "records": recorder.described(),
            "tests": [{**test, "records": sorted(test["records"])} for test in SEEN],
            "needs": passed_over.needs()
            if self.has_values and is_cut_short and not is_late
            else "",
            "is_late": is_late,
            "pruned": recorder.pruned,
            "dropped": recorder.dropped,
            "reads": reads.stop(),
            "ptxas": ask["settings"].get("ptxas"),
            "triton": "",
        }

    def _is_no_fault(self, error: dict[str, Any]) -> bool:
        """Whether what ended the launch code decides nothing about what it launched before.

        An assertion of its own judges results, which are not there.
        """
        raised_in = error["traceback"].rpartition('  File "')[2].partition('"')[0]
        is_compilers = any(f"/{package}/" in raised_in for package in ("triton", *self.packages))
        kinds = {*error["kinds"]}
        return bool(kinds & _NO_FAULTS) or ("AssertionError" in kinds and not is_compilers)

    def lower(self, record: Any, folder: Path, message: Message) -> None:
        """Leave what `lowered` does, and `result.json`: error or None, stage, metadata, seconds."""
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        stage = self.first if record.error else self.next
        (folder / "progress.json").write_text(dumps({"stage": stage}))
        result: dict[str, Any] = {"error": record.error, "stage": stage, "metadata": {}}
        started = time.perf_counter()
        if record.error is None:
            try:
                self.lowered(record, folder, message, result)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, is evidence
                result["error"] = self.described(error, record)
        result.setdefault("seconds", {result["stage"]: time.perf_counter() - started})
        leave(result, folder)

    def export(self, record: Any, folder: Path, _: Message) -> None:
        """Tell all that a record is made of, so that it can be written as a file."""
        result: dict[str, Any] = {"export": None, "error": None}
        try:
            result |= self.exported(record)
        except ExportError as error:
            result["error"] = str(error)
        except Exception as error:  # noqa: BLE001 - the compiler refuses before it compiles
            result["error"] = f"{type(error).__name__}: {error}"[:2000]
        leave(result, folder)

    @classmethod
    def compile_file(cls, message: Message, folder: Path) -> None:
        """Lower the first kernel of a file in this (forked) process."""
        session, ask = cls(message), message["capture"]
        stand_aside(ask)
        session.settle(ask)
        recorder, error = session.run(ask, folder / "stderr")
        if recorder.records:
            session.lower(recorder.records[0], folder, message)
            return
        nothing = raised(RuntimeError("nothing is compiled"))
        leave({"error": error or nothing, "stage": cls.first}, folder)


def plain(value: Any) -> bool | int | float | str:
    """A value of a config as JSON has it."""
    return value if isinstance(value, bool | int | float | str) else str(value)


def label_of(function: Any) -> str:
    """A function as Python names it, without the functions that it is defined in."""
    return str(function.__qualname__).rpartition("<locals>.")[2]


def file_of(function: Any) -> str:
    """Where a function of Python is written."""
    code = getattr(function, "__code__", None)
    return str(code.co_filename) if code else ""
