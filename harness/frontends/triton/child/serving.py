"""The child of one Triton: forks a session for each capture, and a job for each config of it.

Importing torch and Triton is paid for once. Captures and compilations happen in forks, so one that
aborts takes nothing with it, and this process never holds state that a kernel could spoil. A job
compiles a record as far as PTX, and notes how Triton would have called ptxas; or it exports one, so
that it can be written as one file.

`python -m harness.frontends.triton.child SOCKET NAME`
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import importlib
import importlib.metadata
import inspect
import math
import os
import re
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from json import dumps
from pathlib import Path
from typing import Any, ClassVar, NoReturn

# All here, none later: launch code may bring a package of our name, and modules of any.
import torch
import triton
import triton.compiler
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from harness.frontends.pretend import gpu, pretend_driver, recorded
from harness.frontends.triton.child import generators, interpreting
from harness.frontends.triton.child.answers import BACKEND, NAMESPACE, assemble_by
from harness.frontends.triton.child.lazy_modules import leave_torch_unread
from harness.frontends.triton.child.recording import LaunchRecorder, SourceRecord, grid_dims
from harness.io.children.captures import serve_captures
from harness.io.children.definitions import Definitions, ExportError
from harness.io.children.supervisor import Message

# What Triton imports in the middle of its first compilation, where it has it.
_IMPORTED_LATE = (
    "triton.compiler.code_generator",
    "triton.language.semantic",
    "triton.language.extra.libdevice",
    "triton.tools.tensor_descriptor",
)


# Of all launches of a capture together, and of one of them.
_MOST_SECONDS = 30
_MOST_PROGRAMS = 1024


class _Session(recorded.RecordedSession):
    """One capture: what is compiled of it later sees the same pretended GPU."""

    first = next = "capture"
    has_values = True

    def settle(self, ask: Message) -> None:
        os.environ["TRITON_CACHE_DIR"] = str(self.folder / "cache")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / "inductor")
        self.mode = recorded.pretend(ask["device"], values=self.values, is_capture=True)
        if self.values:
            torch.manual_seed(interpreting.SEED)

    def recorder(self, ask: Message, log: Path) -> recorded.Recorder:
        is_executed = self.values == "interpreted"
        gpu.compute(whether=is_executed)
        deadline = time.monotonic() + _MOST_SECONDS

        def execute(function: Any, args: Any, kwargs: dict[str, Any], grid: Any) -> str:
            programs = math.prod(grid_dims(function, args, kwargs, grid))
            if programs > _MOST_PROGRAMS:
                return (
                    f"{function.fn.__name__} is too large to be interpreted: {programs:,} programs"
                )
            return interpreting.leave_values(function, args, kwargs, grid, deadline)

        recorder = LaunchRecorder(ask["injected"], execute if is_executed else None)
        recorder.values = "computed" if self.values else ""
        generators.stand_by(recorder.tuned_to)
        return recorder

    def run(self, ask: Message, log: Path) -> tuple[recorded.Recorder, Any]:
        if not ask["file"].endswith(_SUFFIXES):
            return super().run(ask, log)
        recorder = self.recorder(ask, log)
        own = read_ir(ask["file"], ask["overrides"], ask["device"]["capability"])
        configs = recorded.asked_configs(ask["injected"], own.kernel)
        for record in [own] if configs is None else map(own.with_config, configs):
            recorder.keep(record)
        return recorder, None

    def capture(self, ask: Message) -> Message:
        return {
            **super().capture(ask),
            # What a file of IR comes to is decided by its options.
            **({"reads": {}} if ask["file"].endswith(_SUFFIXES) else {}),
            "ptxas": picked_ptxas(ask["device"]["capability"]),
            "triton": importlib.metadata.version("triton"),
        }

    def lower(self, record: Any, folder: Path, message: Message) -> None:
        with self.mode:
            super().lower(record, folder, message)

    def lowered(self, record: Any, folder: Path, message: Message, result: dict[str, Any]) -> None:
        """Compile a record; everything is left in `folder`.

        Triton sees the `ptxas` of the message, or picks one. With `dump`, MLIR prints the module
        before every pass; with `timing`, it and LLVM say what each takes. With `until`, it is over
        once this stage has succeeded. `llvm` are options of the LLVM inside Triton; `without` are
        places of MLIR passes that are left out.

        `result` gets the `ptxas` and its `flags`, and seconds by stage; `is_past` where it was over
        early; with `without`, `passes` are the names of all of them.
        `cache/`: what Triton stored of each finished stage, also when a later one failed.
        """
        os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
        if message.get("dump"):
            os.environ["MLIR_ENABLE_DUMP"] = "1"
        if message.get("timing"):
            os.environ["MLIR_ENABLE_TIMING"] = os.environ["LLVM_ENABLE_TIMING"] = "1"
        if ptxas := message["ptxas"]:
            os.environ["TRITON_PTXAS_PATH"] = os.environ["TRITON_PTXAS_BLACKWELL_PATH"] = ptxas
            # What the backend remembers is of the ptxas that it saw during the capture.
            for value in NAMESPACE.values():
                if callable(getattr(value, "cache_clear", None)):
                    value.cache_clear()
        progress = ProgressFile(folder, record.first_stage)
        result |= {
            "first_stage": record.first_stage,
            "seconds": progress.stages,
            "triton": importlib.metadata.version("triton"),
        }

        def note(command: list[str], _: Callable[..., Any]) -> None:
            """In place of ptxas: note its command line without files, and leave an empty cubin."""
            result["ptxas"], *words = map(str, command)
            output = words.index("-o")
            Path(words[output + 1]).write_bytes(b"")
            flags = [*words[:output], *words[output + 2 :]]
            result["flags"] = [word for word in flags if not word.endswith(".ptx")]

        assemble_by(note)
        _watch_stages(progress, message.get("until"))
        if (without := message.get("without")) is not None:
            result["passes"] = []
            for name, value in list(NAMESPACE.items()):
                if isinstance(value, types.ModuleType) and name in ("passes", "nvidia"):
                    NAMESPACE[name] = _Passes(value, progress, result["passes"], set(without))
        if message.get("until") == "llir":
            # It is asked whether it can be lowered: what LLVM makes of it costs most of the time.
            os.environ["DISABLE_LLVM_OPT"] = "1"
        try:
            if llvm := message.get("llvm"):
                _tell_llvm(llvm)
            result["metadata"] = _metadata(record.compile())
        except recorded.CaughtError:
            # The last stage that is asked for has succeeded.
            result["is_past"] = True
        finally:
            result["stage"] = progress.stage

    def described(self, error: BaseException, record: Any) -> dict[str, Any]:
        return recorded.raised(error)

    def exported(self, record: Any) -> dict[str, Any]:
        with self.mode:
            return {"export": export(record)}


def _warm_up() -> None:
    """Do once what every compilation would do for itself after its fork.

    Triton hashes its own library, a quarter of a gigabyte, into the name of a cache folder; here
    the folder is empty and private, so that any name does.
    """
    for name in _IMPORTED_LATE:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in ("triton.compiler.compiler", "triton.runtime.cache"):
        module = sys.modules.get(name)
        if hasattr(module, "triton_key"):
            module.triton_key = lambda: triton.__version__  # type: ignore[union-attr]
    leave_torch_unread()
    gc.freeze()
    gc.enable()


def _alone(message: Message, folder: Path) -> None:
    """Compile a file that stands alone; or have a module work in Triton's interpreter mode.

    Triton's decorators read the mode from the environment during the import, so Triton is imported
    again; torch, which takes longer, is not. Triton's native library stays: it cannot be loaded
    twice and has no modes.
    """
    ask = message["capture"]
    if "module" not in ask:
        _Session.compile_file(message, folder)
        return
    os.environ["TRITON_INTERPRET"] = "1"
    package = __name__.rpartition(".")[0]
    ours = (f"{package}.", f"{pretend_driver.__name__}.", f"{recorded.__name__}.")
    left = {
        id(module)
        for name, module in sys.modules.items()
        if f"{name}.".startswith(("triton.", *ours)) and not name.startswith("triton._C")
    }
    # Of another distribution each module has a second name.
    for name, module in list(sys.modules.items()):
        if id(module) in left:
            del sys.modules[name]
    os.chdir(ask["place"])
    importlib.import_module(ask["module"]).main(ask["place"])


def main() -> None:
    """Say hello, fork sessions until the caller hangs up."""
    _warm_up()
    ready = {"triton": triton.__version__, "path": str(Path(triton.__file__).parent)}
    serve_captures(_Session, ready, _alone)


class ProgressFile:
    """Keeps `progress.json` true at any moment, so that a process that dies says where it was."""

    def __init__(self, folder: Path, first: str) -> None:
        self._path = folder / "progress.json"
        self.stages: dict[str, float] = {}
        self.stage = first
        self.enter(first)

    def enter(self, stage: str) -> None:
        self.stage = stage
        self._path.write_text(dumps({"stage": stage, "seconds": self.stages}))


def _watch_stages(progress: ProgressFile, until: str | None) -> None:
    original = BACKEND.add_stages

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def stage(source: Any, metadata: Any) -> Any:
            progress.enter(name)
            started = time.perf_counter()
            result = function(source, metadata)
            progress.stages[name] = time.perf_counter() - started
            if name == until:
                raise recorded.CaughtError
            return result

        return stage

    def add_stages(self: Any, stages: dict[str, Callable[..., Any]], *args: Any) -> Any:
        result = original(self, stages, *args)
        stages.update({name: watched(name, function) for name, function in stages.items()})
        return result

    BACKEND.add_stages = add_stages


class _Passes:
    """Stands for a module of Triton's passes: keeps the names of those that are added to a stage.

    Those before `make_llir`, where all that comes is needed. Some, by their places, are left out.
    """

    def __init__(
        self, module: types.ModuleType, progress: ProgressFile, names: list[str], without: set[int]
    ) -> None:
        self._module, self._progress = module, progress
        self._names, self._without = names, without

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, types.ModuleType):
            return _Passes(value, self._progress, self._names, self._without)
        if not name.startswith("add_"):
            return value

        def add(*args: Any, **kwargs: Any) -> None:
            if self._progress.stage in ("ttir", "ttgir"):
                self._names.append(f"{name} of make_{self._progress.stage}")
                if len(self._names) - 1 in self._without:
                    return
            value(*args, **kwargs)

        return add


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return str(value)


def _tell_llvm(options: list[str]) -> None:
    """Give options to the LLVM inside Triton: from 3.7 on its library exports what takes them.

    Passes on IR are counted where they are dumped, too; threads would mix their lines.
    """
    os.environ["LLVM_IR_ENABLE_DUMP"] = os.environ["MLIR_DISABLE_MULTITHREADING"] = "1"
    words = [b"triton", *map(str.encode, options)]
    library = ctypes.CDLL(triton._C.libtriton.__file__)  # noqa: SLF001 - it has no other name
    library.LLVMParseCommandLineOptions(len(words), (ctypes.c_char_p * len(words))(*words), b"")


def picked_ptxas(capability: int) -> str:
    """The ptxas that this Triton would run for a target, by its own rules."""
    # Builds of September 2026, between 3.8 and 3.9, have it under the longer name.
    pick = NAMESPACE.get("get_ptxas") or NAMESPACE.get("get_ptxas_for_arch")
    if pick is None:
        # Triton 3.2 has one ptxas, and no other way to ask for it.
        return str(NAMESPACE["_path_to_binary"]("ptxas")[0])
    # Until 3.6 there was one ptxas on some versions, and the function took no target.
    tool = pick(capability) if inspect.signature(pick).parameters else pick()
    return str(tool[0] if isinstance(tool, tuple) else tool.path)


def _metadata(kernel: Any) -> dict[str, Any]:
    metadata, source = kernel.metadata, kernel.src
    values = dict(metadata._asdict() if hasattr(metadata, "_asdict") else vars(metadata))
    # Which arguments the compiled kernel takes, in order. Until 3.2 what became a constant is in
    # the signature too, and by name among the constants; from 3.3 on its type says so.
    values["signature"] = list((getattr(source, "signature", None) or {}).items())
    constants = getattr(source, "constants", None) or {}
    values["constants"] = [name for name in constants if isinstance(name, str)]
    return {name: _plain(value) for name, value in values.items()}


_SUFFIXES = (".ttir", ".ttgir")
# What a loop says of itself: stages of its own, say.
_OF_LOOP = re.compile(r"^(\s*\}) \{[^{}]*\}", re.MULTILINE)
_KERNEL = re.compile(r'tt\.func public @(?:"([^"\n]{1,500})"|([\w.$-]{1,500}))\s{0,9}\(')


@dataclass(kw_only=True)
class IrRecord(recorded.Record):
    """A file of IR, the options to compile it with, and the target.

    `is_plain`: its loops have no options of their own.
    """

    # Triton reads it before any stage begins.
    first_stage: ClassVar[str] = "capture"
    options: dict[str, Any]
    capability: int
    is_plain: bool = False

    def with_config(self, config: dict[str, Any]) -> IrRecord:
        """The same with a config in place of its own; with one stage no loop has more."""
        options, is_plain = {**self.options, **config}, config.get("num_stages") == 1
        key = recorded.hash_of(self.key, sorted(options.items()), is_plain)
        named = _named(options)
        return replace(self, options=options, is_plain=is_plain, key=key, config=named)

    def compile(self) -> Any:
        target, file = GPUTarget("cuda", self.capability, 32), Path(self.file)
        if self.is_plain:
            text = _OF_LOOP.sub(r"\1", file.read_text())
            file = Path(tempfile.mkdtemp(), file.name)
            file.write_text(text)
        return triton.compile(str(file), target=target, options=dict(self.options))


def read_ir(file: str, options: dict[str, Any], capability: int) -> IrRecord:
    """The record of a file; what it is good for, Triton will say."""
    data = Path(file).read_bytes()
    match = _KERNEL.search(data.decode(errors="replace"))
    sha256 = hashlib.sha256(data).hexdigest()
    return IrRecord(
        file=file,
        kernel=(match[1] or match[2]) if match else "",
        key=recorded.hash_of(sha256, Path(file).suffix, sorted(options.items())),
        config=_named(options),
        options=options,
        capability=capability,
    )


def _named(options: dict[str, Any]) -> dict[str, Any]:
    """Options as a config, without one that every config has."""
    return {name: value for name, value in options.items() if (name, value) != ("num_ctas", 1)}


Names = dict[str, dict[str, Any]]
Place = tuple[int, ...]


def export(record: Any) -> dict[str, Any]:
    """The launch in words: `definitions` (the first is the kernel), and how they are compiled.

    A definition's `names` say what its free names, and dotted ones that lead out of a module, are
    bound to: a Triton `module` (with an `attribute`), another `definition`, or a `value` in words.

    Raises:
        ExportError: something of it has no text.
    """
    source, target, options = _about_to_compile(record)
    definitions = _Definitions()
    kernel = definitions.add(source.fn)
    assert kernel == 0
    backend = triton.compiler.make_backend(target)
    defaults = vars(backend.parse_options({}))
    constants = dict(_constants(source))
    return {
        "signature": _signature(source, constants),
        "constants": [
            {"path": list(path), **definitions.spell(value)} for path, value in constants.items()
        ],
        # Triton 3.2 has attributes of constants too, which later ones refuse.
        "attributes": [
            {"path": list(path), "words": [list(word) for word in words]}
            for path, words in _attributes(source.attrs).items()
            if path not in constants
        ],
        "options": {
            name: definitions.spell(value)
            for name, value in options.items()
            if name in defaults and defaults[name] != value
        },
        "source_class": definitions.bind(type(source)),
        "target": [target.backend, target.arch, target.warp_size],
        "definitions": definitions.found,
    }


def _about_to_compile(record: Any) -> tuple[Any, Any, dict[str, Any]]:
    if isinstance(record, SourceRecord):
        return record.source, driver.active.get_current_target(), dict(record.options)

    def caught(source: Any, target: Any = None, options: Any = None, **_: Any) -> NoReturn:
        raise recorded.CaughtError(source, target, dict(options or {}))

    # This process is a fork that ends with the export: nothing is put back.
    triton.compile = triton.compiler.compile = caught
    for place in (record.function, type(record.function)):
        if "compile" in vars(place):
            place.compile = caught
    try:
        record.compile()
    except recorded.CaughtError as error:
        source, target, options = error.compilation
        return source, target, options
    message = "Triton compiles nothing for this launch"
    raise ExportError(message)


def _signature(source: Any, constants: dict[Place, Any]) -> dict[str, Any]:
    """Argument to type; a tuple has a list of types. Until Triton 3.2, constants have none."""

    def plain(kind: Any) -> Any:
        return [plain(item) for item in kind] if isinstance(kind, list | tuple) else str(kind)

    if isinstance(source.attrs, dict):
        return {name: plain(kind) for name, kind in source.signature.items()}
    return {
        name: "constexpr" if (index,) in constants else plain(source.signature[name])
        for index, name in enumerate(source.fn.arg_names)
    }


def _constants(source: Any) -> Iterator[tuple[Place, Any]]:
    """Values of arguments by their path: the position, and within a tuple the item's."""
    for key, value in (source.constants or {}).items():
        yield (source.fn.arg_names.index(key),) if isinstance(key, str) else tuple(key), value
    if not isinstance(source.attrs, dict):
        # Triton 3.2 keeps an argument that is 1 among the attributes, later ones do not.
        yield from (((index,), value) for index, value in source.attrs.get_constants().items())


