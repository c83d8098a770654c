"""The workaround as a patch of the kernel's file: what it leaves out, and what it adds.

Only what was compiled is claimed: a guard names the releases of Triton with which the configs
failed, and the arguments by which the tuner tells launches apart.
"""

from __future__ import annotations

import ast
import difflib
import re
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import TypeAlias

import libcst as cst
from msgspec.structs import replace
from packaging.version import Version

from harness.cells.evaluate import evaluate
from harness.frontends.bench import TimeIsUpError, until
from harness.frontends.launch_code import copy_with, read_source
from harness.frontends.plan import Plan
from harness.frontends.registry import front_end, plan_launch
from harness.frontends.sessions import LaunchCode
from harness.frontends.texts.python import config_source, literal
from harness.io.processes.tasks import in_parallel
from harness.tables.survivors import common_fields, survivors
from harness.values.errors import CaptureError, TriageError
from harness.values.kernel import Config, ConfigFilter, Scalar
from harness.values.outcome import LaunchFacts
from harness.values.row import Row
from harness.values.toolchain import BUNDLED
from harness.values.verdict import Stage
from harness.workaround.result import Candidate, Clause, Guard, Patch
from harness.workaround.search import usable_versions
from harness.workaround.settings import NEUTRAL, Setting, SettingKind, Tried, in_order, is_gain
from harness.workaround.trials import Attempt, Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedRelease:
    """Which configs of a list fail with one release of Triton; in neither: could not tell."""

    triton: str
    fails: tuple[Config, ...]
    works: tuple[Config, ...]
    reason: str = ""


def make_guard(
    releases: Iterable[GuardedRelease], *, capability: int, arguments: Mapping[str, Scalar]
) -> Guard | None:
    """A guard over releases that were compiled; None where no config has to be left out.

    A release between two of them that was not compiled is not covered. A Triton with which no
    config works is left alone: a tuner needs one config at least.
    """
    ordered = sorted(releases, key=lambda release: Version(release.triton))
    clauses: dict[object, Clause] = {}
    for release in ordered:
        if not release.fails or not release.works:
            continue
        families = _families(release.fails, release.works)
        same = clauses.get(families)
        before = same.releases if same else ()
        clauses[families] = Clause(
            releases=(*before, Version(release.triton).public),
            either=families,
            reason=same.reason if same else release.reason,
        )
    if not clauses:
        return None
    return Guard(
        capability=divmod(capability, 10),
        arguments=tuple(arguments.items()),
        clauses=tuple(clauses.values()),
        tested=tuple(release.triton for release in ordered),
    )


def _families(
    fails: Sequence[Config], works: Sequence[Config]
) -> tuple[tuple[tuple[str, tuple[Scalar | None, ...]], ...], ...]:
    common = common_fields([c.as_dict() for c in fails], [c.as_dict() for c in works])
    if common is not None:
        return (tuple((name, tuple(values)) for name, values in common.items()),)
    names = dict.fromkeys(name for config in (*fails, *works) for name, _ in config.items)
    return tuple(tuple((name, (c.as_dict().get(name),)) for name in names) for c in fails)


# The Python that a patch puts into a kernel's file: a guard as a function, a config as a call. It
# needs nothing but torch and Triton, and says in its docstring what it rests on.

_WIDTH = 92

PRUNING = "_drop_broken_configs"
"""The name of the function, where it is free."""


_PRUNES = """
    if torch.cuda.get_device_capability() != {capability!r}:
        return configs
    version = triton.__version__.partition("+")[0]

    def is_broken(config):
        values = config.all_kwargs()
{clauses}
        return False

    return [config for config in configs if not is_broken(config)] or configs
"""
_JOINED = '''

def _and{name}(pruning):
    """What the kernel prunes by itself, and what does not compile."""
    pruning = pruning or {{}}
    own = pruning.get("early_config_prune")

    def prune(configs, named_args, **kwargs):
        kept = own(configs, named_args, **kwargs) if own else configs
        return {name}(kept, named_args, **kwargs)

    return {{**pruning, "early_config_prune": prune}}
'''


