"""Reads what Triton or Inductor left in a folder, as data: nothing of it is ever run here.

`<hash>/<name>.{ttir,ttgir,llir,ptx,cubin,json}`, as Triton's cache and `TRITON_KERNEL_DUMP` write
it; `output_code.py` and the kernels' files of Inductor's cache and debug folders. Whatever is odd
(a link, a pipe, rubbish, too much) is passed over with a line that says so.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import itertools
import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from harness.frontends.texts.ir_inputs import SUFFIXES, half_compiled, read_file
from harness.io.files.reading import open_regular, read_regular
from harness.io.files.writing import ensure_folder
from harness.io.packages.versions import parse_version
from harness.values.errors import UsageError
from harness.values.kernel import Scalar
from harness.values.target import Target, exact_target

if TYPE_CHECKING:
    from harness.frontends.texts.ir_inputs import HalfCompiled


_MARKER = ".imported"
_MAX_DEPTH = 6
_MAX_FILES = 50_000
_MAX_METADATA = 1 << 20
_MAX_SOURCE = 4 << 20  # as a syntax tree, up to 600 times as much
_MAX_TRACE = 4 << 30
_ODD = re.compile(r"[^\w.+-]+")
_PIPELINE = (".ttir", ".ttgir", ".llir", ".ptx")
_KNOWN = (*_PIPELINE, ".cubin", ".json")
# What of Triton's metadata was an option that decides about code, and what it is if not given.
_OPTIONS: dict[str, Scalar | None] = {
    "num_warps": None,
    "num_stages": None,
    "num_ctas": 1,
    "maxnreg": None,
    "enable_fp_fusion": True,
    "launch_pdl": False,
    "launch_cooperative_grid": False,
    "ptx_options": "",
}


class ImportedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One compilation: the files to go on from, the first by default, and what is known of it.

    `failed_after` is the last stage that it came to, None where it came to its end.
    """

    kernel: str
    origin: str
    files: Mapping[str, bytes]
    options: Mapping[str, Scalar]
    target: Target | None
    triton: str | None
    failed_after: str | None

    @property
    def state(self) -> str:
        """What is known of its compilation."""
        if ".py" in self.files:
            return "a source that Inductor generated"
        if self.failed_after:
            return f"its compilation failed after {self.failed_after}"
        return "its compilation succeeded"

    @property
    def name(self) -> str:
        """The repro's: the kernel's name and a part of the content's hash."""
        digest = hashlib.sha256()
        for suffix, data in sorted(self.files.items()):
            digest.update(suffix.encode() + hashlib.sha256(data).digest())
        digest.update(json.dumps([dict(self.options), self.triton], sort_keys=True).encode())
        plain = _ODD.sub("_", self.kernel).strip("._+-")[:80] or "kernel"
        return f"{plain}-{digest.hexdigest()[:8]}"


class Leftovers(msgspec.Struct, kw_only=True):
    """What a folder holds, and a line for each thing in it that was passed over."""

    kernels: list[ImportedKernel] = []
    skipped: list[str] = []


def read_leftovers(folder: Path) -> Leftovers:
    """Every compilation in a cache or dump folder, or in a trace of tritonparse.

    Raises:
        UsageError: there is no such folder or trace.
    """
    if folder.suffix in _TRACES:
        return _read_trace(folder)
    if not folder.is_dir():
        problem = "not a folder" if folder.exists() else "no such folder"
        raise UsageError(
            f"{folder}: {problem}; name a cache or dump folder of Triton or Inductor, "
            f"or a trace of tritonparse ({', '.join(_TRACES)})"
        )
    leftovers = Leftovers()
    entries: dict[Path, dict[str, Path]] = {}
    for count, path in enumerate(_files(folder, leftovers, 0)):
        if count == _MAX_FILES:
            leftovers.skipped.append(f"{folder}: only its first {_MAX_FILES:,} files are read")
            break
        if path.suffix in _KNOWN and not path.name.startswith("__grp__"):
            entries.setdefault(path.with_suffix(""), {})[path.suffix] = path
        elif path.suffix == ".py":
            leftovers.kernels += _inductor_file(path, str(path.relative_to(folder)), leftovers)
    for files in entries.values():
        if any(suffix in files for suffix in _PIPELINE):
            kernel = _read_entry(folder, files, leftovers)
            if kernel:
                leftovers.kernels.append(kernel)
    return leftovers


