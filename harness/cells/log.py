"""Reads a log: what compilers and launchers said when they failed, and what of it can be compiled.

Server logs, logs of CI and pasted tracebacks, as Triton 3.2 - 3.9, ptxas and Inductor write them.
Nothing of a log is ever run, and nothing is read but its text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from harness.cells.repros.cache_folders import ImportedKernel
from harness.frontends.texts.ir_inputs import exact_target, half_compiled
from harness.judging.messages import TRITON_OVERFLOW
from harness.judging.ptxas.log import parse_ptxas_log
from harness.values.errors import UsageError
from harness.values.kernel import Repro
from harness.values.limits import KNOWN_CAPABILITIES, limits_of
from harness.values.target import Target

_COLOUR = re.compile(r"\x1b\[[\d;]{0,20}m")
# What loggers write before a line: a time (CI, containers), a rank, a process, a level.
_PREFIX = re.compile(
    r"(?:\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? "
    r"|\[(?:default\d{1,4}|rank\d{1,4}|\d{1,4})\]:? ?"
    r"|\([\w .=-]{0,60}\bpid=\d{1,9}[^)\n]{0,80}\) "
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]\n]{1,80}\] "
    r"|[VIWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,9} \d{1,9} [^\s\]]{1,300}\] (?:\[[\w/ ]{1,20}\] )?"
    r"|> )*"
)
# No tool that is read here writes longer lines, and what scans them stays fast.
_LONGEST = 20_000
# Lines between what ptxas says and the PTX below it: its other complaints, and the command.
_NEAR = 60
# Of Python, of IPython, which numbers its lines, and of a process that dies (without a comma).
_FRAME = re.compile(
    r"[ \d]{0,20}File (?:\"(?P<file>[^\"\n]{1,1000})\", line (?P<line>\d{1,7})"
    r"|(?P<cell>[^\s:\"]{1,1000}\.py):(?P<at>\d{1,7}))(?P<raised>,?) in \S"
)
_SUBSCRIPTED = re.compile(r"\b(\w{1,200})\[")
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/(\w.*)\.py")
_INSIDE_TRITON = re.compile(r".*/triton/(?:runtime|compiler|backends)/")
_COMMAND = re.compile(r"Repro command: (\S.*)")
_GPU_NAME = re.compile(r"--gpu-name[= ](sm_\w{2,5})")
_PTX_FILE = re.compile(r"(\S+\.ptx) -o ")
_PTX_BEGINS = re.compile(r"\.version \d{1,2}\.\d{1,2}\s*")
_PTX_ENDS = re.compile(r"={20,}|-{20,}|```|Traceback \(|please share the reproducer")
_PASS = re.compile(r"Pipeline failed while executing \[`(\w{1,100})`")
_CRASH = re.compile(
    r"Fatal Python error: \w[\w ]{1,60}|Segmentation fault|\bSIG(?:SEGV|ABRT|KILL|FPE|ILL|BUS)\b"
    r"|LLVM ERROR: .{1,200}"
)
_AT_RUN_TIME = re.compile(
    r"an illegal memory access was encountered|misaligned address|device-side assert triggered"
    r"|an illegal instruction was encountered|unspecified launch failure"
)
_INDUCTOR = re.compile(r"Triton compilation failed: (\w{1,300})\s*")
_RELEASE = re.compile(
    r"\b([A-Za-z][\w-]{0,60})(?:(?:==| [Vv]ersion:? )v?|-| {1,60})(\d{1,4}\.\d{1,4}\.\d{1,4})\b"
)
# Names under which GPUs of a compute capability are sold: NVIDIA's page "CUDA GPU Compute
# Capability".
_SOLD_AS: Mapping[int, str] = {
    70: "V100",
    75: r"T4|RTX 20[678]0",
    80: "A100|A800|A30",
    86: r"A10G?|A16|A40|RTX A\d000|RTX 30[5-9]0",
    89: r"L4|L20|L40S?|RTX 40[5-9]0|RTX \d000 Ada",
    90: "H100|H200|H800|H20|GH200",
    100: "B200|GB200",
    103: "B300|GB300",
    120: r"RTX 50[5-9]0|RTX PRO \d000",
    121: "GB10",
}
_GPU = re.compile(
    "|".join(rf"NVIDIA (?:GeForce )?(?P<sm{sm}>{names})\b" for sm, names in _SOLD_AS.items())
)
_TORCH_TYPES = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "i1": "bool",
}


class Clue(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a log says.

    Attributes:
        line: where in the log, from 1.
        words: what it is.
        kernel: what can be compiled from the log alone.
        names: kernels of the corpus that the log leads to.
        file: a file of the machine that wrote the log, which `--kernel` takes.
        target: the GPU that it is about.
    """

    line: int
    words: str
    kernel: ImportedKernel | None = None
    names: tuple[str, ...] = ()
    file: str | None = None
    target: Target | None = None


class LogReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a log holds: clues in its order, releases by package, and the GPUs that it names."""

    clues: tuple[Clue, ...]
    releases: Mapping[str, str]
    targets: tuple[Target, ...]


def read_log(text: str, repros: Sequence[Repro]) -> LogReading:
    """Read any text; a frame inside a package leads to its kernels in `repros`, the corpus."""
    plain = _COLOUR.sub("", text.replace("\r", ""))
    lines = [_PREFIX.sub("", line[:_LONGEST], count=1) for line in plain.split("\n")]
    packages = {"triton", "torch"} | {repro.source.pin.package for repro in repros if repro.source}
    releases = _releases(lines, packages)
    triton = releases.get("triton")
    clues = [
        *_modules(lines, triton),
        *_assemblies(lines, triton),
        *_inductor_kernels(lines, triton),
        *_sentences(lines),
        *_launches(lines, repros),
    ]
    first: dict[str, Clue] = {}
    for clue in sorted(clues, key=lambda clue: clue.line):
        # A log says a thing for each rank, at each attempt, and again in the exception.
        first.setdefault(clue.kernel.name if clue.kernel else clue.words, clue)
    return LogReading(clues=tuple(first.values()), releases=releases, targets=_targets(lines))


def _releases(lines: Iterable[str], packages: Collection[str]) -> dict[str, str]:
    """The first release that is named of each package: `triton==3.5.1`, `Triton version: 3.5.1`."""
    releases: dict[str, str] = {}
    for line in lines:
        for name, version in _RELEASE.findall(line):
            package = name.lower().replace("_", "-").removeprefix("pytorch-")
            if package in packages:
                releases.setdefault(package, version)
    return releases


def _targets(lines: Iterable[str]) -> tuple[Target, ...]:
    """The GPUs that are named, in the order of the log."""
    names = [match.lastgroup or "" for line in lines for match in _GPU.finditer(line)]
    return tuple(exact_target(int(name.removeprefix("sm"))) for name in dict.fromkeys(names))


def _modules(lines: Sequence[str], triton: str | None) -> Iterator[Clue]:
    """MLIR reproducers: a module, and behind it the pipeline that failed."""
    for marker, line in enumerate(lines):
        if line.strip() != "{-#" or "mlir_reproducer" not in "".join(lines[marker : marker + 4]):
            continue
        end = next((at for at in range(marker, len(lines)) if lines[at].strip() == "#-}"), None)
        start = next((at for at in range(marker, -1, -1) if lines[at].startswith("module")), None)
        if end is None or start is None:
            continue
        while start and re.match(r"[#!][\w.]{1,100} = ", lines[start - 1]):
            start -= 1
        module = "\n".join(lines[start : end + 1]) + "\n"
        suffix = ".ttgir" if re.search(r"(?:ttg|triton_gpu)\.num-warps", module) else ".ttir"
        failed = next(filter(None, map(_PASS.search, lines[end : end + 20])), None)
        what = f"an MLIR reproducer{f', which failed in {failed[1]}' if failed else ''}"
        yield _clue_of(start, what, module, suffix, triton)


def _clue_of(
    at: int, what: str, text: str, suffix: str, triton: str | None, target: Target | None = None
) -> Clue:
    """The clue of PTX or IR that stands in the log."""
    try:
        half = half_compiled(text.encode(), suffix)
    except UsageError as error:
        return Clue(line=at + 1, words=f"{what}, which cannot be compiled: {error}")
    kernel = ImportedKernel(
        kernel=half.kernel,
        origin=f"line {at + 1} of a log",
        files={suffix: half.data},
        options=dict(half.ir.pipeline) if half.ir else {},
        target=target or half.target,
        triton=triton,
        failed_after=suffix.removeprefix("."),
    )
    return Clue(line=at + 1, words=f"kernel {half.kernel}: {what}", kernel=kernel)


def _assemblies(lines: Sequence[str], triton: str | None) -> Iterator[Clue]:
    """What ptxas refused: PTX that stands in the log, else the file that a command names."""
    complaints = dict(_complaints(lines))
    commands = {at: match[1] for at, line in enumerate(lines) if (match := _COMMAND.search(line))}
    explained = set[str]()

    def explain(at: int) -> str:
        complaint = next((complaints[i] for i in range(at - _NEAR, at) if i in complaints), "")
        explained.add(complaint)
        return f"; ptxas: {complaint}" if complaint else ""

    for start, line in enumerate(lines):
        if not _PTX_BEGINS.fullmatch(line):
            continue
        above = [commands[at] for at in range(start - _NEAR, start) if at in commands]
        explained.update(above[-1:])
        gpu = _GPU_NAME.search(above[-1]) if above else None
        end = next((at for at in range(start, len(lines)) if _PTX_ENDS.match(lines[at])), None)
        text = "\n".join(lines[start:end]) + "\n"
        target = Target.parse(gpu[1]) if gpu else None
        yield _clue_of(start, f"PTX{explain(start)}", text, ".ptx", triton, target)
    for at, command in commands.items():
        file, gpu = _PTX_FILE.search(command), _GPU_NAME.search(command)
        if command in explained or not file:
            continue
        yield Clue(
            line=at + 1,
            words=f"a file of PTX on the machine that wrote the log{explain(at)}",
            file=file[1],
            target=Target.parse(gpu[1]) if gpu else None,
        )
    for at, complaint in complaints.items():
        if complaint not in explained:
            yield Clue(line=at + 1, words=f"ptxas: {complaint}")


def _complaints(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Why ptxas failed, with the line; not that it aborts because of it."""
    for at, line in enumerate(lines):
        errors = parse_ptxas_log(f"{line.strip()}\n").errors if "ptxas" in line else ()
        for error in errors:
            if not error.text.startswith("Ptx assembly aborted"):
                yield at, f"{error.text}{f' ({error.code})' if error.code else ''}"


