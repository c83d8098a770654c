"""A pack as a file: which launches and cubins it holds. Checked: anyone may have made it.

A pack is a zip archive that Python executes (`__main__.py`); `pack.json` lists launches and cases,
`blobs/SHA256` are the bytes that it names.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
import zlib
from typing import IO, Any

MANIFEST = "pack.json"
SCHEMA = 1
_LARGEST_MANIFEST = 1 << 28
_LARGEST_BLOB = 1 << 30
_MOST = 100_000
MOST_RUNS = 1000
# Of what a launch asks for: whether a GPU has it, its driver says.
_LARGEST_BUFFER = 1 << 40
_LONGEST = 86_400.0
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BYTES = re.compile(r"(?:[0-9a-f]{2}){1,4096}")


class PackError(Exception):
    """The file is not a pack, or a damaged one, or no GPU executes it: one line that says why."""


def blob_name(sha256: str) -> str:
    """Where bytes lie in the archive."""
    return f"blobs/{sha256}"


def _is_size(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


class Contents:
    """The pack in a file, which is at `path`; `file` is it where it is open already.

    Raises:
        PackError: it is none.
    """

    def __init__(self, path: str, file: IO[bytes] | None = None) -> None:
        self.path = path
        try:
            self._archive = zipfile.ZipFile(file or path)
            raw = self._read(MANIFEST, _LARGEST_MANIFEST)
            manifest = json.loads(raw)
        except (OSError, zipfile.BadZipFile, ValueError, RecursionError) as error:
            raise PackError(f"{path}: not a pack: {error}") from error
        self.sha256 = hashlib.sha256(raw).hexdigest()
        if not isinstance(manifest, dict) or manifest.get("pack") != SCHEMA:
            raise PackError(f"{path}: not a pack of version {SCHEMA}")
        limit, repeats = manifest.get("limit"), manifest.get("repeats")
        if not isinstance(limit, int | float) or not 0 < limit <= _LONGEST:
            raise PackError(f"{path}: `limit` is not a number of seconds")
        if not isinstance(repeats, int) or not 0 < repeats <= MOST_RUNS:
            raise PackError(f"{path}: `repeats` is not a number of runs")
        self.limit, self.repeats = float(limit), repeats
        self.launches = self._listed(manifest, "launches", self._check_launch)
        self.cases = self._listed(manifest, "cases", self._check_case)
        self.samples, self.timings = self._timed(manifest)
        self.sanitize = manifest.get("sanitize") is True
        self.keeps = manifest.get("keeps") is True

    def _timed(self, manifest: dict[str, Any]) -> tuple[int, list[list[int]]]:
        """Runs of each case that is timed, and the cases that are timed in turns."""
        samples, timings = manifest.get("samples", 1), manifest.get("timings", [])
        if not isinstance(samples, int) or not 0 < samples <= MOST_RUNS:
            raise PackError(f"{self.path}: `samples` is not a number of runs")
        last = len(self.cases) - 1
        if not isinstance(timings, list) or not all(
            isinstance(group, list) and group and all(_is_size(case, last) for case in group)
            for group in timings
        ):
            raise PackError(f"{self.path}: `timings` are not lists of cases")
        return samples, timings

    def _listed(self, manifest: dict[str, Any], name: str, check: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a function
        entries = manifest.get(name)
        if not isinstance(entries, list) or len(entries) > _MOST:
            raise PackError(f"{self.path}: `{name}` is not a list")
        for number, entry in enumerate(entries):
            problem = check(entry) if isinstance(entry, dict) else "it is not an object"
            if problem:
                raise PackError(f"{self.path}: {name}[{number}]: {problem}")
        return entries

    def _check_launch(self, launch: dict[str, Any]) -> str | None:
        for name in ("grid", "block", "cluster"):
            sizes = launch.get(name)
            if not isinstance(sizes, list) or len(sizes) != 3:
                return f"`{name}` is not three sizes"
            if not all(_is_size(size, (1 << 31) - 1) and size for size in sizes):
                return f"`{name}` is not three sizes"
        if not _is_size(launch.get("shared"), 1 << 24):
            return "`shared` is not a size"
        buffers, arguments = launch.get("buffers"), launch.get("arguments")
        if not isinstance(buffers, list) or not isinstance(arguments, list):
            return "`buffers` and `arguments` are lists"
        for buffer in buffers:
            if not isinstance(buffer, dict) or not _is_size(buffer.get("size"), _LARGEST_BUFFER):
                return "a buffer has no size, or is over 1 TiB"
            if buffer.get("file") is not None and not _SHA256.fullmatch(str(buffer["file"])):
                return "a buffer's `file` is not a sha256"
        return next(filter(None, (_wrong_argument(a, buffers) for a in arguments)), None)

    def _check_case(self, case: dict[str, Any]) -> str | None:
        number = case.get("launch")
        if not _is_size(number, len(self.launches) - 1):
            return "`launch` is none of the launches"
        if not isinstance(case.get("entry"), str) or not isinstance(case.get("name"), str):
            return "`entry` and `name` are texts"
        if not _SHA256.fullmatch(str(case.get("cubin"))):
            return "`cubin` is not a sha256"
        return None

    def _read(self, name: str, most: int) -> bytes:
        try:
            member = self._archive.getinfo(name)
            if member.file_size > most:
                raise PackError(f"{self.path}: {name} is larger than {most >> 20} MiB")
            with self._archive.open(member) as file:
                data = file.read(most + 1)
        except (KeyError, zipfile.BadZipFile, OSError, EOFError, RuntimeError, zlib.error) as error:
            raise PackError(f"{self.path}: {name} cannot be read: {error}") from error
        if len(data) > most:
            raise PackError(f"{self.path}: {name} is larger than it says")
        return data

    def blob(self, sha256: str) -> bytes:
        """Bytes by their sha256.

        Raises:
            PackError: they are missing, too large, or others than they claim to be.
        """
        data = self._read(blob_name(sha256), _LARGEST_BLOB)
        if hashlib.sha256(data).hexdigest() != sha256:
            raise PackError(f"{self.path}: {blob_name(sha256)} is not what its name says")
        return data

    @property
    def words(self) -> list[str]:
        """What it holds, line by line."""
        lines = [
            f"pack {self.sha256[:12]}, {len(self.cases)} cubins, {self.repeats} runs each",
            f"limit: {self.limit:g} s for one run",
        ]
        if self.sanitize:
            lines.append("each case under the four tools of compute-sanitizer, where that is there")
        timed = f"timed in turns, {self.samples} runs each: cases"
        lines += [f"{timed} {group}" for group in self.timings]
        for number, launch in enumerate(self.launches):
            shapes = [f"{name} {launch[name]}" for name in ("grid", "block", "cluster")]
            sizes = [f"{buffer.get('name')} {buffer['size']} B" for buffer in launch["buffers"]]
            words = ", ".join([*shapes, f"shared {launch['shared']} B"])
            lines.append(f"launch {number}: {words}; {', '.join(sizes)}")
            lines += [
                f"  {case['cubin'][:12]} {case['entry']}  {case['name']}"
                for case in self.cases
                if case["launch"] == number
            ]
        return lines

    def members(self) -> dict[str, bytes]:
        """Everything in the archive that is code: names and bytes."""
        names = [name for name in self._archive.namelist() if name.endswith(".py")]
        return {name: self._read(name, 1 << 20) for name in names}


def _wrong_argument(argument: object, buffers: list[dict[str, Any]]) -> str | None:
    """What is wrong with an argument: `scalar`, `pointer`, `map`, or none of them (null)."""
    if not isinstance(argument, dict):
        return "an argument is not an object"
    pointer = argument.get("pointer")
    if "map" in argument:
        tensor_map = argument["map"]
        pointer = tensor_map.get("pointer") if isinstance(tensor_map, dict) else 0
    if pointer is not None:
        if not isinstance(pointer, list) or len(pointer) != 2:
            return "a pointer is a buffer and an offset"
        if not _is_size(pointer[0], len(buffers) - 1) or not _is_size(pointer[1], _LARGEST_BUFFER):
            return "a pointer to no buffer"
    scalar = argument.get("scalar")
    if scalar is not None and not (isinstance(scalar, str) and _BYTES.fullmatch(scalar)):
        return "a scalar is not written in hexadecimal digits"
    return None
