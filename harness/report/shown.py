"""What a reader of a report wants to see of a small PTX program: values, code, and what it is."""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np

from harness.io.files.writing import scratch_disk
from harness.io.processes.hub import ResourceLimits, run_tool
from harness.run.comparing import Array, as_tensor
from harness.run.inputs import read_entry
from harness.run.raw import read_launch
from harness.tables.file_templates import markdown_code
from harness.values.kernel import LAUNCH_INPUTS
from harness.values.toolchain import Tool

_MOST_VALUES = 8
_SECONDS = 60.0
_CODE = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;", re.MULTILINE)
_IDLE = re.compile(r"U?MOV (U?R\d+), \1")
_VECTOR = re.compile(r"^(?P<lead>.*?)\.v(?P<n>[248])(?P<rest>\.\S+)\s+(?P<operands>.*)$")
_BRACES = re.compile(r"\{([^}]*)\}")


def given_words(text: str, files: Mapping[str, bytes], outputs: Sequence[str], where: str) -> str:
    """How a program is launched, and the values that it is given, by the names of its parameters.

    `text` is the PTX, `files` are those of a reduction that is executed, `outputs` the names of
    what is judged, `where` (`[3]`) is the first element that differs: of larger buffers, this one
    is shown.

    Raises:
        UsageError: the launch cannot be read.
    """
    launch = read_launch(files[LAUNCH_INPUTS], LAUNCH_INPUTS)
    blocks, threads = prod(launch.grid), prod(launch.block)
    of = f"{threads} thread{'s' if threads > 1 else ''}"
    parts = [f"Launch: {blocks} block{'s' if blocks > 1 else ''} of {of}."]
    names = {
        passed.pointer.allocation: parameter.name
        for parameter, passed in zip(read_entry(text).parameters, launch.arguments, strict=True)
        if passed.pointer
    }
    for tensor in launch.tensors:
        file = launch.buffers[tensor.buffer].file
        if tensor.name in outputs or not file:
            continue
        data = np.load(io.BytesIO(files[file]), allow_pickle=False).tobytes()
        values = as_tensor(tensor, data)
        index = tuple(int(n) for n in re.findall(r"\d+", where))
        at = ""
        is_inside = len(index) == values.ndim and all(
            i < n for i, n in zip(index, values.shape, strict=True)
        )
        if values.size > _MOST_VALUES and is_inside:
            values, at = values[index].reshape(1), where
        shown = ", ".join(map(spelled, values.ravel()[:_MOST_VALUES]))
        more = f" and {values.size - _MOST_VALUES:,} more" if values.size > _MOST_VALUES else ""
        name = names.get(tensor.buffer, tensor.name)
        if f"[{name}]" not in text:
            # A reduction may have left nothing that reads it.
            continue
        parts.append(f"Given: `{name}{at}` ({tensor.dtype}) = {shown}{more}.")
    return " ".join(parts)


def spelled(value: Array) -> str:
    """A number, with its bits where its decimal digits say little."""
    kind = value.dtype
    bits = int.from_bytes(value.tobytes(), "little")
    if kind.kind in "iu":
        return f"{int(value)}" if abs(int(value)) < 10 else f"{int(value)} (0x{bits:x})"
    return f"{float(value):.9g} (0x{bits:0{2 * kind.itemsize}x})"


def listed(
    ptx: str, ptxas: Path, flags: Sequence[str], nvdisasm: Tool, limits: ResourceLimits
) -> str:
    """The SASS that a ptxas makes of a program; empty where there is none.

    Padding, and moves of a register to itself, are left out.
    """
    with scratch_disk(), tempfile.TemporaryDirectory(prefix="triage-sass-") as place:
        source, cubin = Path(place) / "min.ptx", Path(place) / "min.cubin"
        source.write_text(ptx)
        argvs: list[list[str | Path]] = [
            [ptxas, *flags, source, "-o", cubin],
            [nvdisasm.path, "-c", cubin],
        ]
        for argv in argvs:
            done = run_tool(argv, timeout=_SECONDS, limits=limits, writable=[Path(place)])
            if not done.end.ok:
                return ""
    lines = [line for line in _CODE.findall(done.stdout) if not _IDLE.fullmatch(line)]
    while lines and (lines[-1] == "NOP" or lines[-1].startswith("BRA")):
        lines.pop()
    return "\n".join(lines)


def plain_forms(ptx: str) -> Iterator[tuple[str, str]]:
    """The scalar forms of each load or store of a vector, and the program with these."""
    lines = ptx.splitlines()
    for number, line in enumerate(lines):
        if (match := _VECTOR.match(line.strip().rstrip(";"))) and (
            found := _BRACES.search(match["operands"])
        ):
            before, after = match["operands"][: found.start()], match["operands"][found.end() :]
            scalars = [
                f"{match['lead']}{match['rest']} {before}{name.strip()}{after};"
                for name in found[1].split(",")
            ]
            text = "\n".join([*lines[:number], *scalars, *lines[number + 1 :]]) + "\n"
            yield " ".join(scalars), text


def refused_form(ptx: str, ptxas: Path, flags: Sequence[str], limits: ResourceLimits) -> str:
    """Which scalar form of an instruction this ptxas refuses, and how; empty where it refuses none.

    What is no operand of the scalar form is none of the vector's (PTX ISA, "Vectors as Operands").
    """
    for scalars, text in plain_forms(ptx):
        with scratch_disk(), tempfile.TemporaryDirectory(prefix="triage-plain-") as place:
            source = Path(place) / "plain.ptx"
            source.write_text(text)
            argv: list[str | Path] = [ptxas, *flags, source, "-o", Path(place) / "plain.cubin"]
            done = run_tool(argv, timeout=_SECONDS, limits=limits, writable=[Path(place)])
        for said in re.findall(r"error\s*: (.*\S)", done.stderr):
            return f"without the vector, as {markdown_code(scalars)}, it is refused: {said}"
    return ""
