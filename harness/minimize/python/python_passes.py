"""What may go from a Triton kernel: statements, branches, arguments, operands, numbers. Pure.

Each transformation only says what it could do. An edit names the node by its position.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import replace

from harness.frontends.one_file import without_argument
from harness.minimize.python.tree import (
    PythonFile,
    PythonFunction,
    Replacement,
    Rewriter,
    defined_by,
    expression,
    loads,
    names_in,
    names_of_launch,
    preorder,
    stores,
)
from harness.minimize.reduction.reducer import (
    Edit,
    FoundPass,
    Reducer,
    TextFormat,
    reduce_patiently,
    sweep_coarsely,
)
from harness.values.standalone import FileLayout

T = TypeVar("T")
Change = Callable[[ast.AST], Replacement]


def nothing(node: ast.AST) -> Replacement:  # noqa: ARG001
    """Leaves a node out."""
    return None


def _written(text: str) -> Change:
    """Puts an expression in the place of a node."""
    return lambda _: expression(text)


Pass = FoundPass[PythonFile]


def _without(document: PythonFile, chosen: Sequence[int]) -> PythonFile | None:
    return document.rewrite(dict.fromkeys(chosen, nothing))


def _statements(document: PythonFile) -> list[int]:
    return [
        document.positions[id(statement)]
        for function in document.functions.values()
        for statement in function.statements
    ]


def _words_of_closure(document: PythonFile, position: int) -> Hashable:
    stmt = document.nodes[position]
    assert isinstance(stmt, ast.stmt)
    fn = next(fn for fn in document.functions.values() if stmt in fn.statements)
    lost = fn.closure([stmt])
    return tuple(ast.unparse(inner) for inner in fn.statements if id(inner) in lost)


def _without_closure(document: PythonFile, chosen: Sequence[int]) -> PythonFile | None:
    chosen_ids = {id(document.nodes[position]) for position in chosen}
    changes: dict[int, Change] = {}
    for fn in document.functions.values():
        mine = [stmt for stmt in fn.statements if id(stmt) in chosen_ids]
        changes |= {document.positions[lost]: nothing for lost in fn.closure(mine)}
    return document.rewrite(changes)


def _methods(document: PythonFile) -> list[int]:
    functions = document.functions.items()
    return [document.positions[id(fn.node)] for name, fn in functions if "." in name]


def _unused(document: PythonFile) -> list[int]:
    named = {document.launch.kernel, *names_of_launch(document.launch)}

    def is_unused_global(stmt: ast.stmt, living: Sequence[ast.stmt]) -> bool:
        others = names_in(beside for beside in living if beside is not stmt)
        return (named | others).isdisjoint(defined_by(stmt))

    unused = _without_use(document.tree.body, is_unused_global)
    for function in document.functions.values():
        unused += _without_use(function.statements, _is_unused)
    return sorted(document.positions[id(statement)] for statement in unused)


# Each with all that needs what it sets: what is left still makes sense.
STATEMENTS = Pass("statements", _statements, _without_closure, _words_of_closure)
METHODS = Pass("methods", _methods, _without, lambda document, at: ast.unparse(document.nodes[at]))
UNUSED = Pass("unused", _unused, _without, PythonFile.words)


def _without_use(
    statements: Sequence[ast.stmt], is_unused: Callable[[ast.stmt, Sequence[ast.stmt]], bool]
) -> list[ast.stmt]:
    """Those that nothing uses which is used itself."""
    unused: list[ast.stmt] = []
    while True:
        living = [stmt for stmt in statements if stmt not in unused]
        more = [stmt for stmt in living if is_unused(stmt, living)]
        if not more:
            return unused
        unused += more


def _is_unused(stmt: ast.stmt, living: Sequence[ast.stmt]) -> bool:
    if isinstance(stmt, ast.If | ast.For | ast.While):
        inner = (*stmt.body, *stmt.orelse)
        return all(one not in living or isinstance(one, ast.Pass) for one in inner)
    if not isinstance(stmt, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return False
    names = stores(stmt)
    return bool(names) and not any(names & loads(beside) for beside in living if beside is not stmt)


def rewrites(name: str, offer: Callable[[PythonFile, ast.AST], Change | None]) -> Pass:
    """Nodes that can be written in a simpler way; `offer` says how, for those that it knows."""

    def find(document: PythonFile) -> list[int]:
        """Within functions; like beside like, since they tend to share their fate."""
        offered = [
            position
            for position, node in enumerate(document.nodes)
            if id(node) in document.inside and offer(document, node)
        ]
        return sorted(offered, key=lambda position: (_kind(document.nodes[position]), position))

    def make(document: PythonFile, chosen: Sequence[int]) -> PythonFile | None:
        offered = {position: offer(document, document.nodes[position]) for position in chosen}
        return document.rewrite({at: change for at, change in offered.items() if change})

    return Pass(name, find, make, PythonFile.words)


def _kind(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        return f"call {ast.unparse(node.func)}"
    if isinstance(node, ast.keyword):
        return f"keyword {node.arg}"
    return type(node).__name__


def of_nodes(name: str, kind: type[ast.AST], change: Change) -> Pass:
    """The same change for every node of a kind."""
    return rewrites(name, lambda _, node: change if isinstance(node, kind) else None)


def branches(arm: str) -> Pass:
    """The body, or the `else`, in place of a whole `if` or loop; a loop runs once."""
    offered = (ast.If, ast.For, ast.While)
    change = partial(_arm, arm=arm)
    return rewrites(
        f"{arm} of branches", lambda _, node: change if isinstance(node, offered) else None
    )


def _arm(node: ast.AST, arm: str) -> Replacement:
    assert isinstance(node, ast.If | ast.For | ast.While)
    if arm == "else":
        return list(node.orelse)
    if not isinstance(node, ast.For):
        return list(node.body)
    start: ast.expr = ast.Constant(0)
    is_name = isinstance(node.target, ast.Name)
    if is_name and isinstance(node.iter, ast.Call) and len(node.iter.args) > 1:
        start = node.iter.args[0]
    names = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
    first = [ast.Assign(targets=[name], value=start, lineno=0) for name in names]
    return [*first, *node.body]


def operands(index: int) -> Pass:
    """One operand of an expression in place of the whole."""

    def take(node: ast.AST, source: PythonFile) -> Replacement:
        # What changed within it can have left fewer than were offered.
        return next(islice(_operands(source, node), index, None), node)

    def offer(source: PythonFile, node: ast.AST) -> Change | None:
        parts = list(_operands(source, node))
        return partial(take, source=source) if index < len(parts) else None

    return rewrites(f"operand {index + 1}", offer)


def _operands(source: PythonFile, node: ast.AST) -> Iterator[ast.expr]:
    """Parts of an expression that may have its type."""
    if isinstance(node, ast.BinOp):
        yield from (node.left, node.right)
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        yield node.value
    elif isinstance(node, ast.Call):
        # Not of a module, as `tl.dot` and `tl.math.exp2` are.
        root = node.func
        while isinstance(root, ast.Attribute):
            root = root.value
        is_module = isinstance(root, ast.Name) and root.id in source.imported
        if isinstance(node.func, ast.Attribute) and not is_module:
            yield node.func.value
        yield from (argument for argument in node.args if not isinstance(argument, ast.Starred))


def constants(value: float) -> Pass:
    """A number in place of an expression."""

    def offer(source: PythonFile, node: ast.AST) -> Change | None:
        if not isinstance(node, ast.expr) or isinstance(node, ast.Constant):
            return None
        return (lambda _: ast.Constant(value)) if id(node) in source.values else None

    return rewrites(f"{value} for an expression", offer)


def _bare(node: ast.AST) -> Replacement:
    """`f(x)` in place of `y = f(x)`."""
    assert isinstance(node, ast.Assign)
    return ast.Expr(node.value)


def _plain(node: ast.AST) -> Replacement:
    """`x = y` in place of `x += y`."""
    assert isinstance(node, ast.AugAssign)
    return ast.Assign(targets=[node.target], value=node.value, lineno=0)


def _shorter(node: ast.AST) -> Replacement:
    assert isinstance(node, ast.Call)
    node.args = node.args[:-1]
    return node


# Masks, what is loaded beyond them, dtypes.
KEYWORDS = of_nodes("keywords", ast.keyword, nothing)
PLAIN_ASSIGNMENTS = of_nodes("plain assignments", ast.AugAssign, _plain)
BARE_EXPRESSIONS = rewrites(
    "bare expressions",
    lambda _, node: (
        _bare if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) else None
    ),
)
# Of functions within functions, where nothing reads them.
PARAMETERS = rewrites(
    "parameters", lambda source, node: nothing if id(node) in source.unread else None
)
TRAILING_ARGUMENTS = rewrites(
    "trailing arguments",
    lambda _, node: _shorter if isinstance(node, ast.Call) and node.args else None,
)


# What may go from the launch of a standalone file, and from the code with it.


def arguments(*, is_inlining: bool) -> Pass:
    """Arguments of the kernel that are not read, or those that a constant can stand in for.

    They leave the launch too. A number at run time may be any number: 1 will do.
    """

    def find(document: PythonFile) -> list[str]:
        kernel = document.kernel
        read = names_in(kernel.node.body)
        if not is_inlining:
            return [name for name in kernel.parameters if name not in read]
        values = {name: _value(document, name) for name in kernel.parameters if name in read}
        changed = {name for stmt in kernel.statements for name in stores(stmt)}
        return [name for name, value in values.items() if value and name not in changed]

    def make(document: PythonFile, chosen: Sequence[str]) -> PythonFile | None:
        names = set(chosen)
        launch = document.launch
        for name in names:
            launch = without_argument(launch, name)
        changes: dict[int, Change] = {}
        inside = set(map(id, preorder(document.kernel.node)))
        for position, node in enumerate(document.nodes):
            if id(node) not in inside:
                continue
            if isinstance(node, ast.arguments):
                changes[position] = lambda old: _without_parameters(old, names)
            elif isinstance(node, ast.Name) and node.id in names and is_inlining:
                changes[position] = _written(_value(document, node.id) or "")
        return document.rewrite(changes, launch)

    return Pass("inlined arguments" if is_inlining else "unused arguments", find, make)


def _value(source: PythonFile, name: str) -> str | None:
    constant = source.launch.constants.get((name,))
    if constant is not None:
        return constant
    kind = source.launch.signature.get(name, "").strip('"')
    if kind.startswith(("i", "u")):
        return "1"
    return "1.0" if kind.startswith(("fp", "bf")) else None


def _without_parameters(node: ast.AST, names: set[str]) -> ast.AST:
    assert isinstance(node, ast.arguments)
    positional = [*node.posonlyargs, *node.args]
    defaults = dict(zip(reversed(positional), reversed(node.defaults), strict=False))
    keyword_defaults = dict(zip(node.kwonlyargs, node.kw_defaults, strict=True))
    node.posonlyargs = [arg for arg in node.posonlyargs if arg.arg not in names]
    node.args = [arg for arg in node.args if arg.arg not in names]
    node.kwonlyargs = [arg for arg in node.kwonlyargs if arg.arg not in names]
    parameters = [*node.posonlyargs, *node.args]
    node.defaults = [defaults[arg] for arg in parameters if arg in defaults]
    node.kw_defaults = [keyword_defaults[arg] for arg in node.kwonlyargs]
    return node


def _options(document: PythonFile) -> Sequence[Edit]:
    """Options and attributes of the launch, each back to what the compiler takes by itself."""
    launch = document.launch
    return [("attribute", path) for path in launch.attributes] + [
        ("option", name) for name in launch.options
    ]


def _without_options(document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
    dropped = set(chosen)
    launch = document.launch
    options = {n: v for n, v in launch.options.items() if ("option", n) not in dropped}
    attributes = {p: v for p, v in launch.attributes.items() if ("attribute", p) not in dropped}
    return document.rewrite({}, replace(launch, options=options, attributes=attributes))


def _numbers(document: PythonFile) -> Sequence[Edit]:
    """Whole numbers, wherever they stand: a block size has the same value in many places."""
    nodes = (node for node in document.nodes if isinstance(node, ast.Constant))
    values = {node.value for node in nodes if _is_large(node.value)}
    launch = document.launch
    return (
        [("value", value) for value in sorted(values, key=str)]
        + [("constant", p) for p, text in launch.constants.items() if _number(text)]
        + [("option", n) for n, text in launch.options.items() if _number(text)]
    )


def _number_now(document: PythonFile, edit: tuple[str, Any]) -> Hashable:
    kind, name = edit
    launch = document.launch
    numbers = {"constant": launch.constants.get(name), "option": launch.options.get(name)}
    return edit, numbers.get(kind)


def _with_halves(document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
    picked = set(chosen)
    launch = replace(
        document.launch,
        constants=_halved("constant", document.launch.constants, picked),
        options=_halved("option", document.launch.options, picked),
    )
    changes: dict[int, Change] = {
        position: lambda _, value=node.value: ast.Constant(value // 2)  # type: ignore[misc]
        for position, node in enumerate(document.nodes)
        if isinstance(node, ast.Constant)
        and _is_large(node.value)
        and ("value", node.value) in picked
    }
    return document.rewrite(changes, launch)


def _is_large(value: object) -> bool:
    return type(value) is int and value > 1


def _number(text: str) -> bool:
    return text.isdigit() and int(text) > 1


def _halved(kind: str, texts: Mapping[T, str], picked: Collection[Edit]) -> dict[T, str]:
    return {n: str(int(text) // 2) if (kind, n) in picked else text for n, text in texts.items()}


# What may go with a variable: it is what it was set to, or another one, or a number.

_SHORT = 40


def variables(value: float) -> Pass:
    """A number in place of a variable, wherever it is read; what sets it goes."""

    def find(document: PythonFile) -> list[Edit]:
        return [
            (place, name)
            for place, fn in document.functions.items()
            for name in dict.fromkeys(
                name for stmt in fn.statements for name in sorted(_only_sets(stmt))
            )
        ]

    def words(document: PythonFile, edit: tuple[str, str]) -> Hashable:
        """All that sets it, in words."""
        fn = document.functions[edit[0]]
        setting = (stmt for stmt in fn.statements if edit[1] in stores(stmt))
        return edit, tuple(ast.unparse(stmt).partition("\n")[0] for stmt in setting)

    def make(document: PythonFile, chosen: Sequence[Edit]) -> PythonFile | None:
        changes: dict[int, Change] = {}
        for place, fn in document.functions.items():
            local = {name for stmt in fn.statements for name in stores(stmt)}
            names = {name for name in local if (place, name) in chosen}
            for stmt in fn.statements:
                if _only_sets(stmt) & names:
                    changes[document.positions[id(stmt)]] = nothing
            for node in _reads(fn):
                if node.id in names:
                    changes[document.positions[id(node)]] = lambda _: ast.Constant(value)
        return document.rewrite(changes)

    return Pass(f"{value} for a variable", find, make, words)


def _only_sets(statement: ast.stmt) -> set[str]:
    """The variable of an assignment to one; the loop's own is not set by an assignment."""
    return stores(statement) if isinstance(statement, ast.Assign | ast.AugAssign) else set()


