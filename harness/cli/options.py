"""How a command declares its options: once, as the fields of a class that it takes.

    class _WatchOptions(Options, rules=[goes_with("--github", "--file")]):
        github: str | None = option(metavar="OWNER/REPO", help="Draft an issue for each new bug.")
        files: bool = option("--file", help="File the issues of --github.")

    @verb()
    def command(options: _WatchOptions) -> None: ...

Options that mean the same in every command are here, with the sections of a help.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, dataclass_transform, get_origin, get_type_hints

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from harness.cli.amounts import Words, once
from harness.values.errors import TriageError, UsageError

_SECTIONS = {
    "What is selected": "base head kernel sm triton compiler ptxas assembler launch set config "
    "freeze-ptx package-version matrix only shard night bug again",
    "What is asked": "signature while script axis bad good sweep for measured minimized change "
    "level defined",
    "What is executed": "run formal on runner O schedules races trace beside repeat",
    "Inputs of a file of PTX": "buffer scalar expect grid block shared inputs",
    "On a GPU": "pack import inspect measure sanitize",
    "Limits": "max-time max-tries max-instructions programs most quick gpu-timeout timeout memory "
    "jobs",
    "Output": "out force patch format markdown list all cell-pages dry-run replay draft-duplicates "
    "strict-fixed fail-on json",
    "Surroundings": "resume seed scheduler no-cache confine pass-env verbose help help-all",
}
"""The sections of a help, and which options are in each: a name means one thing everywhere."""


HELP_ALL = "--help-all"
"""The option that shows every option of a verb; `--help` shows those that people use."""


class Verb(click.Command):
    """A command of many options: `--help` has those that people use, `--help-all` all of them."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """With `--help-all`, which every such verb has."""
        return [*super().get_params(ctx), _help_all]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options by their sections; one that has none is of the surroundings."""
        section_of = {name: title for title, names in _SECTIONS.items() for name in names.split()}
        sections: dict[str, list[tuple[str, str]]] = {
            title: [] for title in ["Options", *_SECTIONS]
        }
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx)
            if record and isinstance(option, click.Option):
                name = option.opts[0].lstrip("-")
                if HELP_ALL in ctx.meta:
                    sections[section_of.get(name, "Surroundings")].append(record)
                elif not isinstance(option, _Option) or option.often:
                    sections["Options"].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _show_all(context: click.Context, _: click.Parameter, is_given: bool) -> None:  # noqa: FBT001
    if is_given and not context.resilient_parsing:
        context.meta[HELP_ALL] = True
        click.echo(context.get_help())
        context.exit()


_help_all = click.Option(
    [HELP_ALL],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show every option: what is selected, limits, output and the rest.",
)


class _Option(click.Option):
    """An option; one that people use `often` is in the short help."""

    def __init__(self, *names: Any, often: bool = False, **how: Any) -> None:
        super().__init__(*names, **how)
        self.often = often


class SilentOption(_Option):
    """An option on how to work, or what to print: it chooses no cells.

    Runs whose commands differ in nothing else are runs of the same kind (`triage diff`).
    """


EXECUTES = ("--run", "--formal", "--on", "--runner")
"""`--run`, and the options that imply it."""


_CARRIED = "option"

_FEW = 6
"""A command with more options than these has a short help."""

Asked = Callable[[Any], int | None]
"""What a command does with its options."""

Rule = Callable[[Sequence[str]], str | None]
"""Says of the options that are given what is wrong with them; None where nothing is."""


def option(
    *names: str,
    cls: type[click.Option] = _Option,
    reads: Callable[[Any], object] | None = None,
    **how: Any,
) -> Any:
    """A field of a command's options: the option that sets it, as click takes it.

    What the field says is not said again: the option's name, that one of a `bool` takes no value,
    that one of a sequence is repeatable. A default is shown in the help. What is given is kept as
    `reads` makes it. With `often=True` it is in the short help of a verb.

    Example:
        `trace: str | None = option(metavar="NAME", help="What to follow.")`
    """
    if reads:
        how["callback"] = lambda _, __, given: reads(given) if given else None
    return field(default=None, metadata={_CARRIED: (partial(_option, names, cls, how),)})


def silent(*names: str, **how: Any) -> Any:
    """As `option`: one on how to work, or what to print."""
    return option(*names, cls=SilentOption, **how)


