"""A matrix over releases of a package: its kernels of that package, in each of them."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

from packaging.requirements import InvalidRequirement, Requirement

from harness.cells.repros.find import list_repros
from harness.cells.repros.releases import is_of
from harness.io.packages.versions import LATEST, check_spec
from harness.values.errors import EmptySelectionError, UsageError
from harness.values.kernel import Repro
from harness.values.matrix import Matrix


def over_releases(matrix: Matrix, text: str) -> Matrix:
    """The product of a matrix, with the releases of a package that `[NAME]SPEC` names.

    Kernels of other sources take no part, nor does what is included beside the product.

    Raises:
        UsageError: the text is malformed, or does not say which of several packages is meant.
        EmptySelectionError: no kernel of the matrix comes from the package.
    """
    name, spec = _read(text)
    mine = [repro for repro in _listed(matrix) if repro.source]
    packages = sorted({repro.source.pin.package for repro in mine if repro.source})
    if name is None and len(packages) > 1:
        raise UsageError(
            f"--package-version {text}: the matrix has kernels of {', '.join(packages)}; say "
            f"which, for example '{packages[0]}{spec}'"
        )
    kernels = tuple(f"{repro.name}@{spec}" for repro in mine if name is None or is_of(repro, name))
    if not kernels:
        known = f"; there are kernels of {', '.join(packages)}" if packages else ""
        raise EmptySelectionError(
            f"no kernel of the matrix comes from {name or 'a package'}{known}"
        )
    return replace(matrix, kernels=kernels, include=())


def _read(text: str) -> tuple[str | None, str]:
    """The package and the specifier of its releases."""
    name, spec = None, text.strip()
    if spec[:1].isalpha():
        try:
            found = Requirement(spec)
        except InvalidRequirement:
            raise UsageError(
                f"--package-version {text[:80]}: write for example '>=0.4,<0.6' or "
                "'fla-core>=0.4,<0.6'"
            ) from None
        name, spec = found.name, str(found.specifier) or LATEST
    check_spec(spec, what=name or "the package")
    return name, spec


def _listed(matrix: Matrix) -> list[Repro]:
    """The repros that a matrix names, in the releases that they pin."""
    repros = list_repros()[0]
    found = (
        repro for pattern in matrix.kernels for repro in repros if fnmatchcase(repro.name, pattern)
    )
    return list({repro.name: repro for repro in found}.values())
