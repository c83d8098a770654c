"""Sees what launch code reads: variables, files, folders and modules, those too that are not there.

A stored capture is used again only while all of it is the same. What native code opens by itself,
not through Python, cannot be seen. Where launch code starts a process, `unseen` says that not
everything was seen.
"""

# ruff: noqa: ANN401 - wraps functions of any signature

from __future__ import annotations

import functools
import importlib.abc
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.io.children.read_facts import (
    environment_fact,
    file_fact,
    folder_fact,
    kind_fact,
    module_origin,
    value_fact,
)

# Imported by torch, late and by the hundred; none of them can change a launch.
_TORCH_NEEDS = (
    *("filelock", "fsspec", "jinja2", "markupsafe", "mpmath", "networkx", "numpy", "sympy"),
)
_SYSTEM = ("/proc/", "/sys/", "/dev/")
# These modules of the standard library start processes to learn about the machine.
_ABOUT_THE_MACHINE = ("/platform.py", "/ctypes/util.py", "/uuid.py")
_PROCESSES = frozenset(
    {"os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"}
    | {"subprocess.Popen"}
)
_LISTINGS = frozenset({"os.listdir", "os.scandir"})
_MOST = 20_000


class _Variables(os._Environ):  # type: ignore[type-arg]  # noqa: SLF001 - the class of os.environ
    """`os.environ`, which says who reads what."""

    reads: ReadsWatch

    def __getitem__(self, key: Any) -> Any:
        self.reads.see_variable(key)
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.reads.see_variable_written(key)

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self.reads.see_variable_written(key)

    def __iter__(self) -> Iterator[Any]:
        self.reads.see_all_variables()
        return super().__iter__()

    def __len__(self) -> int:
        self.reads.see_all_variables()
        return super().__len__()


