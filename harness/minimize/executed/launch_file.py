"""A standalone kernel with a launch in place of its compilation: what can be run. Pure.

`triage run --kernel FILE` executes it without a GPU, and `launch()` runs on one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from harness.run.comparing import ELEMENTS
from harness.values.execution import Argument, ArgumentKind, LaunchVariant
from harness.values.standalone import FileLaunch, Standalone

_OPTIONS = ("num_warps", "num_ctas", "maxnreg")
_SEED = 0
# What is written into the file; more whole numbers go into a file of their own.
_MOST_WRITTEN = 64


_MAIN = """

if __name__ == "__main__":  # on a GPU: what it computes
    for name, values in launch().items():
        print(name, values)
"""
_COMPARING_MAIN = """

if __name__ == "__main__":  # on a GPU: with and without a pipeline
    ours, plain = launch(), launch(num_stages=1)
    for name in ours:
        apart = (ours[name].double() - plain[name].double()).abs().max().item()
        print(f"{name}: {apart} apart")
"""
# On a GPU, a kernel that makes its tensor descriptors itself asks for the memory of these.
_ALLOCATOR = (
    'triton.set_allocator(lambda size, *_: torch.empty(size, device="cuda", dtype=torch.int8))'
)
_STAGES = 3
"""What Triton's NVIDIA backend takes where a launch says nothing."""


