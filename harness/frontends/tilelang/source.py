"""A kernel of TileLang and its launch as the text of one Python file, and back.

`python FILE` lowers the kernel to CUDA C++, on a machine without a GPU and without nvcc. From there
nvcc goes on, as TileLang would call it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from harness.frontends.captured_front_end import FileForm
from harness.frontends.one_file import (
    keywords_of,
    mapping_lines,
    must_be,
    quoted,
    texts_of,
    wrapped,
)
from harness.frontends.partners import PINS
from harness.values.standalone import Dialect, FileLaunch, SourceInstall
from harness.values.toolchain import NVCC, Assembler

# As TileLang 0.1.8 to 0.1.15 call nvcc, besides the options that they choose.
FLAGS = ("-O3", "-lineinfo")
"""The options of nvcc that do not depend on the kernel."""
FILES = {"tir": "kernel.tir", "device": "kernel.device", "cuda": "kernel.cu", "ptx": "kernel.ptx"}
"""What a job leaves, by stage."""
# Of what is shared with triage: modules that it imports.
_NEEDS = ("ml_dtypes", "numpy", "torch")


class TileLangForm(FileForm):
    """See `harness.frontends.captured_front_end.FileForm`."""

    imports = ("import tilelang", "import tilelang.language as T", "from tilelang import tvm")
    roots = frozenset({"tilelang", "T", "tvm"})
    dialect = Dialect(always=frozenset(imports))
    past = frozenset({"tir", "device", "cuda"})

    def launch_lines(self, launch: FileLaunch) -> Iterator[str]:
        constants = [f"{path[0]}={value}" for path, value in launch.constants.items()]
        yield from wrapped(f"kernel = {launch.kernel}(", constants, ")")
        kind, arch = launch.target
        yield f'target = tvm.target.Target({{"kind": "{kind}", "arch": "{arch}"}})'
        yield from mapping_lines("options = ", quoted(launch.options), closing="")
        yield "with tvm.transform.PassContext(opt_level=3, config=options), target:"
        yield "    lowered = tilelang.lower(kernel, target=target)"
        yield "print(lowered.kernel_source)"

    def read_launch(self, values: Mapping[str, ast.expr]) -> FileLaunch:
        kernel = must_be(ast.Call, values["kernel"])
        words = ast.literal_eval(must_be(ast.Call, values["target"]).args[0])
        keywords = keywords_of(kernel)
        return FileLaunch(
            kernel=must_be(ast.Name, kernel.func).id,
            signature=dict.fromkeys(keywords, '"argument"'),
            constants={(name,): value for name, value in keywords.items()},
            attributes={},
            options=texts_of(values["options"]),
            target=(words["kind"], words["arch"]),
        )

    def install(self, version: str, assembler: Assembler) -> SourceInstall:
        pins = PINS["tilelang"]
        return SourceInstall(
            title=pins.title,
            module=pins.package,
            # It lowers a kernel to CUDA C++.
            packages=tuple(map(str, pins.pins(version, without=NVCC))),
            needs=_NEEDS,
            has_pins=True,
            cache="TILELANG_CACHE_DIR",
        )
