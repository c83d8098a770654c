"""`triage hunt`.

Example:
  triage hunt ptxas --for 30m
  triage hunt ptxas --for 2m --ptxas 13.0.88 --seed 7 --jobs 2
  triage hunt ptxas --for 30m --sm 100a --corpus .
  triage hunt triton --for 30m --sm 90a,100a
  triage hunt triton --for 30m --sm 90a --corpus .

Exit code 0: nothing was found. 1: something was. 4: this machine or a toolchain failed; what was
found until then is kept. Ctrl-C ends a hunt early and says what was found; the same command goes on
from there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpu_emulator.ptx.text.facts import PtxError, retarget
from harness.cells.places import CompileOptions
from harness.cli.amounts import FilePath, Seconds
from harness.cli.gpu_way import EXECUTOR, RUNNER, executor_of
from harness.cli.options import Options, examples, json_option, option, part, silent, verb
from harness.cli.output import print_remarks, print_result, status_console
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


@click.group("hunt", epilog=examples(__doc__))
def command() -> None:
    """Look for unknown bugs of a compiler, unattended, and report each cause once."""


class _HuntOptions(Options):
    """What any hunt is asked for; with a `corpus` its files are changed, and nothing is made."""

    named: str | None = option("--on", often=True, type=EXECUTOR)
    runner: str | None = option(metavar="CMD", help=RUNNER)
    corpus: Path | None = option(type=FilePath(exists=True, file_okay=False), metavar="DIR")
    seconds: float = silent(
        "--for", often=True, type=Seconds(), default="30m", help="How long to hunt: 30m, 90s."
    )
    most: int | None = silent(
        "--max-tries",
        type=click.IntRange(1),
        metavar="N",
        help="After how many programs to stop, to the next batch full.",
    )
    seed: int = option(type=click.IntRange(0), default=0)

    def on(self, usual: str) -> str:
        """What executes what is made, and nothing where a corpus is changed."""
        on = executor_of(self.named, self.runner) or usual
        if self.corpus and on == GPU:
            raise UsageError("--corpus asks no GPU: leave out --on gpu")
        return EMULATOR if self.corpus else on


def _asked(executes: str, usual: str, changes: str) -> Any:
    """What a hunt is asked for, with the help of `--on` and of `--corpus`."""
    named = {"help": executes, "show_default": usual}
    return part(_HuntOptions, named=named, corpus={"help": changes})


class _PtxasHunt(Options):
    sm: str = option(often=True, default="90", metavar="SM", help="GPU target.")
    ptxas: str = option(often=True, default=LATEST, metavar="X", help="The ptxas to hunt in.")
    asked: _HuntOptions = _asked(
        "What votes beside the PTX: the SASS of -O0 and -O3, emulated; their cubins, launched on a "
        "GPU; or nothing (emulator), and only what ptxas fails on is found, and what it takes out "
        "of proportion.",
        SASS,
        "Change the PTX files of this folder, and make no programs; nothing is executed, what "
        "ptxas fails on is found, and where its spills, registers or time grow out of proportion.",
    )
    scheduler: str | None = scheduler_option("Have ptxas and the emulator run")
    how: CompileOptions = execution_options()
    as_json: bool = json_option()


@verb(command, epilog=examples(__doc__))
def _ptxas(options: _PtxasHunt) -> int:
    """Make PTX that is well defined, and look for what ptxas does wrong with it.

    Each program is assembled at -O0 and -O3, and three vote on what it computes: its PTX and the
    SASS of both levels, all emulated, or what their cubins leave on a GPU. Who loses against two
    that agree is accused; internal errors, crashes and hangs are found, too. What is found is
    reduced, named and counted once for each cause. What it says is *emulated*, with --on gpu
    *measured*.
    """
    on, corpus = options.asked.on(SASS), options.asked.corpus
    target = Target.parse(options.sm)
    texts = _ptx_corpus(corpus, target) if corpus else ()
    versions = PTXAS_BACK_END.select(options.ptxas)
    if len(versions) != 1:
        raise UsageError(f"--ptxas {options.ptxas}: {len(versions)} versions are meant; name one")
    return _hunt(PTXAS_BACK_END.install(versions[0]), (target,), texts, options, on)


class _TritonHunt(Options):
    sm: str = option(default="80,90a,100a,120a", metavar="SM,...", help="GPU targets, by turns.")
    triton: str = option(often=True, default=LATEST, metavar="X", help="The Triton to hunt in.")
    asked: _HuntOptions = _asked(
        "What executes the kernels: their PTX, emulated in several orders; or their cubins, "
        "emulated (sass) or launched on a GPU. What they leave is held to Triton's interpreter.",
        EMULATOR,
        "Change the .ttir and .ttgir files of this folder, and make no kernels; what Triton fails "
        "on by itself is found, and what a .ttir file computes with stages and not without.",
    )
    scheduler: str | None = scheduler_option("Have the emulator run")
    how: CompileOptions = execution_options()
    as_json: bool = json_option()


@verb(command, epilog=examples(__doc__))
def _triton(options: _TritonHunt) -> int:
    """Make kernels that are well defined, and look for what Triton does wrong with them.

    Each kernel is compiled in two configs for one of the targets. Its PTX is executed by the
    emulator, in several orders of warps and copies, and held to Triton's interpreter; one of four
    is in Gluon (Triton 3.8 and later), and its two configs are held to one another. Passes that
    fail, crashes and hangs are found, too. What is found is reduced, named and counted once for
    each cause. What it says is *emulated*, with --on gpu *measured*.
    """
    on, corpus = options.asked.on(EMULATOR), options.asked.corpus
    texts = _ir_corpus(corpus) if corpus else ()
    front = front_end(TRITON)
    versions = front.select(options.triton)
    if len(versions) != 1:
        raise UsageError(f"--triton {options.triton}: {len(versions)} versions are meant; name one")
    targets = tuple(map(Target.parse, options.sm.split(",")))
    return _hunt(front.install(versions[0]), targets, texts, options, on)


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
            print_remarks(f"--corpus: left out: {path}: not UTF-8")
        except ConfigurationError as error:
            print_remarks(f"--corpus: left out: {error}")
    return texts


def _ptx_corpus(folder: Path, target: Target) -> tuple[str, ...]:
    """The PTX files below a folder, for a target."""
    texts, fitting = _texts(folder, (".ptx",)), list[str]()
    for text, _ in texts:
        with contextlib.suppress(PtxError):
            fitting.append(retarget(text, target=str(target)))
    if not fitting:
        raise UsageError(
            f"--corpus {folder}: none of {len(texts)} PTX files names a target; "
            "`triage show --stage ptx` prints that of a kernel"
        )
    return tuple(fitting)


def _ir_corpus(folder: Path) -> tuple[str, ...]:
    """The modules of Triton's IR below a folder."""
    from harness.frontends.texts.ir_inputs import IR_SUFFIXES, half_compiled  # noqa: PLC0415 - slow

    texts = []
    for text, suffix in _texts(folder, IR_SUFFIXES):
        try:
            half_compiled(text.encode(), suffix)
        except UsageError as error:
            print_remarks(f"--corpus: left out: a {suffix} file: {error}")
        else:
            texts.append(text)
    if not texts:
        raise UsageError(f"--corpus {folder}: there is no .ttir or .ttgir file")
    return tuple(texts)