class NoLaunchFileError(ValueError):
    """A launch that cannot be written down, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchForm:
    """How a launch is written down.

    Floating-point buffers hold random numbers, or (`exact`) those that were recorded, read from
    files beside it (`recorded_name`). As a program it says how far its results are from those
    without a pipeline, where it `compares`. Its results are `outputs`; all its tensors, where it
    has none of these. A kernel that `allocates` asks its launch for memory, on a GPU.
    """

    exact: bool = False
    compares: bool = False
    outputs: Collection[str] = ()
    allocates: bool = False


def launch_text(
    standalone: Standalone,
    variant: LaunchVariant,
    contents: Mapping[str, bytes],
    form: LaunchForm,
    *,
    header: str,
) -> str:
    """The file: `header` is its docstring, `contents` are the buffers by their sha256.

    Memory that nothing wrote is asked for, and no more.

    Raises:
        NoLaunchFileError: an argument is of a kind that is not known here.
    """
    writer = _LaunchWriter(launch=standalone.launch, variant=variant, contents=contents, form=form)
    lines = [*([_ALLOCATOR] if form.allocates else []), *writer.lines()]
    body = "\n".join(f"    {line}" if line else "" for line in lines)
    imports = ["import torch", "import triton", *writer.imports]
    return (
        f'"""{header.strip()}\n"""\n\n'
        + "\n".join(imports)
        + f"\n{standalone.code.strip()}\n\n\ndef launch(num_stages={writer.stages}):\n{body}\n"
        + (_COMPARING_MAIN if form.compares else _MAIN)
    )


def recorded_name(number: int) -> str:
    """The file with the bytes of a buffer, beside the launch file."""
    return f"buffer-{number}.npy"


@dataclass(kw_only=True)
class _LaunchWriter:
    launch: FileLaunch
    variant: LaunchVariant
    contents: Mapping[str, bytes]
    form: LaunchForm
    imports: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        constants = {str(path[0]) for path in self.launch.constants if len(path) == 1}
        arguments = {arg.name: arg for arg in self.variant.arguments}
        missing = [n for n in self.launch.signature if n not in constants and n not in arguments]
        if missing:
            raise NoLaunchFileError(f"the launch gives nothing for {', '.join(missing)}")
        self.given = [arguments[n] for n in self.launch.signature if n not in constants]
        self.owners = [arg.buffer for arg in self.given if _has_memory(arg)]
        written = (not self.variant.buffers[number].unwritten for number in self.owners)
        if self.form.exact and any(written):
            self.imports += ["from pathlib import Path", "", "import numpy"]

    @property
    def stages(self) -> str:
        return self.launch.options.get("num_stages", str(_STAGES))

    def lines(self) -> Iterator[str]:
        yield f"torch.manual_seed({_SEED})"
        for number in dict.fromkeys(self.owners):
            if not self._is_alone(number):
                first = next(a for a in self.given if _has_memory(a) and a.buffer == number)
                size = self.variant.buffers[number].size // ELEMENTS[first.dtype].itemsize
                yield f"memory{number} = {self._values(number, first.dtype, (size,))}"
        for arg in self.given:
            yield from self._argument(arg)
        words = [f"{arg.name}={arg.name}" for arg in self.given]
        words += [f"{path[0]}={value}" for path, value in self.launch.constants.items()]
        words += [
            f"{name}={self.launch.options[name]}"
            for name in _OPTIONS
            if self.launch.options.get(name, "None") != "None"
        ]
        words.append("num_stages=num_stages")
        yield f"{self.launch.kernel}[{self.variant.grid}]("
        yield from (f"    {word}," for word in words)
        yield ")"
        tensors = [arg.name for arg in self.given if arg.kind is ArgumentKind.TENSOR]
        shown = [name for name in tensors if name in self.form.outputs] or tensors
        pairs = ", ".join(f'"{name}": {name}' for name in shown)
        yield f"return {{{pairs}}}"

    def _argument(self, arg: Argument) -> Iterator[str]:
        if arg.kind is ArgumentKind.SCALAR:
            value = arg.value
            yield f"{arg.name} = {float.fromhex(value) if arg.type == 'float' else value}"
        elif arg.kind is ArgumentKind.TENSOR:
            yield f"{arg.name} = {self._tensor(arg)}"
        elif arg.kind is ArgumentKind.DESCRIPTOR:
            line = "from triton.tools.tensor_descriptor import TensorDescriptor"
            self.imports += [] if line in self.imports else [line]
            shape, strides, block = (list(arg.shape), list(arg.strides), list(arg.block))
            base = self._tensor(arg)
            yield f"{arg.name} = TensorDescriptor({base}, {shape}, {strides}, {block})"
        elif arg.kind is ArgumentKind.NONE:
            yield f"{arg.name} = None"
        else:
            raise NoLaunchFileError(f"{arg.name} is a {arg.kind.value}")

    def _is_alone(self, number: int) -> bool:
        """Whether one argument is the whole buffer, as it lies in memory."""
        mine = [arg for arg in self.given if _has_memory(arg) and arg.buffer == number]
        if len(mine) != 1:
            return False
        [arg] = mine
        dense = [prod(arg.shape[n + 1 :]) for n in range(len(arg.shape))]
        size = prod(arg.shape) * ELEMENTS[arg.dtype].itemsize
        is_whole = size == self.variant.buffers[number].size
        return is_whole and not arg.offset and list(arg.strides) == dense

    def _tensor(self, arg: Argument) -> str:
        if self._is_alone(arg.buffer):
            return self._values(arg.buffer, arg.dtype, tuple(arg.shape))
        offset = arg.offset // ELEMENTS[arg.dtype].itemsize
        memory = f"memory{arg.buffer}.view(torch.{arg.dtype})"
        return f"{memory}.as_strided({arg.shape}, {arg.strides}, {offset})"

    def _values(self, number: int, dtype: str, shape: tuple[int, ...]) -> str:
        where = f'dtype=torch.{dtype}, device="cuda"'
        if self.variant.buffers[number].unwritten:
            return f"torch.empty({shape}, {where})"
        kind = ELEMENTS[dtype]
        values = np.frombuffer(self.contents[self.variant.buffers[number].sha256], kind)
        if not values.view(np.uint8).any():
            return f"torch.zeros({shape}, {where})"
        if kind.kind in "iub" and len(values) <= _MOST_WRITTEN:
            return f"torch.tensor({values.tolist()}, {where}).reshape({shape})"
        if self.form.exact or kind.kind in "iub":
            if not any("numpy" in line for line in self.imports):
                self.imports += ["from pathlib import Path", "", "import numpy"]
            read = f'numpy.load(Path(__file__).parent / "{recorded_name(number)}")'
            return f"torch.from_numpy({read}).view(torch.{dtype}).reshape({shape}).cuda()"
        return f'torch.randn({shape}, device="cuda").to(torch.{dtype})'


def _has_memory(argument: Argument) -> bool:
    return argument.kind in (ArgumentKind.TENSOR, ArgumentKind.DESCRIPTOR)
