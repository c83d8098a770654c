"""A kernel of Triton and its launch as the text of one Python file, and back; what its IR says.

`python FILE` compiles the kernel, on a machine without a GPU; nothing but Triton is imported.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path as FilePath

import msgspec

from gpu_emulator.ptx.text.facts import opcodes, writes_outside
from harness.frontends.base import CompileRequest
from harness.frontends.captured_front_end import FileForm
from harness.frontends.one_file import (
    commas,
    entries_of,
    mapping_lines,
    must_be,
    quoted,
    spelled_node,
    spelled_words,
    texts_of,
    wrapped,
)
from harness.frontends.readings import PtxReading, read_text
from harness.frontends.sessions import CapturedLaunch, JobResult
from harness.values.outcome import Lowering
from harness.values.standalone import Dialect, FileLaunch, Path, SourceInstall
from harness.values.toolchain import Assembler

_EFFECT_OPS = re.compile(
    r"\btt\.(?:store|atomic_(?:rmw|cas|store)|(?:experimental_)?descriptor_(?:store|reduce|scatter)"
    r"|print|assert)\b"
    r"|\b(?:ttng|triton_nvidia_gpu)\.async_tma_(?:copy_local_to_global|reduce|scatter)\b"
)
# Operations whose names speak of writing. Those of Triton 3.2 - 3.9 that are known to stay inside
# the block, to read only, or to wait, are harmless; the rest may be an effect.
_MAY_WRITE = re.compile(
    r"\b(?:tt|ttg|ttng|nvws|gluon|triton_gpu|triton_nvidia_gpu)"
    r"\.\w*(?:store|atomic|scatter|to_global)\w*"
)
_HARMLESS = re.compile(
    r"\.(?:local_\w+|tmem_store|async_shared_store|atomic_load|atomic_poll"
    r"|async_tma_store_(?:token_)?wait)$"
)
_INLINE_ASM = re.compile(r'\b(?:tt\.elementwise_|ttg\.)inline_asm "([^"]*)"')
_ESCAPED = re.compile(r"\\(?:0[9A-Da-d]|[nt])|//[^\n]*")
_ASM_IN_PTX = re.compile(r"// begin inline asm\n(.*?)// end inline asm", re.DOTALL)


def promises(ir: str, ptx: str) -> PtxReading:
    """What a kernel's IR says that the kernel does, beside the PTX that it became.

    Its effects write to global memory, print or assert, inline assembly among them.
    """
    effects = _EFFECT_OPS.findall(ir)
    unknown = {name for name in _MAY_WRITE.findall(ir) if not _HARMLESS.search(name)}
    blocks = [_opcodes(text) for text in _INLINE_ASM.findall(ir)]
    in_ptx = set(chain(*map(_opcodes, _ASM_IN_PTX.findall(ptx)))) if blocks else set()
    return PtxReading(
        effects=len(effects) + sum(any(map(writes_outside, block)) for block in blocks),
        has_trap=any("trap" in block for block in blocks),
        unknown_effects=tuple(sorted(unknown.difference(effects))),
        lost_assembly=tuple(sorted(set(chain(*blocks)) - in_ptx)),
    )


def _opcodes(assembly: str) -> list[str]:
    return [opcode for opcode, _ in opcodes(_ESCAPED.sub("\n", assembly))]


# The lines that `MLIR_ENABLE_DUMP` makes Triton print; nothing is kept of them.
_HEADER = re.compile(r"// -----// IR Dump Before (\S+)(?: \(([\w.-]{1,200})\))?")
_TRAP = re.compile(r"^\s*(?:%\S+ = )?\"?(?:[a-z]\w*\.)*trap\b")


class PassTrail(msgspec.Struct, frozen=True, kw_only=True):
    """`last` is the pass that was entered last: where a compiler died, the one it died in.

    `trapping` is the pass whose output is the first to hold a trap; None where there is none, or
    where the kernel came with one.
    """

    last: str | None
    trapping: str | None


def follow_passes(lines: Iterable[str]) -> PassTrail:
    """Follow the passes through a dump."""
    before: str | None = None
    current: str | None = None
    trapping: str | None = None
    has_trap = False
    for line in lines:
        header = _HEADER.match(line)
        if header:
            before, current = current, header[2] or header[1].rstrip(":")
        elif not has_trap and _TRAP.match(line):
            # What is printed before `current` is what the pass before it made.
            trapping, has_trap = before, True
    return PassTrail(last=current, trapping=trapping)


# As Triton 3.2 - 3.9 say it of a ptxas that a signal has ended (`make_cubin` of its backend).
_PTXAS_DIED = "`ptxas` failed with error code -{}"
_IMPORTS = {
    "triton": "import triton",
    "GPUTarget": "from triton.backends.compiler import GPUTarget",
    "ASTSource": "from triton.compiler import ASTSource",
    "GluonASTSource": "from triton.experimental.gluon._runtime import GluonASTSource",
}
# Triton 3.2 takes an object in place of the attributes by path: arguments by property.
_FOR_3_2 = """\
if hasattr(triton.backends.compiler, "AttrsDescriptor"):  # Triton 3.2
    properties = {}
    for (index,), words in attrs.items():
        for name, _ in words:
            properties.setdefault(name, []).append(index)
    described = {"cls": "AttrsDescriptor", "arg_properties": properties}
    attrs = triton.backends.compiler.AttrsDescriptor.from_dict(described)
