"""`triage hunt triton`: the loop of `hunting.py` over generated kernels and one Triton.

A hit is reduced as `triage minimize` reduces sources, and named by how it fails and by what is
left. What is known is walked around: a kernel that has all that a known cause needs is compiled
only now and then, unless that cause is a matter of the order in which copies land, and a hit of it
is counted there.
"""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs
from packaging.version import Version

from harness.cells.places import CompileOptions, at_bench, in_parallel
from harness.frontends.bench.bench import content_key
from harness.frontends.registry import front_end
from harness.io.files.own_code import code_sha256
from harness.minimize.hunt.causes import Cause, LeastProgram, is_same_kind, join, said_of
from harness.minimize.hunt.gluon_sources import gluon_program
from harness.minimize.hunt.hunting import (
    KIND,
    GeneratedProgram,
    HuntPlan,
    HuntReport,
    HuntState,
    Pursuit,
    hunt_in,
    known_causes,
    state_of,
    write_folders,
)
from harness.minimize.hunt.ir_corpus import IrSource, changed_ir
from harness.minimize.hunt.ir_hunt import (
    IrCauses,
    IrOracles,
    fitting_sources,
    repro_files,
    suffix_of,
)
from harness.minimize.hunt.oracles import Asked
from harness.minimize.hunt.triton_oracles import Care, TritonOracles
from harness.minimize.hunt.triton_sources import KERNEL, program, words_of
from harness.minimize.hunt.voting import Answer, Vote
from harness.minimize.python.passes import STRUCTURE
from harness.minimize.python.tree import PythonFile
from harness.minimize.reduction.driver import Effort, Reducer, TextFormat, sweep_coarsely
from harness.store.store import Store
from harness.values.errors import OfflineError
from harness.values.standalone import FileLaunch, Standalone
from harness.values.target import Target
from harness.values.toolchain import Compiler

_MOST_TESTS = 80
# Of kernels that have all that a known cause needs, one of so many is compiled all the same.
_SELDOM = 8
# Of so many kernels one is in Gluon, where the Triton has it.
_GLUON = 4
_CONFIG = re.compile(r"^    triton\.Config\(.*\),\n", re.MULTILINE)
_CONFIGS = "CONFIGS = [\n"
_SCRATCH = re.compile(r"tl\.store\(m\d|m\d+_d\.store\(")
OTHERS = ("80", "90a", "100a", "120a")
"""Targets that are hunted for: one of each way in which Triton lowers products and copies."""


class TritonPlan(HuntPlan, frozen=True, kw_only=True):
    """A hunt in one Triton; programs take turns with the targets.

    Where there is a `corpus` of modules of its IR, these are changed and no kernels are generated.
    """

    triton: Compiler
    gpus: tuple[Target, ...]
    corpus: tuple[str, ...] = ()

    @property
    def tool(self) -> Compiler:
        return self.triton

    @property
    def targets(self) -> tuple[Target, ...]:
        return self.gpus

    @property
    def key(self) -> str:
        return content_key(
            triton=self.triton.identity,
            targets=[str(target) for target in self.gpus],
            seed=self.seed,
            corpus=list(self.corpus),
            code=code_sha256("minimize/hunt", "gpu_emulator/ptx", "frontends/triton/child"),
        )

    @property
    def coordinates(self) -> dict[str, Any]:
        return {"triton": self.triton.version, "targets": [str(target) for target in self.gpus]}

    @property
    def known_by(self) -> str:
        return "IR of Triton" if self.corpus else super().known_by

    def command(self, folder: str, least: LeastProgram) -> str:
        what = f"run --kernel {folder}/launch.py"
        if self.corpus:
            what = f"compile --kernel {folder}/{Path(folder).name}{suffix_of(least.text)}"
        return f"triage {what} --sm {self.target_of(least.seed)} --triton {self.triton.version}"


