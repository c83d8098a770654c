"""What is left of a package's tuning lists, for people and as a document. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from harness.cells.spelling import spell_command, words_of
from harness.tables.said import BLANK, Block, GridColumn, SaidGrid, SaidLine, Tone, say
from harness.tables.summary import plural
from harness.tables.survivors import survivors
from harness.values.row import SCHEMA
from harness.workaround.package.losses import Loss, TuningList
from harness.workaround.package.result import PackageReport, Pruning

_GRAVE = (Loss.ALL, Loss.MOST)


def package_said(report: PackageReport) -> list[Block]:
    """Where the source is from, the lists that lose configs, what would save them, and counts."""
    blocks: list[Block] = [say(_source(report), Tone.HEAD), BLANK]
    if any(one.lost or one.unknown for one, _ in report.lists):
        blocks += [_grid(report), BLANK]
    for one, pruning in report.losing:
        blocks += [*_list_said(one, pruning, report.surroundings), BLANK]
    some = [line for one, _ in report.lists if one.loss is Loss.SOME for line in _some_said(one)]
    if some:
        blocks += [say("Why lists lose some of their configs", Tone.HEAD), *some, BLANK]
    return [*blocks, *(say(line) for line in _counts(report))]


def _source(report: PackageReport) -> str:
    pin = report.reached.pin
    pinned = " and ".join(report.reached.pinned)
    others = f" (the repros pin {pinned})" if pinned else ""
    origin = (
        "as the repros pin it"
        if report.reached.is_pinned
        else f"as the package index has it{others}"
    )
    return f"{pin.package} {pin.version}, sha256 {pin.sha256}, {origin}"


def _grid(report: PackageReport) -> SaidGrid:
    """A line for each list that loses something on some target."""
    targets = list(dict.fromkeys(one.target for one, _ in report.lists))
    lines: dict[tuple[str, str, str], dict[str, TuningList]] = {}
    for one, _ in report.lists:
        launch = f"{one.launch} (and {len(one.also)} more)" if one.also else one.launch
        lines.setdefault((one.kernel, launch, one.rows[0].compiler_name), {})[one.target] = one
    rows = [
        (*map(say, place), *(_cell(found.get(target)) for target in targets))
        for place, found in lines.items()
        if any(one.lost or one.unknown for one in found.values())
    ]
    columns = (
        GridColumn(title="kernel", folds=True),
        GridColumn(title="launch", wraps=True),
        GridColumn(title="compiler", wraps=True),
        *(GridColumn(title=target, wraps=True) for target in targets),
    )
    return SaidGrid(columns=columns, rows=tuple(rows))


def _cell(one: TuningList | None) -> SaidLine:
    if one is None:
        return say("not reached", Tone.FAINT)
    total, lost, unknown = len(one.rows), len(one.lost), len(one.unknown)
    said = say(f"{total} kept", Tone.GOOD)
    if lost:
        words = f"{lost} of {total} lost"
        if lost == total:
            words = f"all {total} lost" if total > 1 else "lost"
        said = say(words, Tone.BAD if one.loss in _GRAVE else Tone.POOR)
    if not unknown:
        return said
    more = say(f"{unknown} of {total} not known", Tone.FAINT)
    return more if unknown == total else said + say(", ") + more


def _list_said(
    one: TuningList, pruning: Pruning | None, surroundings: tuple[str, ...]
) -> list[Block]:
    """A list that loses much: why, and what leaves out what fails."""
    total = len(one.rows)
    how_much = f"all {total}" if one.loss is Loss.ALL else f"{len(one.lost)} of {total}"
    said = f"{how_much} configs are lost" if total > 1 else "its only config is lost"
    head = f"{one.kernel} ({one.file}), {one.launch}, on {one.target}: {said}"
    blocks: list[Block] = [say(head, Tone.HEAD)]
    blocks += [say(f"  {words}") for words in _reasons(one)]
    if pruning is None:
        return blocks
    if pruning.source is None:
        is_named = ".py@" not in one.name  # of a file, `--kernel` would take what is installed
        command = _workaround(one, surroundings) if not one.works and is_named else ""
        command = f"; to look for one: {command}" if command else ""
        return [*blocks, say(f"  No pruning function: {pruning.why_none}{command}")]
    blocks.append(
        say(f'  prune_configs_by={{"early_config_prune": ...}} with this keeps {pruning.keeps}:')
    )
    return [*blocks, *(say(f"    {line}".rstrip()) for line in pruning.source.splitlines())]


def _some_said(one: TuningList) -> list[Block]:
    """A line for each reason for which a list loses some of its configs."""
    launch = f"{one.launch}, {one.rows[0].compiler_name}"
    return [say(f"  {one.kernel} ({launch}) on {one.target}: {each}") for each in _reasons(one)]


def _reasons(one: TuningList) -> list[str]:
    """How many are lost, which, and why."""
    return [
        f"{len(fate.rows)} {fate.verdict.value}"
        f"{f' ({fate.where})' if fate.where else ''}: {fate.reason}"
        for fate in survivors(one.rows).fates
        if not fate.verdict.compiles
    ]


def _workaround(one: TuningList, surroundings: tuple[str, ...]) -> str:
    words = replace(words_of(one.rows[0]), kernel=one.name, config="", surroundings=surroundings)
    return spell_command("workaround", words)


def _counts(report: PackageReport) -> list[str]:
    """What was compiled, what was reached, and what this rests on."""
    lists = [one for one, _ in report.lists]
    losses = Counter(one.loss for one in lists)
    targets = len({one.target for one in lists})
    configs = sum(len(one.rows) for one in lists)
    kernels = len({(one.file, one.kernel) for one in lists})
    words = {
        Loss.ALL: "lose all configs",
        Loss.MOST: "lose most",
        Loss.SOME: "lose some",
        Loss.NONE: "lose none",
        Loss.UNKNOWN: "could not be determined",
    }
    found = ", ".join(f"{losses[loss]} {said}" for loss, said in words.items() if losses[loss])
    count = report.functions
    launches = len(report.reached.launches)
    lines = []
    lines.append(
        f"{plural(kernels, 'kernel')}, {plural(len(lists), 'tuning list')} on "
        f"{plural(targets, 'target')}, {plural(configs, 'config')}: {found}. "
        f"Launched by {plural(launches, 'launch function')}."
    )
    lines.append(
        f"Of {count.total} functions that {report.reached.pin.package} has for Triton, these "
        f"launches reached {len(count.launched)}, and did not reach {len(count.unreached)} "
        f"({len(count.tuned)} of these have an autotune). {len(count.mentioned)} more were not "
        "launched, but other functions mention their names: they may be called by kernels."
    )
    if count.unread:
        lines.append(f"Not read, so not counted: {', '.join(count.unread)}.")
    if report.elsewhere:
        lines.append(f"Left out, of other packages: {', '.join(report.elsewhere)}.")
    lines.append("Evidence: compiled. Nothing was run, and pruning functions were not compiled.")
    return lines


def package_document(report: PackageReport) -> dict[str, Any]:
    """As `--json` prints it."""
    reached, count = report.reached, report.functions
    return {
        "schema": SCHEMA,
        "package": reached.pin.package,
        "version": reached.pin.version,
        "sha256": reached.pin.sha256,
        "is_pinned": reached.is_pinned,
        "evidence": "compiled",
        "lists": [_list_document(one, pruning) for one, pruning in report.lists],
        "functions": {
            "total": count.total,
            "launched": len(count.launched),
            "mentioned": len(count.mentioned),
            "unreached": [f"{file}::{name}" for file, name in count.unreached],
            "unreached_tuned": len(count.tuned),
            "unread_files": count.unread,
        },
        "elsewhere": report.elsewhere,
        "cells": report.compiled.rows,
        "notes": report.compiled.notes,
        "failures": report.compiled.failures,
    }


def _list_document(one: TuningList, pruning: Pruning | None) -> dict[str, Any]:
    row = one.rows[0]
    return {
        "function": one.kernel,
        "file": one.file,
        "kernel": one.name,
        "launch": row.launch,
        "also": one.also,
        "target": one.target,
        "compiler": row.compiler,
        "compiler_version": row.compiler_version,
        "assembler": row.assembler,
        "ptxas": row.ptxas,
        "loss": one.loss.value,
        "configs": len(one.rows),
        "works": len(one.works),
        "sick": sum(each.verdict == "sick" for each in one.works),
        "lost": len(one.lost),
        "unknown": len(one.unknown),
        "reasons": _reasons(one),
        "pruning": pruning.source if pruning else None,
        "why_no_pruning": pruning.why_none if pruning and pruning.source is None else None,
    }
