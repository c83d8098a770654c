"""Records every GPU function that running code has CuTe DSL compile.

CuTe DSL traces Python to MLIR as it does, and its tracing is part of the capture; one end is
replaced, where the MLIR would be compiled (`compile_and_cache`). What cannot be traced is a record,
too.
"""

# ruff: noqa: ANN401 - values of CuTe DSL, torch and the user have types that we cannot name

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from json import dumps
from pathlib import Path
from typing import Any

import cutlass.utils
from cutlass._mlir import ir
from cutlass.base_dsl.dsl import BaseDSL

from harness.frontends.pretend.recorded import OURS, Record, Recorder, Replaced, label_of
from harness.io.children.launch_code import describe_error

DUMP = "/triage-dump/kernel"
"""Stands in a pipeline for the path that PTX is written to."""

# Options that decide what is generated, as they are given.
_OPTIONS = {
    "OptLevel": "--opt-level",
    "PtxasOptions": "--ptxas-options",
    "EnableAssertions": "--enable-assertions",
    "GenerateLineInfo": "--generate-line-info",
}
_MOST_SAID = 10_000


@dataclass(frozen=True)
class Launched:
    """A function that launches kernels, with its arguments and the options that were given.

    `states` are the attributes of arguments that are objects, by id: a method may set some.
    """

    function: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    options: str
    states: dict[int, dict[str, Any]]


@dataclass(kw_only=True)
class FunctionRecord(Record):
    """One GPU function: the module that holds it, or what kept that from being traced.

    `symbol` is its name in the module and in the PTX, `pipeline` what CuTe DSL would run, and
    `launched` the function that launches it.
    """

    arch: str = ""
    symbol: str = ""
    module: Any = None
    text: str = ""
    pipeline: str = ""
    ptxas_options: str = ""
    provider: Any = None
    error: dict[str, Any] | None = None
    launched: Launched | None = None

    def sign(self) -> None:
        """Set the key: a hash of all that decides what comes of it."""
        said = self.error and [self.error["type"], self.error["message"]]
        parts = [self.kernel, self.symbol, self.arch, self.text, self.pipeline, said]
        self.key = hashlib.sha256(dumps(parts).encode()).hexdigest()


class FunctionRecorder(Recorder):
    """Collects GPU functions; `device` describes the GPU, `log` is where errors are written."""

    def __init__(self, device: Mapping[str, Any], log: Path) -> None:
        super().__init__()
        self._device = device
        self._log = log
        # The GPU functions that the tracing under way has come to, in order.
        self._traced: list[Any] = []
        self._launched: Launched | None = None
        self._unread: Exception | None = None

    def replaced(self) -> Replaced:
        replaced: list[tuple[Any, str, Any]] = []
        for kind in _family(BaseDSL):
            for name, put in (
                ("compile_and_cache", self._compiling),
                ("_func", self._tracing),
                ("_kernel_helper", self._entering),
            ):
                if name in vars(kind):
                    replaced.append((kind, name, put(vars(kind)[name])))
        read = BaseDSL._preprocess_and_replace_code  # noqa: SLF001 - there is no public name
        replaced += [
            (BaseDSL, "_preprocess_and_replace_code", staticmethod(self._reading(read))),
            (cutlass.utils, "HardwareInfo", _hardware_info(self._device)),
        ]
        return replaced

    def _compiling(self, _: Any) -> Callable[..., Any]:
        """In place of a compilation: note what would be compiled."""

        def note(
            dsl: Any, module: Any, _hash: Any, _name: str, pipeline: Any, *_: Any, **given: Any
        ) -> NotCompiled:
            options = dsl.compile_options
            arch = str(options.gpu_arch or dsl.envar.arch)
            keep = _option(options, "KeepPTX")
            keep.value, keep.dump_path = True, DUMP
            whole = dsl.preprocess_pipeline(dsl._get_pipeline(pipeline), arch)  # noqa: SLF001
            with_lines = "preserve-line-info=true" in whole
            body = given.get("funcBody")
            # Jobs are forks, and threads do not outlive one; 4.4 leaves them to MLIR.
            module.context.enable_multithreading(False)  # noqa: FBT003 - MLIR's own function
            text = module.operation.get_asm(enable_debug_info=with_lines)
            for symbol in _kernels_of(module):
                record = FunctionRecord(
                    kernel=self._name_of(symbol),
                    file=_file_of(body),
                    arch=arch,
                    symbol=symbol,
                    module=module,
                    text=text,
                    pipeline=whole,
                    ptxas_options=str(_option(options, "PtxasOptions").value or "").strip("'"),
                    provider=dsl.compiler_provider,
                    launched=self._launched,
                )
                record.sign()
                self.keep(record)
            return NotCompiled(label_of(body) if body is not None else "kernel")

        return note

    def _tracing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What a host function does when it is traced, and is refused."""

        def trace(dsl: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
            if ir.Context.current is not None:  # one that another calls
                return original(dsl, body, *args, **kwargs)
            self._traced.clear()
            states = {id(each): dict(vars(each)) for each in args if hasattr(each, "__dict__")}
            self._launched = Launched(body, args, kwargs, _given_options(dsl), states)
            unread, self._unread = self._unread, None
            before = self._log.stat().st_size
            try:
                if unread is not None:
                    raise unread
                return original(dsl, body, *args, **kwargs)
            except OURS:
                raise
            except Exception as error:  # noqa: BLE001 - whatever is raised is the evidence
                named = self._traced[-1] if self._traced else body
                file = _file_of(named)
                described = describe_error(error, file)
                # Up to 4.5, what MLIR objects to is printed, and not in what is raised.
                with self._log.open(errors="replace") as log:
                    log.seek(before)
                    described["message"] += f"\n{log.read(_MOST_SAID)}"
                launched = self._launched
                label = label_of(named)
                record = FunctionRecord(kernel=label, file=file, error=described, launched=launched)
                record.sign()
                self.keep(record)
                return NotCompiled(label_of(body))

        return trace

    def _entering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def enter(dsl: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
            self._traced.append(body)
            return original(dsl, body, *args, **kwargs)

        return enter

    def _reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What is not read as CuTe DSL is refused when it is traced, which is next."""

        def read(function: Any) -> None:
            try:
                original(function)
            except OURS:
                raise
            except Exception as error:
                if ir.Context.current is not None:
                    raise
                self._unread = error

        return read

    def _name_of(self, symbol: str) -> str:
        """The function of this symbol, as Python calls it: `kernel_cutlass_NAME_ARGUMENTS_0`."""
        fits = [each for each in self._traced if f"_{each.__name__}_" in f"{symbol}_"]
        if not fits:
            return symbol
        return label_of(max(fits, key=lambda each: len(each.__name__)))


