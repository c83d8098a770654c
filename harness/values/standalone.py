"""A kernel as one file: its code, and how it is compiled, without a GPU and without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

Path = tuple[str | int, ...]


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """What a free name of a definition stands for: exactly one of these.

    A Triton `module`, or an `attribute` of it; another `definition`, by index; a `value`, as an
    expression whose own free names are in `names`.
    """

    module: str | None = None
    attribute: str | None = None
    definition: int | None = None
    value: str | None = None
    names: dict[str, Binding] = msgspec.field(default_factory=dict)


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A function or class that a kernel reaches; `names` are its free names, dotted or not."""

    source: str
    names: dict[str, Binding]
    decorator: str | None = None


class Constant(msgspec.Struct, frozen=True, kw_only=True):
    """The value of an argument, by position, or of an item of a tuple by the path to it."""

    path: list[int]
    value: str
    names: dict[str, Binding] = msgspec.field(default_factory=dict)


class Attribute(msgspec.Struct, frozen=True, kw_only=True):
    """What Triton knows of an argument: divisible by 16, say."""

    path: list[int]
    words: list[list[str | int]]


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """All that one launch of one kernel is made of, as the child tells it.

    The first of the `definitions` is the kernel.
    """

    signature: dict[str, object]
    constants: list[Constant]
    attributes: list[Attribute]
    options: dict[str, Binding]
    source_class: Binding
    target: tuple[str | int, ...]
    definitions: list[Definition]


class FileLaunch(msgspec.Struct, frozen=True, kw_only=True):
    """How `kernel` is compiled; all values are Python expressions.

    `constants` and `attributes` name arguments by path: the argument's name, and the positions
    within it where it is a tuple.
    """

    kernel: str
    signature: Mapping[str, str]
    constants: Mapping[Path, str]
    attributes: Mapping[Path, str]
    options: Mapping[str, str]
    target: tuple[str | int, ...]
    source_class: str = "ASTSource"


class Standalone(msgspec.Struct, frozen=True, kw_only=True):
    """A file in two parts: `code` has imports, constants, helpers and the kernel."""

    code: str
    launch: FileLaunch


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """How a language writes such a file.

    `always` are the imports that its launch needs in any case. `constant` is the call that makes a
    global value one that kernels may read, with the import that it needs; None: any value will do.
    """

    always: frozenset[str]
    constant: tuple[str, str] | None = None


class SourceInstall(msgspec.Struct, frozen=True, kw_only=True):
    """What a shell installs to run such a file: a compiler, which is imported as `module`.

    `packages` have their versions, and are all that is installed where `has_pins`: of `needs`, what
    the interpreter does not have comes first. `cache` is the variable that names a folder for what
    the compiler keeps, and `ptxas` are those that name the ptxas that it runs. `died` is how the
    compiler says that the signal `{}` has ended its assembler.
    `below` are folders, in the one with the packages, in which modules lie.
    `program` is a command, by its path there, that compiles files which are not Python.
    """

    title: str
    module: str
    packages: tuple[str, ...]
    needs: tuple[str, ...] = ()
    has_pins: bool = False
    cache: str = ""
    ptxas: tuple[str, ...] = ()
    died: str = ""
    below: tuple[str, ...] = ()
    program: tuple[str, ...] = ()

    @property
    def variable(self) -> str:
        """The variable of the script that names a folder with the compiler."""
        return self.module.upper().replace(".", "_")

    @property
    def folder(self) -> str:
        """Where in that folder the compiler lies."""
        inner = self.below[0].partition("/")[0] if self.below else ""
        return inner or self.module.replace(".", "/")

    @property
    def lines(self) -> list[str]:
        """What a user types."""
        exact = ["--no-deps"] if self.has_pins else []
        needed = [f"pip install {' '.join(self.needs)}"] if self.needs else []
        return [*needed, " ".join(["pip install", *exact, *self.packages])]

    def lines_for(self, file: str, target: str) -> list[str]:
        """What a user types where it is a program that compiles a file."""
        get = f"pip install --no-deps --target {self.module} {' '.join(self.packages)}"
        words = (f"{self.module}/{self.program[0]}", *self.program[1:], f"-arch={target}")
        return [get, f"{' '.join(words)} -Xptxas -v -cubin {file} -o kernel.cubin"]


class FileLayout(Protocol):
    """How such a file is laid out; `roots` are the names that the imports of its launch give."""

    roots: frozenset[str]

    def render(self, standalone: Standalone, *, header: str = "") -> str:
        """The file; `header` becomes its docstring."""

    def read(self, text: str) -> Standalone:
        """The two parts of a file that `render` made.

        Raises:
            StandaloneError: it is laid out in another way.
        """
