"""The inbox, and the page of a task: one for all kinds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from imem.journal.actors import Actor
from imem.journal.clock import SystemClock
from imem.journal.errors import BadInput, ImemError, TransitionRefused
from imem.journal.settings import Role
from imem.review.admission import Reviewer, answers
from imem.review.inbox import possible_actions, state_at
from imem.review.kinds import Task, TaskAction, TaskKind
from imem.review.states import ANSWERABLE, PROVISIONAL, TaskState
from imem.services.problems import status_of
from imem.services.task_kinds import TASK_KINDS
from imem.web.forms import ActionForm, action_form, stated_fields
from imem.web.guards import read_form
from imem.web.packages import Block, blocks_of
from imem.web.rendering import moment, text_of, words
from imem.web.visitors import PAGE_MS, Visitor


@dataclass(frozen=True, slots=True)
class TaskView:
    """
    A task as the pages show it.

    Attributes:
        task, kind: the task, and its kind.
        state: as of now: after its time the default applies, whoever has noticed.
        actions: with which it can be answered now, by name.
    """

    task: Task[Any]
    kind: TaskKind[Any, Any]
    state: TaskState
    actions: Mapping[str, TaskAction]

    @classmethod
    def of(cls, task: Task[Any]) -> TaskView:
        """Return a task as it is now."""
        kind, now = TASK_KINDS[task.kind], SystemClock().now()
        return cls(task, kind, state_at(task, now), possible_actions(kind, task, now))

    @property
    def headline(self) -> str:
        """What is asked, in one line."""
        return self.kind.headline(self.task.package)

    @property
    def default(self) -> str:
        """What happens if nobody answers, in one sentence."""
        return self.kind.default(self.task.package)

    @property
    def minutes(self) -> float:
        """The estimated time of an answer, in minutes."""
        return self.kind.minutes_of(self.task.package)

    @property
    def waits(self) -> bool:
        """Whether it is open, and its time is not over."""
        return self.state is TaskState.OPEN

    @property
    def provisional(self) -> bool:
        """Whether the default applies, and a person may still overrule it."""
        return self.state in PROVISIONAL

    @property
    def late(self) -> bool:
        """Whether its time is over, so that the default applies."""
        return self.provisional and (self.task.state is TaskState.OPEN or self.task.why == "late")

    @property
    def answerable(self) -> bool:
        """Whether it can be answered at all now."""
        return self.state in ANSWERABLE and bool(self.actions)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What is seen of the package; what is answered item by item stands in the form."""
        without = frozenset({"items"}) if self.kind.item_actions is not None else frozenset[str]()
        return blocks_of(self.task.package.model_dump(), without=without)

    @property
    def lines(self) -> tuple[str, ...]:
        """What the kind itself says line by line, where it does and nothing is answered item by item."""
        if self.kind.lines is None or self.kind.item_actions is not None:
            return ()
        return tuple(self.kind.lines(self.task.package))

    def forms(self, sent: Mapping[str, str]) -> list[ActionForm]:
        """Return a form for each action; *sent* is what a refused form stated."""
        return [
            action_form(
                self.kind, action, self.task.package, sent if sent.get("action") == name else {},
                needs_rationale=self.needs_rationale(action),
            )
            for name, action in self.actions.items()
        ]  # fmt: skip

    def needs_rationale(self, action: TaskAction) -> bool:
        """Return whether an answer takes a rationale: an override of a default always does."""
        overrides = self.provisional and not action.extends and action.reviews is TaskState.OVERRIDDEN
        return action.rationale or overrides


# The inbox


async def inbox(_: Request, visitor: Visitor) -> Response:
    """Show the tasks by urgency, and the load of the person."""
    tasks, roster = await asyncio.gather(
        visitor.memory.tasks.list(deadline_ms=PAGE_MS), visitor.memory.tasks.roster(deadline_ms=PAGE_MS)
    )
    views = [TaskView.of(task) for task in tasks]
    load = [(one, _held(views, one.person)) for one in roster]
    mine = next(((one, held) for one, held in load if one.person == visitor.actor.id), None)
    return visitor.page("inbox.html", views=views, load=load, mine=mine, next=_next(views, roster, visitor.actor))


def _held(views: Iterable[TaskView], person: str) -> int:
    """Return how many of the open tasks a person has."""
    return sum(view.waits and view.task.reviewer == person for view in views)


