"""Reads a log: what compilers and launchers said when they failed, and what of it can be compiled.

Server logs, logs of CI and pasted tracebacks, as Triton 3.2 - 3.9, ptxas and Inductor write them.
Nothing of a log is ever run, and nothing is read but its text.
"""

from __future__ import annotations

import ast
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise

import msgspec
from msgspec.structs import replace

from harness.cells.log_errors import (
    COMPILE_ERROR,
    DIRECT_CAUSE,
    ERROR_LINES,
    RAISED,
    LoggedError,
    error_at,
    needs,
)
from harness.cells.repros.cache_folders import ImportedKernel
from harness.frontends.texts.ir_inputs import half_compiled
from harness.judging.messages import ASSERTION, TRITON_OVERFLOW, is_generic
from harness.judging.ptxas.ptxas_log import parse_ptxas_log
from harness.values.errors import UsageError
from harness.values.kernel import Repro
from harness.values.limits import KNOWN_CAPABILITIES, limits_of
from harness.values.target import SOLD_AS, Target, exact_target

_ESCAPE = re.compile(r"\x1b\[[\d;?]{0,20}[A-Za-z]")
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
# Lines behind a module in which the pass stands that failed.
_PASS_NEAR = 20
# More clues of one kind are counted.
_MOST = 100
# Of Python, of IPython, which numbers its lines, and of a process that dies (without a comma).
_FRAME = re.compile(
    r"[ \d]{0,20}File (?:\"(?P<file>[^\"\n]{1,1000})\", line (?P<line>\d{1,7})"
    r"|(?P<cell>[^\s:\"]{1,1000}\.py):(?P<at>\d{1,7}))(?P<raised>,?) in \S"
)
_SUBSCRIPTED = re.compile(r"\b(\w{1,200})\[")
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/(\w.*)\.py")
_INSIDE_TRITON = re.compile(r".*/triton/(?:runtime|compiler|backends)/")
_INSIDE_COMPILER = re.compile(r"/(?:triton|tilelang|tvm|cutlass|helion|cuda/tile)/")
# Of triage: what records launches.
_OWN = re.compile(r"(?:^|/)harness/(?:frontends|io)/")
_NOT_DEFINED = re.compile(r"Value '(sm_(\d{2,3})\w?)' is not defined for option 'gpu-name'")
_NEWER_PTX = re.compile(r"Unsupported \.version (\d{1,2}\.\d{1,2}); current version is")
_OF_TRITON = re.compile(r".*/triton/(?:runtime|compiler|backends|language)/")
_COMMAND = re.compile(r"Repro command: (\S.*)")
_GPU_NAME = re.compile(r"--gpu-name[= ](sm_[1-9]\d{1,2}[af]?)\b")
_PTX_FILE = re.compile(r"(\S+\.ptx) -o ")
_PTX_BEGINS = re.compile(r"\.version \d{1,2}\.\d{1,2}\s*")
_PTX_ENDS = re.compile(r"={20,}|-{20,}|```|Traceback \(|please share the reproducer")
_PASS = re.compile(
    r"(?:(?P<file>[^\s:\"]{1,1000}\.py):(?P<line>\d{1,7}):\d{1,7}: note: )?"
    r"Pipeline failed while executing \[`(?P<name>\w{1,100})`"
)
_CRASH = re.compile(
    r"Fatal Python error: \w[\w ]{1,60}|Segmentation fault|\bSIG(?:SEGV|ABRT|KILL|FPE|ILL|BUS)\b"
    r"|LLVM ERROR: .{1,200}|\bAborted(?= \(core dumped\))"
    r"|'\w{1,40}' died due to signal \d{1,2}(?: \([\w ]{1,60}\))?"
)
_ASSERTS = re.compile(r"\bAssertion [`']")
_STAGE = re.compile(r" in make_(\w{1,40})")
_AT_RUN_TIME = re.compile(
    r"an illegal memory access was encountered|misaligned address|device-side assert triggered"
    r"|an illegal instruction was encountered|unspecified launch failure"
)
_INDUCTOR = re.compile(r"Triton compilation failed: (\w{1,300})\s*")
_RELEASE = re.compile(
    r"\b([A-Za-z][\w-]{0,60})(?: API server)?(?:(?:==|:? [Vv]ersion:? |: )v?|-| {1,60})"
    r"(\d{1,4}\.\d{1,4}\.\d{1,4})\b"
)
_GPU = re.compile(
    "|".join(rf"NVIDIA (?:GeForce )?(?P<sm{sm}>{names})\b" for sm, names in SOLD_AS.items())
)
_MARKS: Mapping[str, re.Pattern[str]] = {
    "frame": re.compile(rf"^{_FRAME.pattern}"),
    "traceback": re.compile(r"Traceback \("),
    "cause": re.compile(DIRECT_CAUSE),
    "error": re.compile(rf"^{RAISED.pattern}|{COMPILE_ERROR.pattern}"),
    "sentence": re.compile(
        "|".join(each.pattern for each in (TRITON_OVERFLOW, _AT_RUN_TIME, _CRASH, _ASSERTS, _PASS))
    ),
    "ptxas": re.compile(r"\bptxas"),
    "command": _COMMAND,
    "ptx": re.compile(rf"^{_PTX_BEGINS.pattern}$"),
    "ptx end": re.compile(rf"^(?:{_PTX_ENDS.pattern})"),
    "resources": re.compile(r"^\s*\{-#\s*$"),
    "resources end": re.compile(r"^\s*#-\}\s*$"),
    "module": re.compile("^module"),
    "inductor": _INDUCTOR,
    "metadata": re.compile(r"^metadata: \{"),
}
"""Lines by what they are."""