def _inductor_kernels(lines: Sequence[str], triton: str | None) -> Iterator[Clue]:
    """Kernels that Inductor prints when they do not compile: the source, then what it is given."""
    for start, line in enumerate(lines):
        match = _INDUCTOR.search(line)
        last = next(
            (
                at
                for at in range(start + 1, min(start + 5000, len(lines)))
                if match and lines[at].startswith("metadata: {")
            ),
            None,
        )
        if match is None or last is None:
            continue
        name, source = match[1], "\n".join(lines[start + 1 : last])
        metadata = _literals(lines[last].removeprefix("metadata: "))
        launch = _launch_of(source, metadata)
        if launch is None:
            yield Clue(line=start + 1, words=f"kernel {name} of Inductor, without its signature")
            continue
        capability = metadata.get("cc")
        kernel = ImportedKernel(
            kernel=name,
            origin=f"line {start + 1} of a log",
            files={".py": launch.encode()},
            options={},
            target=exact_target(capability) if isinstance(capability, int) else None,
            triton=triton,
            failed_after=None,
        )
        yield Clue(line=start + 1, words=f"kernel {name}: source by Inductor", kernel=kernel)


def _literals(text: str) -> dict[str, object]:
    """The values of a printed dictionary that are literals; it is parsed, never evaluated."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    values: dict[str, object] = {}
    for key, value in (
        zip(tree.keys, tree.values, strict=True) if isinstance(tree, ast.Dict) else ()
    ):
        try:
            values[ast.literal_eval(key or value)] = ast.literal_eval(value)
        except (ValueError, TypeError):
            continue
    return values


_LAUNCH = '''\
"""{name}: a kernel that Inductor generated, as a log printed it."""

import torch
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math


@triton.jit
{source}


def launch(*, elements=1 << 20):
    {name}[(1,)]({arguments})
'''


def _launch_of(source: str, metadata: Mapping[str, object]) -> str | None:
    """A file that launches the kernel once, on tensors of a size that the log does not tell."""
    function = re.search(r"^def (\w+)\(", source, re.MULTILINE)
    signature, constants = metadata.get("signature"), metadata.get("constants")
    if not function or not isinstance(signature, dict) or not isinstance(constants, dict):
        return None
    arguments = []
    for name, kind in signature.items():
        if name in constants or kind == "constexpr":
            value = repr(constants.get(name))
        elif str(kind).startswith("*") and str(kind)[1:] in _TORCH_TYPES:
            dtype = _TORCH_TYPES[str(kind)[1:]]
            value = f'torch.empty(elements, device="cuda", dtype=torch.{dtype})'
        elif str(kind) in _TORCH_TYPES:
            value = "1.0" if "fp" in str(kind) else "elements"
        else:
            return None
        arguments.append(f"{name}={value}")
    arguments += [
        f"{option}={metadata[option]!r}"
        for option in ("num_warps", "num_stages")
        if isinstance(metadata.get(option), int)
    ]
    return _LAUNCH.format(
        name=function[1], source=source[function.start() :].rstrip(), arguments=", ".join(arguments)
    )


def _sentences(lines: Iterable[str]) -> Iterator[Clue]:
    """What is said without anything that could be compiled."""
    for at, line in enumerate(lines, start=1):
        if match := TRITON_OVERFLOW.search(line):
            resource, used, limit = match[1], int(match[2]), int(match[3])
            gpus = [sm for sm in KNOWN_CAPABILITIES if resource == "shared memory"]
            same = [f"sm_{sm}" for sm in gpus if _most_shared(sm) == limit]
            whose = f", that of {', '.join(same)}" if same else ""
            words = f"a config needs {used:,} of {resource}; the limit is {limit:,}{whose}"
            yield Clue(line=at, words=words)
        elif match := _AT_RUN_TIME.search(line):
            words = f"a kernel fails on the GPU: {match[0]}"
            yield Clue(line=at, words=words)
        elif match := _CRASH.search(line):
            yield Clue(line=at, words=f"a process dies: {match[0]}")


def _most_shared(capability: int) -> int | None:
    limits = limits_of(capability)
    return limits.max_shared_per_block if limits else None


def _launches(lines: Sequence[str], repros: Sequence[Repro]) -> Iterator[Clue]:
    """Frames that launch a kernel: the next one is inside Triton's runtime or its compiler."""
    frames = [
        (at, (match["file"] or match["cell"]).replace("\\", "/"), match)
        for at, line in enumerate(lines)
        if (match := _FRAME.match(line))
    ]
    for pair in pairwise(frames):
        # A process that dies says its innermost frame first, and no code.
        is_raised = all(match["raised"] for _, _, match in pair)
        (at, file, match), (inner_at, inner, _) = pair if is_raised else reversed(pair)
        installed = _INSTALLED.fullmatch(file)
        module = installed[1].replace("/", ".") if installed else ""
        package = module.partition(".")[0]
        launches = _INSIDE_TRITON.match(inner) and not _INSIDE_TRITON.match(file)
        if not launches or package == "torch" or file.startswith("<"):
            continue
        below = lines[at + 1 : inner_at]
        shown = (text for text in below if text.startswith("-->"))
        subscripted = _SUBSCRIPTED.search(next(shown, "".join(below[:1])))
        kernel = subscripted[1] if subscripted else "a kernel"
        line = match["line"] or match["at"]
        words = f"{module or file}, line {line}, launches {kernel}"
        if not installed:
            yield Clue(line=at + 1, words=words, file=file)
            continue
        of_package = [
            repro
            for repro in repros
            if repro.source and repro.source.module.partition(".")[0] == package
        ]
        names = tuple(repro.name for repro in of_package if repro.kernel == kernel) or tuple(
            repro.name for repro in of_package if repro.source and repro.source.module == module
        )
        yield Clue(line=at + 1, words=words, names=names)
