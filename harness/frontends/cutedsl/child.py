"""The child of one CuTe DSL: records every GPU function that running code has it compile.

CuTe DSL traces Python to MLIR as it does, and its tracing is part of the capture; one end is
replaced, where the MLIR would be compiled (`compile_and_cache`). What cannot be traced is a record,
too. A job lowers a record to PTX, or exports it: the function that launches it, with every kernel,
helper and global that this names, and what stands for its arguments: tensors without data, of the
same type to the compiler.

`python .../enter.py harness.frontends.cutedsl.child SOCKET NAME`
"""

# ruff: noqa: ANN401 - values of CuTe DSL, torch and the user have types that we cannot name

from __future__ import annotations

import ast
import contextlib
import enum
import inspect
import os
import re
import sys
import textwrap
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cutlass
import cutlass.cute
import cutlass.utils
from cutlass._mlir import ir
from cutlass.base_dsl.dsl import BaseDSL, DSLSingletonMeta
from cutlass.cute import runtime
from cutlass.cutlass_dsl import JitArgAdapterRegistry

from harness.frontends.cutedsl.host_code import dynamic_shared
from harness.frontends.pretend.recorded import (
    OURS,
    NotCompiled,
    Record,
    RecordedSession,
    Recorder,
    Replaced,
    file_of,
    hash_of,
    label_of,
    method,
)
from harness.io.children.captures import serve_captures
from harness.io.children.definitions import Definitions, ExportError
from harness.io.children.launch_code import describe_error
from harness.io.children.supervisor import Message

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
    launched: Launched | None = None


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
        ends: dict[str, Callable[..., Any]] = {
            "compile_and_cache": self._compiling,
            "_func": self._tracing,
            "_kernel_helper": self._entering,
        }
        read = BaseDSL._preprocess_and_replace_code  # noqa: SLF001 - there is no public name
        return [
            *(
                (kind, name, method(end, vars(kind)[name]))
                for kind in _family(BaseDSL)
                for name, end in ends.items()
                if name in vars(kind)
            ),
            (BaseDSL, "_preprocess_and_replace_code", staticmethod(partial(self._read, read))),
            (cutlass.utils, "HardwareInfo", _hardware_info(self._device)),
        ]

    def _compiling(self, _: Any, dsl: Any, module: Any, *words: Any, **more: Any) -> NotCalled:
        """In place of a compilation: note what would be compiled."""
        _hash, _name, pipeline, *_ = words
        options = dsl.compile_options
        arch = str(options.gpu_arch or dsl.envar.arch)
        by_name = {kind.__name__: option for kind, option in options.options.items()}
        by_name["KeepPTX"].value, by_name["KeepPTX"].dump_path = True, DUMP
        whole = dsl.preprocess_pipeline(dsl._get_pipeline(pipeline), arch)  # noqa: SLF001
        with_lines = "preserve-line-info=true" in whole
        body = more.get("funcBody")
        # Jobs are forks, and threads do not outlive one; 4.4 leaves them to MLIR.
        module.context.enable_multithreading(False)  # noqa: FBT003 - MLIR's own function
        text = module.operation.get_asm(enable_debug_info=with_lines)
        for symbol in _kernels_of(module):
            self._keep(
                kernel=self._name_of(symbol),
                file=file_of(body),
                arch=arch,
                symbol=symbol,
                module=module,
                text=text,
                pipeline=whole,
                ptxas_options=str(by_name["PtxasOptions"].value or "").strip("'"),
                provider=dsl.compiler_provider,
            )
        return NotCalled(label_of(body) if body is not None else "kernel", "function")

    def _tracing(self, original: Any, dsl: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
        """What a host function does when it is traced, and is refused."""
        if ir.Context.current is not None:  # one that another calls
            return original(dsl, body, *args, **kwargs)
        self._traced.clear()
        states = {id(thing): dict(vars(thing)) for thing in args if hasattr(thing, "__dict__")}
        self._launched = Launched(body, args, kwargs, _options_of(dsl), states)
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
            file = file_of(named)
            described = describe_error(error, file)
            # Up to 4.5, what MLIR objects to is printed, and not in what is raised.
            with self._log.open(errors="replace") as log:
                log.seek(before)
                described["message"] += f"\n{log.read(_MOST_SAID)}"
            self._keep(kernel=label_of(named), file=file, error=described)
            return NotCalled(label_of(body), "function")

    def _keep(self, **facts: Any) -> None:
        record = FunctionRecord(launched=self._launched, **facts)
        parts = (record.kernel, record.symbol, record.arch, record.text, record.pipeline)
        record.key = hash_of(*parts, record.refusal)
        self.keep(record)

    def _entering(self, original: Any, dsl: Any, body: Any, *args: Any, **kwargs: Any) -> Any:
        self._traced.append(body)
        return original(dsl, body, *args, **kwargs)

    def _read(self, original: Callable[..., Any], function: Any) -> None:
        """What is not read as CuTe DSL is refused when it is traced, which is next."""
        try:
            original(function)
        except OURS:
            raise
        except Exception as error:
            if ir.Context.current is not None:
                raise
            self._unread = error

    def _name_of(self, symbol: str) -> str:
        """The function of this symbol, as Python calls it: `kernel_cutlass_NAME_ARGUMENTS_0`."""
        functions = [body for body in self._traced if f"_{body.__name__}_" in f"{symbol}_"]
        longest = max(functions, key=lambda body: len(body.__name__), default=None)
        return symbol if longest is None else label_of(longest)


class NotCalled(NotCompiled):
    """What launch code gets in place of a compiled function: it can be called, and does nothing."""

    # As where nothing was asked to be kept.
    __ptx__ = __cubin__ = __mlir__ = None

    def __call__(self, *_: Any, **__: Any) -> None:
        """There is no GPU."""

    def run_compiled_program(self, *_: Any) -> None:
        """As CuTe DSL calls it where a function is compiled when it is called."""

    seal_specialization = run_compiled_program

    def to(self, *_: Any) -> NotCalled:
        return self


def _family(kind: Any) -> list[Any]:
    return [kind, *(heir for child in kind.__subclasses__() for heir in _family(child))]


def _options_of(dsl: Any) -> str:
    """The options of a compilation that are not what they are by default."""
    options = dsl.compile_options
    plain = type(options)().options
    words = []
    for kind, option in options.options.items():
        name = _OPTIONS.get(kind.__name__)
        if name and option.value != plain[kind].value:
            words.append(name if option.value is True else f"{name} {option.value}")
    return " ".join(words)


def _kernels_of(module: Any) -> list[str]:
    symbols = []
    for outer in module.body.operations:
        if outer.operation.name != "gpu.module":
            continue
        for inner in outer.operation.regions[0].blocks[0].operations:
            attributes = inner.operation.attributes
            if "gpu.kernel" in attributes or inner.operation.name == "cuda.kernel":
                symbols.append(str(ir.StringAttr(attributes["sym_name"]).value))
    return symbols


def _hardware_info(device: Mapping[str, Any]) -> Callable[..., Any]:
    """CuTe DSL's own questions to the driver, answered for a GPU that has no other work."""
    multiprocessors = int(device["multiprocessors"])
    return lambda device_id=0: types.SimpleNamespace(
        device_id=device_id,
        get_max_active_clusters=lambda cluster_size, *_, **__: multiprocessors // cluster_size,
        get_l2_cache_size_in_bytes=lambda: int(device["l2_cache"]),
        get_device_multiprocessor_count=lambda: multiprocessors,
    )


_OBJECT = "launcher"
_TENSOR = re.compile(
    r'!cute\.memref<\w+, (?P<space>\w+), (?:align<(?P<align>\d+)>, )?"\((?P<shape>[^()]*)\):'
    r'\((?P<stride>[^()]*)\)"'
)
_DYNAMIC = re.compile(r"\?(?:\{(?:i(\d+))? ?(?:div=(\d+))?\})?")


def made(kind: Any, **attributes: Any) -> Any:
    """An object of a class with these attributes, whatever its `__init__` does."""
    thing = object.__new__(kind)
    vars(thing).update(attributes)
    return thing


def _bound(launched: Any) -> dict[str, Any]:
    """The arguments of the function by name, those that have a default too.

    Raises:
        ExportError: not all of them can be given by their place.
    """
    signature = inspect.signature(launched.function)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    if not kinds <= {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}:
        message = "the function that launches it takes arguments that have no place of their own"
        raise ExportError(message)
    words = {
        name: value for name, value in launched.keywords.items() if name in signature.parameters
    }
    bound = signature.bind(*launched.arguments, **words)
    bound.apply_defaults()
    return dict(bound.arguments)


def _stand_in(value: Any) -> str | None:
    """A call that makes what is the same to the compiler and has no data; None for a constant.

    Raises:
        ExportError: there is no such call.
    """
    if type(value).__name__ in ("CUstream", "_FakeStream"):
        return "runtime.make_fake_stream()"
    if isinstance(value, cutlass.Numeric):
        return f"cutlass.{type(value).__name__}({value.value!r})"
    adapter = JitArgAdapterRegistry.get_registered_adapter(type(value))
    if adapter and type(value) not in (bool, int, float, list, tuple):
        value = adapter(value)
    if not hasattr(type(value), "mlir_type"):
        return None
    with ir.Context(), ir.Location.unknown():
        text = str(value.mlir_type)
        call = _tensor(value, text) or _pointer(value)
        roots = {"cutlass": cutlass, "cute": cutlass.cute, "runtime": runtime}
        same = call and eval(call, roots)  # noqa: S307 - its text is ours
        if not same or str(same.mlir_type) != text:
            message = f"nothing without data is of the type {text}"
            raise ExportError(message)
    return call


def _tensor(value: Any, text: str) -> str | None:
    match = _TENSOR.match(text)
    if match is None:
        return None
    words = [f"cutlass.{value.element_type.__name__}"]
    for name in ("shape", "stride"):
        items = [_extent(item.strip()) for item in match[name].split(",")]
        words.append(f"({', '.join(items)}{',' if len(items) == 1 else ''})")
    if match["space"] != "gmem":
        words.append(f"memspace=cute.AddressSpace.{match['space']}")
    if match["align"]:
        words.append(f"assumed_align={match['align']}")
    return f"runtime.make_fake_tensor({', '.join(words)})"


def _extent(item: str) -> str:
    """A size or a stride: a number, or one that is known when the kernel is launched."""
    match = _DYNAMIC.fullmatch(item)
    if match is None:
        return item
    by = f"divisibility={match[2]}" if match[2] else ""
    return f"cute.sym_int{match[1] or 32}({by})"


def _pointer(value: Any) -> str | None:
    kind, align = getattr(value, "dtype", None), getattr(value, "_assumed_align", None)
    if kind is None:
        return None
    space = f"cute.AddressSpace.{value.memspace.name}"
    words = [f"cutlass.{kind.__name__}", "16", space, f"assumed_align={align}"]
    return f"runtime.make_ptr({', '.join(words)})"


class _Definitions(Definitions):
    """`states` are the attributes of objects, by id, before the kernel was traced."""

    brought = frozenset({"cuda", "cutlass", *sys.stdlib_module_names})

    def __init__(self, states: dict[int, dict[str, Any]]) -> None:
        super().__init__()
        self._states = states

    def add_caller(self, method: Any) -> None:
        """A function that calls a method: of the file, it is what is compiled."""
        code, _ = self.source(method)
        function = ast.parse(code).body[0]
        assert isinstance(function, ast.FunctionDef)
        _, *parameters = function.args.args
        names = ", ".join(parameter.arg for parameter in parameters)
        called = _OBJECT if method.__name__ == "__call__" else f"{_OBJECT}.{method.__name__}"
        words = ", ".join([f"{_OBJECT}: cutlass.Constexpr", *map(ast.unparse, parameters)])
        text = f"@cute.jit\ndef launched({words}):\n    {called}({names})\n"
        roots = {"cute": cutlass.cute, "cutlass": cutlass}
        self.add_text(text, {**self._scope(method), **roots})

    def source(self, thing: Any) -> tuple[str, tuple[str, Any] | None]:
        code, decorator = super().source(thing)
        function = self.python(thing)
        if isinstance(function, type) or code.lstrip().startswith("@"):
            return code, decorator
        # What was traced is CuTe DSL's copy, which begins below its decorators.
        lines, _ = inspect.findsource(function)
        above = function.__code__.co_firstlineno
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.FunctionDef) and node.lineno == above and node.decorator_list:
                first = min(decorator.lineno for decorator in node.decorator_list)
                code = textwrap.dedent("".join(lines[first - 1 : node.end_lineno]))
        return code, decorator

    def own_text(self, value: Any, names: dict[str, dict[str, Any]]) -> str | None:
        kind = type(value)
        if (
            self.has_source(kind)
            and not self.is_brought(kind.__module__)
            and hasattr(value, "__dict__")
        ):
            return self._object(value, names)
        name = getattr(value, "__name__", "")
        if isinstance(value, type) and getattr(cutlass, name, None) is value:
            names["cutlass"] = {"module": "cutlass"}
            return f"cutlass.{name}"
        place = self._place(type(value)) if isinstance(value, enum.Enum) else None
        if place is None:
            return None
        names[place[1]] = {"module": place[0], "attribute": place[1]}
        return f"{place[1]}.{value.name}"

    def _object(self, value: Any, names: dict[str, dict[str, Any]]) -> str:
        """An object of a user's class by what it holds; what has no text is left out."""
        kind = type(value)
        names |= {
            made.__name__: {"definition": self.add(made)},
            kind.__name__: {"definition": self.add(kind)},
        }
        words = [kind.__name__]
        for name, attribute in self._states.get(id(value), vars(value)).items():
            with contextlib.suppress(ExportError):
                words.append(f"{name}={self.expression(attribute, names)}")
        return f"{made.__name__}({', '.join(words)})"


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class _Session(RecordedSession):
    packages = ("cutlass", "cuda", "tvm_ffi", "google")
    first, next = "mlir", "nvvm"

    def settle(self, ask: Message) -> None:
        # What is compiled from now on has a target; else a driver would be asked.
        os.environ["CUTE_DSL_ARCH"] = target = ask["settings"]["target"]
        for dsl in DSLSingletonMeta._instances.values():  # noqa: SLF001 - there is no public name
            dsl.envar.arch = target
        os.environ["CUTE_DSL_CACHE_DIR"] = str(self.folder / "cache")

    def recorder(self, ask: Message, log: Path) -> Recorder:
        return FunctionRecorder(ask["device"], log)

    def lower(self, record: Any, folder: Path, request: Message) -> None:
        if record.error:
            record.error["message"] = _COLOURS.sub("", record.error["message"])
        super().lower(record, folder, request)

    def lowered(self, record: Any, folder: Path, request: Message, result: dict[str, Any]) -> None:
        """Leave `kernel.mlir` and `kernel.ptx`, PTX too that the ptxas inside CuTe DSL refuses."""
        (folder / "kernel.mlir").write_text(record.text)
        result["ptxas_options"] = record.ptxas_options
        result["metadata"] = {"entry": record.symbol}
        if record.arch != self.target:
            message = f"the launch compiles for {record.arch}, and {self.target} was asked for"
            raise NotImplementedError(message)
        pipeline = record.pipeline.replace(DUMP, str(folder / "dump"))
        module = record.module
        try:
            with module.context, module.operation.location:
                compiled = record.provider.compile(module, pipeline)
            text = (compiled if compiled is not None else module).operation.get_asm()
            shared = dynamic_shared(text, record.symbol)
            result["metadata"] |= {} if shared is None else {"shared": shared}
        finally:
            for file in sorted(folder.glob("dump*.ptx")):
                # As a string of C, with its end.
                (folder / "kernel.ptx").write_bytes(file.read_bytes().removesuffix(b"\0"))

    def described(self, error: BaseException, record: Any) -> dict[str, Any]:
        described = super().described(error, record)
        if error.__cause__ is not None:
            described["message"] += f"\n{error.__cause__}"[:10_000]
        return {**described, "message": _COLOURS.sub("", described["message"])}

    def exported(self, record: Any) -> dict[str, Any]:
        launched = record.launched
        if launched is None:
            message = "no function that launches it was seen"
            raise ExportError(message)
        function, arguments = launched.function, _bound(launched)
        definitions = _Definitions(launched.states)
        owner = type(launched.arguments[0]) if launched.arguments else None
        if inspect.unwrap(getattr(owner, function.__name__, print)) is function:
            # It is a method: its first argument is the object.
            first, *names = arguments
            arguments = {_OBJECT: arguments[first], **{name: arguments[name] for name in names}}
            definitions.add_caller(function)
        else:
            definitions.add(function)
        calls = {name: text for name, value in arguments.items() if (text := _stand_in(value))}
        export = definitions.export(
            arguments,
            {name: value for name, value in arguments.items() if name not in calls},
            options={"options": launched.options} if launched.options else {},
            source_class={"value": "compile"},
            target=[self.target],
        )
        return {"export": export, "arguments": calls}


if __name__ == "__main__":
    serve_captures(_Session, {"cutlass": cutlass.__version__}, _Session.compile_file)
