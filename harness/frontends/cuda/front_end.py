"""CUDA C++ behind the door: see `harness.frontends.base`. Each config is one run of nvcc.

A file has no launch: what is compiled is every `__global__` function that it defines or
instantiates, with each combination of the values that it lists (see `source`). Kernels are written
as files of their own, which are reduced by their syntax.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from harness.frontends.base import CompileRequest, Lowered, SyntaxForm
from harness.frontends.bench import Kept, Workbench, content_key
from harness.frontends.cuda.compilers import FLAGS, CudaJob, defines, identity, judge_nvcc, tool_of
from harness.frontends.cuda.source import (
    CompiledKernel,
    block_of,
    configs_of,
    display_name,
    facts_of,
    kernel_meant,
    kernels_in,
    kernels_of,
    one_file,
    parameters_in,
    read_source,
)
from harness.frontends.file_front_end import (
    FileFrontEnd,
    captured_file,
    injected_configs,
    launch_of_file,
    repro_of_file,
)
from harness.frontends.one_file import Syntax, SyntaxNode
from harness.frontends.partners import PINS, PackagedFrontEnd
from harness.frontends.plan import CapturePlace, Plan, cells_of
from harness.frontends.readings import read_text
from harness.frontends.sessions import CapturedLaunch
from harness.io.files.writing import scratch_disk
from harness.io.processes.tasks import in_parallel
from harness.values.errors import CaptureError, InfrastructureError
from harness.values.kernel import Config, Repro
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.standalone import SourceInstall
from harness.values.toolchain import NVCC, Assembler, Compiler
from harness.values.verdict import Verdict


@functools.cache
def _parser() -> Any:  # noqa: ANN401 - it is only there where it is installed
    try:
        import tree_sitter  # noqa: PLC0415 - not needed before something is reduced
        import tree_sitter_cuda  # noqa: PLC0415 - as above
    except ImportError as error:
        say = "to reduce CUDA C++ takes the packages tree-sitter and tree-sitter-cuda"
        raise InfrastructureError(say) from error
    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))


def _parse(text: str) -> Sequence[SyntaxNode]:
    """The nodes of a text.

    Raises:
        InfrastructureError: tree-sitter is not installed.
    """
    raw = _preorder(_parser().parse(text.encode(errors="replace")).root_node)
    at = _characters(text)
    last = list(range(1, len(raw) + 1))
    for position in range(len(raw) - 1, 0, -1):
        parent = raw[position][2]
        last[parent] = max(last[parent], last[position])
    return [
        SyntaxNode(
            kind=node.type,
            field=field,
            start=at[node.start_byte],
            end=at[node.end_byte],
            parent=parent,
            last=last[position],
            is_named=node.is_named,
            is_error=node.is_error or node.is_missing,
        )
        for position, (node, field, parent) in enumerate(raw)
    ]


def _preorder(root: Any) -> list[tuple[Any, str | None, int]]:  # noqa: ANN401 - as above
    """Each node with its field and its parent's position; expressions may nest deeply."""
    nodes: list[tuple[Any, str | None, int]] = []
    waiting: list[tuple[Any, str | None, int]] = [(root, None, -1)]
    while waiting:
        node, field, parent = waiting.pop()
        position = len(nodes)
        nodes.append((node, field, parent))
        named = [(child, node.field_name_for_child(at)) for at, child in enumerate(node.children)]
        waiting += [(child, name, position) for child, name in reversed(named)]
    return nodes


def _characters(text: str) -> Sequence[int]:
    """The character that each byte of a text belongs to."""
    if text.isascii():
        return range(len(text) + 1)
    characters = [at for at, letter in enumerate(text) for _ in letter.encode(errors="replace")]
    return [*characters, len(text)]


def _kinds(names: str) -> frozenset[str]:
    return frozenset(names.split())


