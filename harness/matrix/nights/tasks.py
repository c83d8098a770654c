"""A capture with its cells as a message to another machine, and the answer that comes back.

Everything travels by name or as content: nothing in a message is a path of the machine it is from,
but for kernels that the user named by their files.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from packaging.specifiers import SpecifierSet

from harness.values.kernel import ConfigFilter, Scalar
from harness.values.matrix import Matrix, MatrixVariant, Selector

PastRow = tuple[Any, ...]
"""A result as the store keeps it, with its checksum (`harness.store.sqlite.records`)."""

_FAST = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedPlace:
    """A place where a kernel is captured, by names.

    `launch` is its function, with `overrides` of its parameters. `compiler` is the kind, `version`
    None for the one that lies beside triage; None among `assemblers` is the bundled one. `same`
    are hashes, by what to call it, of all that must be the same on both machines.
    """

    repro: str
    launch: str
    overrides: dict[str, Scalar | None]
    given: tuple[str, ...]
    target: str
    compiler: str
    version: str | None
    assemblers: tuple[str | None, ...]
    config: ConfigFilter
    freeze_ptx: bool
    disassembles: bool
    variant: MatrixVariant | None
    is_extra: bool
    same: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureTask:
    """The places that one capture serves, and how to work on their cells.

    `run` is the uid of the run that the results belong to. `timeout`s are in seconds, `memory` in
    bytes (0: a share of the worker's; of `launch_memory`, for launch code: most of it), `until` in
    seconds since the epoch. `past` are the last results of the cells, as far as they are known;
    those of the cells in `settled` are in this run already.
    """

    run: str
    command: str
    places: tuple[NamedPlace, ...]
    matrix: Matrix
    only: tuple[Selector, ...]
    use_cache: bool
    timeout: float
    launch_timeout: float
    memory: int
    launch_memory: int
    until: float | None
    past: tuple[PastRow, ...]
    settled: tuple[str, ...]

    def encode(self, code: str) -> bytes:
        """As a message to a machine that has this code: the code comes first in it."""
        return seal(msgspec.msgpack.encode(self, enc_hook=_spelled), code)

    @classmethod
    def decode(cls, message: bytes, code: str) -> CaptureTask | None:
        """What `encode` made; None where it was made by other code, which may mean other things."""
        body = unseal(message, code)
        return None if body is None else _decoder.decode(body)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureAnswer:
    """What a worker found out: `parcel` has the results (empty where there are none).

    `matched` are the rules of the matrix that spoke of a cell; the rest is as in a run here.
    `host` is where the worker is.
    """

    host: str
    parcel: bytes = b""
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    excluded: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[str, ...] = ()
    matched: tuple[int, ...] = ()
    skipped: int = 0
    skipped_captures: int = 0
    carried: int = 0
    cpu_seconds: float = 0.0

    def encode(self) -> bytes:
        """As a message."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def decode(cls, message: bytes) -> CaptureAnswer:
        """What `encode` made.

        Raises:
            msgspec.MsgspecError: it was not made by `encode`.
        """
        return msgspec.msgpack.decode(message, type=cls)


def seal(body: bytes, code: str) -> bytes:
    """A message for a machine that has this code: the code comes first in it."""
    return msgspec.msgpack.encode((code, zlib.compress(body, _FAST)))


def unseal(message: bytes, code: str) -> bytes | None:
    """The body of a message; None where other code made it, which may mean other things."""
    theirs, body = msgspec.msgpack.decode(message, type=tuple[str, bytes])
    return zlib.decompress(body) if theirs == code else None


def _spelled(value: object) -> str:
    if isinstance(value, SpecifierSet):
        return str(value)
    raise NotImplementedError(type(value))


def _read(kind: type, value: object) -> object:
    if kind is SpecifierSet:
        return SpecifierSet(str(value))
    raise NotImplementedError(kind)


_decoder: msgspec.msgpack.Decoder[CaptureTask] = msgspec.msgpack.Decoder(
    CaptureTask, dec_hook=_read
)
