"""A reviewer at the inbox and at tasks of every kind."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from imem.journal.settings import Role
from imem.services.task_kinds import TASK_KINDS
from tests.imem.web.conftest import PACKAGES, Office

WHY = "The filing says so."

ANSWERS: dict[str, tuple[str, dict[str, str], dict[str, Any]]] = {
    "contradiction": ("choose", {"field.document": "a"}, {"document": "a", "always": False}),
    "debate": ("choose", {"field.side": "challenged"}, {"side": "challenged"}),
    "postmortem": (
        "review",
        {
            "field.primary_reason": "timing", "field.factors_missed": "Rates.", "field.warning_signs_missed": "One.",
            "field.future_actions": "Watch spreads.", "field.patterns_to_revise": "p-1", "field.foreseeability": "2",
        },
        {"primary_reason": "timing", "foreseeability": 2},
    ),
    "similarity": ("explain", {}, {}),
    "restoration": ("reject", {"field.why": "pattern_obsolete"}, {"why": "pattern_obsolete"}),
    "learning": (
        "decide",
        {
            "field.items.1.action": "override", "field.items.1.override.score": "0.69",
            "field.items.1.rationale": "One bad quarter.", "field.items.2.action": "approve",
        },
        {"bulk": False},
    ),
}  # fmt: skip
"""Kind → an action, what a browser sends of it, and fields of the answer that is stored."""


async def answer(browser: httpx2.AsyncClient, task_id: str, action: str, **fields: str) -> httpx2.Response:
    sent = {"id": task_id, "action": action, "seen": "open", "rationale": WHY}
    return await browser.post("/task", data={**sent, **fields})


def test_an_answer_of_every_kind_is_tried() -> None:
    assert set(ANSWERS) == set(PACKAGES) == set(TASK_KINDS)


@pytest.mark.parametrize("kind", sorted(TASK_KINDS))
async def test_a_reviewer_answers_a_task_of_every_kind(office: Office, kind: str) -> None:
    """It is in the inbox, its page says what is asked and what happens otherwise, and its form answers it."""
    await office.roster("dana")
    task_id = await office.open(kind)
    browser = await office.signed_in()
    of, (action, sent, stored) = TASK_KINDS[kind], ANSWERS[kind]
    package = of.package.model_validate(PACKAGES[kind])

    listed = (await browser.get("/inbox")).text
    assert of.headline(package).replace("'", "&#39;") in listed
    assert of.default(package).replace("'", "&#39;") in listed
    page = await browser.get("/task/next", follow_redirects=True)
    assert page.url.params["id"] == task_id
    for name in sent:
        assert f'name="{name}"' in page.text, name
    assert f'value="{action}"' in page.text

    done = await answer(browser, task_id, action, **sent)
    assert (done.status_code, done.headers["location"]) == (303, f"/task/next?done={task_id}"), done.text
    assert (await browser.get(done.headers["location"])).headers["location"] == "/inbox?done=1"
    [(request,)] = office.face.harness.rows("SELECT request FROM lifecycle WHERE key = %s", task_id)
    assert (request["actor"], request["reason"], request["details"]["action"]) == ("dana", WHY, action)
    assert stored.items() <= request["details"]["fields"].items()


async def test_items_of_a_package_are_answered_one_by_one(office: Office) -> None:
    await office.roster("dana")
    task_id = await office.open("learning")
    browser = await office.signed_in()
    action, sent, _ = ANSWERS["learning"]
    refused = await answer(browser, task_id, action, **{**sent, "rationale": "", "field.items.1.rationale": ""})
    assert refused.status_code == 422
    assert "rationale" in refused.text
    assert 'value="0.69"' in refused.text, "what was typed is kept"
    assert (await answer(browser, task_id, action, **sent)).status_code == 303
    [(request,)] = office.face.harness.rows("SELECT request FROM lifecycle WHERE key = %s", task_id)
    first, second = request["details"]["fields"]["items"]
    assert (first["item"], first["action"], first["fields"], first["rationale"]) == (
        "1", "override", {"score": 0.69}, "One bad quarter.",
    )  # fmt: skip
    assert (second["item"], second["action"], second["fields"]) == ("2", "approve", {})


async def test_of_two_browsers_the_second_sees_who_answered_what(office: Office) -> None:
    await office.roster("dana", "noor")
    task_id = await office.open("contradiction")
    dana, noor = await office.signed_in("dana"), await office.signed_in("noor")
    first, second = await asyncio.gather(
        answer(dana, task_id, "choose", **{"field.document": "a"}),
        answer(noor, task_id, "choose", **{"field.document": "b"}),
    )
    assert {first.status_code, second.status_code} == {303, 409}
    late, winner = (first, "noor") if first.status_code == 409 else (second, "dana")
    assert f"was answered by {winner}: choose" in late.text
    assert WHY in late.text
    assert "go to the next" in late.text
    assert 'action="/task"' not in late.text, "nothing is left to be answered"


async def test_expiry_while_the_page_is_open(office: Office) -> None:
    """The open page shows it, a stale answer has no effect, and one that was looked at again overrules the default."""
    await office.roster("dana")
    task_id = await office.open("debate")
    browser = await office.signed_in()
    page = (await browser.get("/task", params={"id": task_id})).text
    assert 'name="seen" value="open"' in page
    assert 'hx-get="/task?id=debate-1"' in page
    office.make_late(task_id)

    shown = (await browser.get("/task", params={"id": task_id})).text
    assert "its time is over: the default applies" in shown
    stale = await answer(browser, task_id, "choose", **{"field.side": "challenged", "rationale": "Typed before."})
    assert stale.status_code == 409
    assert "Its time ended while the page was open" in stale.text
    assert "Typed before." in stale.text
    assert 'name="seen" value="defaulted"' in stale.text
    assert office.face.harness.rows("SELECT request FROM lifecycle WHERE key = %s", task_id) == [(None,)]
    sure = await answer(browser, task_id, "choose", **{"field.side": "challenged", "seen": "defaulted"})
    assert sure.status_code == 303
    [(request,)] = office.face.harness.rows("SELECT request FROM lifecycle WHERE key = %s", task_id)
    assert request["state"] == "overridden"


async def test_wrong_answers_name_the_field_and_keep_what_was_typed(office: Office) -> None:
    await office.roster("dana")
    task_id = await office.open("contradiction")
    browser = await office.signed_in()
    missing = await answer(browser, task_id, "choose")
    assert missing.status_code == 422
    assert "<strong>document</strong>" in missing.text
    assert WHY in missing.text
    number = await answer(browser, task_id, "value", **{"field.value": "many"})
    assert number.status_code == 422
    assert 'value="many"' in number.text
    assert (await answer(browser, task_id, "shrug")).status_code == 422
    assert (await answer(browser, "nothing", "choose")).status_code == 422


async def test_load_and_whose_a_task_is(office: Office) -> None:
    await office.roster("dana")
    for number in range(2):
        await office.open("contradiction", f"c-{number}")
    browser = await office.signed_in()
    page = (await browser.get("/inbox")).text
    assert "<strong>2/3</strong>" in page
    assert "about 2 min" in page
    assert "5 h 59 min" in page


async def test_who_is_not_on_the_roster_is_told_so(office: Office) -> None:
    await office.roster("dana")
    task_id = await office.open("contradiction")
    eve = await office.signed_in("eve")
    refused = await answer(eve, task_id, "choose", **{"field.document": "a"})
    assert refused.status_code == 403
    assert "eve is not on the roster" in refused.text
    assert refused.headers["content-type"].startswith("text/html")
    reader = await office.signed_in("rita", Role.READER)
    assert (await reader.get("/inbox")).status_code == 403


async def test_hostile_text_is_shown_and_does_nothing(office: Office) -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\x1b[2J\u202egpj\u2066"
    await office.roster("dana")
    task_id = await office.open("similarity", evil[:60], says=evil)
    browser = await office.signed_in()
    for page in (await browser.get("/inbox"), await browser.get("/task", params={"id": task_id})):
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
        assert not {"\x1b", "\u202e", "\u2066"} & set(page.text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&#34;&#39;&gt;" in page.text
    assert "\\x1b[2J\\u202egpj\\u2066" in page.text