def _hunt(
    tool: Assembler | Compiler,
    targets: tuple[Target, ...],
    texts: tuple[str, ...],
    options: _PtxasHunt | _TritonHunt,
    on: str,
) -> int:
    # numpy comes with them.
    from harness.hunt.hunt_words import first_line, hunt_document, hunt_said  # noqa: PLC0415
    from harness.hunt.hunted_repros import write_repros  # noqa: PLC0415
    from harness.hunt.hunting import hunt  # noqa: PLC0415
    from harness.hunt.plan import HuntPlan  # noqa: PLC0415

    asked = options.asked
    plan = HuntPlan(
        tool=tool,
        targets=targets,
        corpus=texts,
        seed=asked.seed,
        seconds=asked.seconds,
        most=asked.most,
        on=on,
        runner=asked.runner,
    )
    console, how = status_console(), options.how
    with open_results() as store, working("starting") as show:

        def tell(words: str) -> None:
            console.print(f"triage: new: {words}", soft_wrap=True)

        async def hunted() -> HuntReport:
            async with hubs_of(options.scheduler, how, how.warn) as (there, open_hub):
                print_remarks(
                    first_line(plan, there.workers, there.limits.memory, options.scheduler)
                )
                return await hunt(plan, store, there, tell, show, open_hub)

        report = run_to_the_end(hunted())
    folders = write_repros(report, home_dir())
    print_remarks(*report.notes)
    said = hunt_said(report, folders)
    print_result(hunt_document(report, folders), said, as_json=options.as_json)
    return 1 if report.state.new else 0
