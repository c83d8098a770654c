"""Executes a PTX file on inputs that the user names, and says what it computes."""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from gpu_emulator.values import Budget, Null, Pointer, Scalar
from harness.cells.evaluate import Evaluated
from harness.cells.places import CompileOptions, work
from harness.frontends.bench.bench import content_key
from harness.frontends.texts.ir_inputs import read_file, spelling
from harness.io.files.regular_files import read_regular
from harness.run.emulating import Emulation, emulate
from harness.run.entry import Entry, EntryError, read_entry
from harness.run.evidence import RunEvidence, Trusted
from harness.run.executing import Executed, Follow, keep_execution
from harness.run.jobs import Given, JobBuffer, Passed, Ran, RunTrial
from harness.run.judging import judge
from harness.run.launching import effort_words
from harness.run.numbers.comparing import as_tensor
from harness.run.numbers.scalars import ELEMENTS
from harness.run.ptx_launch import PtxLaunch
from harness.run.raw_inputs import (
    LARGEST,
    BufferWords,
    RawArgument,
    assign,
    pack_scalar,
    read_buffer,
    read_sizes,
)
from harness.run.rows import result_of, row_of
from harness.store.store import Store
from harness.values.cell import CellId, program_label
from harness.values.errors import UsageError
from harness.values.execution import Argument, ArgumentKind, RunRow
from harness.values.kernel import Config, PtxInputs, Repro
from harness.values.target import Target

_SEED = 20_261_121
_LANES = 32
_LONGEST_HEAD = 1 << 16  # of an .npy file
_EXTERN_SHARED = re.compile(r"\.extern\s+\.shared\b")
_GUESSED_SHARED = 48 << 10
"""Bytes of dynamic shared memory that every GPU gives a block without being asked (CUDA C++
Programming Guide, "Compute Capabilities")."""

Array = npt.NDArray[Any]


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


def inputs_of(repro: Repro) -> RawInputs:
    """What a repro of PTX says of its launch.

    Raises:
        UsageError: it cannot be read.
    """
    said = repro.inputs or PtxInputs()
    return RawInputs(
        buffers=tuple(map(read_buffer, said.buffers)),
        scalars=tuple(_pair(text) for text in said.scalars),
        expected=tuple(_pair(text) for text in said.expect),
        grid=read_sizes("grid", said.grid) if said.grid else None,
        block=read_sizes("block", said.block) if said.block else None,
        shared=said.shared,
        folder=repro.folder if repro.inputs else Path(),
    )


def _pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value


async def run_ptx(
    path: Path,
    entry: str | None,
    inputs: RawInputs,
    store: Store,
    options: CompileOptions,
    trials: Sequence[RunTrial],
    budget: Budget,
    tell: Callable[[str], None],
    follow: Follow | None = None,
    *,
    formal: bool = False,
) -> RawReport:
    """Execute one entry of a PTX file; `follow` follows a value of it.

    `formal` is as in `RunEvidence`.

    Raises:
        UsageError: the file is not PTX, or the inputs do not fit its parameters.
        InfrastructureError: the emulator's process cannot be started.
    """
    raw = raw_launch(path, entry, inputs, store)
    emulation, notes = raw.prepare(trials, budget)
    for note in (*notes, effort_words(emulation, path.read_text())):
        tell(note)
    async with work(store, options) as (bench, number):
        kept = await emulate(bench, emulation, tell)
        emulated = kept.value
        evidence, contents = raw.evidence(emulated.runs, emulated.problem)
        text = path.read_text()
        trace = await follow(bench, emulation, text, evidence, None) if follow else None
        judgement = judge(replace(evidence, formal=formal))
        last = emulated.runs[0].buffers if emulated.runs else ()
        row = row_of(raw.cell(entry), judgement, emulated.runs, ptx_sha256=emulation.ptx)
        row = replace(row, trace=trace)
        result = result_of(
            row,
            raw.inputs_named(raw.cell(entry), emulation),
            compiler=None,
            ptx_body_sha256=None,
            cached=kept.cached,
        )
        done = Evaluated(row=result, evidence={"run": kept.key}, signature=judgement.signature)
        keep_execution(store, number, Executed(row=row, done=done))
    return RawReport(
        row=row,
        notes=tuple(notes),
        before={each.name: as_tensor(each, raw.data[each.buffer]) for each in raw.tensors},
        after={
            each.name: as_tensor(each, contents[last[each.buffer]])
            for each in raw.tensors
            if each.buffer < len(last)
        },
    )