def _inductor_file(path: Path, origin: str, leftovers: Leftovers) -> list[ImportedKernel]:
    """The kernels of a file, if Inductor wrote it."""
    try:
        data = read_regular(path, _MAX_SOURCE, follow_links=False)
        kernels = inductor_kernels(data.decode()) if b"triton_heuristics" in data else []
    except (UsageError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        leftovers.skipped.append(f"{path}: {error}")
        return []
    earlier = {(kernel.kernel, kernel.files.get(".py")) for kernel in leftovers.kernels}
    imported = []
    for name, source in kernels:
        text = f"{source.strip()}\n{_INDUCTOR_LAUNCH}".encode()
        gpu = re.search(r"\bcc=(\d{2,3})\b", source)
        kernel = ImportedKernel(
            kernel=name,
            origin=origin,
            files={".py": text},
            options={},
            target=exact_target(int(gpu[1])) if gpu else None,
            triton=None,
            failed_after=None,
        )
        if (name, text) not in earlier:
            imported.append(kernel)
    return imported


# A repro has a launch.
_INDUCTOR_LAUNCH = '''

def launch():
    """Nothing is left to do: the heuristics above choose the configs."""
'''


def inductor_kernels(text: str) -> list[tuple[str, str]]:
    """The kernels of a file of Inductor and the source of each; the file is parsed, never run.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: it is no Python.
    """
    kernels = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="triton"),
                args=[ast.Constant(value=str(name)), ast.Constant(value=str(source)), *_],
            ):
                kernels.append((name, source))
            case ast.FunctionDef(name=name, decorator_list=decorators) if any(
                ast.unparse(decorator).startswith("triton_heuristics.") for decorator in decorators
            ):
                kernels.append((name, text))
    return kernels


def _files(folder: Path, leftovers: Leftovers, depth: int) -> Iterator[Path]:
    """Regular files, in order; links are not followed: they may lead anywhere."""
    try:
        children = sorted(os.scandir(folder), key=lambda child: child.name)
    except OSError as error:
        leftovers.skipped.append(f"{folder}: cannot be read: {error.strerror}")
        return
    for child in children:
        path = Path(child.path)
        if child.is_symlink():
            leftovers.skipped.append(f"{path}: a symbolic link: not followed")
        elif child.is_dir(follow_symlinks=False):
            if path.suffix in _KNOWN:
                leftovers.skipped.append(f"{path}: a folder, not a file")
            elif depth < _MAX_DEPTH:
                yield from _files(path, leftovers, depth + 1)
        elif child.is_file(follow_symlinks=False):
            yield path
        elif path.suffix in _KNOWN:
            leftovers.skipped.append(f"{path}: not a regular file")


def _read_entry(
    folder: Path, files: Mapping[str, Path], leftovers: Leftovers
) -> ImportedKernel | None:
    """One compilation; None where nothing of it is left that could be gone on from."""
    read: dict[str, HalfCompiled] = {}
    for suffix in SUFFIXES:
        if suffix in files:
            try:
                read[suffix] = read_file(files[suffix], follow_links=False)
            except UsageError as error:
                leftovers.skipped.append(str(error))
    metadata = _metadata(files.get(".json"), leftovers)
    name = str(next(iter(files.values())).with_suffix("").relative_to(folder))
    if not read:
        leftovers.skipped.append(f"{folder / name}: nothing left to go on from")
        return None
    # Triton writes the metadata last, a dump the cubin: with either, the compilation succeeded.
    ended = ".json" in files or ".cubin" in files
    last = next(suffix for suffix in reversed(_PIPELINE) if suffix in files)
    return _imported(name, read, metadata, None if ended else last.removeprefix("."))


def _imported(
    origin: str,
    read: Mapping[str, HalfCompiled],
    metadata: Mapping[str, Any],
    failed_after: str | None,
) -> ImportedKernel:
    order = sorted(read, key=_PIPELINE.index, reverse=failed_after is not None)
    made_by = metadata.get("triton_version")
    version = parse_version(made_by) if isinstance(made_by, str) else None
    targets = [half.target for half in (read.get(s) for s in (".ptx", ".ttgir")) if half]
    return ImportedKernel(
        kernel=read[order[0]].kernel,
        origin=origin,
        files={suffix: read[suffix].data for suffix in order},
        options=_options(metadata),
        target=next(filter(None, targets), None) or _target(metadata),
        triton=str(version) if version else None,
        failed_after=failed_after,
    )


_TRACES = (".ndjson", ".gz")
_MAX_EVENT = 64 << 20  # one event holds the texts of one compilation
_MAX_REMARKS = 100