def pruning_source(
    name: str, guard: Guard, because: str, *, imported: Collection[str], wraps: bool
) -> str:
    """The function `name` for `early_config_prune`, which leaves out what a guard names.

    `imported` are the modules that the file binds. With `wraps`, a second function joins it to what
    the kernel prunes already.
    """
    lines = [f"def {name}(configs, named_args, **kwargs):", *_docstring(guard, because)]
    lines += [f"    import {module}" for module in ("torch", "triton") if module not in imported]
    if guard.arguments:
        lines += [
            "    arguments = {**named_args, **kwargs}",
            f"    compiled = {literal(dict(guard.arguments))}",
            "    if any(arguments.get(name, value) != value for name, value in compiled.items()):",
            "        return configs",
        ]
    clauses: list[str] = []
    for clause in guard.clauses:
        clauses.append(f"        if version in {_tuple(clause.releases)}:")
        for family in clause.either:
            tests = [f"values.get({literal(n)}) in {_allowed(n, allowed)}" for n, allowed in family]
            clauses += [f"            if {' and '.join(tests)}:", "                return True"]
    source = "\n".join(lines)
    source += _PRUNES.format(capability=guard.capability, clauses="\n".join(clauses))
    return source + (_JOINED.format(name=name) if wraps else "")


def _docstring(guard: Guard, because: str) -> list[str]:
    where = ", for the arguments below." if guard.arguments else "."
    paragraphs = [
        "Leave out configs that do not compile.",
        because,
        f"Compiled with Triton {', '.join(guard.tested)}{where}",
    ]
    lines = [
        line
        for text in paragraphs
        if text
        for line in ("", *textwrap.wrap(text.replace("\\", "/").replace('"', "'"), _WIDTH))
    ]
    return [f'    """{lines[1]}', *(f"    {line}".rstrip() for line in lines[2:]), '    """']


def _allowed(name: str, values: Sequence[Scalar | None]) -> str:
    is_neutral = name in NEUTRAL and None in values
    return _tuple((*values, NEUTRAL[name]) if is_neutral else values)


def _tuple(values: Sequence[object]) -> str:
    return f"({', '.join(map(literal, values))}{',' * (len(values) == 1)})"


# Changes the tuning list of a kernel in its source: configs left out where they fail, or added. The
# file stays as it is, but for arguments of the kernel's `autotune` and functions before it. All
# changes are made to the syntax tree, so that none depends on where in the text it lies.

_Statement: TypeAlias = cst.SimpleStatementLine | cst.BaseCompoundStatement


