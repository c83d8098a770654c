"""A kernel language of three lines and its compiler, which writes PTX from a template.

It shows that a compiler needs nothing of the program but the door: this file is all there is of it.

A file `NAME.toy` says `kernel NAME`, and the configs that a kernel is tuned over as `config NAME =
VALUE VALUE ...`. The kernel stores `width` numbers a thread. Toy 1.1 forgets a register's
declaration where `width` is 4 or more; 2.0 declares it again. No version takes a width over 8.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from harness.frontends.file_front_end import FileFrontEnd, repro_of_file
from harness.frontends.readings import PtxReading, read_stored
from harness.judging.judge import failed
from harness.values.errors import UsageError
from harness.values.outcome import Lowering, ProcessEnd, RaisedError
from harness.values.toolchain import Compiler
from harness.values.verdict import Stage, Verdict, VerdictKind

if TYPE_CHECKING:
    from harness.frontends.bench import Kept, Workbench
    from harness.frontends.readings import PtxReading
    from harness.frontends.sessions import CapturedLaunch
    from harness.values.kernel import Config, Repro
    from harness.values.outcome import LaunchFacts
    from harness.values.target import Target

_WIDEST = 8


class Toy(FileFrontEnd):
    kind = "toy"
    title = "Toy"
    suffixes: tuple[str, ...] = (".toy",)
    stages: tuple[str, ...] = ("words", "ptx")
    options: tuple[str, ...] = ("unroll",)
    versions: tuple[str, ...] = ("1.0", "1.1", "2.0")
    # How a line of a file begins that names a kernel.
    names_by = "kernel"

    def read_file(self, path: Path, kernel: str | None) -> Repro:
        name, _ = self.kernel_in(path)
        if kernel not in (None, name):
            raise UsageError(f"{path}: it holds the {self.names_by} {name!r}, not {kernel!r}")
        return repro_of_file(self.kind, path, name, launch=self.kind)

    def kernel_in(self, path: Path) -> tuple[str, list[dict[str, Any]]]:
        lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
        name = next((line[1] for line in lines if line[0] == self.names_by), None)
        if name is None:
            raise UsageError(f"{path}: no line says `{self.names_by} NAME`")
        tuned = {line[1]: [int(word) for word in line[3:]] for line in lines if line[0] == "config"}
        product = itertools.product(*tuned.values())
        return name, [dict(zip(tuned, values, strict=True)) for values in product]

    def available(self, *, prereleases: bool = False) -> list[Version]:
        return [Version(version) for version in self.versions]

    def install(self, version: Version | str) -> Compiler:
        if str(version) not in self.versions:
            raise UsageError(f"there is no {self.title} {version}")
        return Compiler(kind=self.kind, version=str(version), origin="toy")

    async def lowered(
        self, bench: Workbench, launch: CapturedLaunch, record: LaunchFacts
    ) -> tuple[Lowering, dict[str, bytes]]:
        width = int(str(record.config["width"]))
        end = ProcessEnd(exit_code=0)
        if width > _WIDEST:
            said = RaisedError(type="ToyError", kinds=("ToyError",), message=f"width {width}")
            return Lowering(end=end, stage="words", error=said), {}
        ptx = _ptx(record.kernel, launch.request, width, launch.compiler.version)
        flags = ("-v", f"--gpu-name={launch.request}")
        return Lowering(end=end, stage="ptx", flags=flags), {"ptx": ptx.encode()}

    def read(self, bench: Workbench, lowering: Kept[Lowering], ptx: str) -> Kept[PtxReading]:
        return read_stored(bench, ptx, promises=lambda _ir, _ptx: PtxReading(effects=1))

    def judge(self, lowering: Lowering) -> Verdict:
        said = lowering.error.message if lowering.error else "nothing"
        stage = Stage(lowering.stage)
        return failed(VerdictKind.REJECTED, stage, f"{self.title} refuses it: {said}", message=said)

    def install_line(self, version: str) -> str:
        return f"use {self.title} {version}"

    def config_line(self, kernel: str, config: Config, *, autotuned: bool) -> str:
        return f"config {config.label} of {kernel}"


def _ptx(name: str, target: Target, width: int, version: str) -> str:
    """A kernel that stores `width` numbers for each thread."""
    forgets = version == "1.1" and width >= 4
    stores = "\n".join(f"    st.global.u32 [%rd1+{4 * i}], %r{i};" for i in range(width))
    sets = "\n".join(f"    mov.u32 %r{i}, {i};" for i in range(width))
    declared = width - 1 if forgets else width
    return f""".version 8.3
.target {target}
.address_size 64
.visible .entry {name}(.param .u64 out)
{{
    .reg .b32 %r<{declared}>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd1, %rd1;
{sets}
{stores}
    ret;
}}
"""


TOY = Toy()
