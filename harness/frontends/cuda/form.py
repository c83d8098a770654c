"""Kernels of CUDA C++ as files of their own, which are reduced by their syntax."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.frontends.cuda.compilers import tool_of
from harness.frontends.cuda.source import block_of, kernel_meant, kernels_of, one_file
from harness.frontends.pins import PINS
from harness.frontends.readings import read_text
from harness.frontends.source_form import Lowered, Written
from harness.frontends.syntax import Syntax, SyntaxNode
from harness.io.files.whole_folders import scratch_disk
from harness.values.errors import InfrastructureError, UsageError
from harness.values.outcome import LaunchFacts, Lowering
from harness.values.standalone import SourceInstall
from harness.values.toolchain import Assembler
from harness.values.verdict import Stage

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.captured_launch import CapturedLaunch
    from harness.frontends.cuda.compilers import CudaDriver
    from harness.io.processes.hub import ResourceLimits


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
    found: list[tuple[Any, str | None, int]] = []
    waiting: list[tuple[Any, str | None, int]] = [(root, None, -1)]
    while waiting:
        node, field, parent = waiting.pop()
        position = len(found)
        found.append((node, field, parent))
        named = [(child, node.field_name_for_child(at)) for at, child in enumerate(node.children)]
        waiting += [(child, name, position) for child, name in reversed(named)]
    return found


def _characters(text: str) -> Sequence[int]:
    """The character that each byte of a text belongs to."""
    if text.isascii():
        return range(len(text) + 1)
    found = [at for at, each in enumerate(text) for _ in each.encode(errors="replace")]
    return [*found, len(text)]


_PREPROCESSED = ("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "preproc_elifdef")
_LOOP = ("initializer+body", "body")
CUDA_SYNTAX = Syntax(
    parse=_parse,
    comments=frozenset({"comment"}),
    blocks=frozenset(
        {
            "translation_unit",
            "compound_statement",
            "declaration_list",
            "field_declaration_list",
            "case_statement",
            *_PREPROCESSED,
        }
    ),
    scopes=frozenset({"compound_statement", "for_statement", "lambda_expression"}),
    namespaces=frozenset({"namespace_definition"}),
    qualified=frozenset({"qualified_identifier"}),
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
    lists=frozenset(
        {
            "argument_list",
            "parameter_list",
            "template_parameter_list",
            "template_argument_list",
            "initializer_list",
            "field_initializer_list",
            "subscript_argument_list",
            "launch_bounds",
            "enumerator_list",
            "base_class_clause",
            "lambda_capture_specifier",
        }
    ),
    optional=frozenset(
        {
            "attribute",
            "attribute_specifier",
            "attribute_declaration",
            "alignas_qualifier",
            "launch_bounds",
            "type_qualifier",
            "storage_class_specifier",
            "virtual_specifier",
            "noexcept",
            "trailing_return_type",
            "requires_clause",
            "base_class_clause",
            "field_initializer_list",
            "else_clause",
            "gnu_asm_qualifier",
            "gnu_asm_clobber_list",
            "gnu_asm_input_operand_list",
            "gnu_asm_output_operand_list",
            "__device__",
            "__forceinline__",
            "__host__",
            "__inline__",
            "__noinline__",
            "explicit_function_specifier",
        }
    ),
    optional_fields={
        "init_declarator": "value",
        "field_declaration": "default_value",
        "optional_parameter_declaration": "default_value",
        "optional_type_parameter_declaration": "default_type",
        "for_statement": "update",
    },
    expressions=frozenset(
        {
            "assignment_expression",
            "binary_expression",
            "call_expression",
            "cast_expression",
            "char_literal",
            "compound_literal_expression",
            "conditional_expression",
            "comma_expression",
            "false",
            "field_expression",
            "identifier",
            "initializer_list",
            "lambda_expression",
            "new_expression",
            "number_literal",
            "parenthesized_expression",
            "pointer_expression",
            "qualified_identifier",
            "sizeof_expression",
            "string_literal",
            "subscript_expression",
            "true",
            "unary_expression",
            "update_expression",
        }
    ),
    types=frozenset(
        {
            "decltype",
            "dependent_type",
            "placeholder_type_specifier",
            "primitive_type",
            "qualified_identifier",
            "sized_type_specifier",
            "template_type",
            "type_identifier",
        }
    ),
    plain_type="int",
    numbers=frozenset({"number_literal"}),
    names=frozenset({"identifier", "type_identifier", "field_identifier", "namespace_identifier"}),
    defining=frozenset({"declarator", "name"}),
    transparent=frozenset(
        {
            "template_declaration",
            "linkage_specification",
            "parenthesized_declarator",
            "reference_declarator",
            "type_parameter_declaration",
        }
    ),
    undefined=frozenset({"template_instantiation", "preproc_undef", *_PREPROCESSED}),
    macros=frozenset({"preproc_def"}),
    variables=frozenset({"declaration"}),
    initialised=frozenset({"init_declarator"}),
    functions=frozenset({"function_declarator"}),
    calls={
        "call_expression": "function",
        "template_function": "name",
        "template_type": "name",
        "template_method": "name",
    },
    templates=frozenset({"template_declaration"}),
)


_NO_KERNEL = "no such kernel"


class CudaForm:
    """See `harness.frontends.source_form.SyntaxForm`."""

    suffix = ".cu"
    syntax = CUDA_SYNTAX

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver

    def install(self, version: str, assembler: Assembler) -> SourceInstall:
        pins = PINS[self._driver.kind]
        if not self._driver.program:
            raise UsageError(f"{pins.title} is a library: no command runs it")
        return SourceInstall(
            title=pins.title,
            module=self._driver.kind,
            packages=tuple(map(str, pins.pins(version))),
            has_pins=True,
            program=self._driver.program,
        )

    async def write(self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts) -> Written:
        file, _, entries = launch.request
        entry = entries[record.key].entry
        text = one_file(file, record.config)
        return Written(text=text, options={"kernel": entry or record.kernel})

    async def compile(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        text: str,
        *,
        ptxas: Assembler | None,
        limits: ResourceLimits,
        until: Stage | None = None,
        suffix: str = ".cu",
        options: Mapping[str, object] | None = None,
    ) -> Lowered | None:
        driver, (file, target, _) = self._driver, launch.request
        folder = bench.hub.new_folder("standalone")
        try:
            # Messages name the file.
            source = folder / file.name
            with scratch_disk():
                source.write_text(text, encoding="utf-8", newline="")
            run = await driver.run(
                bench, launch.compiler, source, (), target, keeps=False, limits=limits
            )
        finally:
            bench.hub.drop_folder(folder)
        lowering = Lowering(
            end=run.end,
            stage=driver.kind if run.text is None else "ptx",
            flags=("-v", f"--gpu-name={target}"),
            log=run.log,
        )
        if run.text is None:
            return Lowered(lowering=lowering)
        if until is not None and until.value == driver.kind:
            return None
        meant = kernel_meant(kernels_of(run.text), str((options or {}).get("kernel")))
        reading = read_text(run.text, entry=meant.entry if meant else _NO_KERNEL)
        if meant is not None:
            block = block_of(text, meant.name, {}, source)
            known: dict[str, object] = {
                "entry": meant.entry,
                "threads": block.threads or meant.most_threads,
                "shared": block.shared,
            }
            lowering = replace(lowering, metadata=known)
        return Lowered(
            lowering=lowering,
            program=run.text.encode(),
            reading=reading,
            picked_ptxas=str(tool_of(launch.compiler, "ptxas")),
        )
