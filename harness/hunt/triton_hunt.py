"""One Triton as it is hunted in, by generated kernels or by changes of modules of its IR.

A hit is reduced as `triage minimize` reduces sources, or IR, and named by how it fails and by what
is left. What is known is walked around: a kernel that has all that a known cause needs is compiled
only now and then, unless that cause is a matter of the order in which copies land, and a hit of it
is counted there.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from msgspec import structs
from packaging.version import Version

from harness.cells.places import CompileOptions, at_bench
from harness.frontends.registry import front_end
from harness.frontends.texts.ir_inputs import read_triton_ir
from harness.hunt.causes import Cause, LeastProgram, is_same_kind, said_of
from harness.hunt.changes import ChangedProgram, Program
from harness.hunt.gluon_sources import gluon_program
from harness.hunt.ir_corpus import IrSource, changed_ir, operation_names, sources_of
from harness.hunt.ir_oracles import IrOracles
from harness.hunt.oracles import HuntCase
from harness.hunt.plan import Hit, HuntedCompiler, HuntPlan, HuntState
from harness.hunt.triton_oracles import Care, TritonOracles
from harness.hunt.triton_sources import KERNEL, kernel_of, program, words_of
from harness.hunt.voting import HuntAnswer, Vote
from harness.io.processes.hub import Hub
from harness.io.processes.tasks import in_parallel
from harness.judging.signature import template
from harness.minimize.python.python_passes import STRUCTURE, python_format
from harness.minimize.reduction.reducer import Effort, TextFormat, sweep_coarsely
from harness.minimize.ttgir import IR_FORMAT, IrModule
from harness.run.gpu.packing import place_of
from harness.store.store import Store
from harness.values.errors import OfflineError, UsageError
from harness.values.standalone import FileLaunch, Standalone
from harness.values.target import Target
from harness.values.toolchain import GPU, Compiler

# Of kernels that have all that a known cause needs, one in this many is compiled all the same.
_SELDOM = 8
# One in this many kernels is in Gluon, where the Triton has it.
_GLUON = 4
_CONFIG = re.compile(r"^    triton\.Config\(.*\),\n", re.MULTILINE)
_CONFIGS = "CONFIGS = [\n"
OTHERS = tuple(map(Target.parse, ("80", "90a", "100a", "120a")))
"""Targets that are hunted for: one of each way in which Triton lowers products and copies."""
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


SOURCES = replace(
    python_format(_LaunchFile()), run=lambda reducer: sweep_coarsely(reducer, STRUCTURE, smallest=1)
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
    kernel, launch = kernel_of(tree), tree.body[-1]
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
        instructions=len(kernel_of(ast.parse(asked.text)).body) + 1,
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


# The hunt.


@dataclass(kw_only=True)
class HuntedTriton(HuntedCompiler):
    """A Triton, as it is hunted in by kernels.

    `form` says how a hit is reduced, with at most that many `tests`.
    """

    form: ClassVar[TextFormat[Any]] = SOURCES
    tests: ClassVar[int] = 80
    oracles: TritonOracles

    async def ask(self, programs: Sequence[HuntCase], number: int) -> list[HuntAnswer]:
        return await in_parallel(self.answer_to(asked) for asked in programs)

    def spent(self) -> Mapping[str, float]:
        return {"Triton and the emulator": self.oracles.bench.cpu_seconds}

    async def still_there(
        self, causes: Sequence[Cause], show: Callable[[str], None]
    ) -> list[Cause]:
        texts = {program.text for cause in self.state.causes for program in cause.programs}
        others = [one for one in causes if one.least.text not in texts]
        show(f"asking {self.plan.tool.name} about {len(others)} known causes")
        asked = [cause.least.asked for cause in others]
        answers = await self.oracles.ask(asked, care=Care.THOROUGH)
        return [
            structs.replace(cause, hits=0, is_known=True)
            for cause, answer in zip(others, answers, strict=True)
            if is_same_kind(answer, cause.least.answer)
        ]

    async def walk_around(self, hit: Hit) -> Hit | None:
        for cause in self.state.causes:
            if self.is_of(cause, hit):
                cause.hits += 1
                return None
        return hit

    async def reduce(self, hit: Hit, *, is_time_up: Callable[[], bool]) -> LeastProgram | str:
        asked, answer, start = hit.asked, hit.answer, await self.start(hit)
        if start is None:
            return "a hit that did not come back"
        text, like = start

        async def is_interesting(candidate: str) -> bool:
            if not self.is_allowed(candidate):
                return False
            return is_same_kind(await self.look(HuntCase(candidate, asked.seed)), like)

        result = await self.form.reduce_text(
            text,
            lambda candidate: asyncio.ensure_future(is_interesting(candidate)),
            effort=Effort(jobs=self.jobs, max_tests=self.tests, is_time_up=is_time_up),
            watch=lambda progress: None,  # noqa: ARG005
        )
        if is_time_up():
            return ""  # what is half reduced has no name yet
        for left in (self.tidied(result.document), text):
            least = HuntCase(left, asked.seed)
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

    async def look(self, asked: HuntCase) -> HuntAnswer:
        """A quick answer about a candidate."""
        [now] = await self.oracles.ask([asked], care=Care.QUICK)
        return now

    async def spread(self, show: Callable[[str], None], is_time_up: Callable[[], bool]) -> None:
        """Ask every Triton that is installed about all least programs."""
        causes, tool = self.state.causes, self.plan.tool
        programs = [one for cause in causes for one in cause.programs]
        installed = front_end(tool.kind).installed()
        for compiler in sorted(installed, key=lambda one: Version(one.version)):
            waiting = [one for one in programs if compiler.version not in one.versions]
            if waiting and not is_time_up():
                show(f"asking {compiler.name} about {len(waiting)} programs")
                there = replace(self.oracles, compiler=compiler)
                try:
                    answers = await there.ask([one.asked for one in waiting], care=Care.THOROUGH)
                except OfflineError:
                    continue  # one beside triage is selected by what the index lists
                for one, answer in zip(waiting, answers, strict=True):
                    one.versions[compiler.version] = said_of(answer)
        causes[:] = [part for cause in causes for part in cause.parted(tool.version)]

    # What is different where the text is no kernel.

    async def answer_to(self, asked: HuntCase) -> HuntAnswer:
        """The answer about a program; of most that have what a known cause needs: none."""
        plan = self.plan
        names = (
            cause.name
            for cause in self.state.causes
            if not cause.least.answer.is_latent and has_all(plan, cause, asked)
        )
        if asked.seed // len(plan.targets) % _SELDOM and (name := next(names, None)):
            return HuntAnswer(vote=Vote.LEFT_OUT, words=f"has what a known cause needs ({name})")
        return (await self.oracles.ask([asked]))[0]

    def mark(self, hit: Hit) -> str:
        """How it fails, for which GPU."""
        return f"{hit.answer.signature} {self.plan.target_of(hit.asked.seed)}"

    def is_of(self, cause: Cause, hit: Hit) -> bool:
        """Whether a hit fails as a cause does, and has all of it; or has its race."""
        asked, answer = hit.asked, hit.answer
        is_known = answer.vote is Vote.FAILS or has_all(self.plan, cause, asked)
        return (is_known and is_same_kind(cause.least.answer, answer)) or any(
            one.answer.race == answer.race != "" and words_of(one.text) <= words_of(asked.text)
            for one in cause.programs
        )

    async def start(self, hit: Hit) -> tuple[str, HuntAnswer] | None:
        """What is reduced, and like what it must fail: the hit in one config, else in all."""
        asked, answer = hit.asked, hit.answer
        configs = _CONFIG.findall(asked.text)
        for config in dict.fromkeys((*configs, "".join(configs))):
            text = _CONFIG.sub("", asked.text).replace(_CONFIGS, _CONFIGS + config)
            quick = await self.look(HuntCase(text, asked.seed))
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

    def least_of(self, asked: HuntCase, answer: HuntAnswer) -> LeastProgram:
        """What is left, with its name."""
        return least_kernel(self.plan, asked, answer)

    def others(self, least: HuntCase) -> Sequence[Target]:
        """The targets for which it is asked, too; a GPU has one."""
        own = self.plan.target_of(least.seed)
        return [target for target in OTHERS if target != own and self.plan.on != GPU]


@dataclass(kw_only=True)
class HuntedIr(HuntedTriton):
    """A Triton, as it is hunted in by changes of its IR.

    `lowering` asks the same and executes nothing; `unchanged` are answers about files as they are.
    """

    form = IR_FORMAT
    tests = 250
    oracles: IrOracles
    lowering: IrOracles
    unchanged: dict[tuple[IrSource, Target], asyncio.Future[list[HuntAnswer]]] = field(
        default_factory=dict
    )

    def made(self, asked: HuntCase) -> ChangedProgram[IrSource]:
        """The program of a seed, with its source."""
        program = self.program(asked.seed)
        assert isinstance(program, ChangedProgram)
        return program

    async def answer_to(self, asked: HuntCase) -> HuntAnswer:
        """Changes of what leaves open what it computes, or is wrong as it is, are lowered alone."""
        source, target = self.made(asked).source, self.plan.target_of(asked.seed)
        first = HuntCase(source.module.text, asked.seed)
        if (source, target) not in self.unchanged:
            self.unchanged[source, target] = asyncio.ensure_future(self.oracles.ask([first]))
        [unchanged] = await self.unchanged[source, target]
        if unchanged.vote in (Vote.FAILS, Vote.GROWS, Vote.REFUSED):
            return HuntAnswer(vote=Vote.LEFT_OUT, words=f"a file as it is: {unchanged.words}")
        if unchanged.vote in (Vote.LEFT_OUT, Vote.WRONG):
            return (await self.lowering.ask([asked]))[0]
        [answer] = await self.oracles.ask([asked])
        if answer.vote is Vote.WRONG:
            [unchanged] = await self.oracles.ask([first])
            if unchanged.vote is Vote.WRONG:
                words = f"a file as it is: {unchanged.words}"
                return HuntAnswer(vote=Vote.LEFT_OUT, words=words)
        return answer

    @property
    def notes(self) -> Iterator[str]:
        """Which files are lowered alone, and why."""
        for (source, target), asking in self.unchanged.items():
            answers = asking.result() if asking.done() and not asking.cancelled() else ()
            for answer in answers:
                if answer.vote in (Vote.LEFT_OUT, Vote.WRONG):
                    kernel = read_triton_ir(source.module.text).kernel
                    yield f"{kernel} for {target} is not executed: {answer.words}"

    def mark(self, hit: Hit) -> str:
        """The pass, and how it fails; or the race."""
        return hit.answer.race or str(hit.answer.signature)

    def is_of(self, cause: Cause, hit: Hit) -> bool:
        """Whether a hit fails as a cause does, or has its race.

        What is wrong without a race has all operations that are left of the cause.
        """
        least, asked, answer = cause.least, hit.asked, hit.answer
        if answer.race or least.answer.race:
            return answer.race == least.answer.race
        if answer.vote is Vote.WRONG and not (
            set(least.opcodes) <= operation_names(IrModule.read(asked.text))
        ):
            return False
        return is_same_kind(least.answer, answer)

    async def start(self, hit: Hit) -> tuple[str, HuntAnswer] | None:
        """The hit without the steps that it does not need."""
        asked, answer, like = hit.asked, hit.answer, await self.look(hit.asked)
        # Of all orders, which decide how it is wrong, a quick look sees two.
        if not is_same_kind(like, answer) and not like.vote is answer.vote is Vote.WRONG:
            return None

        async def is_same(fewer: str) -> bool:
            return is_same_kind(await self.look(HuntCase(fewer, asked.seed)), like)

        made = self.made(asked)
        text = asked.text
        return (await made.with_fewer_steps(is_same) if made.text == text else text), like

    def is_allowed(self, candidate: str) -> bool:
        """Triton's reader says so."""
        return True

    def tidied(self, text: str) -> str:
        """All of it."""
        return text

    def least_of(self, asked: HuntCase, answer: HuntAnswer) -> LeastProgram:
        return least_module(asked, answer)

    def others(self, least: HuntCase) -> Sequence[Target]:
        """The other targets of the hunt, where the module names none."""
        if read_triton_ir(least.text).capability is not None:
            return []
        own = self.plan.target_of(least.seed)
        return [target for target in self.plan.targets if target != own]


