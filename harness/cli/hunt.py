"""`triage hunt`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from harness.cells.places import CompileOptions
from harness.cli.amounts import FilePath, Seconds
from harness.cli.main import CONTEXT
from harness.cli.options import F, SilentOption, Verb, as_value, json_option
from harness.cli.output import print_json, print_remarks, print_said, status_console
from harness.cli.progress.steps import working
from harness.cli.results import open_results
from harness.cli.running import execution_options, hubs_of, run_to_the_end, scheduler_option
from harness.frontends.back_end import PTXAS_BACK_END
from harness.frontends.registry import front_end
from harness.io.files.locations import home_dir
from harness.io.files.reading import read_regular
from harness.io.packages.versions import LATEST
from harness.values.errors import ConfigurationError, UsageError
from harness.values.target import Target
from harness.values.toolchain import EMULATOR, GPU, SASS, TRITON, Assembler, Compiler

if TYPE_CHECKING:
    from harness.hunt.plan import HuntReport

_EPILOG = """\b
Example:
  triage hunt ptxas --for 30m
  triage hunt ptxas --for 2m --ptxas 13.0.88 --seed 7 --jobs 2
  triage hunt ptxas --for 30m --sm 100a --corpus .
  triage hunt triton --for 30m --sm 90a,100a
  triage hunt triton --for 30m --sm 90a --corpus .

Exit code 0: nothing was found. 1: something was. 4: this machine or a toolchain failed; what was
found until then is kept. Ctrl-C ends a hunt early and says what was found; the same command goes on
from there."""


@click.group("hunt", context_settings=CONTEXT, epilog=_EPILOG)
def command() -> None:
    """Look for unknown bugs of a compiler, unattended, and report each cause once."""


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What any hunt is asked for; with a `corpus` its files are changed, and nothing is made."""

    on: str
    runner: str | None
    corpus: Path | None
    seconds: float
    most: int | None
    seed: int


def _asked(
    on: str | None,
    runner: str | None,
    corpus: Path | None,
    *,
    usual: str,
    **others: Any,  # noqa: ANN401 - click's
) -> _Asked:
    if runner is not None and on not in (None, GPU):
        raise UsageError(f"--runner is for a GPU: leave out --on {on}")
    on = on or (GPU if runner is not None else usual)
    if corpus and on == GPU:
        raise UsageError("--corpus asks no GPU: leave out --on gpu")
    return _Asked(on=EMULATOR if corpus else on, runner=runner, corpus=corpus, **others)


def _hunt_options(executes: str, usual: str, changes: str) -> Callable[[F], F]:
    """What both hunts are asked for, as `asked`; the help of `--on` and of `--corpus`."""
    return as_value(
        "asked",
        partial(_asked, usual=usual),
        click.option(
            "--on", type=click.Choice([EMULATOR, SASS, GPU]), show_default=usual, help=executes
        ),
        click.option(
            "--runner",
            metavar="CMD",
            help="With --on gpu: a command that takes `PACK --out RESULTS` to a GPU.",
        ),
        click.option(
            "--corpus", type=FilePath(exists=True, file_okay=False), metavar="DIR", help=changes
        ),
        click.option(
            "--for",
            "seconds",
            cls=SilentOption,
            type=Seconds(),
            default="30m",
            show_default=True,
            metavar="TIME",
            help="How long to hunt: 30m, 90s.",
        ),
        click.option(
            "--max-tries",
            "most",
            cls=SilentOption,
            type=click.IntRange(1),
            metavar="N",
            help="After how many programs to stop, to the next batch full.",
        ),
        click.option("--seed", type=click.IntRange(0), default=0, show_default=True),
    )


