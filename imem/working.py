"""
Working memory, sessions and checkpoints, as the gateway lets an actor at them.

Whose a working memory is, the journal knows: the actor that first opened the instance. The stores below know no actors;
every way to them that takes one is here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

from cache.changes import Change
from cache.client import Argument, Client
from cache.document import contents_of, name_of
from cache.memory import BUDGET_MS, WorkingMemory
from cache.snapshots import SnapshotStore
from cache.state import Meta
from cache.store import Found, WorkingStore, Written
from cache.values import value_of
from checkpoints.alarm import AlertAlarm
from checkpoints.definitions import Definitions
from checkpoints.leases import Leases
from checkpoints.model import Checkpoint, Summary
from checkpoints.recovery import Recovery
from checkpoints.session import Desk, Session
from checkpoints.store import LONGEST_LIST, Checkpoints
from journal.actors import Action, Resource, ResourceType
from journal.clock import Clock, SystemClock
from journal.database import Database
from journal.deadline import Deadline
from journal.errors import BadInput, NotOpen
from journal.gateway import Gateway
from journal.settings import Settings

ASK_MS: Final = 2000
"""How long a look at checkpoints may take, in milliseconds: a document of eight megabytes travels a while."""