def _attributes(attrs: Any) -> dict[Place, Any]:
    """What Triton knows of arguments, by path; an object until Triton 3.2."""
    if isinstance(attrs, dict):
        return attrs
    words_of = attrs.filter_out_constants().get_fn_attrs()
    return {(index,): words for index, words in words_of.items()}


class _Definitions(Definitions):
    brought = frozenset({"triton"})

    def source(self, thing: Any) -> tuple[str, tuple[str, Any] | None]:
        if not isinstance(thing, JITFunction):
            return super().source(thing)
        options = "(noinline=True)" if thing.noinline else ""
        if "gluon" not in type(thing).__module__:
            return str(thing.src), (f"triton.jit{options}", triton)
        from triton.experimental import gluon  # noqa: PLC0415 - not in every Triton

        return str(thing.src), (f"gluon.jit{options}", gluon)

    def own_text(self, value: Any, names: Names) -> str | None:
        if isinstance(value, tl.constexpr):
            names["tl"] = {"module": "triton.language"}
            return f"tl.constexpr({self.expression(value.value, names)})"
        if isinstance(value, tl.dtype):
            names["tl"] = {"module": "triton.language"}
            return _dtype(value)
        if isinstance(value, JITFunction):
            names[value.fn.__name__] = self.bind(value)
            return str(value.fn.__name__)
        return None

    def python(self, thing: Any) -> Any:
        is_wrapped = isinstance(thing, JITFunction) or _is_constexpr_function(thing)
        return inspect.unwrap(thing.fn if is_wrapped else thing)

    def has_source(self, value: Any) -> bool:
        is_tritons = isinstance(value, JITFunction) or _is_constexpr_function(value)
        return is_tritons or super().has_source(value)


def _is_constexpr_function(value: Any) -> bool:
    return type(value).__name__ == "ConstexprFunction"


def _dtype(value: Any) -> str:
    for name, dtype in vars(tl).items():
        if isinstance(dtype, tl.dtype) and dtype == value:
            return f"tl.{name}"
    if isinstance(value, tl.pointer_type):
        return f"tl.pointer_type({_dtype(value.element_ty)})"
    message = f"the type {value} has no text"
    raise ExportError(message)
