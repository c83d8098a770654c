"""Computes what a kernel must write, by a function of the repro's author in torch.

A fork of the server reads `request.json` in a folder and leaves `result.json` there. The
function gets the kernel's arguments by name, floating-point tensors as float64 if they are to be
`exact`, and gives the tensors that it knows by the names of their arguments. What it gives is
rounded to their types and put into copies of the buffers.
"""

# ruff: noqa: ANN401 - values of torch and the user have types that we cannot name

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from json import loads
from pathlib import Path
from typing import Any

import torch

from harness.io.children.captures import leave
from harness.io.children.confine import settle
from harness.io.children.launch_code import describe_error, run_launch, stand_aside

_TYPES: dict[str, Callable[[str], Any]] = {
    "int": int,
    "bool": lambda text: bool(int(text)),
    "float": float.fromhex,
    "str": str,
}


def _view(described: Mapping[str, Any], buffers: list[torch.Tensor]) -> torch.Tensor:
    """The tensor of an argument, in the bytes of its buffer."""
    dtype = getattr(torch, described["dtype"])
    storage = buffers[described["buffer"]].untyped_storage()
    offset = described["offset"] // dtype.itemsize
    tensor = torch.empty(0, dtype=dtype)
    return tensor.set_(storage, offset, described["shape"], described["strides"])


def _value(described: Mapping[str, Any], buffers: list[torch.Tensor], *, exact: bool) -> Any:
    kind = described["kind"]
    if kind in ("tensor", "descriptor"):
        tensor = _view(described, buffers)
        return tensor.double() if exact and tensor.is_floating_point() else tensor.clone()
    if kind == "tuple":
        return tuple(_value(item, buffers, exact=exact) for item in described["items"])
    read = _TYPES.get(described["type"])
    return read(described["value"]) if read else None


def _outputs(
    results: Mapping[str, torch.Tensor],
    arguments: Mapping[str, Mapping[str, Any]],
    buffers: list[torch.Tensor],
    folder: Path,
) -> list[str | None]:
    """The sha256 of each buffer that the function says something of; the others are None."""
    covered = set()
    for name, tensor in results.items():
        place = arguments.get(name, {})
        if place.get("kind") not in ("tensor", "descriptor"):
            raise ValueError(f"the kernel has no tensor {name!r}")
        _view(place, buffers).copy_(tensor)
        covered.add(place["buffer"])
    names: list[str | None] = [None] * len(buffers)
    for number in covered:
        data = buffers[number].numpy().tobytes()
        names[number] = hashlib.sha256(data).hexdigest()
        (folder / f"{names[number]}.bin").write_bytes(data)
    return names


def main(place: str) -> None:
    """Do what `request.json` in this folder asks for."""
    folder = Path(place)
    ask = loads((folder / "request.json").read_text())
    if ask["confined"]:
        settle(str(folder))
    stand_aside(ask)
    variant = ask["variant"]
    buffers = [torch.empty(0, dtype=torch.uint8) for _ in variant["buffers"]]
    for number, described in enumerate(variant["buffers"]):
        if data := bytearray((folder / f"{described['sha256']}.bin").read_bytes()):
            buffers[number] = torch.frombuffer(data, dtype=torch.uint8)
    arguments = {described["name"]: described for described in variant["arguments"]}
    names: list[str | None] = []
    error = None
    try:
        values = {
            name: _value(described, buffers, exact=ask["exact"])
            for name, described in arguments.items()
        }
        results = run_launch(ask["file"], ask["function"], values)
        names = _outputs(results, arguments, buffers, folder)
    except (Exception, SystemExit) as raised:  # noqa: BLE001 - the user's code raises anything
        error = describe_error(raised, ask["file"])
    leave({"buffers": names, "error": error}, folder)