class NotCompiled:
    """What launch code gets in place of a compiled function: it can be called, and does nothing."""

    # As where nothing was asked to be kept.
    __ptx__ = __cubin__ = __mlir__ = None

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: Any, **__: Any) -> None:
        """There is no GPU."""

    def run_compiled_program(self, *_: Any) -> None:
        """As CuTe DSL calls it where a function is compiled when it is called."""

    seal_specialization = run_compiled_program

    def to(self, *_: Any) -> NotCompiled:
        """For a device of which there is one."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Anything else is not there before the kernel is compiled."""
        message = f"the launch code reads .{name} of the compiled function {self._name}"
        raise AttributeError(message)


def _family(kind: Any) -> list[Any]:
    """A class and all below it."""
    found = [kind]
    for each in kind.__subclasses__():
        found += _family(each)
    return found


def _given_options(dsl: Any) -> str:
    """The options of a compilation that are not what they are without being asked for."""
    given = dsl.compile_options
    plain = type(given)().options
    words = []
    for kind, option in given.options.items():
        name = _OPTIONS.get(kind.__name__)
        if name and option.value != plain[kind].value:
            words.append(name if option.value is True else f"{name} {option.value}")
    return " ".join(words)


def _option(options: Any, name: str) -> Any:
    return next(each for kind, each in options.options.items() if kind.__name__ == name)


def _kernels_of(module: Any) -> list[str]:
    """The symbols of a module's GPU functions, in order."""
    found = []
    for outer in module.body.operations:
        if outer.operation.name != "gpu.module":
            continue
        for inner in outer.operation.regions[0].blocks[0].operations:
            attributes = inner.operation.attributes
            if "gpu.kernel" in attributes or inner.operation.name == "cuda.kernel":
                found.append(str(ir.StringAttr(attributes["sym_name"]).value))
    return found


def _file_of(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return str(code.co_filename) if code else ""


def _hardware_info(device: Mapping[str, Any]) -> type:
    """CuTe DSL's own questions to the driver, answered for a GPU that has no other work."""
    multiprocessors = int(device["multiprocessors"])

    class HardwareInfo:
        def __init__(self, device_id: int = 0) -> None:
            self.device_id = device_id

        def get_max_active_clusters(self, cluster_size: int, *_: Any, **__: Any) -> int:
            return multiprocessors // cluster_size

        def get_l2_cache_size_in_bytes(self) -> int:
            return int(device["l2_cache"])

        def get_device_multiprocessor_count(self) -> int:
            return multiprocessors

    return HardwareInfo