# Which ptxas a minor release of Triton bundles: for GPUs below a compute capability, and for those
# from it on. As the wheels 3.2.0, 3.3.1, 3.4.0, 3.5.1, 3.6.0, 3.7.1, 3.8.0 and 3.9.0 have them, and
# as `get_ptxas` of their `backends/nvidia/compiler.py` chooses.
_BUNDLED_PTXAS: Mapping[str, tuple[str, int, str]] = {
    "3.2": ("12.4.99", 100, "12.4.99"),
    "3.3": ("12.4.99", 100, "12.8.61"),
    "3.4": ("12.8.93", 100, "12.8.93"),
    "3.5": ("12.8.93", 100, "12.8.93"),
    "3.6": ("12.8.93", 100, "12.9.86"),
    "3.7": ("12.8.93", 100, "13.1.80"),
    "3.8": ("12.9.86", 100, "13.3.33"),
    "3.9": ("12.9.86", 90, "13.4.59"),
}
_TORCH_TYPES = {
    **{f"fp{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    "bf16": "bfloat16",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
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
    """Read any text; a frame inside a package leads to its kernels in `repros`, the corpus.

    A part of the text is in one clue at most, and equal parts are read once.
    """
    log = _Log(_ESCAPE.sub("", text.replace("\r", "")))
    packages = {"triton", "torch", "vllm", "sglang"}
    packages |= {repro.source.package for repro in repros if repro.source}
    releases = _releases(log.text, packages)
    triton = releases.get("triton")
    errors = list(_errors(log))
    kinds = (
        _modules(log, triton),
        _assemblies(log, triton),
        _inductor_kernels(log, triton),
        _sentences(log),
        _failures(log, errors, repros),
    )
    clues = [clue for kind in kinds for clue in _capped(kind)]
    gpus = [match.lastgroup or "" for match in _GPU.finditer(log.text)]
    targets = [exact_target(int(name.removeprefix("sm"))) for name in gpus]
    # What ptxas was asked for says it as well as the name of a GPU.
    targets += [Target.parse(match[1]) for match in _GPU_NAME.finditer(log.text)]
    return LogReading(
        clues=tuple(sorted(clues, key=lambda clue: clue.line)),
        releases=releases,
        targets=tuple(dict.fromkeys(targets)),
    )


def bundled_ptxas(triton: str, target: Target) -> str | None:
    """The ptxas that a release of Triton bundles for a GPU; None where that is not known."""
    known = _BUNDLED_PTXAS.get(".".join(triton.split(".")[:2]))
    return known and (known[0] if target.capability < known[1] else known[2])


class _Log:
    """The lines of a log, from 0, without what loggers write before them; `marks` by their kind."""

    def __init__(self, text: str) -> None:
        self.text = text
        # Millions of short lines take several times the memory as strings.
        self._starts = array("Q", [0])
        self._starts.extend(match.end() for match in re.finditer("\n", text))
        self._starts.append(len(text) + 1)
        self.marks = {kind: array("Q") for kind in _MARKS}
        for at in range(len(self)):
            line = self.line(at)
            for kind, pattern in _MARKS.items():
                if pattern.search(line):
                    self.marks[kind].append(at)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def line(self, at: int) -> str:
        """One line."""
        start = self._starts[at]
        line = self.text[start : min(self._starts[at + 1] - 1, start + _LONGEST)]
        prefix = _PREFIX.match(line)
        return line[prefix.end() :] if prefix else line

    def lines(self, start: int, end: int) -> list[str]:
        """From one line to before another, as far as there are such."""
        return [self.line(at) for at in range(max(start, 0), min(end, len(self)))]

    def next(self, kind: str, after: int) -> int:
        """The first line of a kind behind another; the number of lines where there is none."""
        marks = self.marks[kind]
        index = bisect_right(marks, after)
        return marks[index] if index < len(marks) else len(self)

    def last(self, kind: str, before: int) -> int:
        """The last line of a kind before another; -1 where there is none."""
        index = bisect_left(self.marks[kind], before)
        return self.marks[kind][index - 1] if index else -1


def _capped(clues: Iterable[Clue]) -> Iterator[Clue]:
    """Each thing once, though a log says it for each rank and at each attempt; and not too many."""
    seen = set[str]()
    last = 0
    for clue in clues:
        said = clue.kernel.name if clue.kernel else clue.words
        if said not in seen and len(seen) < _MOST:
            last = clue.line
            yield clue
        seen.add(said)
    if len(seen) > _MOST:
        yield Clue(line=last, words=f"and {len(seen) - _MOST:,} more like it")


def _releases(text: str, packages: Collection[str]) -> dict[str, str]:
    """The first release that is named of each package: `triton==3.5.1`, `Triton version: 3.5.1`."""
    releases: dict[str, str] = {}
    for match in _RELEASE.finditer(text):
        package = match[1].lower().replace("_", "-").removeprefix("pytorch-")
        if package in packages:
            releases.setdefault(package, match[2])
    return releases


def _modules(log: _Log, triton: str | None) -> Iterator[Clue]:
    """MLIR reproducers: a module, and behind it the pipeline that failed."""
    seen = set[str]()
    before = -1
    for marker in log.marks["resources"]:
        end, start = log.next("resources end", marker), log.last("module", marker)
        if end > log.next("resources", marker) or end == len(log) or start <= before:
            continue
        if "mlir_reproducer" not in "".join(log.lines(marker, marker + 4)):
            continue
        before = end
        while start and re.match(r"[#!][\w.]{1,100} = ", log.line(start - 1)):
            start -= 1
        module = "\n".join(log.lines(start, end + 1)) + "\n"
        if module in seen:
            continue
        seen.add(module)
        suffix = ".ttgir" if re.search(r"(?:ttg|triton_gpu)\.num-warps", module) else ".ttir"
        failed = next(filter(None, map(_PASS.search, log.lines(end, end + _PASS_NEAR))), None)
        where = f", which failed in {failed['name']}" if failed else ""
        yield _clue_of(start, f"an MLIR reproducer{where}", module, suffix, triton)


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


def _assemblies(log: _Log, triton: str | None) -> Iterator[Clue]:
    """What ptxas refused: PTX that stands in the log, else the file that a command names."""
    complaints = dict(_complaints(log))
    said = array("Q", complaints)
    explained, seen = set[str](), set[str]()

    def complaint_above(at: int) -> str:
        index = bisect_left(said, max(at - _NEAR, 0))
        return complaints[said[index]] if index < len(said) and said[index] < at else ""

    for start in log.marks["ptx"]:
        above = log.last("command", start)
        command = log.line(above) if above >= max(start - _NEAR, 0) else ""
        complaint = complaint_above(start)
        end = min(log.next("ptx end", start), log.next("ptx", start))
        text = "\n".join(log.lines(start, end)) + "\n"
        explained.add(complaint)
        if command:
            explained.add(_COMMAND.search(command)[1])  # type: ignore[index]
        if text in seen:
            continue
        seen.add(text)
        gpu = _GPU_NAME.search(command)
        target = Target.parse(gpu[1]) if gpu else None
        why = f"; ptxas: {complaint}" if complaint else ""
        yield _clue_of(start, f"PTX{why}", text, ".ptx", triton, target)
    for at in log.marks["command"]:
        command = _COMMAND.search(log.line(at))[1]  # type: ignore[index]
        file, gpu = _PTX_FILE.search(command), _GPU_NAME.search(command)
        complaint = complaint_above(at)
        # What ptxas says of its own age needs no file.
        if command in explained or not file or _TOO_OLD in complaint:
            continue
        explained.add(complaint)
        why = f"; ptxas: {complaint}" if complaint else ""
        words = f"a file of PTX on the machine that wrote the log{why}"
        target = Target.parse(gpu[1]) if gpu else None
        yield Clue(line=at + 1, words=words, file=file[1], target=target)
    for at, complaint in complaints.items():
        if complaint not in explained:
            yield Clue(line=at + 1, words=f"ptxas: {complaint}")


_TOO_OLD = "this ptxas is too old for"


def _complaints(log: _Log) -> Iterator[tuple[int, str]]:
    """Why ptxas failed, with the line; not that it aborts because of it."""
    known: dict[str, list[str]] = {}
    for at in log.marks["ptxas"]:
        line = log.line(at)
        if line not in known:
            known[line] = list(_complaints_in(line))
        for complaint in known[line]:
            yield at, complaint


def _complaints_in(line: str) -> Iterator[str]:
    # Whatever is written before ptxas' own words, in the same line.
    begins = [match.start() for match in islice(re.finditer(r"\bptxas", line), _MOST)]
    for error in chain.from_iterable(
        parse_ptxas_log(f"{line[begin:end].strip()}\n").errors
        for begin, end in pairwise([*begins, len(line)])
    ):
        if error.text.startswith("Ptx assembly aborted"):
            continue
        code = f" ({error.code})" if error.code else ""
        gpu, ptx = _NOT_DEFINED.search(error.text), _NEWER_PTX.search(error.text)
        why = ""
        if gpu and int(gpu[2]) >= min(KNOWN_CAPABILITIES):
            why = f": {_TOO_OLD} {gpu[1]}"
        elif ptx:
            why = f": {_TOO_OLD} PTX {ptx[1]}"
        yield f"{error.text}{code}{why}"


def _inductor_kernels(log: _Log, triton: str | None) -> Iterator[Clue]:
    """Kernels that Inductor prints when they do not compile: the source, then what it is given."""
    seen = set[str]()
    for start in log.marks["inductor"]:
        match, last = _INDUCTOR.search(log.line(start)), log.next("metadata", start)
        if match is None or last == len(log) or last > log.next("inductor", start):
            continue
        name, source = match[1], "\n".join(log.lines(start + 1, last))
        line = log.line(last)
        if source + line in seen:
            continue
        seen.add(source + line)
        metadata = _literals(line.removeprefix("metadata: "))
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
    # Triton 3.2 - 3.3 leave constants out of the signature.
    for name, kind in {**signature, **dict.fromkeys(constants, "constexpr")}.items():
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


def _sentences(log: _Log) -> Iterator[Clue]:
    """What is said without anything that could be compiled."""
    for number in log.marks["sentence"]:
        at, line = number + 1, log.line(number)
        if match := TRITON_OVERFLOW.search(line):
            resource, used, limit = match[1], int(match[2]), int(match[3])
            gpus = map(limits_of, KNOWN_CAPABILITIES if resource == "shared memory" else ())
            same = [
                f"sm_{gpu.capability}" for gpu in gpus if gpu and gpu.max_shared_per_block == limit
            ]
            whose = f", that of {', '.join(same)}" if same else ""
            unit = " B" if resource == "shared memory" else ""
            words = (
                f"a config needs {used:,}{unit} of {resource}; the limit is {limit:,}{unit}{whose}"
            )
            yield Clue(line=at, words=words)
        elif match := ASSERTION.search(line):
            words = f"C++ code stops at {match['file']}, line {match['line']}: {match['said']}"
            yield Clue(line=at, words=words)
        elif match := _AT_RUN_TIME.search(line):
            words = f"a kernel fails on the GPU: {match[0]}"
            yield Clue(line=at, words=words)
        elif match := _CRASH.search(line):
            yield Clue(line=at, words=f"a process dies: {match[0]}")
        elif match := _PASS.search(line):
            # The clue of a module that stands in the log names its pass.
            module = log.last("resources end", number)
            if module < 0 or number >= module + _PASS_NEAR:
                file, line = match["file"], match["line"]
                place = f" ({_module_of(file)}, line {line})" if file else ""
                yield Clue(line=at, words=f"pass {match['name']} fails{place}")


def _errors(log: _Log) -> Iterator[LoggedError]:
    """What compilers raised: by their words, or by a frame inside of one right above."""
    before: LoggedError | None = None
    for at in log.marks["error"]:
        if before and at <= before.end:
            continue
        lines = log.lines(at, at + ERROR_LINES)
        frame = _FRAME.match(log.line(log.last("frame", at))) if log.marks["frame"] else None
        inside = frame and _INSIDE_COMPILER.search(
            (frame["file"] or frame["cell"]).replace("\\", "/")
        )
        if not COMPILE_ERROR.search(lines[0]) and not inside:
            continue
        error = error_at(at, lines)
        stage = frame and _STAGE.search(log.line(log.last("frame", at)))
        if stage and is_generic(error.message):
            error = replace(error, message=f"{error.message}, at stage {stage[1]}")
        cause = log.last("cause", at)
        if before and before.at < cause:
            # The first of a chain says why, and the last names the kernel.
            error = replace(error, message=before.message or error.message)
        elif before:
            yield before
        before = error
    if before:
        yield before


def _failures(log: _Log, errors: Sequence[LoggedError], repros: Sequence[Repro]) -> Iterator[Clue]:
    """Launches, each with what was raised below it; and what was raised without one."""
    starts = [error.at for error in errors]
    explained = set[int]()
    for clue, end in _launches(log, repros):
        at = bisect_left(starts, end)
        is_below = at < len(errors) and starts[at] < log.next("traceback", end)
        if is_below:
            explained.add(at)
            error = errors[at]
            yield replace(clue, words=f"{clue.words}: {error.message}{needs(error.message)}")
        else:
            yield clue
    for at, error in enumerate(errors):
        if at not in explained and error.message:
            yield Clue(line=error.at + 1, words=error.words)


def _module_of(file: str) -> str:
    """The name of an installed module; any other file is called what it is."""
    installed = _INSTALLED.fullmatch(file)
    return installed[1].replace("/", ".") if installed else file


def _launches(log: _Log, repros: Sequence[Repro]) -> Iterator[tuple[Clue, int]]:
    """Frames that launch a kernel, each with the line of the frame inside of Triton below it."""
    frames = (
        (at, (match["file"] or match["cell"]).replace("\\", "/"), match)
        for at in log.marks["frame"]
        if (match := _FRAME.match(log.line(at)))
    )
    # Those of triage itself stand between a launch and Triton where it made the log.
    for pair in pairwise(frame for frame in frames if not _OWN.search(frame[1])):
        # A process that dies says its innermost frame first, and no code.
        is_raised = all(match["raised"] for _, _, match in pair)
        (at, file, match), (inner_at, inner, _) = pair if is_raised else reversed(pair)
        installed = _INSTALLED.fullmatch(file)
        module = _module_of(file)
        package = module.partition(".")[0]
        launches = _INSIDE_TRITON.match(inner) and not _OF_TRITON.match(file)
        is_one = log.last("traceback", at) == log.last("traceback", inner_at)
        if not (launches and is_one) or package == "torch" or file.startswith("<"):
            continue
        below = log.lines(at + 1, min(inner_at, at + _NEAR))
        shown = (text for text in below if text.startswith("-->"))
        subscripted = _SUBSCRIPTED.search(next(shown, "".join(below[:1])))
        kernel = subscripted[1] if subscripted else "a kernel"
        line = match["line"] or match["at"]
        words = f"{module}, line {line}, launches {kernel}"
        if not installed:
            yield Clue(line=at + 1, words=words, file=file), inner_at
            continue
        of_package = [
            repro
            for repro in repros
            if repro.source and repro.source.module.partition(".")[0] == package
        ]
        names = tuple(repro.name for repro in of_package if repro.kernel == kernel) or tuple(
            repro.name for repro in of_package if repro.source and repro.source.module == module
        )
        yield Clue(line=at + 1, words=words, names=names), inner_at
