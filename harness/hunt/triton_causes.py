"""From a hit in a Triton to its cause: a hit is reduced, named by how it fails, and joined.

A kernel is reduced as `triage minimize` reduces sources. `ir_hunt.py` has modules of Triton's IR.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from harness.hunt.causes import Cause, LeastProgram, is_same_kind, said_of
from harness.hunt.hunting import HuntPlan
from harness.hunt.oracles import Asked
from harness.hunt.triton_oracles import Care, TritonOracles
from harness.hunt.triton_sources import KERNEL, words_of
from harness.hunt.voting import Answer, Vote
from harness.minimize.python.python_passes import STRUCTURE
from harness.minimize.python.tree import PythonFile
from harness.minimize.reduction.reducer import Effort, TextFormat, sweep_coarsely
from harness.values.standalone import FileLaunch, Standalone
from harness.values.target import Target
from harness.values.toolchain import GPU

_CONFIG = re.compile(r"^    triton\.Config\(.*\),\n", re.MULTILINE)
_CONFIGS = "CONFIGS = [\n"
_SCRATCH = re.compile(r"tl\.store\(m\d|m\d+_d\.store\(")
OTHERS = tuple(map(Target.parse, ("80", "90a", "100a", "120a")))
"""Targets that are hunted for: one of each way in which Triton lowers products and copies."""


def has_all(plan: HuntPlan, cause: Cause, asked: Asked) -> bool:
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
_SOURCES = TextFormat(
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
    return _SOURCES.read(ast.unparse(tree)).text


def _kernel(tree: ast.Module) -> ast.FunctionDef:
    return next(
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == KERNEL
    )


# From a hit to a cause.


@dataclass(slots=True, kw_only=True)
class TritonCauses:
    """All causes that a hunt has found in a Triton by kernels.

    `form` says how a hit is reduced, in at most so many `tests`.
    """

    form: ClassVar[TextFormat[Any]] = _SOURCES
    tests: ClassVar[int] = 80
    plan: HuntPlan
    oracles: TritonOracles
    causes: list[Cause]

    def mark(self, asked: Asked, answer: Answer) -> str:
        """What a hit is most likely about: how it fails, for which GPU."""
        return f"{answer.signature} {self.plan.target_of(asked.seed)}"

    async def walk_around(self, asked: Asked, answer: Answer) -> tuple[Asked, Answer] | None:
        """The hit, or None where it is counted with a cause that it is of."""
        for cause in self.causes:
            if self.is_of(cause, asked, answer):
                cause.hits += 1
                return None
        return asked, answer

    async def reduce(
        self, asked: Asked, answer: Answer, *, is_time_up: Callable[[], bool]
    ) -> LeastProgram | str:
        """The least text that fails in such a way.

        Else why there is none: it does not a second time; no words where the time is up before it
        is small.

        Raises:
            InfrastructureError: a tool cannot be started.
        """
        start = await self.start(asked, answer)
        if start is None:
            return "a hit that did not come back"
        text, like = start

        async def is_interesting(candidate: str) -> bool:
            if not self.is_allowed(candidate):
                return False
            return is_same_kind(await self.look(Asked(candidate, asked.seed)), like)

        result = await self.form.reduce_text(
            text,
            lambda candidate: asyncio.ensure_future(is_interesting(candidate)),
            effort=Effort(jobs=self.oracles.jobs, max_tests=self.tests, is_time_up=is_time_up),
            watch=lambda progress: None,  # noqa: ARG005
        )
        if is_time_up():
            return ""  # what is half reduced has no name yet
        for left in (self.tidied(result.document), text):
            least = Asked(left, asked.seed)
            [last] = await self.oracles.ask([least], care=Care.THOROUGH)
            if is_same_kind(last, answer):
                break
        if not last.is_hit:
            return f"a hit that is {said_of(last)}"
        program = self.least_of(least, last)
        for target in self.others(least):
            there = replace(self.oracles, targets=[target])
            [other] = await there.ask([least], care=Care.THOROUGH)
            otherwise = other.is_hit and not is_same_kind(other, last)
            program.targets[str(target)] = said_of(other) + " in another way" * otherwise
        return program

    async def look(self, asked: Asked) -> Answer:
        """A quick answer about a candidate."""
        [now] = await self.oracles.ask([asked], care=Care.QUICK)
        return now

    # What is different where the text is no kernel.

    def is_of(self, cause: Cause, asked: Asked, answer: Answer) -> bool:
        """Whether a hit fails as a cause does, and has all of it; or has its race."""
        is_known = answer.vote is Vote.FAILS or has_all(self.plan, cause, asked)
        return (is_known and is_same_kind(cause.least.answer, answer)) or any(
            one.answer.race == answer.race != "" and words_of(one.text) <= words_of(asked.text)
            for one in cause.programs
        )

    async def start(self, asked: Asked, answer: Answer) -> tuple[str, Answer] | None:
        """What is reduced, and like what it must fail: the hit in one config, else in all."""
        configs = _CONFIG.findall(asked.text)
        for config in dict.fromkeys((*configs, "".join(configs))):
            text = _CONFIG.sub("", asked.text).replace(_CONFIGS, _CONFIGS + config)
            quick = await self.look(Asked(text, asked.seed))
            # Of all orders, which decide how it is wrong, a quick look sees two.
            if is_same_kind(quick, answer) or quick.vote is answer.vote is Vote.WRONG:
                return text, quick
        return None

    def is_allowed(self, candidate: str) -> bool:
        """Whether a candidate may be what a hit is reduced to."""
        return is_closed(candidate)

    def tidied(self, text: str) -> str:
        """What is left, without what nothing needs."""
        return tidy(text)

    def least_of(self, asked: Asked, answer: Answer) -> LeastProgram:
        """What is left, with its name."""
        return least_of(self.plan, asked, answer)

    def others(self, least: Asked) -> Sequence[Target]:
        """The targets for which it is asked, too; a GPU has one."""
        own = self.plan.target_of(least.seed)
        return [target for target in OTHERS if target != own and self.oracles.on != GPU]


def least_of(plan: HuntPlan, asked: Asked, answer: Answer) -> LeastProgram:
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
