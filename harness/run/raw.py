"""Executes a PTX file on inputs that the user names, and says what it computes."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

import msgspec
import numpy as np
from msgspec import structs

from gpu_emulator.values import LARGEST_SIZES, MOST_THREADS, Budget, Pointer
from harness.frontends.bench import Workbench, content_key
from harness.frontends.plan import PlannedCell
from harness.frontends.texts.ir_inputs import read_file, spelling
from harness.io.files.reading import read_regular
from harness.run.comparing import ELEMENTS, Array, pack_float, pack_integer
from harness.run.emulator_jobs import Emulation, JobBuffer, Passed, RunTrial
from harness.run.inputs import Entry, EntryError, EntryParameter, LaunchSource, read_entry
from harness.run.launch import Launch, RunEvidence, Trusted
from harness.run.schedules import INSTRUCTIONS, default_trials
from harness.store.store import Store
from harness.values.cell import INPUTS, CellId, program_label
from harness.values.errors import UsageError
from harness.values.execution import Argument, RunRow
from harness.values.kernel import EMULATED, Config, PtxInputs, Repro
from harness.values.target import Target

# Inputs of raw PTX as they are written on a command line, and guesses where they are not.
#
# `--buffer NAME=DTYPE[N]` with `:VALUE`, `:random` or `:FILE.npy` behind it; `--scalar NAME=VALUE`.
# NAME is a parameter of the entry, or its number; any other name takes the next parameter of its
# kind that has no name yet.

_BUFFER = re.compile(
    r"(?P<name>[\w$%.]+)=(?P<type>\w+)\[(?P<count>\d{0,18})\](?::(?P<fill>.+))?", re.DOTALL
)
_SIZE = re.compile(r"0{0,18}[1-9]\d{0,17}")
_NUMBER = re.compile(r"\d{1,18}")
# What takes part in an address, and what is there.
_FLOW = re.compile(
    r"\b(?:(?P<access>ld|st|atom|red)|cvta|add|sub|mad|mov|selp)(?=[.\s])(?P<suffixes>[\w.:]*)\s+"
    r"(?P<operands>[^;]{1,500});"
)
_LOADED = re.compile(r"ld\.param\.\w+\s+(%\w+)\s*,\s*\[\s*([\w$%]+)\s*\]")
_CONVERTED = re.compile(r"cvta[\w.:]*\s+%\w+\s*,\s*(%\w+)")
_ADDRESS = re.compile(r"\[\s*(%\w+)")
_REGISTER = re.compile(r"%\w+")
_ELEMENT = re.compile(r"\.(bf16|f16|[usbf](?:8|16|32|64))(?:x2)?(?![\w:])")
_BITS = ("b8", "b16", "b32", "b64")
_POINTER_BYTES = 8
LARGEST = 1 << 28
"""No buffer has more bytes."""

_GUESSED_ELEMENTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferWords:
    """A buffer: `count` elements (None: as many as the file has) that begin as `fill` says.

    `fill` is a number for all of them, `random`, the path of an `.npy` file, or empty: zeros.
    """

    name: str
    type: str
    count: int | None
    fill: str = ""

    def __str__(self) -> str:
        count = "" if self.count is None else self.count
        return f"{self.name}={self.type}[{count}]" + (f":{self.fill}" if self.fill else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RawArgument:
    """What a parameter gets: a buffer or the text of a number; `is_guess`: the user did not say so.

    `name` is the user's for it.
    """

    name: str
    parameter: EntryParameter
    buffer: BufferWords | None = None
    scalar: str = ""
    is_guess: bool = False

    @property
    def words(self) -> str:
        """As the option that would say so."""
        if self.buffer:
            return f"--buffer {self.buffer}"
        return f"--scalar {self.parameter.alias or self.parameter.name}={self.scalar}"


def read_buffer(text: str) -> BufferWords:
    """Read `NAME=DTYPE[N]:FILL`.

    Raises:
        UsageError: it is none.
    """
    match = _BUFFER.fullmatch(text)
    if not match:
        raise UsageError(
            f"--buffer {text}: write NAME=DTYPE[N], for example out=u32[128], x=f32[64]:random, "
            "y=f32[64]:0x3f800000 or z=f16[64]:z.npy"
        )
    kind, fill = match["type"], match["fill"] or ""
    if kind not in ELEMENTS:
        raise UsageError(f"--buffer {text}: no type {kind!r}; known are {', '.join(ELEMENTS)}")
    count = int(match["count"]) if match["count"] else None
    if count is None and not fill.endswith(".npy"):
        raise UsageError(f"--buffer {text}: say how many elements, for example {kind}[64]")
    if count is not None and count * ELEMENTS[kind].itemsize > LARGEST:
        raise UsageError(f"--buffer {text}: more than {LARGEST >> 20} MiB are too large")
    return BufferWords(name=match["name"], type=kind, count=count, fill=fill)


def read_sizes(option: str, text: str) -> tuple[int, int, int]:
    """Read `X[,Y[,Z]]` of a grid or a block, each at least 1 and at most what a driver takes.

    Raises:
        UsageError: it is none.
    """
    words = [word.strip() for word in re.split(r"[,x]", text)]
    if not 1 <= len(words) <= 3 or not all(map(_SIZE.fullmatch, words)):
        raise UsageError(f"{option} {text}: write X[,Y[,Z]], each at least 1, for example 4,2")
    x, y, z = (*map(int, words), 1, 1, 1)[:3]
    name = option.lstrip("-")
    if any(size > most for size, most in zip((x, y, z), LARGEST_SIZES[name], strict=True)):
        largest = ",".join(map(str, LARGEST_SIZES[name]))
        raise UsageError(f"{option} {text}: no GPU takes so large a {name}: at most {largest}")
    if name == "block" and x * y * z > MOST_THREADS:
        raise UsageError(
            f"{option} {text}: {x * y * z:,} threads, and a block has at most {MOST_THREADS:,}"
        )
    return x, y, z


def assign(
    entry: Entry,
    ptx: str,
    buffers: Sequence[BufferWords],
    scalars: Sequence[tuple[str, str]],
    threads: int,
) -> list[RawArgument]:
    """What each parameter of the entry gets; what the user does not say is guessed.

    A pointer is guessed to be a buffer of random elements, an integer to be the number of `threads`
    of the launch, any other number to be 1.

    Raises:
        UsageError: more is given than there are parameters, or one is named twice.
    """
    parameters = {parameter.name: parameter for parameter in entry.parameters}
    known = {parameter.alias: parameter for parameter in entry.parameters} | parameters
    pointed = _pointed(entry, ptx)
    arguments: dict[str, RawArgument] = {}
    options: list[tuple[str, BufferWords | None, str]] = [
        *((buffer.name, buffer, "") for buffer in buffers),
        *((name, None, text) for name, text in scalars),
    ]

    def by_name(name: str) -> EntryParameter | None:
        if name in known or not _NUMBER.fullmatch(name):
            return known.get(name)
        return next(iter(entry.parameters[int(name) :]), None)

    # Names of the user's own take the parameters that are left.
    options.sort(key=lambda option: by_name(option[0]) is None)
    for name, buffer, text in options:
        parameter = by_name(name)
        if parameter and parameter.name in arguments:
            raise UsageError(f"{name} is given twice")
        if parameter and buffer is not None and not _may_point(parameter):
            raise UsageError(
                f"--buffer {buffer}: the parameter `{parameter.words}` is not a pointer; use "
                "--scalar"
            )
        rest = [free for free in entry.parameters if free.name not in arguments]
        takes = [p for p in rest if (_may_point(p) if buffer else p.name not in pointed)]
        if not parameter and not takes:
            names = ", ".join(one.alias or one.name for one in entry.parameters) or "none"
            raise UsageError(f"{name}: no parameter of {entry.name} is left; it has {names}")
        parameter = parameter or takes[0]
        arguments[parameter.name] = RawArgument(
            name=name, parameter=parameter, buffer=buffer, scalar=text
        )
    return [
        arguments.get(parameter.name) or _guess(parameter, pointed.get(parameter.name), threads)
        for parameter in entry.parameters
    ]


def _may_point(parameter: EntryParameter) -> bool:
    is_one = parameter.size == _POINTER_BYTES and parameter.count is None
    return is_one and parameter.type[0] in "ub"


def _pointed(entry: Entry, ptx: str) -> dict[str, str]:
    """The parameters that the text takes for addresses, each with the type of its elements.

    That is the type of a load, a store or an atomic operation at an address that is computed from
    the parameter: the first that says more than how many bits it has. `u32` where there is none.
    """
    used = {*_ADDRESS.findall(ptx), *_CONVERTED.findall(ptx)}
    loaded = {name for register, name in _LOADED.findall(ptx) if register in used}
    found: dict[str, list[str]] = {
        parameter.name: []
        for parameter in entry.parameters
        if parameter.is_pointer or (parameter.name in loaded and _may_point(parameter))
    }
    origins: dict[str, str] = {}
    for match in _FLOW.finditer(ptx):
        registers = _REGISTER.findall(match["operands"])
        if loads := _LOADED.match(match[0]):
            if loads[2] in found:
                origins[loads[1]] = loads[2]
        elif match["access"]:
            address = _ADDRESS.search(match["operands"])
            element = _ELEMENT.search(match["suffixes"])
            if address and element and address[1] in origins:
                found[origins[address[1]]].append(element[1])
        elif pointers := [origins[name] for name in registers[1:] if name in origins]:
            origins[registers[0]] = pointers[0]
    return {
        name: next((kind for kind in kinds if kind not in _BITS), f"u{(kinds or ['b32'])[0][1:]}")
        for name, kinds in found.items()
    }


def _guess(parameter: EntryParameter, pointed: str | None, threads: int) -> RawArgument:
    if pointed:
        buffer = BufferWords(
            name=parameter.alias or parameter.name,
            type=parameter.element or pointed,
            count=_GUESSED_ELEMENTS,
            fill="random",
        )
        return RawArgument(name=parameter.name, parameter=parameter, buffer=buffer, is_guess=True)
    if parameter.count is not None:
        raise UsageError(
            f"the parameter `{parameter.words}` is passed by value; such cannot be given here yet"
        )
    is_count = parameter.type[0] in "usb" and parameter.size >= 4
    return RawArgument(
        name=parameter.name,
        parameter=parameter,
        scalar=str(min(threads, (1 << (8 * parameter.size - 1)) - 1)) if is_count else "1",
        is_guess=True,
    )


def pack_scalar(parameter: EntryParameter, text: str) -> bytes:
    """A number as the parameter holds it; `0x...` is its bits.

    Raises:
        UsageError: it is not a number, or too large.
    """
    kind = parameter.type
    if kind[0] == "b" and "." in text:
        # Untyped, as all of a cubin's: what is written as a fraction is one.
        kind = f"f{8 * parameter.size}"
    try:
        if text.lower().startswith("0x"):
            return pack_integer(int(text, 16), parameter.size)
        if kind in ("f16", "bf16", "f32", "f64"):
            return pack_float(float(text), kind)
        return pack_integer(int(text, 0), parameter.size)
    except ValueError as error:
        raise UsageError(
            f"--scalar {parameter.name}={text}: no number that fits `{parameter.words}` ({error})"
        ) from error


# A launch that goes with a file of PTX: what its entry is given, and what is held.
#
# `triage minimize --run` writes it as `launch.json`, with the bytes of the buffers beside it, and
# `triage run FILE.ptx --inputs launch.json` executes it. Arguments are by their place among the
# entry's parameters, so that any name will do.

_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PtxLaunch:
    """What an entry with `parameters` (PTX types) is launched with; sizes as in `Emulation`.

    The files of `buffers` are `.npy` beside it.

    `tensors` are what is judged: views of buffers. `types` are those that the PTX computes with,
    which decide how far a result may be off. `expected` are the bytes (hexadecimal) of the only one
    of `tensors`, as `expected_by` has them; None where nothing says what is right.
    """

    parameters: tuple[str, ...]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    buffers: tuple[JobBuffer, ...]
    arguments: tuple[Passed, ...]
    tensors: tuple[Argument, ...]
    types: tuple[str, ...] = ()
    expected: str | None = None
    expected_by: str = ""
    schema: int = _SCHEMA

    def fits(self, entry: Entry) -> bool:
        """Whether an entry takes these arguments."""
        is_block = entry.block is None or prod(entry.block) == prod(self.block)
        types = tuple(parameter.type for parameter in entry.parameters)
        return is_block and types == self.parameters

    def launched(self, entry: str, files: Sequence[str | None]) -> Launch:
        """The launch of an entry of some PTX; `files` are the sha256 of the buffers' bytes."""
        emulation = Emulation(
            ptx="",
            entry=entry,
            grid=self.grid,
            block=self.block,
            cluster=self.cluster,
            dynamic_shared=self.shared,
            buffers=tuple(
                replace(buffer, file=file) for buffer, file in zip(self.buffers, files, strict=True)
            ),
            arguments=self.arguments,
        )
        trusted: tuple[Trusted, ...] = ()
        for sha256 in self.expected_bytes:
            [tensor] = self.tensors
            buffers = [sha256 if n == tensor.buffer else None for n in range(len(self.buffers))]
            trusted = (Trusted(words=self.expected_by, buffers=tuple(buffers), is_final=True),)
        return Launch(
            emulation=emulation,
            tensors=self.tensors,
            trusted=trusted,
            types=self.types,
            emulator_is_right=self.expected_by == EMULATED,
        )

    @property
    def expected_bytes(self) -> dict[str, bytes]:
        """The buffer that must hold what is expected, by its sha256, where something is."""
        if self.expected is None:
            return {}
        [tensor] = self.tensors
        must = bytearray(self.buffers[tensor.buffer].size)
        value = bytes.fromhex(self.expected)
        must[tensor.offset : tensor.offset + len(value)] = value
        return {hashlib.sha256(must).hexdigest(): bytes(must)}


