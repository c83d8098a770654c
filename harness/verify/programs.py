"""What an issue holds in its code blocks: programs, logs, commands; and the rest, its prose.

Nothing of an issue is run here, and nothing is read but its text.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import textwrap
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

from harness.cells.log import read_log
from harness.values.target import Target
from harness.values.toolchain import NVCC, PTX, TRITON

_PTX = re.compile(r"^\s*\.version\s+\d", re.MULTILINE)
_PTX_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+[af]?)", re.MULTILINE)
_CUDA = re.compile(r"\b__global__\b")
_IR = re.compile(r"\btt\.func\b")
_TTGIR = re.compile(r"\b(?:ttg|triton_gpu)\.num-warps\b")
_COMMAND = re.compile(
    r"\s*(?:\$ |[A-Z_]+=\S+ )*(?:ptxas|nvcc|python3?|pip3?|triton-opt|triage|sh|make)\s"
)
_FAILS = re.compile(
    r"Traceback \(|\b(?:error|fatal)\s*:|Assertion|\w(?:Error|Exception|Failure): |Segmentation"
    r"|Fatal Python|LLVM ERROR|UNREACHABLE|PassManager|core dumped|Pipeline failed"
)
# Imports that examples leave out, by the name that stands for them.
_USUAL = {
    "torch": "import torch",
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "tilelang": "import tilelang",
    "T": "import tilelang.language as T",
    "np": "import numpy as np",
    "math": "import math",
}
_OF_MODULES = {"__name__", "__file__", "__doc__"}


class CodeBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A code block of an issue: its first line, from 1, and `what` it is, in a word."""

    line: int
    text: str
    what: str


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program of an issue.

    Attributes:
        line: where it begins in the issue, from 1.
        suffix: what a file of it is called.
        compiler: the kind of compiler that it goes through first; `ptx` for what ptxas takes.
        target: the GPU that it names itself.
        undefined: names that nothing of the issue defines. Such a program is a fragment.
        assumed: what was added to it, or is taken to be meant, in words.
        functions: the functions of a Python file that an issue may call: `f(32)`.
        call: what is called behind it, where it launches nothing of itself.
    """

    line: int
    suffix: str
    text: str
    compiler: str
    target: Target | None = None
    undefined: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    functions: frozenset[str] = frozenset()
    call: str = ""

    def called(self, call: str) -> str:
        """The file, with a call behind it in place of its own launch."""
        call = call or self.call
        if not call:
            return self.text
        return f'{self.text.rstrip()}\n\n\nif __name__ == "__main__":\n    {call}\n'


class Prose(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an issue that is no code: a paragraph, a list item, a heading, a row of a table.

    `heading` is the one that it is below; `header` and `cells` are of a row. `introduces`: it ends
    in a colon, so that what follows it belongs to it.
    """

    line: int
    text: str
    kind: str
    heading: str = ""
    header: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()

    @property
    def introduces(self) -> bool:
        """As above."""
        return self.text.rstrip(" `*_").endswith(":")


def read_blocks(
    issue: str, modules: Mapping[str, str]
) -> tuple[list[CodeBlock], list[Program], list[Prose]]:
    """An issue in its parts, in order.

    Args:
        issue: Markdown.
        modules: the kind of the compiler by the Python module of its language.
    """
    blocks, programs, prose = list[CodeBlock](), list[Program](), list[Prose]()
    for part in _parts(MarkdownIt("commonmark").enable("table").parse(issue)):
        if isinstance(part, Prose):
            prose.append(part)
            continue
        language, line, text = part
        found = _program(language, line, text, modules, programs)
        what = "a program" if isinstance(found, Program) else found
        blocks.append(CodeBlock(line=line, text=text, what=what))
        if isinstance(found, Program):
            # One that goes on from an earlier one takes its place.
            programs = [earlier for earlier in programs if earlier.line != found.line]
            programs.append(found)
    return blocks, programs, prose


def _parts(tokens: Sequence[Token]) -> Iterator[Prose | tuple[str, int, str]]:
    heading, kind, inside = "", "", list[str]()
    header, cells = list[str](), list[str]()
    for token in tokens:
        line = token.map[0] + 1 if token.map else 0
        if token.type in ("fence", "code_block"):
            yield token.info.strip().partition(" ")[0].lower(), line, token.content
        elif token.type in ("heading_open", "list_item_open", "thead_open", "tbody_open"):
            inside.append(token.type.removesuffix("_open"))
        elif token.type in ("heading_close", "list_item_close", "thead_close", "tbody_close"):
            inside.pop()
        elif token.type == "tr_open":
            cells, row = [], line
        elif token.type == "tr_close":
            if "thead" in inside:
                header = cells
            else:
                text = " | ".join(cells)
                yield Prose(
                    line=row,
                    text=text,
                    kind="row",
                    heading=heading,
                    header=tuple(header),
                    cells=tuple(cells),
                )
        elif token.type == "inline" and inside and inside[-1] in ("thead", "tbody"):
            cells.append(token.content)
        elif token.type == "inline":
            kind = inside[-1] if inside else "paragraph"
            heading = token.content if kind == "heading" else heading
            yield Prose(line=line, text=token.content, kind=kind, heading=heading)


