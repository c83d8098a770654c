"""What launch code asserts of the values that its kernels left, and what came of it.

Each value is followed from the launch that wrote it through torch's functions to where Python reads
it: what an assertion decides by was read there.
"""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import ast
import contextlib
import linecache
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from harness.frontends.triton.child.describing import identity, storages_of

_COMPARISONS = ("isclose", "allclose", "equal")
_READS = frozenset(
    {
        *("item", "tolist", "numpy", "is_nonzero"),
        *("__bool__", "__int__", "__float__", "__index__", "__array__", "__contains__"),
        *_COMPARISONS,
    }
)

Place = tuple[int, int]
"""A launch by its number, from 1 on, and one of its buffers."""


@dataclass(frozen=True)
class _Read:
    """Python reads what launches left: which, and in which functions at which lines.

    `relative` is how far two tensors that it compares are apart, against their own scale.
    """

    places: frozenset[Place]
    direct: frozenset[Place]
    frames: tuple[tuple[Any, int], ...]
    relative: float | None


class Following(TorchFunctionMode):  # type: ignore[misc]
    """Follows what launches leave, while the launch code runs; `file` is the launch code."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file
        # By the address of a storage: what it holds comes from; and what a launch wrote itself.
        self._from: dict[int, frozenset[Place]] = {}
        self._direct: dict[int, frozenset[Place]] = {}
        self._reads: list[_Read] = []

    def wrote(self, number: int, storages: Sequence[Any], written: Iterable[int]) -> None:
        """A launch, by its number, has written these of its storages, from what is in all."""
        addresses = [identity(each) for each in storages]
        origins = frozenset().union(*(self._from.get(each, frozenset()) for each in addresses))
        for index in written:
            own = frozenset({(number, index)})
            self._from[addresses[index]] = origins | own
            self._direct[addresses[index]] = own

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        result = func(*args, **kwargs)
        if not self._from or name == "__get__":
            return result
        given = [identity(each) for each in storages_of([*args, *kwargs.values()])]
        places = frozenset().union(*(self._from.get(each, frozenset()) for each in given))
        direct = frozenset().union(*(self._direct.get(each, frozenset()) for each in given))
        if places and name in _READS:
            relative = _apart(args) if name in _COMPARISONS else None
            frames = tuple(_frames(sys._getframe(1)))  # noqa: SLF001 - nothing else tells
            self._reads.append(_Read(places, direct, frames, relative))
        left = [args[0]] if name == "__setitem__" else [result]
        for address in map(identity, storages_of(left)):
            if not places:
                # What lay at this address before is gone.
                if address not in given:
                    self._from.pop(address, None)
                    self._direct.pop(address, None)
                continue
            self._from[address] = places | self._from.get(address, frozenset())
            self._direct[address] = direct | self._direct.get(address, frozenset())
        return result

    def found(self, error: BaseException | None) -> list[dict[str, Any]]:
        """The assertions that values of launches went into, in their order: which hold, which not.

        The places of one that holds are those that it sees without another kernel between.
        """
        failed = self._failed(error)
        asserts = _assert_lines(self._file)
        found = []
        by_line: dict[int, list[_Read]] = {}
        for read in self._reads:
            line = _line(read, self._file)
            is_assertion = line in asserts or any(
                code.co_name.startswith("assert") for code, _ in read.frames
            )
            if line is not None and is_assertion:
                by_line.setdefault(line, []).append(read)
        for line, reads in by_line.items():
            places = frozenset().union(*(each.direct for each in reads))
            if failed is None or failed["where"] != self._where(line):
                found.append({"where": self._where(line), "holds": True, "places": places})
        return [*found, failed] if failed else found

    def _where(self, line: int) -> str:
        return f"{Path(self._file).name}:{line}"

    def _failed(self, error: BaseException | None) -> dict[str, Any] | None:
        """The assertion that was raised, if it was decided by what launches left."""
        if not isinstance(error, AssertionError):
            return None
        raised = [
            (frame.f_code, line)
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename == self._file
        ]
        if not raised:
            return None
        code, line = raised[-1]
        here = [read for read in self._reads if (code, line) in read.frames]
        near = here or [read for read in self._reads if code in [each for each, _ in read.frames]]
        if not near:
            return None
        measured = [each.relative for each in near if each.relative is not None]
        return {
            "where": self._where(line),
            "holds": False,
            "places": frozenset().union(*(each.places for each in near)),
            "relative": max(measured) if here and measured else None,
            "message": " ".join(str(error).split())[:200]
            or linecache.getline(code.co_filename, line).strip(),
        }


def _frames(frame: Any) -> Iterator[tuple[Any, int]]:
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back


def _line(read: _Read, file: str) -> int | None:
    """The line of the launch code that reads."""
    return next((line for code, line in read.frames if code.co_filename == file), None)


def _assert_lines(file: str) -> set[int]:
    """The lines of all `assert` statements."""
    lines: set[int] = set()
    with contextlib.suppress(SyntaxError, ValueError, OSError):
        for node in ast.walk(ast.parse(Path(file).read_bytes())):
            if isinstance(node, ast.Assert):
                lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _apart(args: tuple[Any, ...]) -> float | None:
    """How far the first two tensors are apart, against the scale of the second."""
    pair = [each for each in args[:2] if isinstance(each, torch.Tensor)]
    if len(pair) != len(args[:2]) or pair[0].shape != pair[-1].shape:
        return None
    with torch._C.DisableTorchFunction(), torch.no_grad():  # noqa: SLF001 - there is no other way
        left, right = (each.detach().double() for each in pair)
        if not left.numel() or not bool(torch.isfinite(torch.stack([left, right])).all()):
            return None
        scale = right.abs() + right.square().mean().sqrt()
        tiny = torch.finfo(torch.float64).tiny
        return float(((left - right).abs() / scale.clamp_min(tiny)).max())
