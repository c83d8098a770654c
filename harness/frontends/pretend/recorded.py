"""What is alike in children that record the kernels of launch code, whatever their compiler.

One end of the compiler is replaced, where a kernel would be compiled: what would be is a record. A
fork lowers one record later.
"""

# ruff: noqa: ANN401 - records hold values of compilers, torch and the user

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

from harness.frontends.pretend import gpu
from harness.frontends.pretend.gpu import NeedsValuesError, UnknownFactError
from harness.io.children.captures import CaptureSession, leave, run_for_error
from harness.io.children.definitions import ExportError
from harness.io.children.launch_code import stand_aside
from harness.io.children.reads import ReadsWatch
from harness.io.children.supervisor import Message

LIMIT = 5000
"""Records that are kept of one capture."""
# What only a GPU could answer is not a fault of the kernel.
OURS = (NeedsValuesError, UnknownFactError)
Replaced = Sequence[tuple[Any, str, Any]]
"""Places, names in them, and what is put there."""


@dataclass(kw_only=True)
class Record:
    """One kernel with one config: what would be compiled. `key` hashes all that decides that."""

    kernel: str
    file: str
    key: str = ""

    def describe(self) -> dict[str, Any]:
        """What a capture tells of it."""
        return {
            "key": self.key,
            "kernel": self.kernel,
            "config": self.settings,
            "autotuned": False,
            "arguments": [],
            "grid": None,
            "file": self.file,
            "suspect": "",
        }

    @property
    def settings(self) -> dict[str, Any]:
        """Its config, by name."""
        return {}


class Recorder:
    """Collects records while `active()`; equal ones of one config are kept once.

    `dropped` counts what was over the limit.
    """

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.dropped = 0
        self._known: set[tuple[str, str]] = set()

    def replaced(self) -> Replaced:
        """The compiler's ends, and what takes their place."""
        raise NotImplementedError

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Replace the compiler's ends for the time of the `with` block."""
        replaced = self.replaced()
        saved = [(place, name, _in_place(place, name)) for place, name, _ in replaced]
        for place, name, value in replaced:
            setattr(place, name, value)
        try:
            yield
        finally:
            for place, name, value in saved:
                setattr(place, name, value)

    def keep(self, record: Record) -> None:
        """Keep a record that has its key."""
        name = (record.key, dumps(record.settings))
        if name in self._known:
            return
        if len(self.records) >= LIMIT:
            self.dropped += 1
            return
        self._known.add(name)
        self.records.append(record)


def _in_place(place: Any, name: str) -> Any:
    """What has a name in a module or a class: a static method is not what its class gives."""
    missing = object()
    found = inspect.getattr_static(place, name, missing)
    return getattr(place, name) if found is missing else found


class RecordedSession(CaptureSession):
    """A capture whose kernels are recorded.

    `packages` are those of the compiler, whose modules are not read by launch code; `first` is the
    stage that a lowering begins with.
    """

    packages: tuple[str, ...]
    first: str

    def settle(self, ask: Message) -> None:
        """Get ready to run launch code: caches of its own, and the target that was asked for."""

    def recorder(self, ask: Message, log: Path) -> Recorder:
        """What records the kernels; `log` is where this process writes its errors."""
        raise NotImplementedError

    def exported(self, record: Any) -> dict[str, Any]:
        """The export, and what its file needs to know besides.

        Raises:
            ExportError: something of the record cannot be written down.
        """
        raise NotImplementedError

    @property
    def target(self) -> str:
        """What is compiled for."""
        return str(self.message["capture"]["settings"]["target"])

    def _recorded(self, ask: Message, log: Path) -> tuple[Recorder, dict[str, Any] | None]:
        mode = pretend(ask["device"])
        recorder = self.recorder(ask, log)
        with mode, passing_over_triton(), recorder.active():
            return recorder, run_for_error(ask, log)

    def capture(self, ask: Message) -> Message:
        stand_aside(ask)
        self.settle(ask)
        own = [*ask["bare"], *ask["paths"], str(self.folder)]
        reads = ReadsWatch(own, ask["file"], packages=self.packages)
        reads.start()
        recorder, error = self._recorded(ask, self.folder / "capture.err")
        self.records = {record.key: record for record in recorder.records}
        return {
            "error": error,
            "records": [record.describe() for record in recorder.records],
            "pruned": {},
            "dropped": recorder.dropped,
            "reads": reads.stop(),
            "ptxas": ask["settings"]["ptxas"],
            "triton": "",
        }

    def export(self, record: Any, folder: Path) -> None:
        try:
            result: dict[str, Any] = {**self.exported(record), "error": None}
        except ExportError as error:
            result = {"export": None, "error": str(error)}
        leave(result, folder)

    @classmethod
    def compile_file(cls, message: Message, folder: Path) -> None:
        """Lower the first kernel of a file in this (forked) process."""
        session, ask = cls(message), message["capture"]
        stand_aside(ask)
        session.settle(ask)
        recorder, error = session._recorded(ask, folder / "stderr")
        if recorder.records:
            session.lower(recorder.records[0], folder, message)
            return
        said = "nothing is compiled"
        nothing = {"type": "RuntimeError", "kinds": ["RuntimeError"], "message": said}
        leave({"error": error or nothing, "stage": cls.first}, folder)


def plain(value: Any) -> bool | int | float | str:
    """A value of a config as JSON has it."""
    return value if isinstance(value, bool | int | float | str) else str(value)


def label_of(function: Any) -> str:
    """A function as Python names it, without the functions that it is defined in."""
    return str(function.__qualname__).rpartition("<locals>.")[2]


_KINDS: list[Any] = []
pretend = gpu.pretend_cuda
"""Shows torch, and Triton where there is one, a GPU that is not there."""
with contextlib.suppress(ImportError):
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    from harness.frontends.pretend.pretend_driver import pretend_triton

    _KINDS += [JITFunction, Autotuner, Heuristics]
    pretend = pretend_triton


@contextlib.contextmanager
def passing_over_triton() -> Iterator[None]:
    """Launch no kernel of Triton: what it would write has a shape already."""
    saved = [(kind, kind.run) for kind in _KINDS]
    for kind, _ in saved:
        kind.run = lambda *_, **__: None
    try:
        yield
    finally:
        for kind, run in saved:
            kind.run = run
