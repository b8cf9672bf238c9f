"""What a briefing left out is there for whoever runs the calls that it names; and what its lines rest on."""

from __future__ import annotations

import asyncio
import re
import shlex
from dataclasses import fields
from datetime import datetime
from typing import Any

from typer.testing import CliRunner

from imem.cli import app
from imem.recall.model import Briefing, BriefingSection
from imem.recall.rendering.markdown import HEADER_DETAILS, LEAST_TOKENS, Draft
from imem.recall.rendering.rendered import RenderedSection, render_context_of
from imem.recall.retrievers import Limits
from imem.recall.section_registry import BRIEFING_SECTIONS
from tests.recall import facts
from tests.recall.conftest import RecallHarness
from tests.recall.facts import day


def _at(number: float) -> datetime:
    return datetime.fromisoformat(day(number))


async def _many(harness: RecallHarness) -> None:
    """Twelve analyses of T0 on their own days, with findings, a decision, debates, contradictions and a lesson."""
    analyses = [f"a{n}" for n in range(0, 24, 2)]
    lines = [facts.company("T0", 0), facts.agent("agent0", 0), facts.agent("agent1", 0), facts.agent("agent2", 0)]
    for place, key in enumerate(analyses):
        lines.append(facts.analysis(key, place, date=day(place), summary=f"What was found on day {place}. " * 9))
        for one in range(3):
            core = {
                "analysis_id": key,
                "subject_id": "company:T0",
                "agent": f"agent{one}",
                "probability": 0.2 + 0.3 * one,
            }
            lines.append(facts.finding(f"f{place * 10 + one}", place, **core))
    lines += [facts.debate(f"b{n}", n) for n in range(0, 12, 2)]
    lines += [facts.contradiction(f"c{n}", n) for n in range(0, 30, 2)]
    lines += [facts.lesson(f"l{n}", n, affected_domains=["up_or_down"]) for n in range(8)]
    lines.append(facts.outcome("o0", 4, actual=1.0))
    await harness.know(lines)


def _commands(settings: Any, commands: list[str]) -> list[str]:
    """Run commands as a shell would, each as a program of its own, and return what they print."""
    environment = {
        f"IMEM_{name.upper()}": value.get_secret_value() if hasattr(value, "get_secret_value") else str(value)
        for name, value in settings
        if value is not None and name in settings.model_fields_set
    } | {"IMEM_DEADLINE_MS": "30000"}
    printed = []
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "imem"
        result = CliRunner().invoke(app, arguments, env=environment)
        assert result.exit_code == 0, (command, result.output, result.exception)
        printed.append(result.output)
    return printed


async def test_every_call_of_the_table_of_contents_gets_what_was_left_out(harness: RecallHarness) -> None:
    """Python and command alike, as they stand there, as of the same moment: all that there is."""
    await _many(harness)
    briefing = await harness.memory.brief("T0", as_of=_at(13), deadline_ms=30_000)
    assert briefing.mode == "normal", briefing
    text = briefing.to_markdown(max_tokens=LEAST_TOKENS)
    contents = text.split("\n## Left out", 1)[1]
    given = re.search(r"`(at = [^`]+)`", contents)
    assert given is not None
    names: dict[str, Any] = {"datetime": datetime, "memory": harness.memory}
    exec(given[1], names)  # noqa: S102 - that is what a reader does with it
    assert names["at"] == _at(13)
    wanted = {
        "history": briefing.history, "contradictions": briefing.contradictions, "debates": briefing.debates,
        "lessons": briefing.lessons, "panel": briefing.panels,
    }  # fmt: skip
    lines = re.findall(r"^- (.+): `([^`]+)` or `([^`]+)`$", contents, re.MULTILINE)
    assert {re.findall(r"memory\.(\w+)\(", call)[0] for _, call, _ in lines} >= {"history", "contradictions", "lessons"}
    for _, call, _ in lines:
        exec(f"async def ask():\n    return {call}", names)  # noqa: S102 - as above
        answer = await names["ask"]()
        if answer.__class__.__name__ != "TrackRecordsSection":
            method = re.findall(r"memory\.(\w+)\(", call)[0]
            assert len(answer.items) == wanted[method].total, call
        assert answer.quality == "exact", call
    printed = await asyncio.to_thread(_commands, harness.settings, [command for _, _, command in lines])
    for (_, _, command), found in zip(lines, printed, strict=True):
        if "contradictions" in command:
            assert found.count('"revenue"') == briefing.contradictions.total
        if "history" in command:
            assert found.count("\n## ") + found.startswith("## ") == briefing.history.total


