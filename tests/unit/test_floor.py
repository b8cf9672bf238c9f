"""The floor: deadlines, the clock, statements, settings, errors and cancellations."""

from __future__ import annotations

import asyncio
import inspect
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imem.journal import errors
from imem.journal.clock import ManualClock, SystemClock, known_at_of_date, known_at_of_naive
from imem.journal.deadline import Deadline
from imem.journal.errors import BudgetExceeded, ImemError, SettingsError
from imem.journal.postgres.cancellation import heed_cancellation
from imem.journal.settings import Role, Settings
from imem.journal.statements import Statement, load, parse, root_of, sql


class TestDeadline:
    def test_what_is_left_shrinks_to_zero(self) -> None:
        """A deadline gives what is left, never less than nothing, and refuses work once it has passed."""
        later, passed = Deadline.after_ms(60_000), Deadline.after_ms(-5)

        assert 59 < later.left_s() <= 60
        assert later.left_ms() <= 60_000
        assert not later.passed
        later.check("work")
        assert passed.passed
        assert passed.left_s() == 0
        with pytest.raises(BudgetExceeded, match="work"):
            passed.check("work")

    def test_a_part_is_never_longer_than_the_whole(self) -> None:
        """A callee may take less than is left, not more; without a caller in a hurry there is no end."""
        whole = Deadline.after_ms(1000)

        assert whole.within_ms(10**9).at_s == whole.at_s
        assert whole.within_ms(1).at_s < whole.at_s
        assert Deadline.never().left_s() == float("inf")
        assert Deadline.never().within_ms(1000).at_s <= time.monotonic() + 1


class TestClock:
    def test_now_is_aware_and_in_utc(self) -> None:
        """Both clocks show aware times; the manual one moves by hand alone."""
        clock = ManualClock()
        before = clock.now()
        clock.advance(timedelta(hours=1))

        assert SystemClock().now().tzinfo is UTC
        assert clock.now() - before == timedelta(hours=1)
        assert clock.now().tzinfo is UTC

    @given(st.dates(max_value=date(9998, 1, 1)), st.integers(-12 * 60, 14 * 60))
    def test_a_day_is_over_everywhere_when_it_counts_as_known(self, day: date, offset: int) -> None:
        """No moment of the day, in any zone from UTC-12 to UTC+14, comes after known_at of its date."""
        end_of_day_utc = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1, minutes=-offset)

        assert known_at_of_date(day) >= end_of_day_utc

    @given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)))  # noqa: DTZ001 - naive on purpose
    def test_a_local_time_is_read_late_but_not_after_its_date(self, local: datetime) -> None:
        """A time without a zone counts as known no earlier than in any zone, and never after its date would."""
        known = known_at_of_naive(local)

        assert known >= local.replace(tzinfo=UTC)
        assert known <= known_at_of_date(local.date())

    def test_a_time_with_a_zone_is_not_naive(self) -> None:
        """A time that names its zone needs no rule and is refused."""
        with pytest.raises(ValueError, match="zone"):
            known_at_of_naive(datetime(2026, 1, 1, tzinfo=UTC))


