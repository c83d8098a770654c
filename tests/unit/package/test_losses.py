from __future__ import annotations

import pytest

from harness.package.package import Loss, TuningList
from harness.values.outcome import LaunchFacts
from harness.values.row import Row
from harness.values.verdict import VerdictKind


def tuning_list(*verdicts: str) -> TuningList:
    """A list with a config for each verdict."""
    record = LaunchFacts(
        key="0", kernel="k", config={}, autotuned=True, arguments=[], grid=None, file="/p/k.py"
    )
    rows = tuple(
        Row(
            cell=f"repro::k/forward/n={n}@sm_80",
            short="",
            kernel="repro::k",
            launch="forward",
            config={"n": n},
            target="sm_80",
            triton="3.6.0",
            ptxas=None,
            ptxas_origin=None,
            verdict=VerdictKind(verdict),
            reason="",
        )
        for n, verdict in enumerate(verdicts)
    )
    return TuningList(
        kernel="k", name="repro::k", file="p/k.py", record=record, keys=frozenset(), rows=rows
    )


@pytest.mark.parametrize(
    ("verdicts", "loss"),
    [
        (["out_of_resources", "pass_failure"], Loss.ALL),
        (["out_of_resources", "rejected", "ok"], Loss.MOST),
        (["out_of_resources", "sick"], Loss.SOME),
        (["ok", "sick"], Loss.NONE),
        (["ok", "timeout"], Loss.NONE),
        # What could not be determined is neither lost nor kept.
        (["out_of_resources", "out_of_resources", "timeout"], Loss.MOST),
        (["out_of_resources", "infra", "unsupported"], Loss.SOME),
        (["timeout", "out_of_memory", "infra"], Loss.UNKNOWN),
    ],
)
def test_a_config_is_lost_only_by_an_answer_of_the_compilers(
    verdicts: list[str], loss: Loss
) -> None:
    one = tuning_list(*verdicts)
    assert one.loss is loss
    assert len(one.works) + len(one.lost) + len(one.unknown) == len(verdicts)


def test_a_list_names_the_folder_and_the_launch_that_come_to_it() -> None:
    assert tuning_list("ok").launch == "repro forward"