def argument(**how: Any) -> Any:
    """A field of a command's options: an argument; one of a sequence takes all that follow."""
    return field(default=None, metadata={_CARRIED: (partial(_argument, how),)})


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a command, or some of them: a dataclass whose fields are options.

    A field whose type is such a class, or that is a `group`, has the options of that.
    """

    rules: ClassVar[Sequence[Rule]]
    """What makes no sense together; the first that is broken is said."""

    def __init_subclass__(cls, rules: Sequence[Rule] = ()) -> None:
        cls.rules = rules
        dataclass(frozen=True, kw_only=True)(cls)


def group(
    read: Callable[..., object], *rules: Rule, of: Callable[..., object] | None = None, **parts: Any
) -> Any:
    """A field that `read` makes of several options; it is not given those without a value.

    `of` says of which types they are: what its parameters or fields of these names have.
    """
    return field(default=None, metadata={_CARRIED: _Group(read, rules, of or read, parts, {})})


def part(options: type[Options], **more: Mapping[str, Any] | None) -> Any:
    """A field with the options of a class; `more` is what click takes of some of them here.

    An option with None is left out.
    """
    return field(default=None, metadata={_CARRIED: _group_of(options, more)})


def verb(group: click.Group | None = None, **how: Any) -> Callable[[Asked], Any]:
    """A command of what a function does with its options; what that returns is its exit code.

    It has the name of its module, and the help ends with the rest of that module's docstring; one
    below a `group` has the name of the function.
    """

    def make(function: Asked) -> click.Command:
        asked = _group_of(next(iter(get_type_hints(function).values())), {})
        parameters = [*asked.parameters()]

        def run(**values: Any) -> None:
            context = click.get_current_context()
            given = [
                name
                for option in parameters
                if context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
                for name in option.opts
            ]
            for complaint in filter(None, (rule(given) for rule in asked.all_rules())):
                raise UsageError(complaint)
            if code := function(asked.value(values)):
                raise click.exceptions.Exit(code)

        name = (function.__name__ if group else function.__module__.split(".")[-1]).strip("_")
        kind = Verb if len(parameters) > _FEW else click.Command
        if not group:
            how.setdefault("epilog", examples(sys.modules[function.__module__].__doc__))
        made: click.Command = how.pop("cls", kind)(
            name, params=parameters, callback=run, help=function.__doc__, **how
        )
        if group:
            group.add_command(made)
        return made

    return make


def examples(doc: str | None) -> str:
    """What the docstring of a module says after its first paragraph, for the end of a help."""
    return "\b\n" + (doc or "").partition("\n\n")[2].strip()


class _Group:
    """Options that are read together: each part is made of parameters, or is such a group."""

    def __init__(
        self,
        read: Callable[..., object],
        rules: Sequence[Rule],
        of: Callable[..., object],
        parts: Mapping[str, Any],
        more: Mapping[str, Mapping[str, Any] | None],
    ) -> None:
        self._read = read
        self._rules = rules
        hints = get_type_hints(of)
        self._parts: dict[str, _Group | list[click.Parameter]] = {}
        for name, part in parts.items():
            carried, hint, how = part.metadata.get(_CARRIED), hints.get(name), more.get(name, {})
            if how is not None:
                self._parts[name] = (
                    [make(name, hint, how) for make in carried]
                    if isinstance(carried, tuple)
                    else carried or _group_of(hints[name], {})
                )

    def parameters(self) -> Iterator[click.Parameter]:
        """In the order in which the help shows them."""
        for part in self._parts.values():
            yield from part.parameters() if isinstance(part, _Group) else part

    def all_rules(self) -> Iterator[Rule]:
        yield from self._rules
        for part in self._parts.values():
            yield from part.all_rules() if isinstance(part, _Group) else ()

    def value(self, values: Mapping[str, Any]) -> object:
        """What is read of the values of the command line."""
        own = {
            name: part.value(values) if isinstance(part, _Group) else values.get(name)
            for name, part in self._parts.items()
        }
        return self._read(**{name: value for name, value in own.items() if value is not None})


def _group_of(options: type[Options], more: Mapping[str, Mapping[str, Any] | None]) -> _Group:
    parts = {each.name: each for each in fields(options)}
    return _Group(options, options.rules, options, parts, more)


def _option(
    names: Sequence[str],
    cls: type[click.Option],
    how: Mapping[str, Any],
    name: str,
    hint: object,
    more: Mapping[str, Any],
) -> click.Option:
    known: dict[str, Any] = {"show_default": "default" in how, "multiple": _is_several(hint)}
    if hint is bool and not any("/" in word for word in names):
        known["is_flag"] = True
    words = names or [f"--{name.replace('_', '-')}"]
    return cls([*words, name], **{**known, **how, **more})


def _argument(
    how: Mapping[str, Any], name: str, hint: object, more: Mapping[str, Any]
) -> click.Argument:
    return click.Argument([name], **{"nargs": -1 if _is_several(hint) else 1, **how, **more})


def _is_several(hint: object) -> bool:
    return get_origin(hint) in (tuple, Sequence)


def exclusive(*names: str) -> Rule:
    """One of these options at most."""

    def rule(given: Sequence[str]) -> str | None:
        rivals = [name for name in names if name in given]
        return f"{' and '.join(rivals)}: which one is meant?" if len(rivals) > 1 else None

    return rule


def apart(from_: Sequence[str], *names: str, because: str) -> Rule:
    """None of these options beside any of `from_`, which the first of them stands for."""

    def rule(given: Sequence[str]) -> str | None:
        strangers = [name for name in names if name in given]
        if strangers and set(from_) & set(given):
            return f"{strangers[0]} does not apply to {from_[0]}: {because}"
        return None

    return rule


def goes_with(needed: str, *names: str) -> Rule:
    """These options only beside `needed`."""

    def rule(given: Sequence[str]) -> str | None:
        orphans = [name for name in names if name in given and needed not in given]
        return f"{orphans[0]} goes with {needed}" if orphans else None

    return rule


# Where the argument of a command is kept until `--kernel` is read.
_GIVEN = f"{__name__}.given"


Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def completing(words_for: Callable[[str], Iterable[str]], *, else_file: bool = False) -> Completer:
    """What a shell offers: the words that begin so; else, with `else_file`, files of the folder."""

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
        words: list[str] = []
        with contextlib.suppress(TriageError, OSError):
            words = [word for word in dict.fromkeys(words_for(begun)) if word.startswith(begun)]
        files = [CompletionItem(begun, type="file")] if else_file and not words else []
        return [*map(CompletionItem, words), *files]

    return complete


def _kernels(_begun: str) -> Iterable[str]:
    from harness.cells.repros.find import list_repros  # noqa: PLC0415 - only a shell wants it

    return [repro.name for repro in list_repros()[0]]


def _kernel(
    context: click.Context, option: click.Parameter, values: tuple[str, ...], *, is_required: bool
) -> str | None:
    """The kernel that `--kernel` or the argument names."""
    named, argument = once(context, option, values), context.meta.get(_GIVEN)
    if named and argument:
        raise UsageError(f"{argument} and --kernel {named}: which one is meant?")
    if is_required and not (named or argument or context.resilient_parsing):
        raise UsageError(
            f"name a kernel: `{context.command_path} FILE.py`, or --kernel NAME (`triage kernels` "
            "lists them)"
        )
    return named or argument


def kernel_option(words: str, *, is_required: bool = True) -> Any:
    """The kernel, by the argument or by `--kernel`, of which the help says `words`."""
    how: dict[str, Any] = {
        "type": Words(names_files=True),
        "shell_complete": completing(_kernels, else_file=True),
    }
    given = argument(
        **how,
        required=False,
        metavar="[KERNEL]",
        expose_value=False,
        is_eager=True,
        callback=lambda context, _, value: context.meta.__setitem__(_GIVEN, value),
    )
    named = option(
        **how,
        multiple=True,
        callback=partial(_kernel, is_required=is_required),
        metavar="KERNEL",
        help=words,
    )
    [read_given], [read_named] = given.metadata[_CARRIED], named.metadata[_CARRIED]
    carried = (lambda _, *more: read_given("given", *more), read_named)
    return field(default=None, metadata={_CARRIED: carried})


json_option = partial(silent, "--json", help="One JSON document on stdout.")
while_option = partial(
    option,
    "--while",
    often=True,
    metavar="CONDITION",
    help='Follow this instead of a failure: "n_regs<=32 and spill_stores>4096".',
)
holds_option = partial(
    option,
    "--while",
    often=True,
    metavar="CONDITION",
    help='Show where this holds: "n_regs<=32 and spill_stores>4096".',
)


class JsonAlone(Options):
    """The options of a command that has no others."""

    as_json: bool = json_option()