class TestStatements:
    def test_headings_part_a_file(self) -> None:
        """Each heading begins a statement that carries its comment; order and blank lines do not matter."""
        found = parse("-- one --\n-- Why.\nSELECT 1\n\n-- two --\nSELECT 2\n", Path("x.sql"))

        assert list(found) == ["one", "two"]
        assert found["one"].text == "-- Why.\nSELECT 1"

    @pytest.mark.parametrize("text", ["-- one --\n", "-- one --\nSELECT 1\n-- one --\nSELECT 2\n"])
    def test_empty_and_double_statements_are_refused(self, text: str) -> None:
        """A heading without a statement, or one that stands twice, stops the program at its start."""
        with pytest.raises(ValueError, match="one"):
            parse(text, Path("x.sql"))

    def test_a_name_in_two_files_is_refused(self, tmp_path: Path) -> None:
        """Names are unique over all files, and the result cannot be changed."""
        (tmp_path / "a.sql").write_text("-- one --\nSELECT 1\n")
        assert isinstance(load(tmp_path, ".sql"), MappingProxyType)
        (tmp_path / "b.sql").write_text("-- one --\nSELECT 1\n")
        load.cache_clear()
        with pytest.raises(ValueError, match=r"a\.sql and in b\.sql"):
            load(tmp_path, ".sql")

    def test_only_terms_of_the_closed_list_fill_a_place(self) -> None:
        """A place takes a term that is listed and is an identifier; nothing else, and none is left open."""
        statement = Statement("find", "MATCH (n:«label»)", Path("x.cypher"))

        assert statement.bind(frozenset({"Company"}), label="Company") == "MATCH (n:Company)"
        for allowed, terms in (
            ({"Company"}, {"label": "Agent"}),
            ({"a) DETACH DELETE n //"}, {"label": "a) DETACH DELETE n //"}),
            ({"Company"}, {}),
        ):
            with pytest.raises(ValueError, match=r"find|term"):
                statement.bind(frozenset(allowed), **terms)

    def test_statements_are_found(self) -> None:
        """The folders exist in this installation; a missing one is named."""
        assert "imem_append_v1" in sql("append")
        with pytest.raises(FileNotFoundError, match="nowhere"):
            root_of("journal", "nowhere")


class TestSettings:
    def test_unknown_and_wrong_variables_are_refused_by_name(self) -> None:
        """A variable that names no setting, or holds what it may not, is named; its value is not shown."""
        with pytest.raises(SettingsError, match="IMEM_POSTGRES_ULR"):
            Settings.read({"IMEM_POSTGRES_ULR": "x"})
        with pytest.raises(SettingsError, match="IMEM_DEADLINE_MS") as caught:
            Settings.read({"IMEM_DEADLINE_MS": "hunter2"})
        assert "hunter2" not in str(caught.value)

    def test_overrides_win_and_nothing_changes_later(self, tmp_path: Path) -> None:
        """What a caller passes wins over the environment; settings are frozen."""
        settings = Settings.read({"IMEM_ROLE": "agent", "OTHER": "x"}, role=Role.HUMAN_ADMIN, home=tmp_path)

        assert settings.role is Role.HUMAN_ADMIN
        with pytest.raises(Exception, match="frozen"):
            settings.role = Role.AGENT  # type: ignore[misc]

    def test_secrets_do_not_show(self) -> None:
        """No way of printing the settings shows a password."""
        settings = Settings.read({"IMEM_POSTGRES_URL": "postgresql://a:hunter2@h/d", "IMEM_NEO4J_PASSWORD": "hunter2"})

        assert "hunter2" not in f"{settings!r}{settings}{settings.model_dump_json()}"


class TestErrors:
    def test_each_says_whether_to_retry_as_the_tree_is_drawn(self) -> None:
        """The tree at the top of the module names every class, and says of each what the class says."""
        drawn = {
            words[0]: words[1] == "yes"
            for line in (errors.__doc__ or "").splitlines()
            if "──" in line
            for words in [line.split("── ")[1].split()]
        }
        classes = {
            name: kind
            for name, kind in inspect.getmembers(errors, inspect.isclass)
            if issubclass(kind, ImemError) and kind is not ImemError
        }

        assert {name: kind.retryable for name, kind in classes.items()} == drawn

    def test_message_and_mend_make_two_sentences(self) -> None:
        """What people read is the message and its mend."""
        assert str(ImemError("It broke.", mend="Mend it.")) == "It broke. Mend it."
        assert str(ImemError("It broke.")) == "It broke."


async def test_a_swallowed_cancellation_is_heeded() -> None:
    """A loop whose wait loses a cancellation ends at its next turn."""
    event = asyncio.Event()
    turns = 0

    async def loop() -> None:
        nonlocal turns
        while True:
            heed_cancellation()
            turns += 1
            try:
                await event.wait()
            except asyncio.CancelledError:
                continue  # What a driver does that finds its answer there at that very moment.

    task = asyncio.create_task(loop())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert turns == 1
