"""What was compiled, as the document that `--json` prints. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from harness.tables.survivors import group_rows, survivors
from harness.values.row import SCHEMA, Row


class CompileReport(msgspec.Struct, frozen=True, kw_only=True):
    """The rows in plan order, and what else a reader should know.

    `failures` are the captures that failed where others succeeded. `cpu_seconds` is what the
    compilers used in this run, `wall_seconds` the run as a whole.
    """

    rows: tuple[Row, ...]
    failures: tuple[str, ...]
    notes: tuple[str, ...]
    wall_seconds: float
    cpu_seconds: float


def compile_document(report: CompileReport) -> dict[str, Any]:
    """As `--json` prints it."""
    return {
        "schema": SCHEMA,
        "cells": report.rows,
        "summary": {
            "verdicts": Counter(row.verdict for row in report.rows),
            "survivorship": [
                {
                    "kernel": rows[0].kernel,
                    "target": rows[0].target,
                    "launch": rows[0].launch,
                    "triton": rows[0].triton,
                    "ptxas": rows[0].ptxas,
                    "compiler": rows[0].compiler,
                    "compiler_version": rows[0].compiler_version,
                    "assembler": rows[0].assembler,
                    "headline": found.headline,
                    "groups": [
                        {
                            "verdict": fate.verdict.value,
                            "count": len(fate.rows),
                            "where": fate.where,
                            "reason": fate.reason,
                            "at_fault": fate.at_fault,
                        }
                        for fate in found.fates
                    ],
                }
                for rows in group_rows(report.rows)
                for found in [survivors(rows)]
            ],
            "notes": report.notes,
            "failures": report.failures,
            "wall_seconds": round(report.wall_seconds, 3),
            "cpu_seconds": round(report.cpu_seconds, 3),
        },
    }