class ReadsWatch(importlib.abc.MetaPathFinder):
    """What is read from `start` to `stop`; as a finder of modules, it finds none.

    What lies below the folders of `own` is not input: the sources that the capture is keyed by, and
    folders that exist for this capture alone. Nor is the launch's own `file`, nor what lies in the
    `packages` of the compiler.
    """

    def __init__(self, own: Sequence[str], file: str, *, packages: Sequence[str] = ()) -> None:
        paths = sysconfig.get_paths()
        self._standard = _below([paths["stdlib"], paths["platstdlib"]])
        # Without a virtual environment, installed packages lie below the standard library.
        self._site = _below([paths["purelib"], paths["platlib"]])
        beside_torch = [str(Path(folder).parent) for folder in _folders_of("torch")]
        needs = [f"{folder}/{name}" for folder in beside_torch for name in _TORCH_NEEDS]
        packages_of_torch = [
            folder for name in ("torch", "triton", *packages) for folder in _folders_of(name)
        ]
        self._packages = _below([*packages_of_torch, *needs])
        # What these ask of the environment and look for is keyed, or is not a matter of the launch.
        self._silent = (*self._packages, *_below([str(Path(__file__).parents[2])]))
        self._own = _below(own)
        self._given = _initial_environment()
        self._loaded = frozenset(sys.modules)
        kinds = ("variables", "files", "kinds", "folders")
        self._facts: dict[str, dict[str, str | None]] = {kind: {} for kind in kinds}
        self._environment: str | None = None
        self._modules: dict[tuple[str, ...], set[str]] = {}
        self._unseen: set[str] = set()
        # Files and variables: what is read of them is the launch code's own.
        self._written: set[str] = {file}
        self._thread = threading.local()
        self._is_active = False

    def start(self) -> None:
        """See what is read from now on."""
        for variables in (os.environ, os.environb):
            variables.__class__ = _Variables
            variables.reads = self  # type: ignore[union-attr]
        for name in ("stat", "lstat"):
            self._wrap(name)
        sys.meta_path.insert(0, self)
        sys.addaudithook(self._audit)
        self._is_active = True

    def stop(self) -> dict[str, Any]:
        """What was read, as `harness.values.outcome.Reads` has it."""
        for name, module in list(sys.modules.items()):
            # Not by attribute: a module may answer for any name, by importing something.
            file = getattr(module, "__dict__", {}).get("__file__")
            if name in self._loaded or name.partition(".")[0] in _TORCH_NEEDS:
                continue
            path = _path_of(file) if isinstance(file, str) else None
            if path and self._is_input(path):
                self._note("files", path, file_fact)
        self._is_active = False
        return {
            **self._facts,
            "environment": self._environment,
            "modules": [
                {"path": path, "found": {name: module_origin(name, path) for name in sorted(names)}}
                for path, names in self._modules.items()
            ],
            "unseen": sorted(self._unseen),
        }

    def see_variable(self, key: Any) -> None:
        """A variable is read."""
        if not self._is_active or not isinstance(key, str | bytes):
            return
        name = os.fsdecode(key)
        if name in self._written or self._is_silent():
            return
        value = self._given.get(name)
        if value is None or not f"{value}/".startswith(self._own):
            self._note("variables", name, lambda _: value_fact(value))

    def see_all_variables(self) -> None:
        """The names of all variables are read."""
        if self._is_active and self._environment is None and not self._is_silent():
            self._environment = environment_fact(self._given)

    def see_variable_written(self, key: Any) -> None:
        """What is read of it from now on is the launch code's own."""
        if self._is_active and isinstance(key, str | bytes):
            self._written.add(os.fsdecode(key))

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:  # noqa: ARG002
        """A module is looked for, on `path` or, where it is None, on the module path."""
        if not self._is_active or self._is_silent():
            return
        searched = sys.path if path is None else path
        try:
            folders = tuple(os.path.abspath(str(entry)) for entry in searched)  # noqa: PTH100
            "".join((name, *folders)).encode()
        except Exception:  # noqa: BLE001 - a package may have any object for its path
            self._unseen.add("a module path that is not a list of folders")
            return
        if path is None or any(self._is_input(f"{folder}/") for folder in folders):
            self._modules.setdefault(folders, set()).add(name)

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_active or getattr(self._thread, "looks", False):
            return
        if event == "open":
            self._opened(args[0], args[2])
        elif event in _LISTINGS:
            name = _path_of("." if args[0] is None else args[0])
            if name and not _is_import() and self._is_input(f"{name}/"):
                self._note("folders", name, folder_fact)
        elif event == "os.mkdir":
            name = _path_of(args[0])
            if name and self._fact(kind_fact, name) is None:
                self._own += (f"{name}/",)
                self._written.add(name)
        elif event in _PROCESSES:
            files = (file for file in _callers() if self._is_standard(file))
            if (
                not any(file.endswith(_ABOUT_THE_MACHINE) for file in files)
                and not self._is_silent()
            ):
                self._unseen.add("what the processes that it starts read")

    def _opened(self, path: Any, flags: Any) -> None:
        name = _path_of(path)
        if name is None or _is_import():
            return
        flags = flags if isinstance(flags, int) else 0
        if flags & os.O_ACCMODE == os.O_WRONLY or flags & (os.O_TRUNC | os.O_EXCL):
            self._written.add(name)
        elif self._is_input(name):
            self._note("files", name, file_fact)

    def _is_input(self, name: str) -> bool:
        if name in self._written or name.startswith(self._own + self._packages + _SYSTEM):
            return False
        return not self._is_standard(name)

    def _note(self, kind: str, name: str, fact: Callable[[str], str | None]) -> None:
        """Keep the fact as it is at the first look."""
        facts = self._facts[kind]
        if name in facts:
            return
        try:
            name.encode()
        except UnicodeEncodeError:
            self._unseen.add("a name that is not UTF-8")
            return
        if len(facts) < _MOST:
            facts[name] = self._fact(fact, name)
        else:
            self._unseen.add(f"more than {_MOST} names")

    def _fact(self, fact: Callable[[str], str | None], name: str) -> str | None:
        """Look for ourselves, which is not a read."""
        before = getattr(self._thread, "looks", False)
        self._thread.looks = True
        try:
            return fact(name)
        finally:
            self._thread.looks = before

    def _is_silent(self) -> bool:
        """Whether the code that asks, behind the standard library, is none of the launch's."""
        asks = (file for file in _callers() if not self._is_standard(file))
        return next(asks, "").startswith(self._silent)

    def _is_standard(self, file: str) -> bool:
        return file.startswith(self._standard) and not file.startswith(self._site)

    def _wrap(self, name: str) -> None:
        """See what a function of `os` looks at."""
        original = getattr(os, name)
        reads = self

        @functools.wraps(original)
        def looked(path: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dir_fd") is None and not getattr(reads._thread, "looks", False):
                name = _path_of(path)
                if reads._is_active and name and reads._is_input(name) and not reads._is_silent():
                    reads._note("kinds", name, kind_fact)
            return original(path, *args, **kwargs)

        for abilities in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if original in abilities:
                abilities.add(looked)
        setattr(os, name, looked)


def _initial_environment() -> dict[str, str]:
    """What this process was started with: Python itself may have added to it since."""
    try:
        block = Path("/proc/self/environ").read_bytes()
    except OSError:
        return dict(os.environ)
    pairs = (os.fsdecode(entry).partition("=") for entry in block.split(b"\0") if entry)
    return {name: value for name, _, value in pairs}


def _path_of(path: Any) -> str | None:
    """The absolute path that was asked for; None for a descriptor."""
    if not isinstance(path, str | bytes | os.PathLike):
        return None
    try:
        return os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - links are not resolved
    except Exception:  # noqa: BLE001 - `__fspath__` may be the launch code's own
        return None


def _callers() -> Iterator[str]:
    """The files of the code that is running, this module and what is frozen left out."""
    frame = sys._getframe(1)  # noqa: SLF001 - there is no other way to know who asks
    while frame is not None:
        file = frame.f_code.co_filename
        if file != __file__ and not file.startswith("<frozen "):
            yield file
        frame = frame.f_back  # type: ignore[assignment]


def _is_import() -> bool:
    """Whether Python's import system asks: what it finds is seen as modules."""
    frame = sys._getframe(1)  # noqa: SLF001 - as above
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back  # type: ignore[assignment]
    asked_from = frame.f_code.co_filename if frame is not None else ""
    return asked_from.startswith(("<frozen importlib", "<frozen zipimport"))


def _below(folders: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{folder.rstrip('/')}/" for folder in folders)


def _folders_of(package: str) -> list[str]:
    return [str(folder) for folder in getattr(sys.modules.get(package), "__path__", None) or ()]