def _program(
    language: str, line: int, text: str, modules: Mapping[str, str], earlier: Sequence[Program]
) -> Program | str:
    """The program of a code block, or what else it is."""
    if _PTX.search(text) and ".target" in text and not _FAILS.search(text):
        named = _PTX_TARGET.search(text)
        target = Target.parse(named[1]) if named else None
        return Program(line=line, suffix=".ptx", text=text, compiler=PTX, target=target)
    if _CUDA.search(text) and not language.startswith("py"):
        return Program(line=line, suffix=".cu", text=text, compiler=NVCC)
    text = textwrap.dedent(text)
    tree = _parsed(text)
    if tree and (kernels := _python(line, text, modules, earlier)):
        return kernels
    if earlier and "mlir_reproducer" in text:
        # MLIR prints it of a program that fails: here that one stands above.
        return "other text"
    # A module of IR, PTX with what ptxas said above it, a kernel that Inductor printed.
    for clue in read_log(text, []).clues:
        if clue.kernel:
            suffix, data = next(iter(clue.kernel.files.items()))
            compiler = PTX if suffix == ".ptx" else TRITON
            return Program(
                line=line + clue.line,
                suffix=suffix,
                text=data.decode(),
                compiler=compiler,
                target=clue.kernel.target,
            )
    if _FAILS.search(text):
        return "a log"
    if _IR.search(text):
        suffix = ".ttgir" if _TTGIR.search(text) else ".ttir"
        return Program(line=line, suffix=suffix, text=text, compiler=TRITON)
    if _COMMAND.match(text):
        return "commands"
    if language not in ("py", "python", "python3"):
        return "other text"
    return "Python without a kernel" if tree else "Python that cannot be parsed"


def _parsed(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _python(
    line: int, text: str, modules: Mapping[str, str], earlier: Sequence[Program]
) -> Program | None:
    """A Python file with a kernel, or with the launch of one that stands in an earlier block."""
    tree, assumed = ast.parse(text), list[str]()
    for before in reversed(earlier):
        if before.suffix == ".py" and _names(text)[1] & _names(before.text)[0]:
            text, line = f"{before.text}\n\n{text}", before.line
            assumed += [*before.assumed, "two code blocks are one file"]
            tree = ast.parse(text)
            break
    missing = _names(text)[1]
    if usual := [_USUAL[name] for name in _USUAL if name in missing]:
        text = "\n".join([*usual, "", text])
        assumed.append(f"`{'; '.join(usual)}` was added")
        tree = ast.parse(text)
    imports = [
        f"{name}."
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
        )
    ]
    # Triton is what others build on: any other language counts first.
    kinds = [
        kind
        for module, kind in sorted(modules.items(), key=lambda item: item[1] == TRITON)
        if any(name.startswith(f"{module}.") for name in imports)
    ]
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if not kinds or not functions:
        return None
    plain = [name for name, node in functions.items() if not node.decorator_list]
    call = ""
    if not _launches(tree, functions):
        ready = [name for name in plain if _needs_nothing(functions[name])]
        call = f"{ready[-1]}()" if ready else ""
        assumed.append("it launches nothing" + (f": `{call}` was called" if call else ""))
    return Program(
        line=line,
        suffix=".py",
        text=text,
        compiler=kinds[0],
        undefined=tuple(sorted(missing - set(_USUAL))),
        assumed=tuple(assumed),
        functions=frozenset(plain),
        call=call,
    )


def _launches(tree: ast.Module, functions: Mapping[str, ast.FunctionDef]) -> bool:
    """Whether the file does more than to define: it has a `launch()`, or code that calls one."""
    names = {*functions, *(n.name for n in tree.body if isinstance(n, ast.ClassDef))}
    nodes = (node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef))
    calls = (call.func for node in nodes for call in ast.walk(node) if isinstance(call, ast.Call))
    return "launch" in functions or any(
        isinstance(called, ast.Subscript)
        or (isinstance(called, ast.Name) and called.id in names)
        or (isinstance(called, ast.Attribute) and called.attr == "compile")
        for called in calls
    )


def _needs_nothing(function: ast.FunctionDef) -> bool:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    return len(positional) == len(arguments.defaults) and all(arguments.kw_defaults)


def _names(text: str) -> tuple[set[str], set[str]]:
    """The names that a Python file binds at its top, and those that it reads and nothing binds."""
    top = symtable.symtable(text, "", "exec")
    tables = [top]
    for table in tables:
        tables += table.get_children()
    bound = {
        name.get_name()
        for name in top.get_symbols()
        if name.is_assigned() or name.is_imported() or name.is_namespace()
    }
    read = {
        name.get_name()
        for table in tables
        for name in table.get_symbols()
        if name.is_referenced() and (table is top or name.is_global())
    }
    is_open = "import *" in text
    return bound, set() if is_open else read - bound - set(dir(builtins)) - _OF_MODULES