def _read_trace(path: Path) -> Leftovers:
    """The compilations in a trace of tritonparse: one JSON object a line, maybe in gzip.

    A small file may unpack to any size: it is read until a line is too long, the text too large, or
    too much of it is none of these objects, and the last remark says so.

    Raises:
        UsageError: it cannot be read.
    """
    leftovers = Leftovers()
    names, left = set[str](), _MAX_TRACE
    with open_regular(path, _MAX_TRACE) as file:
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        lines = gzip.GzipFile(fileobj=file) if is_packed else file
        try:
            for number in itertools.count(1):
                line = lines.readline(_MAX_EVENT + 1)
                if not line:
                    break
                left -= len(line)
                remarks = len(leftovers.skipped)
                for is_over, words in (
                    (len(line) > _MAX_EVENT, f"longer than {_MAX_EVENT >> 20} MiB"),
                    (left < 0, f"past {_MAX_TRACE >> 30} GiB of text"),
                    (remarks >= _MAX_REMARKS, f"{remarks} remarks before it"),
                ):
                    if is_over:
                        rest = f"{path}, line {number}: {words}: the rest is not read"
                        leftovers.skipped.append(rest)
                        return leftovers
                kernel = _traced(line, f"{path}, line {number}", leftovers)
                if kernel and kernel.name not in names:
                    names.add(kernel.name)
                    leftovers.kernels.append(kernel)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            leftovers.skipped.append(f"{path}: the rest is damaged: {error}")
    return leftovers


def _traced(line: bytes, origin: str, leftovers: Leftovers) -> ImportedKernel | None:
    """The compilation that a line of a trace tells of; None where it tells of something else."""
    try:
        event = msgspec.json.decode(line, type=_TraceEvent)
    except (msgspec.DecodeError, RecursionError):
        leftovers.skipped.append(f"{origin}: not an event of tritonparse")
        return None
    if event.event_type != "compilation" or event.is_fake or event.payload is None:
        return None
    read: dict[str, HalfCompiled] = {}
    for name, text in event.payload.file_content.items():
        suffix = Path(name).suffix
        if suffix in SUFFIXES:
            try:
                read[suffix] = half_compiled(text.encode(), suffix)
            except UsageError as error:
                leftovers.skipped.append(f"{origin}, {name}: {error}")
    return _imported(origin, read, event.payload.metadata, None) if read else None


class _TracePayload(msgspec.Struct):
    metadata: dict[str, Any] = {}
    file_content: dict[str, str] = {}


class _TraceEvent(msgspec.Struct):
    event_type: str
    payload: _TracePayload | None = None
    is_fake: bool = False


def _metadata(path: Path | None, leftovers: Leftovers) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        value = json.loads(read_regular(path, _MAX_METADATA, follow_links=False))
    except UsageError as error:
        leftovers.skipped.append(str(error))
        return {}
    except (ValueError, RecursionError):
        leftovers.skipped.append(f"{path}: not JSON: its options are not known")
        return {}
    return value if isinstance(value, dict) else {}


def _options(metadata: Mapping[str, Any]) -> dict[str, Scalar]:
    values = {name: metadata.get(name) for name in _OPTIONS}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, bool | int | str) and value != _OPTIONS[name]
    }


def _target(metadata: Mapping[str, Any]) -> Target | None:
    target = metadata.get("target")
    arch = target.get("arch") if isinstance(target, dict) else None
    try:
        return Target.parse(f"{arch}") if isinstance(arch, int) else None
    except UsageError:
        return None


def write_repro(kernel: ImportedKernel, into: Path, *, triton: str | None) -> tuple[Path, bool]:
    """Make `into/NAME`, whole or not at all; its folder, and whether it is new.

    `triton` is the version that made it, where the metadata does not tell.

    Raises:
        StorageError: it cannot be written.
        UsageError: something else has that name.
    """
    folder = into / kernel.name
    is_new = not folder.exists()
    # A source is launched by the file that it stands in.
    origin = "".join(char if char.isprintable() else "?" for char in kernel.origin)
    files = ["launch.py" if suffix == ".py" else f"kernel{suffix}" for suffix in kernel.files]
    document: dict[str, Any] = {
        "kernel": kernel.kernel,
        "summary": f"imported from {origin[:200]}: {kernel.state}",
    }
    if ".py" in kernel.files:
        document |= {"launches": ["launch"], "configs": None}
    else:
        document |= {"files": files, "configs": 1}
    if kernel.options:
        document["options"] = dict(kernel.options)
    if kernel.triton or triton:
        document["triton"] = kernel.triton or triton
    if kernel.target:
        document["targets"] = [str(kernel.target)]

    def fill(partial: Path) -> bytes:
        for name, data in zip(files, kernel.files.values(), strict=True):
            (partial / name).write_bytes(data)
        text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
        (partial / "repro.yaml").write_text(text, encoding="utf-8")
        return b""

    return ensure_folder(folder, marker=_MARKER, fill=fill), is_new