@command.command("ptxas", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@click.option("--sm", default="90", show_default=True, metavar="SM", help="GPU target.")
@click.option(
    "--ptxas", default=LATEST, show_default=True, metavar="X", help="The ptxas to hunt in."
)
@_hunt_options(
    "What votes beside the PTX: the SASS of -O0 and -O3, emulated; their cubins, launched on a "
    "GPU; or nothing (emulator), and only what ptxas fails on is found, and what it takes out of "
    "proportion.",
    SASS,
    "Change the PTX files of this folder, and make no programs; nothing is executed, what "
    "ptxas fails on is found, and where its spills, registers or time grow out of proportion.",
)
@scheduler_option("Have ptxas and the emulator run")
@execution_options
@json_option
def _ptxas(
    *, sm: str, ptxas: str, asked: _Asked, scheduler: str | None, how: CompileOptions, as_json: bool
) -> None:
    """Make PTX that is well defined, and look for what ptxas does wrong with it.

    Each program is assembled at -O0 and -O3, and three vote on what it computes: its PTX and the
    SASS of both levels, all emulated, or what their cubins leave on a GPU. Who loses against two
    that agree is accused; internal errors, crashes and hangs are found, too. What is found is
    reduced, named and counted once for each cause. What it says is *emulated*, with --on gpu
    *measured*.
    """
    target = Target.parse(sm)
    texts = _ptx_corpus(asked.corpus, target) if asked.corpus else ()
    versions = PTXAS_BACK_END.select(ptxas)
    if len(versions) != 1:
        raise UsageError(f"--ptxas {ptxas}: {len(versions)} versions are meant; name one")
    tool = PTXAS_BACK_END.install(versions[0])
    _hunt(tool, (target,), texts, asked, how, scheduler=scheduler, as_json=as_json)


@command.command("triton", cls=Verb, context_settings=CONTEXT, epilog=_EPILOG)
@click.option(
    "--sm",
    default="80,90a,100a,120a",
    show_default=True,
    metavar="SM,...",
    help="GPU targets, by turns.",
)
@click.option(
    "--triton", default=LATEST, show_default=True, metavar="X", help="The Triton to hunt in."
)
@_hunt_options(
    "What executes the kernels: their PTX, emulated in several orders; or their cubins, emulated "
    "(sass) or launched on a GPU. What they leave is held to Triton's interpreter.",
    EMULATOR,
    "Change the .ttir and .ttgir files of this folder, and make no kernels; what Triton fails "
    "on by itself is found, and what a .ttir file computes with stages and not without.",
)
@scheduler_option("Have the emulator run")
@execution_options
@json_option
def _triton(
    *,
    sm: str,
    triton: str,
    asked: _Asked,
    scheduler: str | None,
    how: CompileOptions,
    as_json: bool,
) -> None:
    """Make kernels that are well defined, and look for what Triton does wrong with them.

    Each kernel is compiled in two configs for one of the targets. Its PTX is executed by the
    emulator, in several orders of warps and copies, and held to Triton's interpreter; one of four
    is in Gluon (Triton 3.8 and later), and its two configs are held to one another. Passes that
    fail, crashes and hangs are found, too. What is found is reduced, named and counted once for
    each cause. What it says is *emulated*, with --on gpu *measured*.
    """
    texts = _ir_corpus(asked.corpus) if asked.corpus else ()
    front = front_end(TRITON)
    versions = front.select(triton)
    if len(versions) != 1:
        raise UsageError(f"--triton {triton}: {len(versions)} versions are meant; name one")
    tool = front.install(versions[0])
    targets = tuple(map(Target.parse, sm.split(",")))
    _hunt(tool, targets, texts, asked, how, scheduler=scheduler, as_json=as_json)


_LARGEST_PROGRAM = 1 << 20
"""Bytes of a file of a corpus: to read and change one takes a thousand times as much memory."""


def _texts(folder: Path, suffixes: Collection[str]) -> list[tuple[str, str]]:
    """The files of these kinds below a folder, and their suffixes.

    What cannot be read is left out, and a line says so.
    """
    texts = []
    for path in sorted(path for path in folder.rglob("*") if path.suffix in suffixes):
        try:
            texts.append((read_regular(path, _LARGEST_PROGRAM).decode(), path.suffix))
        except UnicodeDecodeError:
            print_remarks([f"--corpus: left out: {path}: not UTF-8"])
        except ConfigurationError as error:
            print_remarks([f"--corpus: left out: {error}"])
    return texts


def _ptx_corpus(folder: Path, target: Target) -> tuple[str, ...]:
    """The PTX files below a folder, for a target."""
    from harness.hunt.corpus import retargeted, target_of  # noqa: PLC0415 - numpy comes with it

    texts = [text for text, _ in _texts(folder, (".ptx",))]
    fitting = tuple(retargeted(text, str(target)) for text in texts if target_of(text))
    if not fitting:
        raise UsageError(
            f"--corpus {folder}: none of {len(texts)} PTX files names a target; "
            "`triage show --stage ptx` prints that of a kernel"
        )
    return fitting


def _ir_corpus(folder: Path) -> tuple[str, ...]:
    """The modules of Triton's IR below a folder."""
    from harness.frontends.texts.ir_inputs import IR_SUFFIXES, half_compiled  # noqa: PLC0415 - slow

    texts = []
    for text, suffix in _texts(folder, IR_SUFFIXES):
        try:
            half_compiled(text.encode(), suffix)
        except UsageError as error:
            print_remarks([f"--corpus: left out: a {suffix} file: {error}"])
        else:
            texts.append(text)
    if not texts:
        raise UsageError(f"--corpus {folder}: there is no .ttir or .ttgir file")
    return tuple(texts)


def _hunt(
    tool: Assembler | Compiler,
    targets: tuple[Target, ...],
    texts: tuple[str, ...],
    asked: _Asked,
    how: CompileOptions,
    *,
    scheduler: str | None,
    as_json: bool,
) -> NoReturn:
    # numpy comes with them.
    from harness.hunt.hunt_words import first_line, hunt_document, hunt_said  # noqa: PLC0415
    from harness.hunt.hunted_repros import write_repros  # noqa: PLC0415
    from harness.hunt.hunting import hunt  # noqa: PLC0415
    from harness.hunt.plan import HuntPlan  # noqa: PLC0415

    plan = HuntPlan(
        tool=tool,
        targets=targets,
        corpus=texts,
        seed=asked.seed,
        seconds=asked.seconds,
        most=asked.most,
        on=asked.on,
        runner=asked.runner,
    )
    console = status_console()
    with open_results() as store, working(console, "starting") as show:

        def tell(words: str) -> None:
            console.print(f"triage: new: {words}", soft_wrap=True)

        async def hunted() -> HuntReport:
            async with hubs_of(scheduler, how, how.warn) as (there, open_hub):
                print_remarks([first_line(plan, there.workers, there.limits.memory, scheduler)])
                return await hunt(plan, store, there, tell, show, open_hub)

        report = run_to_the_end(hunted())
    folders = write_repros(report, home_dir())
    print_remarks(report.notes)
    if as_json:
        print_json(hunt_document(report, folders))
    else:
        print_said(hunt_said(report, folders))
    raise click.exceptions.Exit(1 if report.state.new else 0)
