"""Values: canonical bytes, moments, JSON objects, metrics, frozen models."""

import copy
import hashlib
import pickle
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from imem.journal.errors import BadInput, SettingsError
from imem.journal.events.canonical import canonical_json, content_hash
from imem.kg.kinds.catalog import subject_id_of, subject_ref
from imem.kg.kinds.fields import JsonObject, moment_text, parse_json_object, parse_moment
from imem.kg.kinds.metrics import Metric, SettlingKind, metric_of, metrics, prefer, read_metrics, register
from imem.kg.model import Analysis, Company, Finding, Outcome, Recommendation


def test_equal_contents_have_equal_bytes() -> None:
    assert canonical_json({"b": 1, "a": ["é", 1.0, None]}) == '{"a":["é",1.0,null],"b":1}'.encode()
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})
    assert content_hash({"a": 1}) == hashlib.sha256(b'{"a":1}').digest()
    assert content_hash({"a": 1}) != content_hash({"a": 1.0})


@given(
    st.datetimes(datetime(1800, 1, 1), datetime(2299, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 - the zone is drawn
    st.integers(-14 * 60, 14 * 60),
)
def test_one_moment_has_one_text(moment: datetime, minutes: int) -> None:
    try:
        elsewhere = moment.astimezone(timezone(timedelta(minutes=minutes)))
    except OverflowError:
        return
    assert parse_moment(elsewhere.isoformat()) == moment
    assert moment_text(elsewhere) == moment_text(moment)
    assert len(moment_text(moment)) == len("2026-06-01T10:27:49.000000Z")
    assert parse_moment(moment_text(moment)) == moment


def test_the_text_of_moments_sorts_as_they_do() -> None:
    early, late = datetime(999, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)

    assert moment_text(early) == "0999-01-01T00:00:00.000000Z" < moment_text(late)


def test_a_json_object_is_a_value() -> None:
    given_object: dict[str, Any] = {"b": [1, 2], "a": {"x": None}}
    value = parse_json_object(given_object)
    given_object["b"].append(3)

    assert value.text == '{"a":{"x":null},"b":[1,2]}'
    assert value == parse_json_object('{ "b": [1, 2], "a": {"x": null} }') == {"b": [1, 2], "a": {"x": None}}
    assert value["b"] == [1, 2]
    assert set(value) == {"a", "b"}
    assert len({value, JsonObject(value.text)}) == 1
    assert pickle.loads(pickle.dumps(value)) == copy.deepcopy(value) == value  # noqa: S301  our own bytes
    assert parse_json_object(value) is value


def test_models_are_frozen_values() -> None:
    company = Company(ticker="MU", profile=Company.Profile(name="Micron Technology"))
    other = Company(ticker="MU", subject_id="company:MU", profile=Company.Profile(name="Micron Technology"))

    assert company == other
    assert hash(company) == hash(other)
    assert company.subject_id == "company:MU"
    assert company.ref == ("Company", "MU")
    with pytest.raises(ValidationError, match="frozen"):
        company.ticker = "NVDA"  # type: ignore[misc]


def test_words_are_taken_as_members_and_as_text() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    a = Analysis(id="a", subject_id="company:MU", date=now, kind="k", recommendation=Recommendation.BUY)
    b = Analysis.model_validate({**a.model_dump(exclude={"outcome"}), "recommendation": "buy"})

    assert a == b


def test_models_dump_and_load() -> None:
    now = datetime(2026, 6, 1, tzinfo=UTC)
    finding = Finding(
        id="f", analysis_id="a", subject_id="company:MU", agent="x", domain="d", statement="s", metric="up",
        probability=0.5, target_at=now, distribution={"a": 0.5}, key_drivers=("one",),
    )  # fmt: skip

    assert Finding.model_validate(finding.model_dump()) == finding
    assert Finding.model_validate_json(finding.model_dump_json()) == finding


def test_subjects_are_named_both_ways() -> None:
    assert subject_ref("company:MU") == ("Company", "MU")
    assert subject_ref("market:flu:CA:2") == ("Market", "flu:CA:2")
    assert subject_id_of("Company", "MU") == "company:MU"
    assert subject_id_of("Agent", "x") is None
    for wrong in ("MU", "company:", "agent:x", ""):
        with pytest.raises(ValueError, match="A subject is"):
            subject_ref(wrong)


def test_the_first_metric_that_matches_wins() -> None:
    names = {"return_5s": "direction", "up": "binary", "close": "value", "eps": "value", "strategic_entry": "binary"}
    assert {name: getattr(metric_of(name), "kind", None) for name in names} == names
    for unknown in ("return_s", "return_1s\n", "upwards", "Close", "strategic_", "return_\u0661s", ""):
        assert metric_of(unknown) is None, unknown
    assert metric_of("close") == metric_of("price_target")


def test_users_add_metrics() -> None:
    before = list(metrics())
    unit_sales = Metric("^unit_sales$", "value", tolerance=0.1)
    assert metric_of("unit_sales") is None
    try:
        register(unit_sales)
        register(unit_sales)
        register(Metric("^u.*$", "binary"))

        assert metric_of("unit_sales") == unit_sales
        assert metric_of("up") == before[1]
        now = datetime(2026, 6, 1, tzinfo=UTC)
        Outcome(
            id="o", subject_id="company:MU", metric="unit_sales", target_at=now, actual=1, observed_at=now, vintage=0
        )
    finally:
        _restore(before)
    assert metric_of("unit_sales") is None


def test_a_file_of_metrics_comes_first(tmp_path: Path) -> None:
    """Another tolerance for a price target, a unit where we have none, and a metric of one's own; ours stay behind."""
    file = tmp_path / "metrics.toml"
    file.write_text(
        "[[metric]]\nmatch = '^price_target$'\nkind = 'value'\ntolerance = 0.05\nunit = 'EUR'\n"
        "[[metric]]\nmatch = '^churn$'\nkind = 'value'\ntolerance = 0.1\nmeaning = 'customers lost'\n"
    )
    before = list(metrics())
    assert metric_of("price_target") == before[2]
    try:
        prefer(read_metrics(file))
        prefer(read_metrics(file))

        assert metric_of("price_target") == Metric("^price_target$", "value", 0.05, "EUR")
        assert metric_of("close") == before[2]
        assert metric_of("churn") is not None
        assert [metric.match for metric in metrics()][:3] == ["^price_target$", "^churn$", before[0].match]
    finally:
        prefer(())
    assert list(metrics()) == before
    assert metric_of("churn") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[metric]]\nmatch = '^x$'\nkind = 'value'", "number 1.*tolerance"),
        ("[[metric]]\nmatch = '('\nkind = 'binary'", "number 1"),
        ("[[metric]]\nmatch = '^x$'\nkind = 'level'", "number 1.*kind"),
        ("[[metric]]\nmatch = '^x$'\nkind = 'binary'\ncolour = 'red'", "number 1.*colour"),
        ("[metric]\nmatch = '^x$'", "tables"),
        ("tolerance = 0.2", "tables"),
        ("[[metric", "cannot be read"),
    ],
)
def test_a_wrong_file_of_metrics_is_refused_by_name(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(text)

    with pytest.raises(SettingsError, match=f"(?s){said}"):
        read_metrics(file)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_metrics(tmp_path / "none.toml")


def _restore(before: list[Metric]) -> None:
    from imem.kg.kinds import metrics as module

    module._METRICS[:] = before
    metric_of.cache_clear()


@pytest.mark.parametrize(("kind", "tolerance"), [("value", None), ("binary", 0.1), ("value", 0.0), ("value", -1.0)])
def test_a_metric_that_cannot_settle_is_refused(kind: SettlingKind, tolerance: float | None) -> None:
    with pytest.raises(BadInput, match="tolerance"):
        Metric("^x$", kind, tolerance=tolerance)