""".splitlines()


class TritonForm(FileForm):
    """See `harness.frontends.captured_front_end.FileForm`."""

    imports = tuple(_IMPORTS.values())
    roots = frozenset({"triton"})
    # A stub is made by Triton, but PTX shows it, and only ptxas' consent makes it one.
    past = frozenset({"ttir", "ttgir"})
    dialect = Dialect(
        always=frozenset({"import triton"}), constant=("tl.constexpr", "triton.language")
    )

    def imports_of(self, launch: FileLaunch) -> Sequence[str]:
        return [_IMPORTS[name] for name in ("triton", "GPUTarget", launch.source_class)]

    def launch_lines(self, launch: FileLaunch) -> Iterator[str]:
        # The same for every Triton: by position, because 3.2 has another name for constants.
        if launch.attributes:
            yield from _attributes(launch)
            yield from _FOR_3_2
        yield f"source = {launch.source_class}("
        yield f"    {launch.kernel},"
        yield from mapping_lines("    ", quoted(launch.signature))
        constants = [f"{_path(launch, key)}: {value}" for key, value in launch.constants.items()]
        yield from mapping_lines("    ", constants)
        yield from ["    attrs,"] if launch.attributes else []
        yield ")"
        yield f"target = GPUTarget({commas(launch.target)})"
        yield from mapping_lines("options = ", quoted(launch.options), closing="")
        yield "compiled = triton.compile(source, target=target, options=options)"
        yield "print(compiled.metadata)"

    def read_launch(self, values: Mapping[str, ast.expr]) -> FileLaunch:
        source = must_be(ast.Call, values["source"])
        kernel, signature, constants = source.args[:3]
        return FileLaunch(
            kernel=must_be(ast.Name, kernel).id,
            signature=texts_of(signature),
            constants={_read_path(key): spelled_node(node) for key, node in entries_of(constants)},
            attributes=dict(_read_attributes(values.get("attrs"))),
            options=texts_of(values["options"]),
            target=tuple(map(ast.literal_eval, must_be(ast.Call, values["target"]).args)),
            source_class=must_be(ast.Name, source.func).id,
        )

    def install(self, version: str, assembler: Assembler) -> SourceInstall:
        return SourceInstall(
            title="Triton",
            module="triton",
            packages=(f"triton=={version}",),
            cache="TRITON_CACHE_DIR",
            ptxas=("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH"),
            died=_PTXAS_DIED,
        )

    def asked(self, launch: CapturedLaunch, request: CompileRequest) -> dict[str, object]:
        ptxas, until = request.ptxas, request.until
        return {
            # Triton sees this one, or the one that it picks itself.
            "ptxas": str(ptxas.path) if ptxas else None,
            "until": until.value if until and until.value in self.past else None,
        }

    def picked(self, launch: CapturedLaunch, job: JobResult) -> str | None:
        return (job.result or {}).get("ptxas")

    def reading(
        self, lowering: Lowering, program: bytes, left: Mapping[str, FilePath]
    ) -> PtxReading:
        # The earliest IR there is: Gluon has no TTIR, and an old Triton keeps no source.
        file = next((left[stage] for stage in ("source", "ttir", "ttgir") if stage in left), None)
        ir = file.read_text(encoding="utf-8", errors="replace") if file else None
        return read_text(program.decode(errors="replace"), ir, promises=promises)


def _path(launch: FileLaunch, path: Path) -> str:
    """An argument by its name; an item of a tuple by positions, as Triton wants it."""
    name, *items = path
    if not items:
        return f'"{name}"'
    index = f'{launch.kernel}.arg_names.index("{name}")'
    return f"({index}, {', '.join(map(str, items))})"


def _attributes(launch: FileLaunch) -> Iterator[str]:
    """What Triton knows of arguments, by path."""
    # Whole arguments by what Triton knows of them.
    groups: dict[str, list[str]] = {}
    for path, words in launch.attributes.items():
        if len(path) == 1:
            groups.setdefault(words, []).append(str(path[0]))
    nested = {path: words for path, words in launch.attributes.items() if len(path) > 1}
    is_one = len(groups) == 1 and not nested
    yield "attrs = {"
    for words, names in groups.items():
        yield from [] if is_one else ["    **{"]
        indent = " " * (4 if is_one else 8)
        yield f"{indent}({launch.kernel}.arg_names.index(name),): {words}"
        strings = [f'"{name}"' for name in names]
        yield from wrapped(f"{indent}for name in [", strings, "]")
        yield from [] if is_one else ["    },"]
    yield from (f"    {_path(launch, path)}: {words}," for path, words in nested.items())
    yield "}"


def _read_path(key: ast.expr) -> Path:
    if isinstance(key, ast.Constant):
        return (str(key.value),)
    index, *items = must_be(ast.Tuple, key).elts
    name = index.args[0].value  # type: ignore[attr-defined]
    return (str(name), *map(ast.literal_eval, items))


def _read_attributes(node: ast.expr | None) -> Iterator[tuple[Path, str]]:
    if node is None:
        return
    if isinstance(node, ast.DictComp):
        for name in ast.literal_eval(node.generators[0].iter):
            yield (name,), spelled_words(ast.literal_eval(node.value))
    else:
        entries = must_be(ast.Dict, node)
        for key, value in zip(entries.keys, entries.values, strict=True):
            if key is None:
                yield from _read_attributes(value)
            else:
                yield _read_path(key), spelled_words(ast.literal_eval(value))