def raw_launch(path: Path, entry: str | None, inputs: RawInputs, store: Store) -> RawLaunch:
    """One entry of a PTX file and what it is launched with.

    Raises:
        UsageError: the file is not PTX, or has no such entry.
    """
    return RawLaunch(path=path, inputs=inputs, found=_entry(path, entry), store=store)


def _entry(path: Path, name: str | None) -> Entry:
    found = read_file(path, name)
    try:
        return read_entry(found.data.decode(), name)
    except EntryError as error:
        raise UsageError(f"{path}: {error}") from error


@dataclass(slots=True, kw_only=True)
class RawLaunch:
    """A file on its way to the emulator; `data` are the bytes of the buffers at the start."""

    path: Path
    inputs: RawInputs
    found: Entry
    store: Store
    data: list[bytes] = field(default_factory=list)
    tensors: list[Argument] = field(default_factory=list)

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

    def inputs_named(self, cell: CellId, emulation: Emulation) -> CellId:
        """The cell with a name for its inputs: other inputs are another question."""
        given = (emulation.buffers, emulation.arguments, emulation.grid, emulation.block)
        key = content_key(given=msgspec.to_builtins(given), expected=self.inputs.expected)
        return replace(cell, launch=f"ptx:inputs={key[:8]}")

    def prepare(self, trials: Sequence[RunTrial], budget: Budget) -> tuple[Emulation, list[str]]:
        """What the emulator gets, and what was guessed.

        Raises:
            UsageError: the inputs do not fit the entry's parameters.
        """
        if self.inputs.launch:
            return self._as_launched(self.inputs.launch, trials, budget), []
        notes = []
        text = self.path.read_bytes().decode()
        if self.inputs.block and self.found.block not in (None, self.inputs.block):
            wanted = ",".join(map(str, self.found.block or ()))
            raise UsageError(f"--block: {self.found.name} wants blocks of {wanted} (.reqntid)")
        grid = self.inputs.grid or (1, 1, 1)
        block = self.inputs.block or self.found.block or (_LANES, 1, 1)
        if not self.inputs.grid:
            notes.append("guessed: --grid 1")
        if not self.inputs.block and not self.found.block:
            notes.append(f"guessed: --block {_LANES}")
        shared = self.inputs.shared
        if shared is None:
            shared = _GUESSED_SHARED if _EXTERN_SHARED.search(text) else 0
            notes += [f"guessed: --shared {shared}"] if shared else []
        threads = math.prod(grid) * math.prod(block)
        arguments = assign(self.found, text, self.inputs.buffers, self.inputs.scalars, threads)
        for argument in arguments:
            if argument.is_guess:
                notes.append(f"guessed: {argument.words}")
            elif argument.name != argument.parameter.name:
                notes.append(f"{argument.name} is the parameter {argument.parameter.name}")
        given = [self._given(argument) for argument in arguments]
        emulation = Emulation(
            ptx=self.store.artifacts.put(text.encode()),
            entry=self.found.name,
            grid=grid,
            block=block,
            cluster=(1, 1, 1),
            dynamic_shared=shared,
            buffers=tuple(
                JobBuffer(name=each.name, file=self.store.artifacts.put(data), size=len(data))
                for each, data in zip(self.tensors, self.data, strict=True)
            ),
            arguments=tuple(Passed.of(each) for each in given),
            trials=tuple(trials),
            budget=budget,
        )
        return emulation, notes

    def _as_launched(
        self, launch: PtxLaunch, trials: Sequence[RunTrial], budget: Budget
    ) -> Emulation:
        """The launch that was written down, for this entry."""
        if not launch.fits(self.found):
            wanted = ", ".join(f".{each}" for each in launch.parameters) or "none"
            raise UsageError(f"--inputs: {self.found.name} must have the parameters {wanted}")
        self.tensors = list(launch.tensors)
        files: list[str | None] = []
        for each in launch.buffers:
            words = BufferWords(name=each.name, type="u8", count=each.size, fill=each.file or "")
            self.data.append(_values(words, len(self.data), self.inputs.folder).tobytes())
            files.append(self.store.artifacts.put(self.data[-1]) if each.file else None)
        emulation = launch.emulation(self.found.name, files, trials, budget)
        return replace(emulation, ptx=self.store.artifacts.put(self.path.read_bytes()))

    def _given(self, argument: RawArgument) -> Given:
        if argument.buffer is None:
            if argument.scalar == "null":
                return Null()
            return Scalar(raw=pack_scalar(argument.parameter, argument.scalar))
        values = _values(argument.buffer, len(self.data), self.inputs.folder)
        self.tensors.append(
            Argument(
                name=argument.buffer.name,
                kind=ArgumentKind.TENSOR,
                buffer=len(self.data),
                dtype=argument.buffer.type,
                shape=(len(values),),
                strides=(1,),
            )
        )
        self.data.append(values.tobytes())
        return Pointer(allocation=len(self.data) - 1)

    def evidence(
        self, runs: Sequence[Ran], problem: str | None
    ) -> tuple[RunEvidence, dict[str, bytes]]:
        """What is judged; and the bytes of all buffers by their sha256."""
        before = tuple(hashlib.sha256(data).hexdigest() for data in self.data)
        contents = dict(zip(before, self.data, strict=True))
        for ran in runs:
            for sha256 in ran.buffers:
                contents.setdefault(sha256, self.store.artifacts.get(sha256))
        if self.inputs.launch:
            return self.inputs.launch.evidence(before, runs, contents, problem), contents
        plain = tuple(ran for ran in runs if not ran.trial.schedule.garbage)
        found = RunEvidence(
            arguments=tuple(self.tensors),
            before=before,
            runs=plain,
            garbage=tuple(ran for ran in runs if ran.trial.schedule.garbage),
            contents=contents,
            trusted=self.trusted(),
            problem=problem,
        )
        return found, contents

    def trusted(self) -> tuple[Trusted, ...]:
        """What the user says that buffers must hold; all others may hold what they do."""
        names = [each.name for each in self.tensors]
        expected: list[bytes | None] = [None] * len(self.data)
        for name, file in self.inputs.expected:
            if name not in names:
                raise UsageError(f"--expect {name}={file}: no buffer has this name")
            tensor = self.tensors[names.index(name)]
            [count] = tensor.shape
            words = BufferWords(name=name, type=tensor.dtype, count=count, fill=file)
            values = _from_file(words, self.inputs.folder / file)
            expected[tensor.buffer] = values.tobytes()
        files = ", ".join(file for _, file in self.inputs.expected)
        return (Trusted(words=files, buffers=tuple(expected), is_final=True),) if files else ()


def _values(words: BufferWords, number: int, folder: Path) -> Array:
    """What a buffer holds at the start.

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
        return _random(kind, words.count, number)
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


def _random(kind: np.dtype[Any], count: int, number: int) -> Array:
    """The same numbers in every run: normal ones, or for integers any bits."""
    draw = np.random.default_rng(_SEED + number)
    if kind.kind == "b":
        return draw.integers(0, 2, count).astype(kind)
    if kind.kind in "iu":
        return np.frombuffer(draw.bytes(count * kind.itemsize), kind)
    return draw.standard_normal(count).astype(kind)


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
