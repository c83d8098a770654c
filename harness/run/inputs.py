"""What a launch is given: recorded from launch code, guessed for a file of IR, bound to an entry.

Launch code is run once with values. The child of the interpreter hands every launch over; it is
compiled for one target and emulated, so that all cells of a kernel, on whichever target, get the
same inputs. What cannot be emulated is interpreted.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from gpu_emulator.ptx.text.document import StatementKind, parse, read_head
from gpu_emulator.values import (
    MOST_THREADS,
    Budget,
    Pointer,
    Schedule,
    TensorMap,
    TensorMapArgument,
)
from harness.frontends.bench import Kept, Workbench
from harness.frontends.launch_code import capture_request, is_unchanged
from harness.frontends.plan import PlannedCell
from harness.frontends.registry import front_end, interpreter_for
from harness.frontends.sessions import CapturedLaunch, JobResult, LaunchCode
from harness.io.files.writing import scratch_disk
from harness.io.processes.hub import ResourceLimits
from harness.io.toolchains.install import describe_ptxas
from harness.run.comparing import ELEMENTS, pack_float, pack_integer, types_in
from harness.run.emulating import emulate, emulator_sha256
from harness.run.emulator_jobs import Emulation, JobBuffer, Passed, RunTrial
from harness.run.launch import EmptyGridError, Launch, NotRunError, tensors_of
from harness.run.schedules import PROGRAMS
from harness.values.cell import CellId
from harness.values.errors import InfrastructureError, TriageError
from harness.values.execution import (
    Argument,
    ArgumentKind,
    Buffer,
    Inputs,
    LaunchInputs,
    LaunchVariant,
)
from harness.values.kernel import Scalar
from harness.values.outcome import LaunchFacts, Lowering, RaisedError
from harness.values.target import Target
from harness.values.toolchain import BUNDLED, Assembler, Compiler

PLAIN_TARGET = Target(capability=80)
"""Where values and references come from: asynchronous copies are all that it has of engines."""

_POLL_SECONDS = 0.02
# A launch function waits for each of its launches to be compiled and executed.
_PATIENCE = 10
# A config that does not compile, or not for us, is not a reason to do without values.
_TRIES = 3
_PLAIN = RunTrial(schedule=Schedule(warps="lockstep", completion="early"))
# What of an argument cannot change the code.
_HIDDEN = frozenset({"shape", "value"})


async def recorded(
    bench: Workbench,
    code: LaunchCode,
    compiler: Compiler,
    kernels: Sequence[str],
    places: Sequence[Target],
    *,
    budget: Budget,
    tell: Callable[[str], None],
    is_interpreted: bool = False,
) -> Inputs:
    """What the launch code gives its kernels, on the first of these targets that it runs for.

    The kernels with these names or patterns are interpreted, too; `is_interpreted`: nothing is
    compiled for the values of what comes after a launch either. What came out is kept by content,
    unless the launch code raised.

    Raises:
        TriageError: it can be run with values for none of them.
    """
    failure: TriageError | None = None
    tell = functools.cache(tell)  # launch code may launch one kernel any number of times
    for place in dict.fromkeys(places):
        recording = _Recording(
            bench=bench,
            code=code,
            compiler=compiler,
            target=place,
            budget=budget,
            tell=tell,
            is_interpreted=is_interpreted,
        )
        try:
            inputs = await recording.inputs(kernels)
        except TriageError as error:
            failure = error
            continue
        if not inputs.error or place == places[-1]:
            return inputs
    assert failure is not None
    raise failure


@dataclass(slots=True, kw_only=True)
class _Recording:
    """A launch function that runs with values, as `target` would see it."""

    bench: Workbench
    code: LaunchCode
    compiler: Compiler
    target: Target
    budget: Budget
    tell: Callable[[str], None]
    is_interpreted: bool

    async def inputs(self, kernels: Sequence[str]) -> Inputs:
        interpreter = interpreter_for(self.compiler)
        request = {**capture_request(self.code, self.target).message(), "kernels": sorted(kernels)}
        by: dict[str, object] = {"interpreted": True}
        if not self.is_interpreted:
            # What is not finished within it leaves other values for the launches behind it.
            by = {"emulator": emulator_sha256(), "budget": msgspec.to_builtins(self.budget)}
        message = {**request, **by}
        key = interpreter.launch_key("inputs", self.code, message, self.compiler)
        async with self.bench.once(key):
            stored = self.bench.find("inputs", key, Inputs)
            if stored and is_unchanged(
                stored.value.reads, interpreter.interpreter_environment(self.compiler)
            ):
                return stored.value
            if self.is_interpreted:
                return await self._record(None, key, request)
            captured = await interpreter.capture(self.bench, self.code, self.target, self.compiler)
            async with self.bench.closing(captured.capture.key):
                return await self._record(captured, key, request)

    async def _record(
        self, captured: CapturedLaunch | None, key: str, request: Mapping[str, object]
    ) -> Inputs:
        timeout = self.bench.limits.timeout
        folder = self.bench.hub.new_folder("inputs")
        try:
            with scratch_disk():
                text = json.dumps({**request, "timeout": timeout})
                (folder / "request.json").write_text(text)
            limits = ResourceLimits(timeout=timeout * _PATIENCE, memory=self.bench.limits.memory)
            interpreter = interpreter_for(self.compiler)
            work = interpreter.run_with_values(
                "launching", self.bench, self.compiler, folder, limits
            )
            child = asyncio.ensure_future(work)
            try:
                await self._answer(captured, folder, child)
                job = await child
            finally:
                child.cancel()
                # Until the child is gone, the folder is in use.
                await asyncio.wait({child})
            self.bench.cpu_seconds += job.end.cpu
            words = job.words
            self.bench.hub.drop_folder(job.folder)
            return self._keep(key, folder, words)
        finally:
            self.bench.hub.drop_folder(folder)

    async def _answer(
        self, captured: CapturedLaunch | None, folder: Path, child: asyncio.Future[JobResult]
    ) -> None:
        """Answer each launch in its turn, until the child ends."""
        number = 1
        while not child.done():
            path = folder / f"launch-{number}.json"
            if not path.exists():
                await asyncio.wait({child}, timeout=_POLL_SECONDS)
                continue
            launch = msgspec.json.decode(path.read_bytes(), type=LaunchInputs)
            self._put(folder, launch)
            answer = await self._computed(captured, launch)
            if names := answer["buffers"]:
                for sha256 in names:
                    file = folder / f"{sha256}.bin"
                    if not file.exists():
                        content = self.bench.store.artifacts.get(sha256)
                        with scratch_disk():
                            file.write_bytes(content)
                answer["buffers"] = [f"{sha256}.bin" for sha256 in names]
            unfinished = folder / f"answer-{number}.tmp"
            with scratch_disk():
                unfinished.write_text(json.dumps(answer))
                unfinished.rename(folder / f"answer-{number}.json")
            number += 1

    async def _computed(
        self, captured: CapturedLaunch | None, launch: LaunchInputs
    ) -> dict[str, Any]:
        """What a launch leaves, by the first of its configs that compiles and can be executed.

        `buffers` are sha256 of artifacts, None: interpret it; `variant` is the config to go on
        with; `values` says what computed them, or why nothing did. A launch that does not end, or
        takes its whole budget (`hangs`), is not interpreted either. `is_whole`: all of its programs
        were executed, to their end. `programs` are the numbers of those that run of a large grid,
        empty where all do.
        """
        answer: dict[str, Any] = {"variant": 0, "buffers": None, "hangs": False, "is_whole": False}
        answer["programs"] = []
        if captured is None:
            return {**answer, "values": "nothing is compiled for them"}
        why, tries = "no launch of the capture is like it", 0
        # What later launches get is no matter of how many programs a cell is judged by.
        whole = replace(self.budget, max_ctas=max(self.budget.max_ctas, PROGRAMS))
        for number, variant in enumerate(launch.variants):
            records = captured.capture.value.records
            record = record_like(records, launch.kernel, variant.described, variant.config)
            if record is None:
                continue
            if tries == _TRIES:
                break
            tries += 1
            self.tell(f"{launch.kernel} on {self.target}, for its values")
            try:
                lowering = await lower_record(self.bench, captured, record)
                bound = launch_of(self.bench, lowering, variant).run_as((_PLAIN,), whole)
                emulated = (await emulate(self.bench, bound.emulation)).value
            except (NotRunError, InfrastructureError) as error:
                why = str(error)
                continue
            [ran] = emulated.runs or [None]
            programs = math.prod(variant.grid)
            sample = self.budget.sample(programs, bound.blocks // programs)
            answer["programs"] = sample if len(sample) < programs else []
            if ran and (ran.faults or ran.is_out_of_budget):
                # The interpreter would fall into the same hole, or take as long as it may.
                return {
                    **answer,
                    "variant": number,
                    "buffers": [buffer.sha256 for buffer in variant.buffers],
                    "values": f"as they were: {ran.refusal or ran.faults[0].what}",
                    "hangs": any(fault.kind == "hang" for fault in ran.faults) or bool(ran.refusal),
                }
            if ran is None or ran.refusal:
                why = emulated.problem or (ran and ran.refusal) or why
                answer["programs"] = []
                continue
            return {
                **answer,
                "variant": number,
                "buffers": list(ran.buffers[: len(variant.buffers)]),
                "values": f"emulated on {self.target}"
                + (f", {ran.ctas:,} of {ran.ctas_of:,} programs" if ran.is_sample else ""),
                "is_whole": not ran.is_sample,
            }
        self.tell(f"{launch.kernel} is interpreted, for its values: {why}")
        return {**answer, "values": why}

    def _put(self, folder: Path, launch: LaunchInputs) -> set[str]:
        """Keep the buffers of a launch; their sha256."""
        buffers = (buffer for v in launch.variants for buffer in (*v.buffers, *v.interpreted))
        names = {buffer.sha256 for buffer in buffers}
        for sha256 in names:
            if not self.bench.store.artifacts.has(sha256):
                self.bench.store.artifacts.put_file(folder / f"{sha256}.bin")
        return names

    def _keep(self, key: str, folder: Path, words: str) -> Inputs:
        try:
            inputs = msgspec.json.decode((folder / "result.json").read_bytes(), type=Inputs)
        except (OSError, msgspec.MsgspecError):
            error = RaisedError(type="LaunchCode", kinds=(), message=f"its process {words}")
            return Inputs(error=error)
        names: set[str] = set()
        for launch in inputs.launches:
            names |= self._put(folder, launch)
            asserted = launch.variants[0].asserted if launch.variants else ()
            names.update(name for assertion in asserted for name in assertion.buffers if name)
        if not inputs.error:
            self.bench.keep("inputs", key, inputs, {name: name for name in names})
        return inputs


async def lower_record(
    bench: Workbench, captured: CapturedLaunch, record: LaunchFacts, ptxas: Assembler | None = None
) -> Kept[Lowering]:
    """Lower a record with this ptxas in sight, else the one that its Triton bundles.

    Raises:
        NotRunError: it does not compile.
        InfrastructureError: the child could not be kept alive.
    """
    seen = ptxas or describe_ptxas(Path(captured.capture.value.ptxas), BUNDLED)
    compiler = front_end(captured.compiler.kind)
    lowering = await compiler.lower(bench, captured, record, ptxas=seen)
    if lowering.value.error or not lowering.value.end.ok:
        verdict = compiler.judge(lowering.value)
        raise NotRunError(f"it does not compile: {verdict.kind.value}, {verdict.reason}")
    return lowering


def find_variant(inputs: Inputs, record: LaunchFacts) -> LaunchVariant | None:
    """What the launch of this record is given, if the launch code came to it with values.

    Of the launches that compile to the same code, one whose values the launch code refuses, else
    one with the same shapes, else the first.
    """
    variants = [
        variant
        for launch in inputs.launches
        if launch.kernel == record.kernel
        for variant in launch.variants
        if variant.config == record.config
        and visible(variant.described) == visible(record.arguments)
    ]

    def rank(variant: LaunchVariant) -> tuple[bool, bool]:
        is_accepted = all(assertion.holds for assertion in variant.asserted)
        return is_accepted, variant.described != record.arguments

    return min(variants, key=rank, default=None)


def visible(described: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """What a compiler sees of arguments: where it is equal, it compiles the same code."""
    return [{name: fact for name, fact in a.items() if name not in _HIDDEN} for a in described]


def record_like(
    records: Sequence[LaunchFacts],
    kernel: str,
    described: Sequence[Mapping[str, object]],
    config: Mapping[str, Scalar],
) -> LaunchFacts | None:
    """The record of a launch of a kernel with these arguments, and this config."""
    for record in records:
        is_same = record.kernel == kernel and record.config == config
        if is_same and visible(record.arguments) == visible(described):
            return record
    return None


# What a file of IR is launched with, by the types of its arguments: a pointer gets memory that is
# larger than what small kernels reach. It holds small whole numbers, so that little is rounded;
# wide integers are all different, since they may be places. One program runs.

_FUNCTION = re.compile(r"\btt\.func public @[^(]+\((.*)")
_NAME = re.compile(r"%[\w$.-]+(?=: )")
_ARGUMENT = re.compile(r"%([\w$.-]+): (?:!tt\.ptr<(\w+)>|(i\d+|f32))(?: \{([^}]*)\})?")
_HINT = re.compile(r"tt\.divisibility = (\d{1,18})")
# As `ELEMENTS` has all others.
_DTYPES = {"i1": "bool", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}
_ELEMENTS_OF_BUFFER = 1 << 16
# Numbers that say how often a loop runs, or how far a mask reaches; and those that are said
# to be multiples: of sizes and strides.
_COUNTS, _MULTIPLE = (4, 3, 2), 64
_SEED = 20_261_127


def guessed_launch(text: str, keep: Callable[[bytes], str]) -> LaunchVariant:
    """The launch of a module; `keep` keeps the bytes of a buffer, and says what they are kept by.

    Raises:
        NotRunError: nothing is known to go with a type.
    """
    match = _FUNCTION.search(text)
    header = match[1] if match else ""
    found = list(_ARGUMENT.finditer(header))
    if len(found) != len(_NAME.findall(header)):
        raise NotRunError("an argument of this module is neither a number nor a plain pointer")
    arguments: list[Argument] = []
    buffers: list[Buffer] = []
    for name, element, number, facts in (part.groups() for part in found):
        if element:
            dtype = _DTYPES.get(element, element)
            if dtype not in ELEMENTS or "tma_desc" in (facts or ""):
                raise NotRunError(f"{name}: what a pointer to {element} leads to is not known")
            dtype = str(ELEMENTS[dtype])
            data = _values(dtype, len(buffers))
            arguments.append(Argument.flat(name, len(buffers), dtype, _ELEMENTS_OF_BUFFER))
            buffers.append(Buffer(sha256=keep(data), size=len(data)))
            continue
        hint = _HINT.search(facts or "")
        counts = sum(one.kind is ArgumentKind.SCALAR for one in arguments)
        value = str(_COUNTS[counts % len(_COUNTS)])
        if hint:
            value = str(max(_MULTIPLE // int(hint[1]), 1) * int(hint[1]))
        kind = "float" if number == "f32" else "int"
        value = {"i1": "1", "f32": (0.5).hex()}.get(number, value)
        arguments.append(Argument(name=name, kind=ArgumentKind.SCALAR, type=kind, value=value))
    return LaunchVariant(
        config={}, grid=(1,), arguments=tuple(arguments), buffers=tuple(buffers), described=[]
    )


def _values(dtype: str, number: int) -> bytes:
    draw, kind = np.random.default_rng(_SEED + number), ELEMENTS[dtype]
    if kind.kind == "b":
        return draw.integers(0, 2, _ELEMENTS_OF_BUFFER).astype(kind).tobytes()
    if kind.kind == "i" and kind.itemsize > 2:
        return draw.permutation(_ELEMENTS_OF_BUFFER).astype(kind).tobytes()
    return draw.integers(-2, 3, _ELEMENTS_OF_BUFFER).astype(kind).tobytes()


# What an entry of a PTX module takes: its parameters, its block, its target.
#
# Source: PTX ISA, "Kernel and Function Directives" and "Parameterized State Space".

# As `ELEMENTS` has all others.
_SIZES = {"b128": 16, "f16x2": 4}
_TYPE = re.compile(r"\.(?P<type>[usbf]\d+|bf16|f16x2|b128)(?![\w.])")
_COUNT = re.compile(r"\[\s*(\d{1,18})\d*\s*\]\s*\Z")
_REQNTID = re.compile(r"\.reqntid\s+(\d{1,18}(?:\s*,\s*\d{1,18}){0,2})")
# PTX ISA, "Kernel Function Parameters": from sm_70 and PTX 8.1 on; 4,352 before.
_MOST_PARAMETER_BYTES = 32_764


class EntryError(ValueError):
    """The module has no such entry, or its parameters cannot be read, or take other arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryParameter:
    """A parameter: its PTX type without the dot, its size in bytes, `count` elements if an array.

    `is_pointer`: declared with `.ptr`. Compilers leave that out as often as not. `alias` is its
    name in the source, and `element` the type of what it points to there, where that is known.
    """

    name: str
    type: str
    size: int
    count: int | None = None
    is_pointer: bool = False
    alias: str = ""
    element: str = ""

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

    def named(self, names: Mapping[str, str]) -> Entry:
        """The entry with the names of a source, in order, each with the type of its elements."""
        if len(names) != len(self.parameters):
            return self
        parameters = (
            replace(parameter, alias=alias, element=element, is_pointer=bool(element))
            for parameter, (alias, element) in zip(self.parameters, names.items(), strict=True)
        )
        return replace(self, parameters=tuple(parameters))


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
    kinds = [match["type"] for match in _TYPE.finditer(text)]
    known = [kind for kind in kinds if kind in _SIZES or kind in ELEMENTS]
    if len(known) != 1:
        raise EntryError(f"the parameter `{' '.join(text.split())}` is not to be understood")
    [kind], match = known, _COUNT.search(text)
    count = int(match[1]) if match else None
    size = _SIZES[kind] if kind in _SIZES else ELEMENTS[kind].itemsize
    return EntryParameter(
        name=name,
        type=kind,
        size=size * (1 if count is None else count),
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

_FLOATS = ("fp16", "bf16", "fp32", "f32", "fp64")
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


def bind(
    variant: LaunchVariant, metadata: Mapping[str, object], entry: Entry
) -> tuple[tuple[Passed, ...], tuple[int, ...]]:
    """The arguments of a launch for an entry that Triton lowered for it; and sizes of more buffers.

    These are of scratch memory: their numbers follow those of the variant's buffers.

    `metadata` is that of the lowering, with Triton's `signature` (pairs of name and type) and
    `constants` (names of parameters that 3.2 leaves out).

    Raises:
        EntryError: they do not fit the entry's parameters.
    """
    signature, constants = metadata.get("signature"), metadata.get("constants")
    if not isinstance(signature, Sequence) or not isinstance(constants, Sequence):
        raise EntryError("Triton does not say which arguments this kernel takes")
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
            raise EntryError(f"the launch has no argument {name!r}")
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
            raise EntryError(
                f"the launch gives more than the {len(self.entry.parameters)} parameters of "
                f"{self.entry.name}: {name} is left over"
            )
        if parameter.size != size:
            raise EntryError(
                f"{name} is {size} bytes, and the parameter `{parameter.words}` of "
                f"{self.entry.name} is {parameter.size}"
            )
        self.arguments.append(argument)

    def _next(self) -> EntryParameter | None:
        place = len(self.arguments)
        return self.entry.parameters[place] if place < len(self.entry.parameters) else None

    def take(self, argument: Argument, kind: object) -> None:
        """Pass one argument; `kind` is its type in the signature, for a tuple a list of types."""
        if isinstance(kind, Sequence) and not isinstance(kind, str):
            if argument.kind is not ArgumentKind.TUPLE or len(argument.items) != len(kind):
                raise EntryError(f"{argument.name} is not a tuple of {len(kind)}")
            for item, inner in zip(argument.items, kind, strict=True):
                self.take(item, inner)
            return
        text = str(kind)
        if text.startswith("tensordesc"):
            self._take_descriptor(argument)
        elif text.startswith("*"):
            if argument.kind not in (ArgumentKind.TENSOR, ArgumentKind.NONE):
                raise EntryError(f"{argument.name} is a pointer to the kernel, and no tensor here")
            is_null = argument.kind is ArgumentKind.NONE
            address = Passed() if is_null else _base(argument)
            self._pass(argument.name, _POINTER_BYTES, address)
        elif text != "constexpr":
            raw = _scalar(argument, text)
            self._pass(argument.name, len(raw), Passed(scalar=raw))

    def _take_descriptor(self, argument: Argument) -> None:
        if argument.kind is not ArgumentKind.DESCRIPTOR:
            raise EntryError(
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
            raise EntryError(f"the launch gives nothing for {words} of {self.entry.name}")
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


def _base(argument: Argument) -> Passed:
    return Passed(pointer=Pointer(allocation=argument.buffer, offset=argument.offset))


def _scalar(argument: Argument, kind: str) -> bytes:
    """The bytes of a number that the signature calls `i32`, `fp32`, ..."""
    if argument.kind is not ArgumentKind.SCALAR:
        raise EntryError(f"{argument.name} is {kind} to the kernel, and no number here")
    is_float = argument.type == "float"
    if kind in _FLOATS:
        value = float.fromhex(argument.value) if is_float else float(int(argument.value))
        # Triton's launcher cuts a bfloat16 off, where all others are rounded.
        return pack_float(value, "f32")[2:] if kind == "bf16" else pack_float(value, kind)
    width = _INTEGER.fullmatch(kind)
    if not width or is_float:
        raise EntryError(f"{argument.name}: no {argument.type} is passed as {kind}")
    try:
        # A truth value (i1) takes a byte.
        return pack_integer(int(argument.value), max(int(width[1]) // 8, 1))
    except ValueError as error:
        raise EntryError(f"{argument.name}: {error}") from error


def _tensor_map(argument: Argument, meta: Mapping[str, object]) -> TensorMap:
    """The map that Triton's driver would encode; dimensions innermost first."""
    if meta.get("is_im2col"):
        raise EntryError(f"{argument.name} is an im2col tensor map, which cannot be executed yet")
    sizes = list(reversed(argument.shape))
    if meta.get("fp4_padded"):
        sizes[0] *= 2
    size, swizzle = _number(argument, meta, "elem_size"), _number(argument, meta, "swizzle")
    element = _TF32 if argument.round_to_tf32 else _number(argument, meta, "elem_type")
    box = meta.get("block_size")
    is_known = element < len(_MAP_ELEMENTS) and swizzle < len(_SWIZZLES)
    if not is_known or not isinstance(box, Sequence):
        raise EntryError(f"{argument.name}: a tensor map of a kind that is not known")
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
        raise EntryError(f"{argument.name}: Triton does not say what its {name} is")
    return value


_LANES = 32


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
    except EntryError as error:
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
