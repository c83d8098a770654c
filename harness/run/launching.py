"""From a kernel that Triton lowered, and what it was given, to what the emulator executes."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpu_emulator.ptx.text.document import StatementKind, parse, read_head
from gpu_emulator.ptx.text.facts import PtxError, read_ptx
from gpu_emulator.values import MOST_THREADS, Pointer, TensorMap, TensorMapArgument
from harness.frontends.bench import Kept, Workbench
from harness.frontends.plan import PlannedCell
from harness.judging.judge import CellEvidence, judge_fit
from harness.judging.ptxas.ptxas_log import PtxasLog
from harness.judging.ptxas.resources import combine
from harness.run.comparing import pack_float, pack_integer, types_in
from harness.run.emulator_jobs import Emulation, JobBuffer, Passed
from harness.run.launch import Launch, tensors_of
from harness.values.cell import CellId
from harness.values.errors import UsageError
from harness.values.execution import Argument, ArgumentKind, LaunchVariant
from harness.values.limits import Limits
from harness.values.outcome import Lowering
from harness.values.target import Target

# What an entry of a PTX module takes: its parameters, its block, its target.
#
# Source: PTX ISA, "Kernel and Function Directives" and "Parameterized State Space".

_SIZES = {
    **{f"{kind}{bits}": bits // 8 for kind in "usb" for bits in (8, 16, 32, 64)},
    "b128": 16,
    "f16": 2,
    "f16x2": 4,
    "bf16": 2,
    "f32": 4,
    "f64": 8,
}
_TYPE = re.compile(r"\.(?P<type>[usbf]\d+|bf16|f16x2|b128)(?![\w.])")
_COUNT = re.compile(r"\[\s*(\d{1,18})\d*\s*\]\s*\Z")
_MAXNREG = re.compile(r"\.maxnreg\s+(\d{1,18})")
_SIZED = re.compile(r"\.(?:req|max)ntid\s")
_REQNTID = re.compile(r"\.reqntid\s+(\d{1,18}(?:\s*,\s*\d{1,18}){0,2})")
# PTX ISA, "Kernel Function Parameters": from sm_70 and PTX 8.1 on; 4,352 before.
_MOST_PARAMETER_BYTES = 32_764


class EntryError(ValueError):
    """The module has no such entry, or its parameters cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryParameter:
    """A parameter: its PTX type without the dot, its size in bytes, `count` elements if an array.

    `is_pointer`: declared with `.ptr`. Compilers leave that out as often as not.
    """

    name: str
    type: str
    size: int
    count: int | None = None
    is_pointer: bool = False

    @property
    def words(self) -> str:
        """As PTX spells it."""
        return f".{self.type} {self.name}" + (f"[{self.count}]" if self.count is not None else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry; `block` is its `.reqntid`, None where it does not say."""

    name: str
    parameters: tuple[EntryParameter, ...]
    block: tuple[int, int, int] | None


def read_entry(ptx: str, name: str | None = None) -> Entry:
    """Read the parameters of an entry; the only one where no name is given.

    Raises:
        EntryError: there is none, or several, or a parameter is not to be understood, or there are
            more than any ptxas takes.
    """
    statements = parse(ptx).statements
    heads = [read_head(line.code) for line in statements if line.kind is StatementKind.HEAD]
    entries = [head for head in heads if head and head.is_entry]
    matches = [head for head in entries if name in (None, head.name)]
    if not matches:
        names = ", ".join(head.name for head in entries[:8]) or "none"
        raise EntryError(f"no entry {name!r}; entries are: {names}" if name else "no .entry")
    if len(matches) > 1:
        names = ", ".join(head.name for head in matches[:8])
        raise EntryError(f"several entries: {names}; name one")
    head = matches[0]
    block = None
    if match := _REQNTID.search(" ".join(head.directives)):
        x, y, z = (*map(int, match[1].split(",")), 1, 1, 1)[:3]
        block = x, y, z
    parameters = tuple(_parameter(parameter.name, parameter.text) for parameter in head.parameters)
    size = sum(parameter.size for parameter in parameters)
    if size > _MOST_PARAMETER_BYTES:
        raise EntryError(
            f"the parameters of {head.name} take {size:,} bytes, and no ptxas takes more than "
            f"{_MOST_PARAMETER_BYTES:,}"
        )
    return Entry(name=head.name, parameters=parameters, block=block)


def _parameter(name: str, text: str) -> EntryParameter:
    kinds = [match["type"] for match in _TYPE.finditer(text) if match["type"] in _SIZES]
    if len(kinds) != 1:
        raise EntryError(f"the parameter `{' '.join(text.split())}` is not to be understood")
    match = _COUNT.search(text)
    count = int(match[1]) if match else None
    return EntryParameter(
        name=name,
        type=kinds[0],
        size=_SIZES[kinds[0]] * (1 if count is None else count),
        count=count,
        is_pointer=bool(re.search(r"\.ptr\b", text)),
    )


# From what a Triton launch was given to the parameters of its PTX entry.
#
# Which arguments become parameters differs by version of Triton (its NVIDIA driver's launcher):
#
# - A `constexpr` never does; an integer that is 1, and None, do not where Triton specialises on
#   them. Until 3.2 they are in the signature and among the constants, from 3.3 on the signature
#   says so.
# - A tensor descriptor (3.4 on) that Triton lowers to TMA is a tensor map of 128 bytes with shape
#   (32 bits each) and strides (64). One that it does not lower to TMA is base, shape and strides
#   (64 bits), flags (none in 3.4, NaN padding from 3.5, rounding to TF32 from 3.7), shape, strides
#   again.
# - Behind the arguments come pointers to scratch memory: none in 3.2, the kernel's own from 3.3,
#   the profiler's too from 3.5.
#
# The parameters of the entry are what is true: what does not fit them is refused, never guessed.

_FLOATS = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "f32": "f32", "fp64": "f64"}
_INTEGER = re.compile(r"[iu](\d+)")
_MAP_BYTES = 128
_POINTER_BYTES = 8
_SCRATCH = ("global_scratch", "profile_scratch")
# CUtensorMapDataType (CUDA driver API), by Triton's number for the device (PTX ISA, `tensormap`,
# .elemtype): the two differ from 8 on.
_MAP_ELEMENTS = (
    "u8",
    "u16",
    "u32",
    "s32",
    "u64",
    "s64",
    "f16",
    "f32",
    "f32_ftz",
    "f64",
    "bf16",
    "tf32",
    "tf32_ftz",
)
_TF32 = 11
_SWIZZLES = (0, 32, 64, 128)

Signature = object
"""A type of Triton's signature: a text, or a list of them for a tuple."""


class BindingError(ValueError):
    """Arguments and parameters do not fit; the message is a sentence for the user."""


def bind(
    variant: LaunchVariant, metadata: Mapping[str, object], entry: Entry
) -> tuple[tuple[Passed, ...], tuple[int, ...]]:
    """The arguments of a launch for an entry that Triton lowered for it; and sizes of more buffers.

    These are of scratch memory: their numbers follow those of the variant's buffers.

    `metadata` is that of the lowering, with Triton's `signature` (pairs of name and type) and
    `constants` (names of parameters that 3.2 leaves out).

    Raises:
        BindingError: they do not fit the entry's parameters.
    """
    signature, constants = metadata.get("signature"), metadata.get("constants")
    if not isinstance(signature, Sequence) or not isinstance(constants, Sequence):
        raise BindingError("Triton does not say which arguments this kernel takes")
    by_name = {argument.name: argument for argument in variant.arguments}
    maps = metadata.get("tensordesc_meta")
    binder = _Binder(entry=entry, maps=list(maps) if isinstance(maps, Sequence) else [])
    for name, kind in signature:
        if name in constants:
            continue
        if isinstance(name, int) and name < len(variant.arguments):
            # Of a file of IR Triton knows places alone.
            binder.take(variant.arguments[name], kind)
            continue
        if name not in by_name:
            raise BindingError(f"the launch has no argument {name!r}")
        binder.take(by_name[name], kind)
    scratch = binder.scratch(variant, metadata)
    return tuple(binder.arguments), scratch


@dataclass(slots=True, kw_only=True)
class _Binder:
    """Passes arguments to the parameters of an entry, one after the other.

    `maps` is what Triton says of the descriptors that it lowers to TMA, in their order.
    """

    entry: Entry
    maps: list[object]
    arguments: list[Passed] = field(default_factory=list)

    def _pass(self, name: str, size: int, argument: Passed) -> None:
        """The next parameter gets this; it has to be of this size."""
        parameter = self._next()
        if parameter is None:
            raise BindingError(
                f"the launch gives more than the {len(self.entry.parameters)} parameters of "
                f"{self.entry.name}: {name} is left over"
            )
        if parameter.size != size:
            raise BindingError(
                f"{name} is {size} bytes, and the parameter `{parameter.words}` of "
                f"{self.entry.name} is {parameter.size}"
            )
        self.arguments.append(argument)

    def _next(self) -> EntryParameter | None:
        place = len(self.arguments)
        return self.entry.parameters[place] if place < len(self.entry.parameters) else None

    def take(self, argument: Argument, kind: Signature) -> None:
        """Pass one argument of this type of the signature."""
        if isinstance(kind, Sequence) and not isinstance(kind, str):
            if argument.kind is not ArgumentKind.TUPLE or len(argument.items) != len(kind):
                raise BindingError(f"{argument.name} is not a tuple of {len(kind)}")
            for item, inner in zip(argument.items, kind, strict=True):
                self.take(item, inner)
            return
        text = str(kind)
        if text.startswith("tensordesc"):
            self._take_descriptor(argument)
        elif text.startswith("*"):
            self._pass(argument.name, _POINTER_BYTES, _address(argument))
        elif text != "constexpr":
            raw = _scalar(argument, text)
            self._pass(argument.name, len(raw), Passed(scalar=raw))

    def _take_descriptor(self, argument: Argument) -> None:
        if argument.kind is not ArgumentKind.DESCRIPTOR:
            raise BindingError(
                f"{argument.name} is not a tensor descriptor, and the kernel takes one"
            )
        meta = self.maps.pop(0) if self.maps else None
        if isinstance(meta, Mapping):
            tensor_map = TensorMapArgument(tensor_map=_tensor_map(argument, meta))
            self._pass(argument.name, _MAP_BYTES, Passed(tensor_map=tensor_map))
        else:
            self._pass(argument.name, _POINTER_BYTES, _base(argument))
            self._integers(argument.name, (*argument.shape, *argument.strides), 8)
            for flag in (argument.nan_padding, argument.round_to_tf32):
                parameter = self._next()
                if parameter and parameter.size == 1:
                    self._integers(argument.name, (int(flag),), 1)
        self._integers(argument.name, argument.shape, 4)
        self._integers(argument.name, argument.strides, 8)

    def _integers(self, name: str, values: Sequence[int], size: int) -> None:
        for value in values:
            self._pass(name, size, Passed(scalar=pack_integer(value, size)))

    def scratch(self, variant: LaunchVariant, metadata: Mapping[str, object]) -> tuple[int, ...]:
        """Pass pointers to scratch memory to the parameters that are left; sizes of its buffers."""
        rest = self.entry.parameters[len(self.arguments) :]
        if len(rest) > len(_SCRATCH) or any(parameter.size != _POINTER_BYTES for parameter in rest):
            words = ", ".join(f"`{parameter.words}`" for parameter in rest)
            raise BindingError(f"the launch gives nothing for {words} of {self.entry.name}")
        sizes: list[int] = []
        for name in _SCRATCH[: len(rest)]:
            size = metadata.get(f"{name}_size") or 0
            assert isinstance(size, int)
            if not size:
                self.arguments.append(Passed())
                continue
            pointer = Pointer(allocation=len(variant.buffers) + len(sizes))
            self.arguments.append(Passed(pointer=pointer))
            sizes.append(size * math.prod(variant.grid) * cluster_of(metadata)[0])
        return tuple(sizes)


def cluster_of(metadata: Mapping[str, object]) -> tuple[int, int, int]:
    """The blocks of a cluster, by which the grid is multiplied.

    Triton until 3.5 gives its dimensions; from then on it is as many as there are CTAs.
    """
    dimensions = metadata.get("cluster_dims")
    if isinstance(dimensions, Sequence) and len(dimensions) == 3:
        x, y, z = (int(size) for size in dimensions)
        return x, y, z
    count = metadata.get("num_ctas")
    return (count if isinstance(count, int) else 1), 1, 1


def _address(argument: Argument) -> Passed:
    if argument.kind is ArgumentKind.NONE:
        return Passed()
    if argument.kind is not ArgumentKind.TENSOR:
        raise BindingError(f"{argument.name} is a pointer to the kernel, and no tensor here")
    return _base(argument)


def _base(argument: Argument) -> Passed:
    return Passed(pointer=Pointer(allocation=argument.buffer, offset=argument.offset))


def _scalar(argument: Argument, kind: str) -> bytes:
    """The bytes of a number that the signature calls `i32`, `fp32`, ..."""
    if argument.kind is not ArgumentKind.SCALAR:
        raise BindingError(f"{argument.name} is {kind} to the kernel, and no number here")
    is_float = argument.type == "float"
    if kind in _FLOATS:
        value = float.fromhex(argument.value) if is_float else float(int(argument.value))
        # Triton's launcher cuts a bfloat16 off, where all others are rounded.
        return pack_float(value, "f32")[2:] if kind == "bf16" else pack_float(value, _FLOATS[kind])
    width = _INTEGER.fullmatch(kind)
    if not width or is_float:
        raise BindingError(f"{argument.name}: no {argument.type} is passed as {kind}")
    try:
        # A truth value (i1) takes a byte.
        return pack_integer(int(argument.value), max(int(width[1]) // 8, 1))
    except ValueError as error:
        raise BindingError(f"{argument.name}: {error}") from error


def _tensor_map(argument: Argument, meta: Mapping[str, object]) -> TensorMap:
    """The map that Triton's driver would encode; dimensions innermost first."""
    if meta.get("is_im2col"):
        raise BindingError(f"{argument.name} is an im2col tensor map, which cannot be executed yet")
    sizes = list(reversed(argument.shape))
    if meta.get("fp4_padded"):
        sizes[0] *= 2
    size, swizzle = _number(argument, meta, "elem_size"), _number(argument, meta, "swizzle")
    element = _TF32 if argument.round_to_tf32 else _number(argument, meta, "elem_type")
    box = meta.get("block_size")
    is_known = element < len(_MAP_ELEMENTS) and swizzle < len(_SWIZZLES)
    if not is_known or not isinstance(box, Sequence):
        raise BindingError(f"{argument.name}: a tensor map of a kind that is not known")
    return TensorMap(
        allocation=argument.buffer,
        offset=argument.offset,
        element=_MAP_ELEMENTS[element],
        sizes=tuple(sizes),
        strides=tuple(stride * size for stride in reversed(argument.strides[:-1])),
        box=tuple(map(int, reversed(box))),
        element_strides=(1,) * len(sizes),
        swizzle=_SWIZZLES[swizzle],
        nan_fill=argument.nan_padding,
    )


def _number(argument: Argument, meta: Mapping[str, object], name: str) -> int:
    value = meta.get(name)
    if not isinstance(value, int) or value < 0:
        raise BindingError(f"{argument.name}: Triton does not say what its {name} is")
    return value


_LANES = 32


class NotRunError(UsageError):
    """A launch that cannot be executed, and why: a sentence for the user."""


class EmptyGridError(NotRunError):
    """A launch of no programs: Triton launches nothing, and nothing can go wrong."""


class LaunchSource(ABC):
    """Says what the cells of a selection are launched with."""

    notes: tuple[str, ...] = ()
    """What was guessed of the inputs."""

    @abstractmethod
    async def launch_for(self, bench: Workbench, cell: PlannedCell) -> Launch:
        """What a cell that is compiled on this bench gets.

        Raises:
            TriageError: there is nothing; the message says why.
        """

    def named(self, cell: CellId) -> CellId:
        """The cell with a name for its inputs, where its launch does not name them."""
        return cell

    def sessions(self) -> set[str]:
        """The captures that were opened: to be closed when all is done."""
        return set()


def launch_of(bench: Workbench, lowering: Kept[Lowering], variant: LaunchVariant) -> Launch:
    """A lowered kernel on these inputs, held to nothing yet.

    Raises:
        NotRunError: arguments and entry do not fit, or the launch is none.
    """
    ptx = lowering.artifacts.get("ptx")
    if ptx is None:
        raise NotRunError("the compiler generated no PTX for it")
    text = bench.store.artifacts.get(ptx).decode(errors="replace")
    launch = launch_of_text(text, lowering.value.metadata, variant)
    return replace(launch, emulation=replace(launch.emulation, ptx=ptx))


def launch_of_text(text: str, metadata: Mapping[str, object], variant: LaunchVariant) -> Launch:
    """The same for PTX that is in no store, with what the compiler says of it.

    Raises:
        NotRunError: arguments and entry do not fit, or the launch is none.
    """
    name = metadata.get("name")
    try:
        entry = read_entry(text, name if isinstance(name, str) else None)
        arguments, scratch = bind(variant, metadata, entry)
    except (EntryError, BindingError) as error:
        raise NotRunError(f"arguments and PTX do not fit: {error}") from error
    x, y, z = (*variant.grid, 1, 1, 1)[:3]
    if min(x, y, z) < 0:
        raise NotRunError(f"the grid ({x}, {y}, {z}) cannot be launched")
    if min(x, y, z) == 0:
        raise EmptyGridError(f"the grid ({x}, {y}, {z}) has no programs: nothing is launched")
    warps, shared = metadata.get("num_warps"), metadata.get("shared")
    # Triton launches all threads in one row; the entry may say how many (`.reqntid`).
    threads = _LANES * warps if isinstance(warps, int) else 0
    if entry.block and math.prod(entry.block) != threads:
        words = f"the entry wants {math.prod(entry.block)}"
        raise NotRunError(f"Triton launches blocks of {threads} threads, {words}")
    if not 0 < threads <= MOST_THREADS:
        raise NotRunError(f"a block of {threads} threads cannot be launched")
    cluster = cluster_of(metadata)
    names: dict[int, str] = {}
    for argument in tensors_of(variant.arguments):
        names.setdefault(argument.buffer, argument.name)
    for number, buffer in enumerate(variant.buffers):
        if buffer.holds_addresses:
            raise NotRunError(
                f"{names.get(number, f'buffer {number}')} holds addresses of tensors (data_ptr); "
                "only what a kernel is given as an argument is executed"
            )
    buffers = [
        JobBuffer(
            name=names.get(number, f"buffer {number}"),
            file=buffer.sha256,
            size=buffer.size,
            unwritten=buffer.unwritten,
        )
        for number, buffer in enumerate(variant.buffers)
    ]
    buffers += [
        JobBuffer(name=f"scratch memory {number}", size=size)
        for number, size in enumerate(scratch, start=1)
    ]
    emulation = Emulation(
        ptx="",
        entry=entry.name,
        grid=(x * cluster[0], y * cluster[1], z * cluster[2]),
        block=(threads, 1, 1),
        cluster=cluster,
        dynamic_shared=shared if isinstance(shared, int) else 0,
        buffers=tuple(buffers),
        arguments=arguments,
    )
    return Launch(
        emulation=emulation,
        tensors=variant.arguments,
        types=tuple(sorted(types_in(text))),
        asserted=variant.asserted,
    )


def why_refused(text: str, lowering: Lowering, target: Target, limits: Limits | None) -> str | None:
    """Why the target would refuse this launch; None where it would not, as far as the PTX tells.

    A kernel that was lowered to a trap is executed: that it traps is what there is to say of it.
    """
    try:
        facts = read_ptx(text)
    except PtxError:
        return None
    if facts.is_trap_stub:
        return None
    needs = combine(
        entry=facts.entry,
        log=PtxasLog(functions=(), messages=()),
        cubin=None,
        metadata=lowering.metadata,
        ptx=facts,
    )
    evidence = CellEvidence(target=target, lowering=lowering, resources=needs, limits=limits)
    verdict = judge_fit(evidence)
    return f"{verdict.kind.value}: it {verdict.reason}" if verdict else None


def may_lack_registers(text: str, block: Sequence[int], limits: Limits | None) -> bool:
    """Whether ptxas may give a block more registers than the target has, by what the PTX fixes.

    Where it knows the size of the block (`.reqntid`, `.maxntid`), ptxas leaves enough for each of
    its threads, unless `.maxnreg` allows more.
    """
    if limits is None:
        return False
    enough = limits.registers_of_thread(math.prod(block))
    match = _MAXNREG.search(text)
    if not match and _SIZED.search(text):
        return False
    most = limits.max_registers_per_thread
    return (min(int(match[1]), most) if match else most) > enough


def waits_for_others(ptx: str, entry: str) -> bool:
    """Whether blocks of an entry wait for what others write, as its text says."""
    try:
        return read_ptx(ptx, entry).waits
    except PtxError:
        return False


def effort_words(emulation: Emulation, ptx: str) -> str:
    """What is about to be executed: a loop makes it more, a branch less."""
    every, threads = math.prod(emulation.grid), math.prod(emulation.block)
    blocks = min(every, emulation.budget.max_ctas)
    try:
        once = read_ptx(ptx, emulation.entry).instructions * threads * blocks
    except PtxError:
        once = 0
    of = f" of {every:,}" if blocks < every else ""
    return (
        f"{blocks:,}{of} blocks of {threads:,} threads, {len(emulation.trials)} runs of about "
        f"{once:,} instructions each, loops counted once"
    )