@contextlib.asynccontextmanager
async def hunted_triton(
    plan: HuntPlan, state: HuntState, store: Store, how: CompileOptions, open_hub: Callable[[], Hub]
) -> AsyncIterator[HuntedTriton]:
    """The Triton of a plan.

    Raises:
        UsageError: no file of the corpus is for one of the targets.
        InfrastructureError: a tool cannot be started, or there is no GPU.
    """
    triton = plan.tool
    assert isinstance(triton, Compiler)
    if plan.on == GPU:
        place_of(plan.runner)
    async with at_bench(store, how, open_hub) as bench:
        if plan.corpus:
            sources = fitting_sources(plan.corpus, plan.targets)
            oracles = IrOracles(bench=bench, compiler=triton, targets=plan.targets)
            yield HuntedIr(
                plan=plan,
                state=state,
                program=lambda seed: changed_ir(seed, sources[plan.target_of(seed)]),
                jobs=bench.jobs,
                oracles=oracles,
                lowering=replace(oracles, executes=False),
            )
            return
        takes_gluon = has_gluon(triton)

        def made(seed: int) -> Program:
            is_gluon = takes_gluon and seed // len(plan.targets) % _GLUON == _GLUON - 1
            return gluon_program(seed) if is_gluon else program(seed)

        yield HuntedTriton(
            plan=plan,
            state=state,
            program=made,
            jobs=bench.jobs,
            oracles=TritonOracles(
                bench=bench, compiler=triton, targets=plan.targets, on=plan.on, runner=plan.runner
            ),
        )


def has_gluon(triton: Compiler) -> bool:
    """Whether a Triton has the Gluon that is generated: its interface changes with versions."""
    copies = "triton/experimental/gluon/language/nvidia/ampere/async_copy.py"
    path = triton.path / copies if triton.path else None
    return path is not None and path.is_file() and "def async_load(" in path.read_text()


def fitting_sources(
    texts: Sequence[str], targets: Sequence[Target]
) -> Mapping[Target, list[IrSource]]:
    """For each target what can be changed: TTIR, and TTGIR that was made for it.

    Raises:
        UsageError: a target has none.
    """
    sources = sources_of(texts)
    fitting: dict[Target, list[IrSource]] = {target: [] for target in targets}
    for text, source in zip(texts, sources, strict=True):
        capability = read_triton_ir(text).capability
        for target in targets:
            if capability in (None, target.capability):
                fitting[target].append(source)
    if missing := [str(target) for target, some in fitting.items() if not some]:
        raise UsageError(f"no file of the corpus is for {missing[0]}")
    return fitting
