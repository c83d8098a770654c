"""Kernels of captured launches as files of their own: written, read, compiled without a capture.

Each language lays out the launch in such a file; what is around it is alike.
"""

from __future__ import annotations

import ast
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from harness.frontends.captured_launch import CapturedLaunch
from harness.frontends.one_file import GUARD, StandaloneError, code_before, values_of
from harness.io.files.whole_folders import scratch_disk
from harness.values.errors import UsageError
from harness.values.outcome import LaunchFacts
from harness.values.standalone import Dialect, Export, FileLaunch, SourceInstall, Standalone
from harness.values.toolchain import Assembler
from harness.values.verdict import Stage

if TYPE_CHECKING:
    from harness.frontends.bench.bench import Workbench
    from harness.frontends.captured_front_end import CapturedFrontEnd
    from harness.frontends.sessions import JobResult
    from harness.frontends.source_form import Lowered
    from harness.io.processes.hub import ResourceLimits


class CapturedForm(ABC):
    """See `harness.frontends.source_form.FileForm`.

    `imports` are all that files begin with, and `roots` the names that they give. What the code
    begins with has two blank lines before it where it is one of `spaced`.
    """

    imports: tuple[str, ...]
    roots: frozenset[str]
    dialect: Dialect
    spaced: tuple[str, ...] = ()

    def __init__(self, front_end: CapturedFrontEnd) -> None:
        self.front_end = front_end

    @abstractmethod
    def launch_lines(self, launch: FileLaunch) -> Iterator[str]:
        """How the launch is written."""

    @abstractmethod
    def read_launch(self, values: Mapping[str, ast.expr]) -> FileLaunch:
        """The launch, from what its lines set each name to; it may raise what `ast` raises."""

    @abstractmethod
    def install(self, version: str, assembler: Assembler) -> SourceInstall:
        """See `harness.frontends.source_form.CompiledForm`."""

    @abstractmethod
    async def lowered(
        self, bench: Workbench, launch: CapturedLaunch, done: JobResult, until: Stage | None
    ) -> Lowered | None:
        """The result of a job that compiled a file; None where it got past `until`."""

    def imports_of(self, launch: FileLaunch) -> Sequence[str]:
        """Those of `imports` that a file with this launch has."""
        return self.imports

    def completed(self, launch: FileLaunch, answer: Mapping[str, Any]) -> FileLaunch:
        """An exported launch, with what the child tells of it besides."""
        return launch

    def asked(
        self, launch: CapturedLaunch, ptxas: Assembler | None, until: Stage | None
    ) -> dict[str, object]:
        """What the child gets to know of a compilation besides the file."""
        return {}

    def render(self, standalone: Standalone, *, header: str = "") -> str:
        """The file; `header` becomes its docstring."""
        docstring = f'"""{header.strip()}\n"""\n\n' if header else ""
        code = standalone.code.strip("\n")
        code = f"\n\n{code}" if self.spaced and code.startswith(self.spaced) else code
        body = textwrap.indent("\n".join(self.launch_lines(standalone.launch)), "    ")
        imports = "\n".join(self.imports_of(standalone.launch))
        return f"{docstring}{imports}\n{code}\n\n\n{GUARD}{body}\n"

    def read(self, text: str) -> Standalone:
        """The two parts of a file that `render` made.

        Raises:
            StandaloneError: it is laid out in another way.
        """
        try:
            tree = ast.parse(text)
            launch = self.read_launch(values_of(tree))
        except (SyntaxError, ValueError, KeyError, AttributeError, IndexError, TypeError) as error:
            message = f"not a standalone file as this program writes it: {error}"
            raise StandaloneError(message) from error
        return Standalone(code=code_before(text, tree, set(self.imports)), launch=launch)

    async def export(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> Standalone:
        done = await self.front_end.on_record(bench, launch, record, {"op": "export"})
        answer = done.result or {"error": f"its process ended ({done.words})"}
        bench.hub.drop_folder(done.folder)
        if answer["error"]:
            raise UsageError(f"{record.kernel} cannot be written as one file: {answer['error']}")
        from harness.frontends.inline import inline  # noqa: PLC0415 - libcst: 0.3 s

        made = inline(msgspec.convert(answer["export"], Export), self.dialect)
        return replace(made, launch=self.completed(made.launch, answer))

    async def compile(
        self,
        bench: Workbench,
        launch: CapturedLaunch,
        text: str,
        *,
        ptxas: Assembler | None,
        limits: ResourceLimits,
        until: Stage | None = None,
        suffix: str = ".py",
        options: Mapping[str, object] | None = None,
    ) -> Lowered | None:
        source = bench.hub.new_folder("standalone")
        try:
            with scratch_disk():
                (source / f"kernel{suffix}").write_text(text, encoding="utf-8")
            request = replace(
                launch.request,
                file=source / f"kernel{suffix}",
                function=None,
                overrides=options or {},
                paths=(),
                bare=(),
                beside=(),
                injected={},
            )
            asked = {"op": "compile", "capture": request.message()}
            asked |= self.asked(launch, ptxas, until)
            done = await self.front_end.on_server(bench, launch.compiler, asked, limits)
            try:
                return await self.lowered(bench, launch, done, until)
            finally:
                bench.hub.drop_folder(done.folder)
        finally:
            bench.hub.drop_folder(source)