async def go_to_next(request: Request, visitor: Visitor) -> Response:
    """Go on to the task that the person answers next, or to the inbox where there is none."""
    tasks, roster = await asyncio.gather(
        visitor.memory.tasks.list(deadline_ms=PAGE_MS), visitor.memory.tasks.roster(deadline_ms=PAGE_MS)
    )
    done, without = request.query_params.get("done"), request.query_params.get("without")
    views = [TaskView.of(task) for task in tasks if task.task_id not in {done, without}]
    found = _next(views, roster, visitor.actor)
    after = "" if done is None else "done=1"
    where = f"/inbox?{after}" if found is None else f"/task?id={quote(found.task.task_id, safe='')}&{after}"
    return RedirectResponse(where.rstrip("?&"), status_code=303)


def _next(views: Sequence[TaskView], roster: Sequence[Reviewer], actor: Actor) -> TaskView | None:
    """Return the task that a person answers next: one's own first, then what nobody has, then what others have."""
    entry = next((one for one in roster if one.person == actor.id), None)
    admin = actor.role is Role.HUMAN_ADMIN
    possible = [
        view for view in views if view.answerable and (admin or (entry is not None and answers(entry, view.task.kind)))
    ]
    order = {actor.id: 0, None: 1}
    # Of equal ones the first stays first: the list has the most urgent ones at its beginning.
    return min(possible, key=lambda view: order.get(view.task.reviewer, 2), default=None)


# The task


async def show(request: Request, visitor: Visitor) -> Response:
    """Show a task whole, with a form for each way to answer it."""
    task = await visitor.memory.tasks.read(request.query_params.get("id", ""), deadline_ms=PAGE_MS)
    return _page(visitor, TaskView.of(task), done="done" in request.query_params)


async def answer(request: Request, visitor: Visitor) -> Response:
    """
    Answer a task and go on to the next.

    If it is in another state than the page showed, nothing is answered: what the action means may be something else
    now, such as overruling a default. The page is shown anew with what was typed.
    """
    form = await read_form(request)
    task_id, name = form.get("id", ""), form.get("action", "")
    api = visitor.memory.tasks
    view = TaskView.of(await api.read(task_id, deadline_ms=PAGE_MS))
    action = view.kind.actions.get(name)
    if action is None:
        return _page(visitor, view, refused=BadInput("action", "is none of those below."), sent=form)
    if form.get("seen") != view.state.value and view.task.answer is None:
        return _page(visitor, view, refused=_changed(view), sent=form)
    try:
        await api.answer(
            task_id,
            name,
            fields=stated_fields(view.kind, action, view.task.package, form),
            rationale=form.get("rationale") or None,
            all_alike="all_alike" in form,
            deadline_ms=PAGE_MS,
        )
    except (BadInput, TransitionRefused) as refused:
        # Somebody may have been faster: the page tells who, and what can still be answered.
        now = TaskView.of(await api.read(task_id, deadline_ms=PAGE_MS))
        return _page(visitor, now, refused=refused, sent=form)
    return RedirectResponse(f"/task/next?done={quote(task_id, safe='')}", status_code=303)


def _changed(view: TaskView) -> ImemError:
    if view.late:
        return TransitionRefused(
            "Its time ended while the page was open: the default applies now, and nothing was answered."
            " An answer would overrule the default or confirm it; look again, and send it once more."
        )
    return TransitionRefused("The task has changed while the page was open: look again, and send the answer once more.")


def _page(
    visitor: Visitor,
    view: TaskView,
    *,
    refused: ImemError | None = None,
    sent: Mapping[str, str] | None = None,
    done: bool = False,
) -> Response:
    status = 200 if refused is None else status_of(refused)
    return visitor.page(
        "task.html",
        status=status,
        view=view,
        task=view.task,
        facts=_facts(view.task),
        forms=view.forms(sent or {}),
        chosen=(sent or {}).get("action"),
        item_blocks=lambda item: blocks_of(item.model_dump(), without=frozenset({"headline", "actions"})),
        refused=refused,
        answer=_answer_of(view.task),
        done=done,
    )


def _facts(task: Task[Any]) -> list[tuple[str, str]]:
    """Return what is known of a task beside its package."""
    found = [
        ("Kind", words(task.kind)),
        ("Urgency", str(task.rank)),
        ("Reviewer", task.reviewer or "nobody"),
        ("Opened", moment(task.opened_at)),
        ("Analysis", task.analysis_id or ""),
    ]
    found += [("Handed over", text_of(step)) for step in task.trail]
    return [(label, text) for label, text in found if text]


def _answer_of(task: Task[Any]) -> list[tuple[str, str]]:
    """Return who answered what, and why; nothing where nobody did."""
    if task.answer is None:
        return []
    found = [("By", "by"), ("Answer", "action"), ("Fields", "fields"), ("Why", "rationale"), ("At", "at")]
    return [(label, text_of(task.answer[name])) for label, name in found if task.answer.get(name)]
