"""Kernels, and modules of IR, that are left of hits in a Triton: their size and name."""

from __future__ import annotations

import ast
import re

from harness.hunt.causes import Cause, LeastProgram, said_of
from harness.hunt.ir_corpus import operation_names
from harness.hunt.oracles import HuntCase
from harness.hunt.plan import HuntPlan
from harness.hunt.triton_sources import KERNEL, words_of
from harness.hunt.voting import HuntAnswer, Vote
from harness.judging.signature import template
from harness.minimize.python.python_passes import STRUCTURE
from harness.minimize.python.tree import PythonFile
from harness.minimize.reduction.reducer import TextFormat, sweep_coarsely
from harness.minimize.ttgir import IrModule
from harness.values.standalone import FileLaunch, Standalone

# What makes places and numbers, in any module.
_COMMON = re.compile(
    r"arith\.(?:constant|muli|addi|extsi)|scf\.yield|tt\.(?:make_range|splat|addptr|broadcast"
    r"|expand_dims|return|reduce\.return|scan\.return)"
)
_SCRATCH = re.compile(r"tl\.store\(m\d|m\d+_d\.store\(")


def has_all(plan: HuntPlan, cause: Cause, asked: HuntCase) -> bool:
    """Whether a kernel has all that the least one of a cause has, on a GPU where that one fails."""
    least, target = cause.least, plan.target_of(asked.seed)
    is_own = target == plan.target_of(least.seed)
    if not is_own and least.targets.get(str(target)) != said_of(least.answer):
        return False
    return words_of(least.text) <= words_of(asked.text)


# How a launch file is reduced.


class _LaunchFile:
    """A launch file as the reduction of sources takes it: all of it is code."""

    roots = frozenset({"torch", "triton", "tl", "gluon", "gl", "async_copy"})

    def render(self, standalone: Standalone, *, header: str = "") -> str:
        return header + standalone.code

    def read(self, text: str) -> Standalone:
        launch = FileLaunch(
            kernel=KERNEL, signature={}, constants={}, attributes={}, options={}, target=()
        )
        return Standalone(code=text, launch=launch)


_LAYOUT = _LaunchFile()
SOURCES = TextFormat(
    read=lambda text: PythonFile.of(_LAYOUT.read(text), _LAYOUT),
    text_of=lambda source: source.text,
    size=lambda source: source.size,
    lines=lambda source: source.kernel_lines,
    run=lambda reducer: sweep_coarsely(reducer, STRUCTURE, smallest=1),
)


def is_closed(text: str) -> bool:
    """Whether a candidate is as defined as what is generated, and can be launched on a GPU.

    What threads exchange through memory lies between two barriers; a kernel that makes descriptors
    asks its launch for memory; each copy of Gluon is waited for.
    """
    if "make_tensor_descriptor" in text and "set_allocator(" not in text:
        return False
    if not text.count("async_load(") == text.count("commit_group(") == text.count("wait_group("):
        return False
    return text.count("debug_barrier") == 2 * len(_SCRATCH.findall(text))


def tidy(text: str) -> str:
    """Without arguments that the kernel does not read, and what the launch made for them."""
    tree = ast.parse(text)
    kernel, launch = _kernel(tree), tree.body[-1]
    read = {node.id for node in ast.walk(kernel) if isinstance(node, ast.Name)}
    # A `constexpr` comes from the configs.
    dropped = {arg.arg for arg in kernel.args.args if arg.annotation is None} - read
    places = [n for n, arg in enumerate(kernel.args.args) if arg.arg not in dropped]
    kernel.args.args = [kernel.args.args[n] for n in places]
    assert isinstance(launch, ast.FunctionDef)
    kept: list[ast.stmt] = []
    for line in launch.body:
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) in dropped:
            continue
        if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call):
            call = line.value
            if isinstance(call.func, ast.Subscript):
                call.args = [call.args[n] for n in places if n < len(call.args)]
        if isinstance(line, ast.Return) and isinstance(line.value, ast.Tuple):
            line.value.elts = [e for e in line.value.elts if ast.unparse(e) not in dropped]
        elif isinstance(line, ast.Return) and line.value and ast.unparse(line.value) in dropped:
            continue
        kept.append(line)
    launch.body = kept
    return SOURCES.read(ast.unparse(tree)).text


def _kernel(tree: ast.Module) -> ast.FunctionDef:
    return next(
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == KERNEL
    )


def least_kernel(plan: HuntPlan, asked: HuntCase, answer: HuntAnswer) -> LeastProgram:
    """A reduced kernel: it is named by how it fails; where it is wrong, by what is left, too.

    Of the same race on two targets the cause is one.
    """
    words = words_of(asked.text)
    named = ", ".join(f"{n} x {word}" if n > 1 else word for word, n in sorted(words.items()))
    how = f"{answer.signature} on {plan.target_of(asked.seed)}".replace("_", " ", 1)
    name = f"{answer.race or how} ({named})"
    if answer.vote is Vote.FAILS:
        name = answer.words.partition(": ")[2][:160]
    if answer.vote is Vote.GROWS:
        name = str(answer.signature)
    return LeastProgram(
        text=asked.text,
        seed=asked.seed,
        answer=answer,
        name=name,
        opcodes=tuple(sorted(words)),
        instructions=len(_kernel(ast.parse(asked.text)).body) + 1,
    )


def least_module(asked: HuntCase, answer: HuntAnswer) -> LeastProgram:
    """A reduced module of IR: it is named by the message of the pass.

    What is wrong has a name by its race, else by how it is wrong and by the operations that are
    left.
    """
    module = IrModule.read(asked.text)
    opcodes = tuple(sorted(operation_names(module)))
    name = template(answer.words.partition(": ")[2])[:160]
    if answer.vote is Vote.GROWS:
        name = str(answer.signature)
    if answer.vote is Vote.WRONG:
        telling = " ".join(word for word in opcodes if not _COMMON.match(word))
        name = f"{answer.race or str(answer.signature).replace('_', ' ')} ({telling})"
    return LeastProgram(
        text=asked.text,
        seed=asked.seed,
        answer=answer,
        name=name,
        opcodes=opcodes,
        instructions=module.count(),
    )
