"""What a `.cu` file says of itself: its configs, and the headers of the user's that it includes.

A line `// config NAME = VALUE VALUE ...` lists values of a macro, which nvcc gets as
`-DNAME=VALUE`: template arguments are chosen so too, by an explicit instantiation that names it. A
line `// launch [KERNEL] block=X[,Y,Z] shared=BYTES` says what nothing else in the file does.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from gpu_emulator.ptx.text.facts import PtxError, read_ptx
from harness.io.files.reading import read_regular
from harness.values.errors import ConfigurationError, UsageError
from harness.values.kernel import Scalar

_MOST_BYTES = 16 << 20
_MOST_CONFIGS = 4096
_CONFIG = re.compile(r"^\s*//\s*config\s+(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_LAUNCH = re.compile(r"^\s*//\s*launch\b([^\n]*)$", re.MULTILINE)
_MOST_THREADS = re.compile(r"\.maxntid\s+([\d\s,]+)")
_INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
_MACRO = re.compile(r"[A-Za-z_]\w*")
_BOUNDS = re.compile(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)")
_KERNEL = re.compile(r"\b__global__\b[^;{()]*?\b(\w+)\s*(?:<[^;{()]*>)?\s*\(")
_NUMBER = re.compile(r"-?\d+")
# Itanium C++ ABI, 5.1.2: `_Z`, then names as length and letters; `N ... E` around nested ones.
_MANGLED = re.compile(r"_Z(N?)(\d+)")


def read_source(path: Path) -> str:
    """The text of a file.

    Raises:
        UsageError: it cannot be read, or is not text.
    """
    try:
        return read_regular(path, _MOST_BYTES).decode()
    except ConfigurationError as error:
        raise UsageError(str(error)) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not CUDA C++: it holds binary data") from error


def configs_of(
    text: str, path: Path, macros: Iterable[tuple[str, Sequence[Scalar]]] = ()
) -> list[dict[str, Scalar]]:
    """Every combination of the values that its lines `// config` list; one without any, for none.

    Values of `macros` take the place of those of the file.

    Raises:
        UsageError: a line names no macro or no values, or there are too many combinations.
    """
    choices: dict[str, list[Scalar]] = {}
    for name, values in _CONFIG.findall(text):
        words = values.split()
        if not _MACRO.fullmatch(name) or not words:
            raise UsageError(f"{path}: write `// config NAME = VALUE VALUE ...`, not {name!r}")
        choices[name] = [int(word) if _NUMBER.fullmatch(word) else word for word in words]
    choices.update((name, list(values)) for name, values in macros)
    configs = [
        dict(zip(choices, values, strict=True))
        for values in itertools.islice(itertools.product(*choices.values()), _MOST_CONFIGS + 1)
    ]
    if len(configs) > _MOST_CONFIGS:
        raise UsageError(f"{path}: its configs have over {_MOST_CONFIGS:,} combinations")
    return configs


def block_of(
    text: str, kernel: str, config: Mapping[str, Scalar], path: Path
) -> dict[str, int | None]:
    """What the lines `// launch [KERNEL] block=X[,Y,Z] shared=BYTES` say of a kernel's block.

    That is how many `threads` it has, and the bytes of dynamic `shared` memory.
    A line without a kernel is for those that have none of their own; a size may be the name of a
    macro of the config.

    Raises:
        UsageError: a line is malformed, or names no macro.
    """
    sizes: dict[str, str] = {}
    for line in _LAUNCH.findall(text):
        words = line.split()
        named = words.pop(0) if words and "=" not in words[0] else None
        if named in (None, kernel):
            own = dict(word.partition("=")[::2] for word in words)
            sizes = {**sizes, **own} if named else {**own, **sizes}
        if not words or any(word.partition("=")[0] not in ("block", "shared") for word in words):
            form = "// launch [KERNEL] block=X[,Y,Z] shared=BYTES"
            raise UsageError(f"{path}: write `{form}`, not {line.strip()!r}")

    def size(word: str) -> int:
        value = config.get(word, word)
        if not _NUMBER.fullmatch(str(value)) or int(value) < 0:
            raise UsageError(
                f"{path}: // launch: {word!r} is neither a size nor a macro of the config"
            )
        return int(value)

    block, shared = sizes.get("block"), sizes.get("shared")
    return {
        "threads": math.prod(size(word) for word in block.split(",")) if block else None,
        "shared": size(shared) if shared else None,
    }


def bounds_in(ptx: str, entry: str) -> int | None:
    """The most threads that a block may have, as `__launch_bounds__` leaves it in the PTX."""
    head = re.search(rf"\.entry\s+{re.escape(entry)}\b[^{{]*", ptx)
    match = _MOST_THREADS.search(head[0]) if head else None
    return math.prod(int(number) for number in match[1].split(",")) if match else None


def kernels_in(text: str) -> list[str]:
    """The names of the `__global__` functions that a text defines or instantiates, each once."""
    return list(dict.fromkeys(_KERNEL.findall(_BOUNDS.sub("", text))))


# What CUDA C++ calls the elements of buffers, as `--buffer` spells them.
_ELEMENTS = {
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "__half": "f16",
    "__nv_bfloat16": "bf16",
    "nv_bfloat16": "bf16",
    **{
        f"{sign}int{bits}_t": f"{sign or 's'}{bits}"
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
    "signed char": "s8",
    "unsigned char": "u8",
    "short": "s16",
    "unsigned short": "u16",
    "int": "s32",
    "unsigned": "u32",
    "unsigned int": "u32",
    "long long": "s64",
    "unsigned long long": "u64",
}
_PARAMETER = re.compile(r"(?P<type>[^=]*?)(?P<name>\w+)\s*(?:\[\w*\]\s*)?(?:=.*)?", re.DOTALL)
_QUALIFIERS = re.compile(
    r"\b(?:const|volatile|__restrict__|__restrict|__grid_constant__|std::)\b|[*&]"
)


def parameters_in(text: str, kernel: str) -> dict[str, str]:
    """The parameters of a `__global__` function by name, with the type of what each points to.

    Empty where a text does not define it, or one of them has no name.
    """
    text = _BOUNDS.sub("", text)
    head = next((match for match in _KERNEL.finditer(text) if match[1] == kernel), None)
    if head is None:
        return {}
    words, depth = [""], 0
    for letter in text[head.end() :]:
        depth += (letter in "(<") - (letter in ")>")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            words.append("")
        else:
            words[-1] += letter
    found = {}
    for word in filter(None, map(str.strip, words)):
        match = _PARAMETER.fullmatch(word)
        if match is None:
            return {}
        kind = " ".join(_QUALIFIERS.sub(" ", match["type"]).split())
        is_pointer = "*" in match["type"] or word.endswith("]")
        found[match["name"]] = _ELEMENTS.get(kind, "u8") if is_pointer else ""
    return found


def sources_sha256(path: Path) -> str:
    """A hash of a file and of the user's headers that it includes, one by another.

    Raises:
        UsageError: one of them cannot be read.
    """
    digest = hashlib.sha256()
    for name, text in _with_headers(path, path.parent, set()):
        digest.update(f"{name}\n{len(text)}\n{text}".encode())
    return digest.hexdigest()


def _with_headers(path: Path, beside: Path, read: set[Path]) -> Iterator[tuple[str, str]]:
    resolved = path.resolve()
    if resolved in read:
        return
    read.add(resolved)
    text = read_source(path)
    yield path.name, text
    for line in _INCLUDE.finditer(text):
        header = own_header(line[0], path.parent, beside)
        if header is not None:
            yield from _with_headers(header, beside, read)


def own_header(line: str, *folders: Path) -> Path | None:
    """The user's header that a line includes, in the first of these folders that has it.

    What lies in none is a header of CUDA's or of the host's compiler.
    """
    include = _INCLUDE.match(line)
    if include is None:
        return None
    return next((f / include[1] for f in folders if (f / include[1]).is_file()), None)


def display_name(mangled: str) -> str:
    """The innermost name of a mangled function, without its arguments; others as they are."""
    match = _MANGLED.match(mangled)
    if not match:
        return mangled
    at, name = match.start(2), ""
    while length := re.match(r"\d+", mangled[at:]):
        start = at + length.end()
        at = start + int(length[0])
        name = mangled[start:at]
        if not match[1]:
            break
    return name or mangled


class CompiledKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel as it is shown, its name in the PTX, and the threads that its bounds allow.

    `is_empty`: it returns at once, as one that a library only asks for its attributes.
    """

    name: str
    entry: str | None = None
    most_threads: int | None = None
    is_empty: bool = False


