"""What a user types to have a workaround (environment, packages, arguments), and what it is for."""

from __future__ import annotations

from collections.abc import Sequence

from harness.frontends.registry import front_end
from harness.judging.ptxas.options import option_of
from harness.values.limits import limits_of
from harness.values.toolchain import BUNDLED, PTXAS
from harness.workaround.choice import explain, explain_step
from harness.workaround.settings import SettingKind, SettingStep, without
from harness.workaround.trials import OPTIONS_ARGUMENT, OPTIONS_VARIABLE, Attempt, OptionWay, Trials

# Where a wheel puts its ptxas has changed with its major version; its list of files says it.
_LOCATE = (
    'python -c "from importlib.metadata import files; '
    "print(next(f.locate() for f in files('{package}') if f.name == 'ptxas'))\""
)
_VARIABLES = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")


def paste_lines(steps: Sequence[SettingStep], proof: Attempt) -> tuple[str, ...]:
    """Lines for a shell, and for the code that launches, in the order in which they are needed."""
    cell = proof.cell
    kinds = {step.kind for step in steps}
    lines: list[str] = []
    if SettingKind.TRITON in kinds and cell.launch:
        lines.append(front_end(cell.compiler.kind).install_line(cell.compiler.version))
    if SettingKind.PTXAS in kinds and cell.ptxas.origin != BUNDLED:
        is_ptxas = cell.ptxas.kind == PTXAS
        own = ptxas_environment(cell.ptxas.origin, cell.ptxas.version)
        lines += own if is_ptxas else [f"use {cell.ptxas.name}"]
    if SettingKind.FLAGS in kinds and proof.setting.flags:
        lines += _options(proof.setting.flags.label, proof.ways)
    if proof.setting.edit:
        edit = proof.setting.edit
        where = "in the PTX, behind the block size: " if edit.directive else "in the PTX: "
        lines.append(f"{where}{edit.words}")
    launch = [step for step in steps if step.kind is SettingKind.LAUNCH]
    if launch:
        arguments = ", ".join(f"{step.name}={step.after!r}" for step in launch)
        lines.append(f"launch it with {arguments}")
    if SettingKind.CONFIG in kinds:
        end, record = front_end(cell.compiler.kind), cell.record
        assert record is not None, "only a launch has a config"
        lines.append(end.config_line(record.kernel, cell.cell.config, autotuned=record.autotuned))
    return tuple(lines)


def _options(words: str, ways: Sequence[OptionWay]) -> list[str]:
    everywhere, here = "for every kernel of the program", "for this kernel"
    lines = {
        OptionWay.VARIABLE: f'export {OPTIONS_VARIABLE}="{words}"  # {everywhere}',
        OptionWay.ARGUMENT: f'kernel[grid](..., {OPTIONS_ARGUMENT}="{words}")  # {here}',
    }
    joined = [line for way, line in lines.items() if way in ways]
    if len(joined) > 1:
        joined[1] += ", in place of the variable"
    return joined or [f"ptxas {words}"]


def ptxas_environment(package: str, version: str) -> list[str]:
    """Lines for a shell: install that ptxas, and let Triton use it."""
    found = _LOCATE.format(package=package)
    return [
        f"pip install {package}=={version}",
        f"export {_VARIABLES[0]}=$({found})",
        # Tritons that bundle two of them ask this variable for newer GPUs.
        f"export {_VARIABLES[1]}=${_VARIABLES[0]}",
    ]


def explained(trials: Trials, proof: Attempt) -> tuple[str, ...]:
    """What the whole brings, and what each step of it is for, where that was seen."""
    steps = trials.steps(proof.setting)
    home = trials.done[trials.origin.setting.key]
    limits = limits_of(trials.target.capability)
    option = option_of(proof.setting.flags) or proof.setting.edit
    about = [f"{option.words}: {option.meaning}"] if option else []
    if len(steps) == 1:
        return (explain_step(steps[0], home.row, proof.row, limits), *about)
    lines = [*about, f"together: {explain(home.row, proof.row)}"]
    for step in steps:
        undone = trials.done.get(without(proof.setting, step, trials.origin.setting).key)
        if undone:
            lines.append(explain_step(step, undone.row, proof.row, limits))
    return tuple(lines)