@dataclass(slots=True, kw_only=True)
class _HuntedTriton:
    """A Triton, as it is hunted in."""

    plan: TritonPlan
    oracles: TritonOracles | IrOracles
    batch: int = 1
    known: list[Cause] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        return self.oracles.jobs

    def program(self, seed: int) -> GeneratedProgram:
        is_gluon = seed // len(self.plan.targets) % _GLUON == _GLUON - 1
        return gluon_program(seed) if is_gluon and has_gluon(self.plan.triton) else program(seed)

    async def ask(self, programs: Sequence[Asked], number: int) -> list[Answer]:
        return await in_parallel(self._ask(asked) for asked in programs)

    async def _ask(self, asked: Asked) -> Answer:
        names = (
            cause.name
            for cause in self.known
            if not cause.least.answer.is_latent and has_all(self.plan, cause, asked)
        )
        if asked.seed // len(self.plan.targets) % _SELDOM and (name := next(names, None)):
            return Answer(vote=Vote.LEFT_OUT, words=f"has what a known cause needs ({name})")
        return (await self.oracles.ask([asked]))[0]

    def causes(self, state: HuntState) -> Pursuit:
        self.known = state.causes
        assert isinstance(self.oracles, TritonOracles)
        return TritonCauses(plan=self.plan, oracles=self.oracles, causes=state.causes)

    def spent(self) -> dict[str, float]:
        return {"Triton and the emulator": self.oracles.bench.cpu_seconds}

    async def spread(
        self, state: HuntState, show: Callable[[str], None], is_time_up: Callable[[], bool]
    ) -> None:
        """Ask every Triton that is installed about all least programs."""
        programs = [one for cause in state.causes for one in cause.programs]
        front = front_end(self.plan.triton.kind)
        for compiler in sorted(front.installed(), key=lambda one: Version(one.version)):
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
        state.causes[:] = [
            part for cause in state.causes for part in cause.parted(self.plan.triton.version)
        ]


@dataclass(slots=True, kw_only=True)
class _HuntedIr(_HuntedTriton):
    """A Triton, as it is hunted in by changes of its IR."""

    oracles: IrOracles
    sources: Mapping[Target, list[IrSource]]
    unchanged: dict[tuple[IrSource, Target], asyncio.Future[list[Answer]]] = field(
        default_factory=dict
    )

    def program(self, seed: int) -> GeneratedProgram:
        return changed_ir(seed, self.sources[self.plan.target_of(seed)])

    async def _ask(self, asked: Asked) -> Answer:
        target = self.plan.target_of(asked.seed)
        source = changed_ir(asked.seed, self.sources[target]).source
        if (source, target) not in self.unchanged:
            first = Asked(source.module.text, asked.seed)
            self.unchanged[source, target] = asyncio.ensure_future(self.oracles.ask([first]))
        [answer] = await self.unchanged[source, target]
        if answer.vote is not Vote.ASSEMBLED:
            return Answer(vote=Vote.LEFT_OUT, words=f"a file as it is: {answer.words}")
        return (await self.oracles.ask([asked]))[0]

    def causes(self, state: HuntState) -> Pursuit:
        return IrCauses(
            plan=self.plan, oracles=self.oracles, causes=state.causes, sources=self.sources
        )

    def spent(self) -> dict[str, float]:
        return {"Triton": self.oracles.bench.cpu_seconds}


def has_gluon(triton: Compiler) -> bool:
    """Whether a Triton has the Gluon that is generated: its interface changes with versions."""
    copies = "triton/experimental/gluon/language/nvidia/ampere/async_copy.py"
    path = triton.path / copies if triton.path else None
    return path is not None and path.is_file() and "def async_load(" in path.read_text()


def has_all(plan: TritonPlan, cause: Cause, asked: Asked) -> bool:
    """Whether a kernel has all that the least one of a cause has, on a GPU where that one fails."""
    least, target = cause.least, plan.target_of(asked.seed)
    is_own = target == plan.target_of(least.seed)
    if not is_own and least.targets.get(str(target)) != said_of(least.answer):
        return False
    return words_of(least.text) <= words_of(asked.text)