# The head of a kernel, and a body that begins with its end: lines of the source, labels, `ret`.
_RETURNS = r"[^{]*\{(?:\s|//[^\n]*|\.loc\b[^\n]*|[$\w]+:)*ret;"


def kernels_of(ptx: str) -> list[CompiledKernel]:
    """All of a PTX; none where it cannot be read. Instances of a template have their whole name."""
    try:
        entries = read_ptx(ptx).entries
    except PtxError:
        return []
    names = [display_name(entry) for entry in entries]
    return [
        CompiledKernel(
            name=name if names.count(name) == 1 else entry,
            entry=entry,
            most_threads=bounds_in(ptx, entry),
            is_empty=bool(re.search(rf"\.entry\s+{re.escape(entry)}\b{_RETURNS}", ptx)),
        )
        for name, entry in zip(names, entries, strict=True)
    ]


def facts_of(kernel: CompiledKernel, block: Mapping[str, int | None]) -> dict[str, Any]:
    """Of a kernel: its name in the PTX, and what is known of its block."""
    threads = block["threads"] or kernel.most_threads
    return {"entry": kernel.entry, **block, "threads": threads}


def kernel_meant(kernels: Sequence[CompiledKernel], name: str) -> CompiledKernel | None:
    """The kernel of that name, or the only one there is: a shorter text may name it otherwise."""
    same = [kernel for kernel in kernels if name in (kernel.name, kernel.entry)]
    return same[0] if same else kernels[0] if len(kernels) == 1 else None


_ONCE = re.compile(r"^\s*#\s*pragma\s+once\b")
_LAUNCH_LINE = re.compile(r"^\s*//\s*launch\b")


def one_file(path: Path, config: Mapping[str, Scalar]) -> str:
    """The text with the user's headers in the place of their `#include`, and macros defined.

    Raises:
        UsageError: a header cannot be read.
    """
    lines = [f"#define {name} {value}" for name, value in config.items()]
    for line in _lines(path, path.parent, set(), ()):
        if _CONFIG.match(line):
            continue
        if _LAUNCH_LINE.match(line):
            # It names macros of the config, and there is none any more.
            line = re.sub(r"(?<=[=,])\w+", lambda at: str(config.get(at[0], at[0])), line)  # noqa: PLW2901
        lines.append(line)
    return "\n".join(lines) + "\n"


def _lines(path: Path, beside: Path, once: set[Path], inside: tuple[Path, ...]) -> list[str]:
    """Of a file, with those of its headers; what includes itself again is left as it is."""
    lines: list[str] = []
    for line in read_source(path).splitlines():
        header = own_header(line, path.parent, beside)
        if _ONCE.match(line) and inside:
            once.add(path.resolve())
        elif header is None or header.resolve() in inside:
            lines.append(line)
        elif header.resolve() not in once:
            lines += _lines(header, beside, once, (*inside, header.resolve()))
    return lines