def _reads(function: PythonFunction) -> Iterator[ast.Name]:
    for node in ast.walk(function.node):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node


_Settings = Callable[[PythonFunction], Iterator[tuple[str, ast.Assign, str]]]
"""Variables, what sets each, and the expression that may stand in for it."""


def _substitution(name: str, settings: _Settings) -> Pass:
    """Assignments that go, each with the expression that stands in for its variable."""

    def find(document: PythonFile) -> list[int]:
        return [
            document.positions[id(stmt)]
            for fn in document.functions.values()
            for _, stmt, _ in settings(fn)
        ]

    def make(document: PythonFile, chosen: Sequence[int]) -> PythonFile | None:
        lost = {id(document.nodes[position]) for position in chosen}
        changes: dict[int, Change] = dict.fromkeys(chosen, nothing)
        for fn in document.functions.values():
            texts = {name: text for name, stmt, text in settings(fn) if id(stmt) in lost}
            for node in _reads(fn):
                if node.id in texts:
                    changes[document.positions[id(node)]] = _written(_resolved(node.id, texts))
        return document.rewrite(changes)

    return Pass(name, find, make, PythonFile.words)


def _set_once(fn: PythonFunction) -> dict[str, ast.Assign]:
    """The variables that one assignment sets alone."""
    counts = Counter(name for stmt in fn.statements for name in stores(stmt))
    assignments = (stmt for stmt in fn.statements if isinstance(stmt, ast.Assign))
    return {
        target.id: stmt
        for stmt in assignments
        if isinstance(target := stmt.targets[0], ast.Name)
        and counts[target.id] == 1
        and target.id not in fn.parameters
    }


