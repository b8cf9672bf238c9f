"""
The Celery application: broker, delivery and schedule.

The broker is the durable Valkey. Tasks are acknowledged late, so that a killed worker's task is redelivered; they are
idempotent, and rows in Postgres say what is due, so that a broker that loses its data costs one interval of beat.
While the broker is away, the worker runs most pipelines without it (:mod:`imem.jobs.fallback_rounds`). There is no
result backend.
"""

from __future__ import annotations

from celery import Celery

from imem.jobs.celery_tasks import beat_schedule
from imem.journal.settings import Settings
from imem.services.stores import secret
from imem.workers.pipelines import PIPELINES

QUEUE = "imem"

AGENTS_QUEUE = "imem-agents"
"""Queue of agents, which run for hours; it has a worker of its own."""

VISIBILITY_S = 15 * 60
"""Visibility timeout: a task not acknowledged for this long is redelivered, in seconds."""

CONNECT_S = 3.0
"""Connect timeout of the broker, in seconds."""

ANSWER_S = 5.0
"""Socket timeout of the broker, in seconds: longer than the second for which a worker's blocking read waits."""


def make_app(settings: Settings) -> Celery:
    """
    Return the application for *settings*; nothing is connected yet.

    Raises:
        SettingsError: the broker's address is not known.
    """
    app = Celery("imem", set_as_current=True)
    app.conf.update(
        broker_url=secret(settings, "valkey_durable_url"),
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
        beat_schedule=beat_schedule(PIPELINES, settings),
    )
    return app
