"""Kernels as a launch with values knows them, those that are interpreted and those that are not."""

# ruff: noqa: ANN401 - values of torch, Triton and the user have types that we cannot name

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from harness.frontends.triton.child.describing import by_name

if TYPE_CHECKING:
    from triton.runtime.jit import JITFunction


class _Parameter(NamedTuple):
    """As Triton has it of a compiled function."""

    name: str
    default: Any
    is_constexpr: bool


@dataclass
class GivenKernel:
    """A kernel that the interpreter is about to run, with what a compiled one would say."""

    fn: Any
    arg_names: list[str]
    params: list[_Parameter]

    @classmethod
    def of(cls, executor: Any) -> GivenKernel:
        """The kernel of the interpreter's launch."""
        found = inspect.signature(executor.fn).parameters.values()
        params = [
            _Parameter(each.name, each.default, each.name in executor.constexprs) for each in found
        ]
        return cls(executor.fn, [each.name for each in found], params)

    @property
    def name(self) -> str:
        """Of its function."""
        return str(self.fn.__name__)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """What it is given for each of its parameters, in their order."""
        given = {**by_name(self.arg_names, args), **kwargs}
        return {each.name: given.get(each.name, each.default) for each in self.params}


@dataclass
class CompiledLaunch:
    """A launch that is not interpreted: Gluon compiles whatever `TRITON_INTERPRET` says."""

    fn: Any
    grid: Any
    constexprs: set[str]

    @classmethod
    def of(cls, function: JITFunction, grid: Any) -> CompiledLaunch:
        """The launch of a function, with what the interpreter would know of it."""
        names = {each.name for each in function.params if each.is_constexpr}
        return cls(function.fn, grid, names)