async def test_a_long_history_is_asked_for_lightly(harness: RecallHarness) -> None:
    """Findings of the newest two, conclusions of all; claims counted as of the moment."""
    await _many(harness)
    before, after = [await harness.memory.brief("T0", as_of=_at(number), deadline_ms=30_000) for number in (3.5, 13)]
    assert [len(item.findings) for item in after.history.items] == [3, 3] + [0] * 10
    assert [item.findings_total for item in after.history.items] == [3] * 12
    claims = after.history.items[-1].claims
    assert claims is not None
    assert (claims.claims, claims.settled, claims.right, claims.wrong, claims.actual) == (3, 3, 1, 1, 1.0)
    assert (claims.right_agents, claims.wrong_agents, claims.metric) == (["agent2"], ["agent0"], "up")
    early = before.history.items[-1].claims
    assert early is not None
    assert (early.claims, early.settled, early.right_agents, early.actual) == (3, 0, [], None)
    assert early.due_at == _at(facts.TARGET_DAY)
    recorded = await harness.memory.history("T0", clock="recorded", deadline_ms=30_000)
    assert recorded.items[-1].claims is not None
    assert recorded.items[-1].claims.right_agents == ["agent2"]
    (newest,) = (await harness.memory.history("T0", limit=1, deadline_ms=30_000)).items
    assert len(newest.findings) == 3, "the limit is one of analyses"
    whole = await harness.memory.brief("T0", as_of=_at(13), limits=Limits(detailed=12), deadline_ms=30_000)
    assert [len(item.findings) for item in whole.history.items] == [3] * 12


def test_what_is_left_out_of_a_section_without_a_call_is_counted() -> None:
    """A section that is not read by itself has no call to name."""
    empty = Briefing.model_validate(
        {
            "subject": {"subject_id": "company:T0"}, "as_of": day(1), "clock": "known",
            **{spec.name: {} for spec in BRIEFING_SECTIONS},
        }
    )  # fmt: skip
    section = RenderedSection("Rumours", total=3, nouns=("rumour", "rumours"))
    assert "\n## Left out\n- 3 rumours\n" in Draft(empty, [section], HEADER_DETAILS[0], len).text()


def test_every_part_of_an_answer_has_its_section() -> None:
    """No part can be left out of the rendering for want of a section."""
    empty = Briefing.model_validate(
        {
            "subject": {"subject_id": "company:T0"}, "as_of": day(1), "clock": "known", "for_agent": "agent0",
            **{spec.name: {} for spec in BRIEFING_SECTIONS},
        }
    )  # fmt: skip
    for spec in BRIEFING_SECTIONS:
        made = [render(render_context_of(empty)) for render in spec.renderers]
        assert sum(bool(one.nothing) for one in made) == 1, spec.name


def test_the_fields_of_a_briefing_are_the_registered_sections() -> None:
    """Whoever adds a section is told of the two lines that types need: in the briefing, and in its limits."""
    models = [(name, field.annotation) for name, field in Briefing.model_fields.items()]
    sections = [one for one in models if isinstance(one[1], type) and issubclass(one[1], BriefingSection)]
    assert sections == [(spec.name, spec.model) for spec in BRIEFING_SECTIONS]
    limits = [name for spec in BRIEFING_SECTIONS for name in spec.limits]
    assert sorted(limits) == sorted(field.name for field in fields(Limits))
