"""
The Celery application: how tasks travel, and when the regular ones are due.

The broker is the durable Valkey. Tasks are acknowledged when they are done, so that a killed worker's task is given to
another; what they do is harmless to repeat, and rows in Postgres say what is due, so that a broker that forgets
everything costs one turn of beat. While it is away, the worker does without it what must not wait
(:mod:`imem.workers.rounds`). There is no result backend: results live where they belong.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.schedules import crontab

from imem.checkpoints.pauses.tasks import MANAGE, MANAGE_EVERY_S, RETIRE
from imem.checkpoints.tasks import CLEANUP
from imem.credibility.tasks import RECONCILE, SETTLE
from imem.jobs.alert_tasks import SEND_ALERTS, SEND_EVERY_S, WATCH_MEMORY, WATCH_MEMORY_EVERY_S
from imem.jobs.journal_tasks import UPKEEP
from imem.journal.errors import SettingsError
from imem.journal.notifications.wakeups import CYCLE_S
from imem.journal.settings import Settings
from imem.kg.tasks import REBUILD_SIMILAR, REBUILD_VIEWS, SIMILAR
from imem.sync.tasks import FLUSH, FLUSH_EVERY_S, SYNC_GATES, SYNC_GATES_EVERY_S

QUEUE = "imem"

AGENTS_QUEUE = "imem-agents"
"""Of agents, which run for hours: a worker of their own serves it."""

SETTLE_EVERY_S = 15.0
"""How often beat asks for a settle run, in seconds; events ask for one at once."""

SIMILAR_EVERY_S = 15.0
"""How often beat asks for new analyses to be compared, in seconds; events ask for it at once."""

VIEWS_EVERY_S = 15 * 60.0
"""How often beat asks for the views to be made anew, in seconds."""

VISIBILITY_S = 15 * 60
"""After how long without acknowledgement a task is given to another worker, in seconds."""

CONNECT_S = 3.0
"""How long the broker may take to be reached, in seconds."""

ANSWER_S = 5.0
"""How long the broker may take to answer, in seconds: longer than the second for which a worker's question waits."""


def make_app(settings: Settings) -> Celery:
    """
    Return the application for *settings*; nothing is connected yet.

    Raises:
        SettingsError: the broker's address is not known.
    """
    if settings.valkey_durable_url is None:
        raise SettingsError(
            "Celery needs the durable Valkey.",
            mend="Set IMEM_VALKEY_DURABLE_URL or start the stack with `imem up`.",
        )
    app = Celery("imem", set_as_current=True)
    app.conf.update(
        broker_url=settings.valkey_durable_url.get_secret_value(),
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_connection_timeout=CONNECT_S,
        broker_transport_options={
            "visibility_timeout": VISIBILITY_S,
            "socket_connect_timeout": CONNECT_S,
            "socket_timeout": ANSWER_S,
            "socket_keepalive": True,
            "global_keyprefix": "imem:celery:",
        },
        result_backend=None,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_default_queue=QUEUE,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_enable_remote_control=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        timezone="UTC",
        enable_utc=True,
        beat_schedule=_schedule(settings),
    )
    return app


def _schedule(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return when beat asks for what; where tiers do not count, what is published waits for the cycle as well."""
    return {
        "settle": _every(SETTLE_EVERY_S, SETTLE),
        "similar": _every(SIMILAR_EVERY_S, SIMILAR),
        "rebuild_views": _every(VIEWS_EVERY_S, REBUILD_VIEWS),
        "send_alerts": _every(SEND_EVERY_S, SEND_ALERTS),
        "watch_memory": _every(WATCH_MEMORY_EVERY_S, WATCH_MEMORY),
        "manage": _every(MANAGE_EVERY_S, MANAGE),
        "sync_gates": _every(SYNC_GATES_EVERY_S, SYNC_GATES),
        "flush": _every(FLUSH_EVERY_S if settings.sync_priority else CYCLE_S, FLUSH),
        "retire": _nightly("2", "23", RETIRE),
        "upkeep": _nightly("2", "41", UPKEEP),
        "cleanup": _nightly("2", "53", CLEANUP),
        "reconcile": _nightly("3", "17", RECONCILE),
        "rebuild_similar": _weekly("4", "11", REBUILD_SIMILAR),
    }


def _every(seconds: float, task: str) -> dict[str, Any]:
    # Not worth keeping while no worker runs: the next one comes anyway.
    return {"task": task, "schedule": seconds, "options": {"expires": seconds}}


def _nightly(hour: str, minute: str, task: str) -> dict[str, Any]:
    return {"task": task, "schedule": crontab(hour=hour, minute=minute), "options": {"expires": 12 * 60 * 60}}


def _weekly(hour: str, minute: str, task: str) -> dict[str, Any]:
    when = crontab(hour=hour, minute=minute, day_of_week="sunday")
    return {"task": task, "schedule": when, "options": {"expires": 12 * 60 * 60}}