@dataclass(slots=True, kw_only=True)
class TritonCauses:
    """All causes that a hunt has found in a Triton."""

    plan: TritonPlan
    oracles: TritonOracles
    causes: list[Cause]

    def mark(self, asked: Asked, answer: Answer) -> str:
        """What a hit is most likely about: how it fails, for which GPU."""
        return f"{answer.signature} {self.plan.target_of(asked.seed)}"

    async def walk_around(self, asked: Asked, answer: Answer) -> tuple[Asked, Answer] | None:
        """The hit, or None where it is counted with a cause: it fails alike, and has all of it."""
        for cause in self.causes:
            is_alike = is_same_kind(cause.least.answer, answer)
            is_known = answer.vote is Vote.FAILS or has_all(self.plan, cause, asked)
            is_race = any(
                one.answer.race == answer.race != "" and words_of(one.text) <= words_of(asked.text)
                for one in cause.programs
            )
            if (is_alike and is_known) or is_race:
                cause.hits += 1
                return None
        return asked, answer

    async def reduce(
        self, asked: Asked, answer: Answer, *, is_time_up: Callable[[], bool]
    ) -> LeastProgram | str:
        """The least kernel that fails in such a way, in one config, or by a vote of its configs.

        Else why there is none: it does not a second time; no words where the time is up before it
        is small.

        Raises:
            InfrastructureError: a tool cannot be started.
        """

        async def look(text: str) -> Answer:
            [now] = await self.oracles.ask([Asked(text, asked.seed)], care=Care.QUICK)
            return now

        async def is_interesting(text: str) -> bool:
            return is_closed(text) and is_same_kind(await look(text), quick)

        configs = _CONFIG.findall(asked.text)
        for config in dict.fromkeys((*configs, "".join(configs))):
            text = _CONFIG.sub("", asked.text).replace(_CONFIGS, _CONFIGS + config)
            quick = await look(text)
            # Of all orders, which decide how it is wrong, a quick look sees two.
            if is_same_kind(quick, answer) or quick.vote is answer.vote is Vote.WRONG:
                break
        else:
            return "a hit that did not come back"
        result = await _SOURCES.reduce_text(
            text,
            lambda candidate: asyncio.ensure_future(is_interesting(candidate)),
            effort=Effort(jobs=self.oracles.jobs, max_tests=_MOST_TESTS, is_time_up=is_time_up),
            watch=lambda progress: None,  # noqa: ARG005
        )
        if is_time_up():
            return ""  # what is half reduced has no name yet
        least = Asked(tidy(result.document), asked.seed)
        [last] = await self.oracles.ask([least], care=Care.THOROUGH)
        if not is_same_kind(last, answer):
            least = Asked(text, asked.seed)
            [last] = await self.oracles.ask([least], care=Care.THOROUGH)
        if not last.is_hit:
            return f"a hit that is {said_of(last)}"
        program = least_of(self.plan, least, last)
        for target in map(Target.parse, OTHERS):
            if target != self.plan.target_of(asked.seed):
                there = replace(self.oracles, targets=[target])
                [other] = await there.ask([least], care=Care.THOROUGH)
                otherwise = other.is_hit and not is_same_kind(other, last)
                program.targets[str(target)] = said_of(other) + " in another way" * otherwise
        return program

    def join(self, program: LeastProgram, *, seconds: float, tried: int) -> tuple[Cause, bool]:
        """The cause of a reduced program, and whether it is new."""
        return join(self.causes, program, seconds=seconds, tried=tried)