def read_launch(data: bytes, name: str) -> PtxLaunch:
    """Read a launch that was written as JSON; `name` is that of the file.

    Raises:
        UsageError: it is none.
    """
    try:
        launch = msgspec.json.decode(data, type=PtxLaunch)
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"--inputs {name}: no launch of `triage minimize --run`: {error}"
        ) from error
    if launch.schema != _SCHEMA:
        raise UsageError(f"--inputs {name}: schema {launch.schema} is not known, only {_SCHEMA} is")
    return launch


_LARGEST_LAUNCH = 1 << 28
_SEED = 20_261_121
_LANES = 32
_LONGEST_HEAD = 1 << 16  # of an .npy file
_EXTERN_SHARED = re.compile(r"\.extern\s+\.shared\b")
_GUESSED_SHARED = 48 << 10
"""Bytes of dynamic shared memory that every GPU gives a block without being asked (CUDA C++
Programming Guide, "Compute Capabilities")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawInputs:
    """What the user says of a launch; None or nothing is guessed.

    `shared` is the size of the dynamic shared memory in bytes. `expected` are `.npy` files with
    what buffers must hold afterwards, by name. `launch` says all of this, and takes the place of
    everything else; its files are in `folder`.
    """

    buffers: tuple[BufferWords, ...] = ()
    scalars: tuple[tuple[str, str], ...] = ()
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    shared: int | None = None
    expected: tuple[tuple[str, str], ...] = ()
    folder: Path = field(default_factory=Path)
    launch: PtxLaunch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RawReport:
    """The row, what was guessed, and the buffers after the run by name, before it too."""

    row: RunRow
    notes: tuple[str, ...]
    before: Mapping[str, Array]
    after: Mapping[str, Array]

    @classmethod
    def of(
        cls, row: RunRow, notes: Sequence[str], launch: Launch, evidence: RunEvidence
    ) -> RawReport:
        """The row of a launch, with what its first run left."""

        def arrays(buffers: Sequence[str]) -> dict[str, Array]:
            tensors = [tensor for tensor in launch.tensors if tensor.buffer < len(buffers)]
            return {tensor.name: evidence.values(tensor, buffers) for tensor in tensors}

        return cls(
            row=row,
            notes=tuple(notes),
            before=arrays(launch.before),
            after=arrays(evidence.ran[0].buffers if evidence.ran else ()),
        )


def inputs_of(repro: Repro) -> RawInputs:
    """What a repro of PTX says of its launch.

    Raises:
        UsageError: it cannot be read.
    """
    return read_inputs(repro.inputs or PtxInputs())


def read_inputs(inputs: PtxInputs) -> RawInputs:
    """What options or a repro say of a launch.

    Raises:
        UsageError: one of them cannot be read.
    """
    folder = Path(inputs.folder)
    if inputs.launch:
        file = folder / inputs.launch
        launch = read_launch(read_regular(file, _LARGEST_LAUNCH), str(file))
        return RawInputs(launch=launch, folder=file.parent)
    return RawInputs(
        buffers=tuple(map(read_buffer, inputs.buffers)),
        scalars=tuple(_pair("--scalar", text, "n=32") for text in inputs.scalars),
        expected=tuple(
            ("", EMULATED) if text == EMULATED else _pair("--expect", text, "out=out.npy")
            for text in inputs.expect
        ),
        grid=read_sizes("--grid", inputs.grid) if inputs.grid else None,
        block=read_sizes("--block", inputs.block) if inputs.block else None,
        shared=inputs.shared,
        folder=folder,
    )


def _pair(option: str, text: str, example: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not name or not value:
        raise UsageError(f"{option} {text}: write NAME=VALUE, for example {example}")
    return name, value


def raw_launch(
    path: Path,
    entry: str | None,
    inputs: RawInputs,
    store: Store,
    trials: Sequence[RunTrial] | None = None,
    budget: Budget | None = None,
    *,
    formal: bool = False,
) -> RawLaunch:
    """One entry of a PTX file and what it is launched with; by default, run as `triage run` does.

    Raises:
        UsageError: the file is not PTX, has no such entry, or the inputs do not fit its parameters.
    """
    text = read_file(path, entry).data.decode()
    try:
        head = read_entry(text, entry)
    except EntryError as error:
        raise UsageError(f"{path}: {error}") from error
    launch, notes = launch_with(text, head, inputs, store)
    emulation = replace(launch.emulation, ptx=store.artifacts.put(path.read_bytes()))
    launch = replace(launch, emulation=emulation).run_as(
        default_trials() if trials is None else trials,
        budget or Budget(max_instructions=INSTRUCTIONS),
        formal=formal,
    )
    return RawLaunch(path=path, inputs=inputs, launch=launch, notes=tuple(notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class RawLaunch(LaunchSource):
    """A file of PTX with its launch, the same for every cell; `notes` say what was guessed."""

    path: Path
    inputs: RawInputs
    launch: Launch
    notes: tuple[str, ...] = ()

    def cell(self, entry: str | None) -> CellId:
        """The coordinates by which the run is named."""
        facts = read_file(self.path, entry)
        return CellId(
            kernel=f"{spelling(self.path)}::{entry}" if entry else spelling(self.path),
            launch="ptx",
            config=Config(),
            target=facts.target or Target(capability=0),
            compiler=program_label(hashlib.sha256(facts.data).hexdigest()),
            ptxas="none",
        )

    def named(self, cell: CellId) -> CellId:
        """The cell with a name for its inputs: other inputs are another question."""
        launch = self.launch.emulation
        inputs = (launch.buffers, launch.arguments, launch.grid, launch.block)
        key = content_key(given=msgspec.to_builtins(inputs), expected=self.inputs.expected)
        return structs.replace(cell, launch=f"{cell.launch}:{INPUTS}{key[:8]}")

    async def launch_for(self, bench: Workbench, cell: PlannedCell) -> Launch:  # noqa: ARG002
        """As in `LaunchSource`; a cell may have its PTX edited."""
        emulation = self.launch.emulation
        ptx, entry = cell.raw_ptx or emulation.ptx, cell.entry or emulation.entry
        return replace(self.launch, emulation=replace(emulation, ptx=ptx, entry=entry))


def launch_with(
    text: str, entry: Entry, inputs: RawInputs, store: Store
) -> tuple[Launch, list[str]]:
    """What an entry is launched with, and what was guessed of it."""
    notes: list[str] = []
    if inputs.launch:
        return _as_written(inputs.launch, entry, inputs.folder, store), notes
    if inputs.block and entry.block not in (None, inputs.block):
        sizes = ",".join(map(str, entry.block or ()))
        raise UsageError(f"--block: {entry.name} wants blocks of {sizes} (.reqntid)")
    grid = inputs.grid or (1, 1, 1)
    block = inputs.block or entry.block or (_LANES, 1, 1)
    if not inputs.grid:
        notes.append("guessed: --grid 1")
    if not inputs.block and not entry.block:
        notes.append(f"guessed: --block {_LANES}")
    shared = inputs.shared
    if shared is None:
        shared = _GUESSED_SHARED if _EXTERN_SHARED.search(text) else 0
        notes += [f"guessed: --shared {shared}"] if shared else []
    tensors: list[Argument] = []
    buffers: list[JobBuffer] = []
    arguments: list[Passed] = []
    for argument in assign(entry, text, inputs.buffers, inputs.scalars, prod(grid) * prod(block)):
        if argument.is_guess:
            notes.append(f"guessed: {argument.words}")
        elif argument.name not in (argument.parameter.name, argument.parameter.alias):
            known = argument.parameter.alias or argument.parameter.name
            notes.append(f"{argument.name} is the parameter {known}")
        if argument.buffer is None:
            is_null = argument.scalar == "null"
            raw = None if is_null else pack_scalar(argument.parameter, argument.scalar)
            arguments.append(Passed(scalar=raw))
            continue
        number, name = len(buffers), argument.buffer.name
        values = _values(argument.buffer, number, inputs.folder)
        sha256 = store.artifacts.put(values.tobytes())
        tensors.append(Argument.flat(name, number, argument.buffer.type, len(values)))
        buffers.append(JobBuffer(name=name, file=sha256, size=values.nbytes))
        arguments.append(Passed(pointer=Pointer(allocation=number)))
    emulation = Emulation(
        ptx="",
        entry=entry.name,
        grid=grid,
        block=block,
        cluster=(1, 1, 1),
        dynamic_shared=shared,
        buffers=tuple(buffers),
        arguments=tuple(arguments),
    )
    launch = Launch(
        emulation=emulation,
        tensors=tuple(tensors),
        trusted=_expected(inputs, tensors, store),
        emulator_is_right=("", EMULATED) in inputs.expected,
    )
    return launch, notes


def _as_written(written: PtxLaunch, entry: Entry, folder: Path, store: Store) -> Launch:
    """A launch as `triage minimize --run` wrote it."""
    put = store.artifacts.put
    if not written.fits(entry):
        types = ", ".join(f".{kind}" for kind in written.parameters) or "none"
        raise UsageError(f"--inputs: {entry.name} must have the parameters {types}")
    files: list[str | None] = []
    for buffer in written.buffers:
        path = buffer.file or ""
        words = BufferWords(name=buffer.name, type="u8", count=buffer.size, fill=path)
        files.append(put(_from_file(words, folder / path).tobytes()) if path else None)
    for data in written.expected_bytes.values():
        put(data)
    return written.launched(entry.name, files)


def _expected(inputs: RawInputs, tensors: Sequence[Argument], store: Store) -> tuple[Trusted, ...]:
    """What the user says that buffers must hold; all others may hold what they do."""
    by_name = {tensor.name: tensor for tensor in tensors}
    expected: list[str | None] = [None] * len(tensors)
    named = [pair for pair in inputs.expected if pair != ("", EMULATED)]
    for name, file in named:
        if name not in by_name:
            raise UsageError(f"--expect {name}={file}: no buffer has this name")
        [count] = by_name[name].shape
        words = BufferWords(name=name, type=by_name[name].dtype, count=count, fill=file)
        values = _from_file(words, inputs.folder / file)
        expected[by_name[name].buffer] = store.artifacts.put(values.tobytes())
    files = ", ".join(file for _, file in named)
    return (Trusted(words=files, buffers=tuple(expected), is_final=True),) if files else ()


def _values(words: BufferWords, number: int, folder: Path) -> Array:
    """What a buffer holds at the start; random numbers are the same in every run.

    Raises:
        UsageError: a file that does not fit, or a value that is none.
    """
    kind = ELEMENTS[words.type]
    if words.fill.endswith(".npy"):
        return _from_file(words, folder / words.fill)
    assert words.count is not None
    if not words.fill:
        return np.zeros(words.count, kind)
    if words.fill == "random":
        draw = np.random.default_rng(_SEED + number)
        if kind.kind == "b":
            return draw.integers(0, 2, words.count).astype(kind)
        if kind.kind in "iu":
            return np.frombuffer(draw.bytes(words.count * kind.itemsize), kind)
        return draw.standard_normal(words.count).astype(kind)
    bits = np.dtype(f"u{kind.itemsize}")
    try:
        if words.fill.lower().startswith("0x"):
            return np.full(words.count, int(words.fill, 16), bits).view(kind)
        value = float(words.fill) if kind.kind in "fcV" else int(words.fill, 0)
        return np.full(words.count, value).astype(kind)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--buffer {words}: {words.fill!r} is not a value of {words.type}, `random` or FILE.npy"
        ) from error


def _from_file(words: BufferWords, path: Path) -> Array:
    try:
        data = io.BytesIO(read_regular(path, LARGEST + _LONGEST_HEAD))
        values = np.load(data, allow_pickle=False).reshape(-1)
    except (OSError, ValueError, EOFError, MemoryError) as error:
        raise UsageError(f"{words}: {path} cannot be read: {error}") from error
    kind = ELEMENTS[words.type]
    if values.dtype.names:
        raise UsageError(f"{words}: {path} holds records ({values.dtype}), not {words.type}")
    # numpy stores types that it does not know (bfloat16) as so many bytes.
    if values.dtype != kind and not (
        values.dtype.itemsize == kind.itemsize and values.dtype.kind in "Vu"
    ):
        raise UsageError(f"{words}: {path} holds {values.dtype}, not {words.type}")
    if words.count is not None and len(values) != words.count:
        raise UsageError(f"{words}: {path} holds {len(values)} elements")
    viewed: Array = values.view(kind)
    return viewed