class PatchError(Exception):
    """The source cannot be changed by us; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuner:
    """The `autotune` of a kernel: `key` are the arguments by which it tells launches apart."""

    module: cst.Module
    function: cst.FunctionDef
    call: cst.Call
    key: tuple[str, ...]


def find_tuner(text: str, kernel: str) -> Tuner:
    """The tuner of the function of that name.

    Raises:
        PatchError: there is none, or it does not decorate the function, or it hides its arguments.
    """
    try:
        module = cst.parse_module(text)
    except (cst.ParserSyntaxError, cst.CSTValidationError, ValueError) as error:
        words = str(getattr(error, "message", error)).strip().partition("\n")[0]
        raise PatchError(f"it cannot be read as Python: {words}") from error
    if module.code != text:
        raise PatchError("it cannot be read and written again unchanged")
    # As in Python, the last definition of a name counts.
    for node in reversed(module.body):
        if isinstance(node, cst.FunctionDef) and node.name.value == kernel:
            for decorator in node.decorators:
                call = decorator.decorator
                name = call.func if isinstance(call, cst.Call) else None
                name = name.attr if isinstance(name, cst.Attribute) else name
                is_named = isinstance(name, cst.Name) and name.value == "autotune"
                if isinstance(call, cst.Call) and is_named:
                    key = _argument(call, "key", 1)
                    # What `**more` holds beside the key and the configs changes nothing here.
                    named = key is not None and _argument(call, "configs", 0) is not None
                    if any(
                        argument.star == "*" or (argument.star and not named)
                        for argument in call.args
                    ):
                        raise PatchError(f"the autotune of {node.name.value} unpacks its arguments")
                    names = (
                        key.value.elements
                        if key and isinstance(key.value, cst.List | cst.Tuple)
                        else ()
                    )
                    values = (
                        n.value.evaluated_value
                        for n in names
                        if isinstance(n.value, cst.SimpleString)
                    )
                    return Tuner(
                        module=module,
                        function=node,
                        call=call,
                        key=tuple(value for value in values if isinstance(value, str)),
                    )
            raise PatchError(f"{kernel} has no @autotune decorator that could be changed")
    raise PatchError(f"no function {kernel} at the top level of the file")


def _argument(call: cst.Call, name: str, position: int) -> cst.Arg | None:
    for argument in call.args:
        if argument.keyword and argument.keyword.value == name:
            return argument
    at = call.args[position] if len(call.args) > position else None
    return at if at and at.keyword is None and not at.star else None


def patch_tuner(
    text: str,
    kernel: str,
    *,
    guard: Guard | None = None,
    because: str = "",
    add: Sequence[Config] = (),
) -> str:
    """The source with configs added to the kernel's list, and those of a guard left out.

    `because` says in the source why the guard is there.

    Raises:
        PatchError: the kernel has no tuner that could be changed.
    """
    tuner = find_tuner(text, kernel)
    call = tuner.call
    before: Sequence[_Statement] = ()
    if add:
        argument = _argument(call, "configs", 0)
        if argument is None:
            raise PatchError(f"the autotune of {tuner.function.name.value} names no configs")
        listed = argument.value
        if not isinstance(listed, cst.List | cst.ListComp):
            # A tuple or a generator too.
            listed = cst.Call(func=cst.Name("list"), args=[cst.Arg(listed)])
        more = ", ".join(config_source(config, _constructor(tuner.module, call)) for config in add)
        joined = cst.BinaryOperation(
            left=listed, operator=cst.Add(), right=cst.parse_expression(f"[{more}]")
        )
        call = _replaced(call, argument, argument.with_changes(value=joined))
    if guard:
        others = (f"{PRUNING}_{number}" for number in count(2))
        name = next(free for free in chain([PRUNING], others) if free not in text)
        wraps = _argument(call, "prune_configs_by", 2) is not None
        call = _with_pruning(call, name)
        imported = [module for module in ("torch", "triton") if _binds(tuner.module, module)]
        source = pruning_source(name, guard, because, imported=imported, wraps=wraps)
        # A docstring's own line ends too.
        source = source.replace("\n", tuner.module.default_newline)
        before = cst.parse_module(source).body
    function = tuner.function.deep_replace(tuner.call, call)
    assert isinstance(function, cst.FunctionDef)
    body = list(tuner.module.body)
    at = next(i for i, node in enumerate(body) if node is tuner.function)
    body[at : at + 1] = _put_before(function, before)
    return tuner.module.with_changes(body=body).code


def unified_diff(path: str, before: str, after: str) -> str:
    """As `git diff` spells it, ready for `git apply` and `patch -p1`."""
    # As git counts them: nothing but a line feed ends a line.
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
    lines = difflib.unified_diff(old, new, fromfile=f"a/{path}", tofile=f"b/{path}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _constructor(module: cst.Module, call: cst.Call) -> str:
    if isinstance(call.func, cst.Attribute):
        return f"{module.code_for_node(call.func.value)}.Config"
    return "triton.Config" if _binds(module, "triton") else "Config"


def _with_pruning(call: cst.Call, name: str) -> cst.Call:
    own = _argument(call, "prune_configs_by", 2)
    if own is not None:
        joined = cst.Call(func=cst.Name(f"_and{name}"), args=[cst.Arg(own.value)])
        return _replaced(call, own, own.with_changes(value=joined))
    argument = cst.Arg(
        keyword=cst.Name("prune_configs_by"),
        value=cst.parse_expression(f'{{"early_config_prune": {name}}}'),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    # One more argument, on a line of its own where the others are.
    if not call.args:
        return call.with_changes(args=[argument])
    last = call.args[-1]
    has_comma = isinstance(last.comma, cst.Comma)
    ending = (
        last.comma.whitespace_after
        if isinstance(last.comma, cst.Comma)
        else last.whitespace_after_arg
    )
    if not isinstance(ending, cst.ParenthesizedWhitespace):
        behind_last = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        return _appended(call, last.with_changes(comma=behind_last), argument)
    # A comment behind the last argument stays there; the line that closes the call stays last.
    closing = cst.ParenthesizedWhitespace(indent=ending.indent, last_line=ending.last_line)
    commas = [earlier.comma for earlier in call.args[:-1] if isinstance(earlier.comma, cst.Comma)]
    places = [call.whitespace_before_args, *(comma.whitespace_after for comma in commas)]
    wide = [place for place in places if isinstance(place, cst.ParenthesizedWhitespace)]
    between = ending.with_changes(last_line=wide[0].last_line if wide else ending.last_line)
    last = last.with_changes(
        comma=cst.Comma(whitespace_after=between), whitespace_after_arg=cst.SimpleWhitespace("")
    )
    if has_comma:
        argument = argument.with_changes(comma=cst.Comma(whitespace_after=closing))
    else:
        argument = argument.with_changes(whitespace_after_arg=closing)
    return _appended(call, last, argument)


def _replaced(call: cst.Call, old: cst.Arg, new: cst.Arg) -> cst.Call:
    return call.with_changes(args=[new if argument is old else argument for argument in call.args])


def _appended(call: cst.Call, last: cst.Arg, argument: cst.Arg) -> cst.Call:
    return call.with_changes(args=[*call.args[:-1], last, argument])


def _put_before(function: cst.FunctionDef, statements: Sequence[_Statement]) -> list[_Statement]:
    """Statements before a function; comments right above its decorators stay with it."""
    if not statements:
        return [function]
    lines = list(function.leading_lines)
    mine = len(lines)
    while mine and lines[mine - 1].comment:
        mine -= 1
    first = statements[0].with_changes(leading_lines=lines[:mine])
    gap = [cst.EmptyLine(indent=False)] * 2
    function = function.with_changes(leading_lines=[*gap, *lines[mine:]])
    return [first, *statements[1:], function]


def _binds(module: cst.Module, name: str) -> bool:
    return any(
        isinstance(statement, cst.Import)
        and any(alias.evaluated_name == name and alias.asname is None for alias in statement.names)
        for line in module.body
        if isinstance(line, cst.SimpleStatementLine)
        for statement in line.body
    )


async def prove_patch(
    trials: Trials, file: Path, patched: str, added: Sequence[Config]
) -> tuple[str, tuple[Row, ...], bool]:
    """Capture the launch from a copy with the patched file, and compile the configs that are left.

    The capture imports the copy in a child of its own, never from the store: its decorators run,
    and its pruning. It is proved if the kernel came from the copy, no config that is left fails,
    and those that were `added` are among them.

    Returns:
        What was seen, in words; the results of what is left; and whether that is a proof.

    Raises:
        PatchError: with it, the file cannot be imported or launched.
        TriageError: results cannot be kept.
    """
    folder = trials.bench.hub.new_folder("patched") / "tree"
    try:
        plan = await until(trials.stop_at, _captured(trials, file, patched, folder))
        if plan is None:
            return _unproved("the kernel's file lies outside of the launch's sources")
        if plan.failures:
            raise PatchError(plan.failures[0])
        files = [Path(cell.record.file).resolve() for cell in plan.cells if cell.record]
        if not files or not all(file.is_relative_to(folder.resolve()) for file in files):
            return _unproved("the launch imports the kernel's file from elsewhere")
        # Not for the history: it is another kernel that has the same cells.
        every = in_parallel(evaluate(trials.bench, cell) for cell in plan.cells)
        evaluated = await until(trials.stop_at, every)
    except TimeIsUpError:
        return _unproved("the time is up (--max-time)")
    except CaptureError as error:
        raise PatchError(str(error)) from error
    if plan.session:
        await trials.bench.sessions.close(plan.session)
    rows = tuple(result.row for result in evaluated)
    configs = [row.config for row in rows]
    missing = [config.label for config in added if config.as_dict() not in configs]
    words = (
        "applied to a copy, imported there and compiled; the tuner then has: "
        f"{survivors(rows).headline}"
    )
    if missing:
        words += f" The tuner does not take {missing[0]}."
    is_proved = bool(rows) and not missing and not any(map(has_failed, rows))
    return words, rows, is_proved


async def _captured(trials: Trials, file: Path, patched: str, folder: Path) -> Plan | None:
    """The launch as the copy makes it; None where the file is not among its sources."""
    assert trials.home.launch is not None
    selection = replace(trials.selection, config=ConfigFilter())
    is_outside = False

    def adapt(code: LaunchCode) -> LaunchCode:
        nonlocal is_outside
        copy = copy_with(code, file, patched, folder)
        is_outside = copy is None
        return copy or code

    plan = await plan_launch(
        trials.bench.apart(limits=None, uncached=True),
        selection.place(target=trials.target, compiler=trials.home.launch.compiler, adapt=adapt),
    )
    return None if is_outside else plan


def _unproved(why: str) -> tuple[str, tuple[Row, ...], bool]:
    return f"not compiled: {why}", (), False


def has_failed(row: Row) -> bool:
    """Whether a config does not work, and not only that nothing is known of it."""
    kind = row.verdict
    return not kind.compiles and not kind.tells_nothing


_AT_PTXAS = (Stage.CUBIN.value, Stage.LAUNCH.value)


_NOTHING_LEFT_OUT = (
    "the patch leaves nothing out: it is ptxas {} that fails, which a tuner cannot distinguish "
    "from the one that its Triton bundles"
)


async def make_patch(
    trials: Trials,
    plan: Plan,
    candidates: Sequence[Candidate],
    survivor: Tried | None,
    *,
    ask_until: float,
    on_tritons: bool,
) -> tuple[Patch | None, list[str]]:
    """A patch that leaves out what fails and adds what is better; and why there is none, or less.

    `survivor` is the best of the list. `on_tritons` says whether other Tritons are asked which
    configs they fail on; it is until `ask_until` (by `time.monotonic`).

    Raises:
        TriageError: results cannot be kept.
    """
    record = trials.home.record
    patches = front_end(trials.home.compiler.kind).patches
    if record is None or trials.home.launch is None or not patches:
        return None, []
    trials.is_time_up = False
    trials.bench.deadline = trials.stop_at
    file = Path(record.file).resolve()
    try:
        text = read_source(file)
        tuner = find_tuner(text, record.kernel)
    except (PatchError, TriageError) as error:
        return None, [f"no patch: {file.name}: {error}"]
    everything = await trials.attempt(Setting(config=config) for config in plan.configs)
    failing = [attempt.row for attempt in everything if has_failed(attempt.row)]
    add = [
        candidate.setting.config
        for candidate in candidates
        if not candidate.is_listed
        and all(step.kind is SettingKind.CONFIG for step in candidate.steps)
        and (
            survivor is None or is_gain(trials.origin, (candidate.setting, candidate.row), survivor)
        )
    ][:1]
    notes: list[str] = []
    guard = None
    # That a ptxas which the user has chosen fails is no property of any Triton.
    is_chosen = trials.home.ptxas.origin != BUNDLED
    if is_chosen and any(row.stage == Stage.CUBIN.value for row in failing):
        notes.append(_NOTHING_LEFT_OUT.format(trials.home.ptxas.version))
    elif failing:
        trials.bench.deadline = ask_until
        guard = make_guard(
            await _on_tritons(trials, everything, others=on_tritons),
            capability=trials.target.capability,
            arguments=tuned_arguments(record, tuner.key, trials.home.launch.capture.value.records),
        )
    if guard is None and not add:
        return None, [*notes, "no patch: nothing in the list is to be left out, or added"]
    because = survivors(failing).fates[0].reason if guard else ""
    try:
        patched = patch_tuner(text, record.kernel, guard=guard, because=because, add=add)
    except PatchError as error:
        return None, [*notes, f"no patch: {file.name}: {error}"]
    trials.bench.deadline = trials.stop_at
    trials.tell(f"compiling a copy of {file.name} with the patch")
    try:
        proof, rows, is_proved = await prove_patch(trials, file, patched, add)
    except PatchError as error:
        return None, [*notes, f"no patch: with it, the launch fails: {error}"]
    roots = [path.resolve() for path in trials.home.launch.request.paths]
    inside = (file.relative_to(root).as_posix() for root in roots if file.is_relative_to(root))
    name = next(inside, file.name)
    return Patch(
        file=name,
        diff=unified_diff(name, text, patched),
        guard=guard,
        added=tuple(config.label for config in add),
        is_proved=is_proved,
        proof=proof,
        rows=rows,
        left_out=tuple(failing) if guard else (),
    ), notes


def tuned_arguments(
    record: LaunchFacts, key: Sequence[str], launched: Sequence[LaunchFacts] = ()
) -> dict[str, Scalar]:
    """The compile-time arguments by which the tuner tells launches apart, as they were.

    And those that other launches of the kernel, of all that is `launched`, have with other values.
    """
    others = (r for r in launched if (r.kernel, r.launch) != (record.kernel, record.launch))
    given = (a for r in others if r.kernel == record.kernel for a in r.arguments)
    names = {*key, *(a["name"] for a in given if a not in record.arguments)}
    values: dict[str, Scalar] = {}
    for argument in record.arguments:
        name, value = argument["name"], argument.get("constexpr")
        if name not in names or name in record.config or not isinstance(value, str):
            continue
        try:
            read = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            continue
        if isinstance(read, bool | int | str):
            values[str(name)] = read
    return values


async def _on_tritons(
    trials: Trials, everything: Sequence[Attempt], *, others: bool
) -> list[GuardedRelease]:
    """What each minor release makes of the list; as many as there is time for, nearest first."""
    assert trials.home.launch is not None
    own = trials.home.launch.compiler.version
    tested = [_release(own, {attempt.setting.config: attempt.row for attempt in everything})]
    early = all(
        attempt.row.stage not in _AT_PTXAS for attempt in everything if has_failed(attempt.row)
    )
    configs = [attempt.setting.config for attempt in everything]
    few = _representatives(configs) if early else {config: config for config in configs}
    for version in await usable_versions(trials.home.compiler.kind, own) if others else ():
        if trials.is_time_up:
            break
        distinct = dict.fromkeys(few.values())
        by_config = {
            attempt.setting.config: attempt.row
            for attempt in await trials.attempt(
                Setting(config=config, triton=version) for config in distinct
            )
        }
        rows = {config: by_config[stands] for config, stands in few.items() if stands in by_config}
        at_ptxas = any(has_failed(row) and row.stage in _AT_PTXAS for row in rows.values())
        if len(rows) == len(configs) and not (early and at_ptxas):
            tested.append(_release(version, rows))
    return tested


def _representatives(configs: Sequence[Config]) -> dict[Config, Config]:
    """For each config one that differs from it in its limit of registers at most.

    That limit is for ptxas: what goes wrong before ptxas does not depend on it.
    """
    first: dict[Config, Config] = {}
    chosen = {}
    for config in configs:
        values = {name: value for name, value in config.items if name != "maxnreg"}
        chosen[config] = first.setdefault(in_order(values, config), config)
    return chosen


def _release(version: str, rows: dict[Config, Row]) -> GuardedRelease:
    fails = tuple(config for config, row in rows.items() if has_failed(row))
    works = tuple(config for config, row in rows.items() if row.verdict.compiles)
    reason = next((row.reason for row in rows.values() if has_failed(row)), "")
    return GuardedRelease(triton=version, fails=fails, works=works, reason=reason)
