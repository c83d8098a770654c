"""From what a child tells of a launch to one file: helpers and constants inlined, names unique.

Pure.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping

import libcst as cst

from harness.frontends.one_file import spelled, spelled_words
from harness.values.standalone import Binding, Definition, Dialect, Export, FileLaunch, Standalone

_NAME = re.compile(r"^\s*(?:async )?(?:def|class)\s+(\w+)", re.MULTILINE)


def inline(export: Export, dialect: Dialect) -> Standalone:
    """The launch as code that imports nothing but its compiler, and how to compile it."""
    writer = _Writer(export.definitions, dialect)
    parts = [writer.define(0)]
    launch = FileLaunch(
        kernel=writer.names[0],
        signature={name: _kind(kind) for name, kind in export.signature.items()},
        constants={
            _path(export, constant.path): writer.value(constant.value, constant.names)
            for constant in export.constants
        },
        attributes={
            _path(export, attribute.path): spelled_words(attribute.words)
            for attribute in export.attributes
        },
        options={
            name: writer.value(option.value or "", option.names)
            for name, option in export.options.items()
        },
        target=export.target,
        source_class=export.source_class.attribute or "ASTSource",
    )
    # What the launch's own values name comes in front of the kernel, like its helpers.
    parts = [*writer.helpers, *parts]
    head = [*sorted(writer.imports - dialect.always), *writer.constants]
    return Standalone(code="\n".join(head) + "\n\n\n" + "\n\n\n".join(parts), launch=launch)


def _kind(kind: object) -> str:
    if isinstance(kind, list):
        items = [_kind(item) for item in kind]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return spelled(repr(kind))


def _path(export: Export, path: list[int]) -> tuple[str | int, ...]:
    function = ast.parse(export.definitions[0].source).body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args
    parameters = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return (parameters[path[0]].arg, *path[1:])


class _Writer:
    """Gives everything that is reached a name of its own, and writes it once."""

    def __init__(self, definitions: list[Definition], dialect: Dialect) -> None:
        self._definitions = definitions
        self._constant = dialect.constant
        self.names: dict[int, str] = {}
        self.imports: set[str] = set()
        self.constants: list[str] = []
        self.helpers: list[str] = []
        # What a name at the top of the file stands for.
        self._meanings: dict[str, object] = {}
        self._local = {name for code in definitions for name in _given(ast.parse(code.source))}

    def define(self, index: int, *, is_known: bool = True) -> str:
        """The text of a definition; what it names is written before it."""
        definition = self._definitions[index]
        match = _NAME.search(definition.source)
        name = match[1] if match else "kernel"
        self.names[index] = self._claim(name, ("definition", index), is_known=is_known)
        texts = {path: self._bound(path, binding) for path, binding in definition.names.items()}
        if self.names[index] != name:
            texts[name] = self.names[index]
        source = _rewritten(definition.source, texts)
        return f"@{definition.decorator}\n{source}" if definition.decorator else source

    def value(self, text: str, names: Mapping[str, Binding]) -> str:
        return spelled(self._expression(text, names))

    def _expression(self, text: str, names: Mapping[str, Binding]) -> str:
        texts = {path: self._bound(path, binding) for path, binding in names.items()}
        if all(path == new for path, new in texts.items()):
            return text
        return _rewritten(text + "\n", texts).strip()

    def _bound(self, path: str, binding: Binding) -> str:
        """What to write in place of a free name, after seeing to it that it is there."""
        if binding.definition is not None:
            if binding.definition not in self.names:
                is_known = "." not in path
                self.helpers.append(self.define(binding.definition, is_known=is_known))
            return self.names[binding.definition]
        if binding.module is not None:
            meaning = binding.module, binding.attribute
            name = self._claim(path.rpartition(".")[2], meaning, is_known="." not in path)
            self.imports.add(_import(name, *meaning))
            return name
        assert binding.value is not None
        text = self._expression(binding.value, binding.names)
        if "." in path:
            # Out of a module, a compiler takes a plain value; at the top of a file, not each does.
            return text
        if self._constant and not text.startswith(f"{self._constant[0]}("):
            call, module = self._constant
            root = call.partition(".")[0]
            self.imports.add(_import(root, module, None))
            self._meanings.setdefault(root, (module, None))
            text = f"{call}({text})"
        name = self._claim(path, text)
        line = f"{name} = {text}"
        if line not in self.constants:
            self.constants.append(line)
        return name

    def _claim(self, name: str, meaning: object, *, is_known: bool = True) -> str:
        """This name, or one like it that is free; `is_known`: the code has it as it is."""
        candidate, number = name, 1
        while self._meanings.get(candidate, meaning) != meaning or (
            candidate in self._local and not (is_known and candidate == name)
        ):
            number += 1
            candidate = f"{name}_{number}"
        self._meanings[candidate] = meaning
        return candidate


def _import(name: str, module: str, attribute: str | None) -> str:
    if attribute is not None:
        return f"from {module} import {attribute}" + (f" as {name}" if name != attribute else "")
    if name == module:
        return f"import {module}"
    parent, _, last = module.rpartition(".")
    if name == last:
        return f"from {parent} import {last}"
    return f"import {module} as {name}"


def _given(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id


def _rewritten(source: str, texts: Mapping[str, str]) -> str:
    """The source with other expressions for its free names.

    Annotations that name what the file does not have go.
    """
    changed = {path: text for path, text in texts.items() if path != text}
    names = frozenset((*texts, *texts.values(), *_given(ast.parse(source))))
    return cst.parse_module(source).visit(_Rewriter(changed, names)).code.strip("\n")


class _Rewriter(cst.CSTTransformer):
    def __init__(self, texts: Mapping[str, str], names: frozenset[str]) -> None:
        super().__init__()
        self._texts = texts
        self._known = {path.partition(".")[0] for path in names} | set(dir(builtins))

    def on_visit(self, node: cst.CSTNode) -> bool:
        # A dotted name that is replaced is replaced as a whole.
        return not isinstance(node, cst.Attribute) or dotted(node) not in self._texts

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        """Replace names; not those after a dot, of keywords, or of parameters."""
        old = original_node
        if isinstance(old, cst.Attribute | cst.Name) and (
            text := self._texts.get(dotted(old) or "")
        ):
            return cst.parse_expression(text)
        if isinstance(old, cst.Attribute):
            return updated_node.with_changes(attr=old.attr)
        if isinstance(old, cst.Arg):
            return updated_node.with_changes(keyword=old.keyword)
        if isinstance(old, cst.Param) and isinstance(updated_node, cst.Param):
            annotation = self._annotation(updated_node.annotation)
            return updated_node.with_changes(name=old.name, annotation=annotation)
        if isinstance(updated_node, cst.FunctionDef):
            return updated_node.with_changes(returns=self._annotation(updated_node.returns))
        return updated_node

    def _annotation(self, annotation: cst.Annotation | None) -> cst.Annotation | None:
        if annotation is None or set(_roots(annotation.annotation)) <= self._known:
            return annotation
        return None


def dotted(node: cst.CSTNode) -> str | None:
    """`a.b.c` of an expression that is nothing else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute) and (parent := dotted(node.value)):
        return f"{parent}.{node.attr.value}"
    return None


def _roots(node: cst.CSTNode) -> Iterator[str]:
    if isinstance(node, cst.Attribute):
        yield from _roots(node.value)
    elif isinstance(node, cst.Name):
        yield node.value
    else:
        for child in node.children:
            yield from _roots(child)
