"""
Contents of a snapshot, built from rows that were read at one moment. Pure: no I/O, no clock.

It holds published records only. Each record has its winning values, by the journal's rules; whether the graph holds
them yet changes only the degraded flag.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from imem.journal.events.canonical import canonical_json
from imem.sync.members import SyncMember, lag_of

VERSION: Final = 1
"""Version of a snapshot's body."""

KINDS: Final = ("Analysis", "Finding", "Decision", "Outcome", "Debate", "DebateResolution", "DataContradiction")
"""Kinds that an analysis publishes; governed records, such as scores and patterns' tests, are left out."""

_CORRECTION: Final = "correction"
_TEXTS: Final = frozenset({"core", "body", "turns"})


@dataclass(frozen=True, slots=True)
class ExcludedParticipant:
    """
    A participant that could not be synchronised and is left out of the debate.

    Attributes:
        agent_id: which.
        reason: why.
    """

    agent_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class FrozenSnapshot:
    """
    A snapshot that is ready to be stored.

    Attributes:
        body: canonical JSON.
        sha256: of the body, hexadecimal.
        manifest: node id, version and content hash of each record.
        seqs: agent → its owner, the owner's last event, and the last one in the graph.
        degraded: whether some of its events were not in the graph.
    """

    body: bytes
    sha256: str
    manifest: list[dict[str, Any]]
    seqs: dict[str, dict[str, Any]]
    degraded: bool


def freeze(
    snapshot_id: UUID,
    debate: Mapping[str, Any],
    participants: Sequence[SyncMember],
    excluded: Sequence[ExcludedParticipant],
    *,
    at: datetime,
    upto: int,
    rows: Sequence[Mapping[str, Any]],
    citations: Sequence[Mapping[str, Any]],
    lags: Sequence[Mapping[str, Any]],
) -> FrozenSnapshot:
    """
    Return the snapshot of rows that were read at one moment.

    Args:
        debate: its row.
        participants: all participants, the excluded ones among them.
        at, upto: the moment, and the last readable position.
        rows, citations, lags: of ``snapshot_records``, ``snapshot_citations`` and ``writers_lag``.
    """
    records = [_record(kind, key, list(its)) for (kind, key), its in groupby(rows, key=lambda r: (r["kind"], r["key"]))]
    by_owner = {lag["actor"]: lag_of(lag) for lag in lags}
    seqs = {one.agent_id: {"actor": one.owner, **by_owner[one.owner]} for one in participants}
    overlay = sorted({row["position"] for row in rows if row["state"] != "applied"})
    left_out = {one.agent_id for one in excluded}
    content = {
        "version": VERSION,
        "snapshot_id": str(snapshot_id),
        "debate_id": debate["debate_id"],
        "analysis_id": debate["analysis_id"],
        "topic": debate["topic"],
        "challenger": debate["challenger"],
        "challenged": debate["challenged"],
        "participants": [one.agent_id for one in participants if one.agent_id not in left_out],
        "excluded": [asdict(one) for one in excluded],
        "as_of": at.astimezone(UTC).isoformat(),
        "upto": upto,
        "seqs": seqs,
        "records": records,
        "citations": [_citation(row) for row in citations],
        "not_in_graph": overlay,
    }
    body = canonical_json(content)
    manifest = [{name: one[name] for name in ("node", "version", "hash")} for one in records]
    return FrozenSnapshot(body, hashlib.sha256(body).hexdigest(), manifest, seqs, bool(overlay))


def _record(kind: str, key: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = {row["grp"]: row["value"] for row in rows}
    corrected = values.pop(_CORRECTION, None)
    content = {name: values[name] for name in sorted(_TEXTS & values.keys())}
    if corrected is not None:
        content["core"] = corrected
    content["groups"] = {name: value for name, value in values.items() if name not in _TEXTS}
    return {
        "node": f"{kind}/{key}",
        "kind": kind,
        "key": key,
        "version": max(row["position"] for row in rows),
        "hash": hashlib.sha256(canonical_json(content)).hexdigest(),
        "content": content,
        "stated_by": sorted({row["actor"] for row in rows}),
        "known_at": min(row["known_at"] for row in rows).astimezone(UTC).isoformat(),
        "in_graph": all(row["state"] == "applied" for row in rows),
    }


def _citation(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "from": f"{row['from_label']}/{row['from_key']}",
        "to": f"{row['to_label']}/{row['to_key']}",
        "props": row["props"],
        "version": row["position"],
    }