def least_of(plan: TritonPlan, asked: Asked, answer: Answer) -> LeastProgram:
    """A reduced kernel: it is named by how it fails; where it is wrong, by what is left, too.

    Of the same race on two targets the cause is one.
    """
    words = words_of(asked.text)
    named = ", ".join(f"{n} x {word}" if n > 1 else word for word, n in sorted(words.items()))
    how = f"{answer.signature} on {plan.target_of(asked.seed)}".replace("_", " ", 1)
    name = f"{answer.race or how} ({named})"
    if answer.vote is Vote.FAILS:
        name = answer.words.partition(": ")[2][:160]
    return LeastProgram(
        text=asked.text,
        seed=asked.seed,
        answer=answer,
        name=name,
        opcodes=tuple(sorted(words)),
        instructions=len(_kernel(ast.parse(asked.text)).body) + 1,
    )


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


async def _reduce(reducer: Reducer[PythonFile]) -> None:
    await sweep_coarsely(reducer, STRUCTURE, smallest=1)


_LAYOUT = _LaunchFile()
_SOURCES = TextFormat(
    read=lambda text: PythonFile.of(_LAYOUT.read(text), _LAYOUT),
    text_of=lambda source: source.text,
    size=lambda source: source.size,
    lines=lambda source: source.kernel_lines,
    run=_reduce,
)


def is_closed(text: str) -> bool:
    """Whether a candidate is as defined as what is generated, and can be launched on a GPU.

    What threads exchange through memory lies between two barriers; a kernel that makes descriptors
    asks its launch for memory; each copy of Gluon is waited for.
    """
    if "make_tensor_descriptor" in text and "set_allocator(" not in text:
        return False
    copies, ahead = text.count("async_load("), text.count("wait_group(1)")
    if not copies == text.count("commit_group(") == text.count("wait_group(") + ahead:
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


async def hunt_triton(
    plan: TritonPlan,
    store: Store,
    how: CompileOptions,
    tell: Callable[[str], None],
    show: Callable[[str], None],
) -> HuntReport:
    """Hunt in a Triton; as `hunting.hunt_in`.

    Raises:
        InfrastructureError: a tool cannot be started, or the disk is full; what was found is kept.
    """
    async with at_bench(store, how) as bench:
        kind = IrOracles if plan.corpus else TritonOracles
        oracles = kind(bench=bench, compiler=plan.triton, targets=plan.targets)
        state = state_of(store, plan)
        texts = {program.text for cause in state.causes for program in cause.programs}
        others = [one for one in known_causes(store, plan) if one.least.text not in texts]
        show(f"asking {plan.triton.name} about {len(others)} known causes")
        asked = [cause.least.asked for cause in others]
        answers = await oracles.ask(asked, care=Care.THOROUGH)
        state.causes += [
            structs.replace(cause, hits=0, is_known=True)
            for cause, answer in zip(others, answers, strict=True)
            if is_same_kind(answer, cause.least.answer)  # what this Triton mends is hunted again
        ]
        store.put_evidence(KIND, plan.key, msgspec.json.encode(state), {})
        hunted = _HuntedTriton(plan=plan, oracles=oracles)
        if isinstance(oracles, IrOracles):
            sources = fitting_sources(plan.corpus, plan.targets)
            hunted = _HuntedIr(plan=plan, oracles=oracles, sources=sources)
        return await hunt_in(hunted, plan, store, tell, show)


def write_triton_repros(report: HuntReport, home: Path) -> list[str]:
    """Write the least kernel of each cause as a repro; their folders, as the causes came up.

    Raises:
        StorageError: a folder cannot be written.
    """
    plan = report.plan
    assert isinstance(plan, TritonPlan)

    def files_of(name: str, cause: Cause) -> dict[str, bytes]:
        least = cause.least
        if plan.corpus:
            return repro_files(plan, name, cause)
        lines = [
            f"kernel: {name}",
            f"summary: {json.dumps(f'{cause.name}; {least.answer.words}'[:400])}",
            f"triton: {plan.tool.version}",
            f"targets: [{plan.target_of(least.seed)}]",
        ]
        return {
            "launch.py": re.sub(rf"\b{KERNEL}\b", name, least.text).encode(),
            "repro.yaml": ("\n".join(lines) + "\n").encode(),
        }

    return write_folders(report, home / "hunt" / f"triton-{plan.tool.version}", files_of)