def _twins(fn: PythonFunction) -> Iterator[tuple[str, ast.Assign, str]]:
    """For each the nearest variable before it that is set to the same but for the names in it."""
    before: dict[str, str] = {}
    for name, stmt in _set_once(fn).items():
        if isinstance(stmt.value, ast.Call):
            look = _nameless(stmt.value)
            if look in before:
                yield name, stmt, before[look]
            before[look] = name


def _nameless(node: ast.expr) -> str:
    """An expression with the names of variables left out; what is called keeps its name."""
    parts = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute):
            parts.append(f".{inner.attr}")
        elif isinstance(inner, ast.Constant):
            parts.append(repr(inner.value))
        else:
            parts.append(type(inner).__name__)
    return " ".join(parts)


def _plain_values(fn: PythonFunction) -> Iterator[tuple[str, ast.Assign, str]]:
    """Variables that are set once to a name, a number or, read once, to a short expression."""
    counts = Counter(name for stmt in fn.statements for name in stores(stmt))
    reads = Counter(node.id for node in _reads(fn))
    for name, stmt in _set_once(fn).items():
        value, others = stmt.value, loads(stmt)
        is_plain = isinstance(value, ast.Name | ast.Constant)
        is_short = reads[name] == 1 and len(ast.unparse(value)) <= _SHORT
        # What is set again may be another value by then.
        is_fixed = name not in others and all(counts[other] <= 1 for other in others)
        if is_fixed and (is_plain or is_short):
            yield name, stmt, ast.unparse(value)