_PREPROCESSED = ("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "preproc_elifdef")
_LOOP = ("initializer+body", "body")
CUDA_SYNTAX = Syntax(
    parse=_parse,
    comments=_kinds("comment"),
    blocks=_kinds(
        "translation_unit compound_statement declaration_list field_declaration_list case_statement"
    )
    | {*_PREPROCESSED},
    scopes=_kinds("compound_statement for_statement lambda_expression"),
    namespaces=_kinds("namespace_definition"),
    qualified=_kinds("qualified_identifier"),
    bodies={
        "if_statement": ("consequence", "alternative"),
        "else_clause": ("*",),
        "for_statement": _LOOP,
        "for_range_loop": ("body",),
        "while_statement": ("body",),
        "do_statement": ("body",),
        "switch_statement": ("body",),
        "case_statement": ("*",),
        "compound_statement": ("*",),
        "namespace_definition": ("body",),
        "declaration_list": ("*",),
        "linkage_specification": ("body",),
        "template_declaration": ("*",),
        "labeled_statement": ("*",),
        "attributed_statement": ("*",),
        **dict.fromkeys(_PREPROCESSED, ("*", "alternative")),
    },
    lists=_kinds(
        "argument_list parameter_list template_parameter_list template_argument_list "
        "initializer_list field_initializer_list subscript_argument_list launch_bounds "
        "enumerator_list base_class_clause lambda_capture_specifier"
    ),
    optional=_kinds(
        "attribute attribute_specifier attribute_declaration alignas_qualifier "
        "launch_bounds type_qualifier storage_class_specifier virtual_specifier noexcept "
        "trailing_return_type requires_clause base_class_clause field_initializer_list "
        "else_clause gnu_asm_qualifier gnu_asm_clobber_list gnu_asm_input_operand_list "
        "gnu_asm_output_operand_list __device__ __forceinline__ __host__ __inline__ "
        "__noinline__ explicit_function_specifier"
    ),
    optional_fields={
        "init_declarator": "value",
        "field_declaration": "default_value",
        "optional_parameter_declaration": "default_value",
        "optional_type_parameter_declaration": "default_type",
        "for_statement": "update",
    },
    expressions=_kinds(
        "assignment_expression binary_expression call_expression cast_expression "
        "char_literal compound_literal_expression conditional_expression comma_expression "
        "false field_expression identifier initializer_list lambda_expression "
        "new_expression number_literal parenthesized_expression pointer_expression "
        "qualified_identifier sizeof_expression string_literal subscript_expression true "
        "unary_expression update_expression"
    ),
    types=_kinds(
        "decltype dependent_type placeholder_type_specifier primitive_type "
        "qualified_identifier sized_type_specifier template_type type_identifier"
    ),
    plain_type="int",
    numbers=_kinds("number_literal"),
    names=_kinds("identifier type_identifier field_identifier namespace_identifier"),
    defining=_kinds("declarator name"),
    transparent=_kinds(
        "template_declaration linkage_specification parenthesized_declarator "
        "reference_declarator type_parameter_declaration"
    ),
    undefined=_kinds("template_instantiation preproc_undef") | {*_PREPROCESSED},
    macros=_kinds("preproc_def"),
    variables=_kinds("declaration"),
    initialised=_kinds("init_declarator"),
    functions=_kinds("function_declarator"),
    calls={
        "call_expression": "function",
        "template_function": "name",
        "template_type": "name",
        "template_method": "name",
    },
    templates=_kinds("template_declaration"),
)


class CudaForm(SyntaxForm):
    """See `harness.frontends.base.SyntaxForm`."""

    suffix = ".cu"
    syntax = CUDA_SYNTAX

    def install(self, version: str, assembler: Assembler) -> SourceInstall:
        return SourceInstall(
            title=NVCC,
            module=NVCC,
            packages=tuple(map(str, PINS[NVCC].pins(version))),
            has_pins=True,
            # Where the wheels of 13.x put it.
            program=("nvidia/cu13/bin/nvcc", *FLAGS),
        )

    def write(
        self, launch: CapturedLaunch, record: LaunchFacts
    ) -> tuple[str, Mapping[str, object]]:
        file, _, entries, _ = launch.request
        entry = entries[record.key]["entry"]
        return one_file(file, record.config), {"kernel": entry or record.kernel}

    async def compile(
        self, bench: Workbench, launch: CapturedLaunch, request: CompileRequest
    ) -> Lowered | None:
        file, target, *_ = launch.request
        with bench.hub.folder("standalone") as folder:
            # Messages name the file.
            source = folder / file.name
            with scratch_disk():
                source.write_text(request.text, encoding="utf-8", newline="")
            job = CudaJob(file=source, config={}, target=target, compiler=launch.compiler)
            run = await job.run(bench, limits=request.limits)
        lowering = job.lowering(run)
        if run.ptx is None:
            return Lowered(lowering=lowering)
        if request.until is not None and request.until.value == NVCC:
            return None
        ptx = run.ptx.decode(errors="replace")
        kernel = kernel_meant(kernels_of(ptx), str(request.options.get("kernel")))
        if kernel is not None:
            block = block_of(request.text, kernel.name, {}, source)
            lowering = replace(lowering, metadata=facts_of(kernel, block))
        return Lowered(
            lowering=lowering,
            program=run.ptx,
            reading=read_text(ptx, entry=kernel.entry if kernel else "no such kernel"),
            picked_ptxas=str(tool_of(launch.compiler, "ptxas")),
        )


class _CudaFrontEnd(PackagedFrontEnd, FileFrontEnd):
    pins = PINS[NVCC]
    kind = title = NVCC
    suffixes: tuple[str, ...] = (".cu",)
    stages: tuple[str, ...] = (NVCC, "ptx")
    levels: tuple[str, ...] = ("source",)
    takes_inputs = True
    source_form = CudaForm()

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        configs_of(read_source(path), path)
        name = None if kernel is None else f"{path}::{kernel}"
        return repro_of_file(self.kind, path, kernel, name=name)

    def parameters(self, path: Path, kernel: str) -> dict[str, str]:
        return parameters_in(read_source(path), display_name(kernel))

    async def plainer(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> dict[str, Kept[Lowering]]:
        _, _, entries, _ = launch.request
        found = {}
        for level in ("-O0", "-O1"):
            job = replace(_job(launch, record), more=("-Xcicc", level))
            kept = await job.compiled(bench)
            if "ptx" in kept.artifacts:
                lowering = replace(kept.value, metadata=entries.get(record.key, {}))
                found[" ".join(job.more)] = replace(kept, value=lowering)
        return found

    async def plan(self, bench: Workbench, place: CapturePlace) -> Plan:
        jobs = _jobs(place)
        lowerings = await in_parallel(job.compiled(bench) for job in jobs)
        return self._planned(bench, place, jobs, lowerings)

    def stored_plan(self, bench: Workbench, place: CapturePlace) -> Plan | None:
        jobs = _jobs(place)
        lowerings: list[Kept[Lowering]] = []
        for job in jobs:
            lowering = bench.read("lower", job.key, Lowering)
            if lowering is None:
                return None
            lowerings.append(lowering)
        return self._planned(bench, place, jobs, lowerings)

    async def lower(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts, *, ptxas: Assembler
    ) -> Kept[Lowering]:
        whole = await _job(launch, record).compiled(bench)
        key = self.lowering_key(launch, record, ptxas)
        _, _, entries, fresh = launch.request
        lowering = replace(whole.value, metadata=entries.get(record.key, {}))
        kept = bench.keep("lower", key, lowering, whole.artifacts)
        # The plan compiled the file: by now it is stored, and new all the same.
        return replace(kept, cached=whole.cached and record.key not in fresh)

    def lowering_key(self, launch: CapturedLaunch, record: LaunchFacts, ptxas: Assembler) -> str:
        return content_key(file=_job(launch, record).key, record=record.key)

    def _planned(
        self,
        bench: Workbench,
        place: CapturePlace,
        jobs: Sequence[CudaJob],
        lowerings: Sequence[Kept[Lowering]],
    ) -> Plan:
        """A cell for each kernel of each config; one for a config of which nothing is left.

        Raises:
            CaptureError: the file holds no kernel, or not the one that is meant.
        """
        repro = place.selection.repro
        file = place.launch.spec.file or repro.file
        source = read_source(file)
        # Of what is refused, the source names the kernels.
        named = [repro.kernel] if repro.kernel else []
        defined = kernels_in(source) or named or [file.stem]
        entries: dict[str, dict[str, Any]] = {}
        records: list[LaunchFacts] = []
        fresh: set[str] = set()
        for job, lowering in zip(jobs, lowerings, strict=True):
            for kernel in _kernels(bench, lowering, defined, named):
                block = block_of(source, kernel.name, job.config, file)
                facts = facts_of(kernel, block)
                record = content_key(file=lowering.key, kernel=kernel.name, **facts)
                entries[record] = facts
                fresh |= set() if lowering.cached else {record}
                records.append(launch_of_file(record, kernel.name, job.config, file))
        if not records:
            raise CaptureError(f"{file}: it defines no __global__ function, and instantiates none")
        captured = captured_file(
            place,
            (file, place.target, entries, fresh),
            records,
            key=content_key(lowerings=[lowering.key for lowering in lowerings]),
            ptxas=str(tool_of(place.compiler, "ptxas")),
        )
        plan = cells_of(self.back_end(place.target), place, captured)
        cells = (
            replace(cell, entry=entries[cell.record.key]["entry"] if cell.record else None)
            for cell in plan.cells
        )
        return replace(plan, cells=tuple(cells))

    def judge(self, lowering: Lowering) -> Verdict:
        return judge_nvcc(lowering)

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:
        return f"{self.title} {' '.join(defines(config.as_dict()))}  # for {kernel}"

    def identity(self, compiler: Compiler) -> object:
        return [compiler.identity, identity()]


def _jobs(place: CapturePlace) -> list[CudaJob]:
    repro = place.selection.repro
    file = place.launch.spec.file or repro.file
    injected = injected_configs(file, place).values()
    configs = [config for configs in injected for config in configs]
    return [
        CudaJob(file=file, config=config, target=place.target, compiler=place.compiler)
        for config in configs or configs_of(read_source(file), file, repro.macros)
    ]


def _job(launch: CapturedLaunch, record: LaunchFacts) -> CudaJob:
    file, target, *_ = launch.request
    return CudaJob(file=file, config=record.config, target=target, compiler=launch.compiler)


def _kernels(
    bench: Workbench, lowering: Kept[Lowering], defined: list[str], named: list[str]
) -> list[CompiledKernel]:
    """The kernels in the PTX that was left; without one, those that the file defines.

    Kernels of a library that do nothing are left out, unless the user names them.
    """
    sha256 = lowering.artifacts.get("ptx")
    if sha256 is None:
        return [CompiledKernel(name=name) for name in defined]
    kernels = kernels_of(bench.store.artifacts.get(sha256).decode(errors="replace"))
    asked = (*defined, *named)
    own = [k for k in kernels if not k.is_empty or any(fnmatchcase(k.name, a) for a in asked)]
    return own or kernels


CUDA_FRONT_END = _CudaFrontEnd()
