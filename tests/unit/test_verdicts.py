"""One table says why a line is refused, whoever finds it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from imem.journal.errors import BadInput
from imem.journal.events.entry import AppendStatus
from imem.kg.kinds.catalog import KINDS
from imem.kg.load_format.entries import entry_of
from imem.kg.load_format.lines import CorrectLine, RecordLine, record_of
from imem.kg.load_format.verdicts import RULES, refusal_by, verdict_by_target
from imem.kg.model import Debate

TARGET = datetime(2026, 6, 1, 20, tzinfo=UTC)
CORE: dict[str, Any] = {"metric": "return_1s", "target_at": "2026-06-01T20:00:00.000000Z"}
LATER = TARGET + timedelta(microseconds=1)
EARLIER = TARGET - timedelta(microseconds=1)


def test_every_status_that_refuses_has_a_rule() -> None:
    assert set(RULES) == {status for status in AppendStatus if status.refused}


def test_the_kinds_with_a_metric_claim_or_settle() -> None:
    """Neither a debate about a metric nor a data point does: they have no ``target_at``."""
    targeted = {label: info for label, info in KINDS.items() if {"metric", "target_at"} <= info.core.properties.keys()}
    assert {label: info.settles for label, info in targeted.items()} == {"Finding": False, "Outcome": True}
    about = Debate(
        id="d", subject_id="company:MU", topic="t", challenger_agent="a", challenged_agent="b", participants=("a", "b"),
        timestamp=EARLIER, metric="price_target",
    )  # fmt: skip
    assert entry_of(record_of(about)).metric is None
    assert not any(info.settles for info in KINDS.values() if "metric" not in info.core.properties)


@pytest.mark.parametrize(
    ("kind", "known_at", "corrects", "status"),
    [
        ("Outcome", EARLIER, False, AppendStatus.PREMATURE),
        ("Outcome", EARLIER, True, AppendStatus.PREMATURE),
        ("Outcome", TARGET, False, None),
        ("Finding", EARLIER, False, None),
        ("Finding", TARGET, False, AppendStatus.LATE_CLAIM),
        ("Finding", LATER, True, None),
        ("Finding", None, False, None),
        ("Company", LATER, False, None),
    ],
)
def test_a_target_decides(kind: str, known_at: datetime | None, corrects: bool, status: AppendStatus | None) -> None:  # noqa: FBT001
    core = CORE if kind != "Company" else {"ticker": "MU"}
    assert verdict_by_target(kind, core, known_at, corrects=corrects) is status
    made: dict[str, Any] = {"kind": kind, "key": "k", "core": core, "known_at": known_at}
    if status is None:
        assert (CorrectLine(**made, reason="r") if corrects else RecordLine(**made, groups={})).known_at == known_at
        return
    with pytest.raises(BadInput) as refused:
        CorrectLine(**made, reason="r") if corrects else RecordLine(**made, groups={})
    assert str(refused.value) == str(refusal_by(status, kind, "k"))
