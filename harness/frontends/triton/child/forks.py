"""Runs pieces of a computation in processes of their own, and gets their tensors back."""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from harness.frontends.triton.child.distances import Apart, ConfigTrial
from harness.io.children.supervisor import split, wait_until

_OUT_OF_BOUNDS = (signal.SIGSEGV, signal.SIGBUS)


class UnfollowedError(Exception):
    """Where a config leads to cannot be determined; the message is for the user."""


class Forks:
    """Forks of this process, each with a file in `folder`; none lives beyond the deadline."""

    def __init__(self, folder: Path, deadline: float) -> None:
        self._folder = folder
        self._deadline = deadline
        self._files = 0

    def fork(self) -> tuple[Path, int]:
        """Go on in two processes: where the new one leaves its results, and its id or 0."""
        self._files += 1
        path = self._folder / f"trial-{self._files}"
        return path, split()

    def collect(self, child: int, path: Path) -> ConfigTrial:
        """Wait for a fork until the deadline, and read what it left."""
        status = wait_until(child, self._deadline)
        error = ended_badly(status)
        if status is None or error:
            return ConfigTrial(error=error)
        code = os.WEXITSTATUS(status)
        if not path.exists():
            return ConfigTrial(error=f"the launch code ended its process, exit code {code}")
        try:
            if code:
                return ConfigTrial(error=path.read_text() or f"exit code {code}, saying nothing")
            with torch._C.DisableTorchFunction():  # noqa: SLF001 - see `leave`
                return ConfigTrial(tensors=torch.load(path, weights_only=True))
        finally:
            path.unlink(missing_ok=True)


def ended_badly(status: int | None) -> str:
    """What to say of a fork that was killed, or (None) had to be; empty where it ended itself."""
    if status is None:
        return "the time limit (--timeout) came first; make the launch smaller"
    if not os.WIFSIGNALED(status):
        return ""
    number = os.WTERMSIG(status)
    where = ": it reads or writes outside its tensors" * (number in _OUT_OF_BOUNDS)
    return f"died by {_signal_name(number)}{where}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal has no name


def leave(path: Path, body: Callable[[], dict[str, torch.Tensor]]) -> NoReturn:
    """End this fork: with the tensors that `body` gives, or with what it raised."""
    code = 1
    try:
        left = body()
        # Saving and loading are torch's own affair: no device is pretended to it.
        with torch._C.DisableTorchFunction():  # noqa: SLF001 - there is no other way
            torch.save(left, path)
        code = 0
    except BaseException as error:  # noqa: BLE001 - this process has no other way to report it
        path.write_text(in_a_line(error))
    finally:
        os._exit(code)


def tensors(values: Any, name: str = "") -> dict[str, torch.Tensor]:
    """All tensors below a value, by their path in it; their own copies."""
    if isinstance(values, torch.Tensor):
        return {name: values.detach().clone().contiguous()}
    if isinstance(values, dict):
        items = [(str(key), item) for key, item in values.items()]
    elif isinstance(values, list | tuple):
        items = [(str(index), item) for index, item in enumerate(values)]
    elif is_dataclass(values) and not isinstance(values, type):
        items = [(each.name, getattr(values, each.name)) for each in fields(values)]
    else:
        return {}
    found: dict[str, torch.Tensor] = {}
    for key, item in items:
        found |= tensors(item, f"{name}.{key}" if name else key)
    return found


def numbers(apart: Apart) -> dict[str, Any]:
    """How far two results are apart, for JSON: None is infinite."""
    distance = {
        # JSON has no infinity.
        key: value if math.isfinite(value) else None
        for key, value in apart.distance._asdict().items()
    }
    return {"tensor": apart.tensor, "allowed": apart.allowed, **distance}


def in_a_line(error: BaseException) -> str:
    """The first cause, without what the interpreter wraps around it."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, UnfollowedError):
        return str(error)
    said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {said}"[:300]


def results(
    skipped: dict[str, str], returned: Any, error: dict[str, Any] | None
) -> dict[str, torch.Tensor]:
    """What a launch that was run to its end returned; `skipped` are kernels that could not be.

    Raises:
        UnfollowedError: it is not what the launch leads to.
    """
    if error:
        raise UnfollowedError(f"the launch then raised {error['type']}: {error['message'][:200]}")
    if skipped:
        names = ", ".join(skipped)
        raise UnfollowedError(f"the interpreter cannot run {names}, which may come after it")
    return tensors(returned, "returned")