def _resolved(name: str, texts: Mapping[str, str]) -> str:
    """The expression for a variable, in which no variable is left that goes too."""
    tree = ast.parse(texts[name], mode="eval")
    changes = {
        id(node): _written(_resolved(node.id, texts))
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in texts
    }
    if changes:
        Rewriter(changes).visit(tree)
        return ast.unparse(tree)
    return texts[name]


# Reduces a standalone file: what is large goes first, what is fine last.
#
# Statements go with all that depends on them, so that candidates fail for a reason, not for a name
# that is missing. Expressions are looked at once the statements are few.

STRUCTURE: tuple[Pass, ...] = (UNUSED, METHODS, STATEMENTS, branches("body"), branches("else"))
"""What takes out whole statements."""
OPTIONS = Pass("launch", _options, _without_options)
NUMBERS = Pass("halved numbers", _numbers, _with_halves, _number_now)
TWINS = _substitution("twins", _twins)
PROPAGATIONS = _substitution("propagations", _plain_values)
PASSES: tuple[Pass, ...] = (
    arguments(is_inlining=False),
    PARAMETERS,
    OPTIONS,
    KEYWORDS,
    PLAIN_ASSIGNMENTS,
    variables(0),
    variables(1.0),
    UNUSED,
    operands(0),
    operands(1),
    operands(2),
    *STRUCTURE,
    TWINS,
    TRAILING_ARGUMENTS,
    constants(1.0),
    constants(0),
    BARE_EXPRESSIONS,
    UNUSED,
    PROPAGATIONS,
    NUMBERS,
    arguments(is_inlining=True),
)


async def _reduce_source(reducer: Reducer[PythonFile]) -> None:
    await sweep_coarsely(reducer, STRUCTURE, smallest=8)
    await sweep_coarsely(reducer, PASSES, smallest=4)
    await reduce_patiently(reducer, PASSES)


def python_format(layout: FileLayout, *, keeps_kernel: bool = False) -> TextFormat[PythonFile]:
    """Standalone files; lines are those of functions, without comments and blanks.

    With `keeps_kernel`, only what the launch says goes.
    """
    return TextFormat(
        read=lambda text: PythonFile.of(layout.read(text), layout),
        text_of=lambda source: source.text,
        size=lambda source: source.size,
        lines=lambda source: source.kernel_lines,
        run=partial(reduce_patiently, passes=(OPTIONS,)) if keeps_kernel else _reduce_source,
    )
