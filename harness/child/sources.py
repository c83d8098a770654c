"""Finds and runs the launch code that a capture asks for."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import runpy
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

__all__ = ["BareParents", "imported_files", "run_launch"]


class _BareLoader(importlib.abc.Loader):
    """Gives a package its path but does not run its `__init__` until a name is asked of it."""

    def __init__(self, init: Path, *, lazy: bool):
        self._init = init
        self._lazy = lazy

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:  # noqa: ARG002
        return None

    def exec_module(self, module: ModuleType) -> None:
        state = {"ran": not self._lazy}

        def missing(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            submodule = f"{module.__name__}.{name}"
            if importlib.util.find_spec(submodule) is not None:
                return importlib.import_module(submodule)
            if not state["ran"]:
                state["ran"] = True
                code = compile(self._init.read_bytes(), str(self._init), "exec")
                exec(code, module.__dict__)  # noqa: S102 - the package's own __init__
                if name in module.__dict__:
                    return module.__dict__[name]
            message = f"module {module.__name__!r} has no attribute {name!r}"
            raise AttributeError(message)

        module.__getattr__ = missing  # type: ignore[method-assign]


class BareParents(importlib.abc.MetaPathFinder):
    """Finds packages below the fetched sources without running their `__init__`.

    A package of GPU kernels imports its compiled extension in `__init__`, which nobody has built
    here. The top package's never runs; a subpackage's runs when a name it defines is asked for.
    """

    def __init__(self, roots: Sequence[str]):
        self._roots = [str(Path(root).resolve()) for root in roots]

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(
            fullname, path if path is not None else self._roots, target
        )
        if spec is None or not spec.origin or not spec.submodule_search_locations:
            return spec
        init = Path(spec.origin)
        if init.name != "__init__.py" or not any(str(init.resolve()).startswith(r + "/") for r in self._roots):
            return spec
        spec.loader = _BareLoader(init, lazy="." in fullname)
        return spec


def imported_files(skip: Sequence[str]) -> dict[str, str]:
    """Files that the launch code imported from outside installed packages, with their sha256.

    They are what a stored capture depends on, beside what its key already holds.
    """
    paths = sysconfig.get_paths()
    skipped = [*skip, paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"]]
    skipped += [str(Path(__file__).parent.parent)]
    for name in ("torch", "triton"):
        skipped += getattr(sys.modules.get(name), "__path__", [])
    files = {}
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not name or not name.endswith(".py") or any(name.startswith(part) for part in skipped):
            continue
        if Path(name).is_file():
            files[name] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
    return files


def run_launch(file: str, function: str | None, overrides: dict[str, Any]) -> None:
    """Run `function(**overrides)` of `file`, or the file as `__main__` when there is none."""
    sys.argv = [file]
    folder = str(Path(file).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    if function is None:
        runpy.run_path(file, run_name="__main__")
        return
    spec = importlib.util.spec_from_file_location("triage_launch", file)
    if spec is None or spec.loader is None:
        message = f"{file} cannot be imported"
        raise ImportError(message)
    module = importlib.util.module_from_spec(spec)
    sys.modules["triage_launch"] = module
    spec.loader.exec_module(module)
    getattr(module, function)(**overrides)
