"""What people ask of archives: searches, retrievals, holds; and nobody else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from imem.archives.access import Archives, HoldKind, HoldSubject
from imem.archives.archive import MANIFEST
from imem.journal.actors import Actor
from imem.journal.deadline import Deadline
from imem.journal.errors import BadInput, ConsistencyError, PermissionDenied, StatementRejected
from imem.journal.gateway import Gateway
from imem.journal.settings import Role
from tests.archives.conftest import BEGIN, DAY, Vault, became, cited, file, late, pattern, validated
from tests.credibility.conftest import reading

SOON = Deadline.never()


def as_(vault: Vault, name: str, role: Role = Role.HUMAN_ADMIN) -> Archives:
    # A person's command logs in as the curators do.
    return Archives(Gateway(vault.world.curators, Actor(name, role)), vault.objects)


async def archived(vault: Vault) -> None:
    """Archive three patterns: p and q deprecated, r active."""
    await vault.world.say(reading("x", BEGIN - 10 * DAY, "BULL_LOW_RATES"))
    for key, status, confidence in (("p", "active", 0.9), ("q", "active", 0.5), ("r", "active", 0.7)):
        await vault.say(
            pattern(key, status, confidence_score=confidence), validated(f"v-{key}", key), *cited(f"d-{key}", key)
        )
        await vault.say(late(key, BEGIN, performance={"success_rate": confidence - 0.1, "occurrence_count": 9}))
    await vault.say(became("p", "deprecated", BEGIN + DAY), became("q", "deprecated", BEGIN + DAY))
    await vault.settle()


async def test_the_index_is_searched_by_each_criterion(vault: Vault) -> None:
    await archived(vault)
    ann = as_(vault, "ann")

    def keys(found: list[dict[str, object]]) -> list[object]:
        return [one["pattern_id"] for one in found]

    assert keys(await ann.by_regime(["BULL_LOW_RATES", "NORMAL"], deadline=SOON)) == ["p", "r", "q"]
    assert keys(await ann.by_regime(["NORMAL"], deadline=SOON)) == []
    assert keys(await ann.by_industry(["semis"], deadline=SOON)) == ["p", "r", "q"]
    assert keys(await ann.by_metrics(0.7, 0.55, deadline=SOON)) == ["p", "r"]
    entry = await ann.entry("p", deadline=SOON)
    assert (entry["status"], entry["archive_tier"], entry["last_accessed"]) == ("deprecated", 2, None)
    assert (await ann.entry("r", deadline=SOON))["status"] == "archived"
    with pytest.raises(BadInput, match="has no archive"):
        await ann.entry("nothing", deadline=SOON)


@pytest.mark.spec("AR-21")
async def test_three_people_make_a_candidate(vault: Vault, tmp_path: Path) -> None:
    await archived(vault)
    for n in range(3):
        await as_(vault, "ann").retrieve("p", tmp_path / f"ann{n}", deadline=SOON)
        await as_(vault, f"searcher{n}").by_industry(["semis"], deadline=SOON)
        await as_(vault, f"searcher{n}").entry("p", deadline=SOON)
    assert await as_(vault, "ann").candidates(3, deadline=SOON) == []
    await as_(vault, "bob").retrieve("p", tmp_path / "bob", deadline=SOON)
    for n in range(3):
        await as_(vault, f"reader{n}").retrieve("r", tmp_path / f"r{n}", deadline=SOON)
    assert await as_(vault, "ann").candidates(3, deadline=SOON) == [], "r is not deprecated"
    await as_(vault, "eve").retrieve("p", tmp_path / "eve", deadline=SOON)
    [found] = await as_(vault, "ann").candidates(3, deadline=SOON)
    assert found["pattern_id"] == "p"
    assert (await as_(vault, "ann").entry("p", deadline=SOON))["access_count_30d"] == 3
    async with vault.later(31 * DAY):
        assert not await vault.database.named("index_candidates", {"least": 1, "limit": 9}, deadline=SOON)
    [audit] = await vault.world.rows(
        "SELECT count(*) AS n FROM memory_access_audit WHERE action = 'retrieve_archive' AND resource_id = 'p'"
    )
    assert audit["n"] == 5


@pytest.mark.spec("AR-26")
async def test_what_is_retrieved_opens_without_the_product(vault: Vault, tmp_path: Path) -> None:
    """The pattern stays deprecated, and nothing is recorded of it."""
    await archived(vault)
    folder = tmp_path / "copy"
    events = "SELECT count(*) AS n FROM event"
    before = await vault.world.rows(events)
    number = await as_(vault, "ann").retrieve("p", folder, deadline=SOON)
    assert await vault.world.rows(events) == before
    assert (await as_(vault, "ann").entry("p", deadline=SOON))["status"] == "deprecated"
    files = [one for one in folder.rglob("*") if one.is_file()]
    assert len(files) == number
    assert all(json.loads(one.read_text()) is not None for one in files)
    metadata = json.loads((folder / "tier2/all_tier1_content/metadata.json").read_text())
    assert metadata["pattern"]["name"] == "Margins of p"

    target = vault.folder / "pattern_archives/p/tier2/all_tier1_content/metadata.json"
    target.write_bytes(target.read_bytes()[:-2] + b" \n")
    with pytest.raises(ConsistencyError):
        await as_(vault, "ann").retrieve("p", tmp_path / "again", deadline=SOON)
    assert not (await as_(vault, "ann").verify("p", deadline=SOON))[2].ok


async def test_a_manifest_names_nothing_outside_of_its_archive(vault: Vault, tmp_path: Path) -> None:
    await archived(vault)
    path = vault.folder / "pattern_archives/p" / MANIFEST
    vault.put("elsewhere", b"{}")
    path.write_text(path.read_text().replace("pattern_archives/p/tier2/agent_analysis/findings.json", "elsewhere"))
    with pytest.raises(ConsistencyError, match="no part of it"):
        await as_(vault, "ann").retrieve("p", tmp_path / "copy", deadline=SOON)


@pytest.mark.spec("AR-16")
async def test_only_people_who_may_decide(vault: Vault, tmp_path: Path) -> None:
    """Archives show patterns that agents may not see; a hold and a release are audited, and so is a denial."""
    await archived(vault)
    for role in set(Role) - {Role.HUMAN_ADMIN}:
        other = as_(vault, "mallory", role)
        with pytest.raises(PermissionDenied):
            await other.by_industry(["semis"], deadline=SOON)
        with pytest.raises(PermissionDenied):
            await other.retrieve("p", tmp_path / "copy", deadline=SOON)
        with pytest.raises(PermissionDenied):
            await other.release(1, "Now.", deadline=SOON)
    ann = as_(vault, "ann")
    hold = await ann.hold(HoldKind.LEGAL, HoldSubject.PATTERN, "p", "The court asks.", deadline=SOON)
    assert [one["id"] for one in await ann.holds(deadline=SOON)] == [hold["id"]]
    released = await ann.release(hold["id"], "It is over.", deadline=SOON)
    assert released["released_by"] == "ann"
    with pytest.raises(BadInput, match="no hold"):
        await ann.release(hold["id"], "Again.", deadline=SOON)
    assert await ann.holds(deadline=SOON) == []
    assert len(await ann.holds(released=True, deadline=SOON)) == 1
    with pytest.raises(BadInput, match="not marked"):
        await ann.restore("f", "Why not.", deadline=SOON)
    with pytest.raises(BadInput, match="no run"):
        await ann.approve(1, "Why not.", deadline=SOON)
    audit = await vault.world.rows(
        "SELECT action, action_reason FROM memory_access_audit WHERE actor_id = 'ann' AND action LIKE '%%hold'"
        " ORDER BY 1"
    )
    assert [(one["action"], one["action_reason"]) for one in audit] == [
        ("place_hold", "The court asks."), ("release_hold", "It is over."),
    ]  # fmt: skip


@pytest.mark.spec("AR-16")
async def test_the_applications_login_lets_nothing_go(vault: Vault, tmp_path: Path) -> None:
    """Whatever program it runs, and whoever it says that it is: it may hold, and not release."""
    await archived(vault)
    mallory = Archives(Gateway(vault.world.database, Actor("mallory", Role.HUMAN_ADMIN)), vault.objects)
    hold = await mallory.hold(HoldKind.LEGAL, HoldSubject.PATTERN, "p", "The court asks.", deadline=SOON)
    for call in (
        lambda: mallory.release(hold["id"], "Now.", deadline=SOON),
        lambda: mallory.approve(1, "Now.", deadline=SOON),
        lambda: mallory.retrieve("p", tmp_path / "copy", deadline=SOON),
    ):
        with pytest.raises(StatementRejected, match="does not allow the application's role"):
            await call()
    assert [one["id"] for one in await mallory.holds(deadline=SOON)] == [hold["id"]]


async def test_a_hold_says_what_it_covers(vault: Vault) -> None:
    """One on an unknown subject, as a mistyped name, would keep nothing, and is refused."""
    await archived(vault)
    await vault.say(*file("one", "p"), *file("two", "p"), *file("three", "r"))
    ann = as_(vault, "ann")
    covered = {
        (HoldSubject.FILE, "one"): 1, (HoldSubject.PATTERN, "p"): 2, (HoldSubject.DECISION, "d-r"): 1,
        (HoldSubject.COMPANY, "company:MU"): 3,
    }  # fmt: skip
    for (subject, key), files in covered.items():
        hold = await ann.hold(HoldKind.MANUAL, subject, key, "Why.", deadline=SOON)
        assert hold["files"] == files, subject
        with pytest.raises(BadInput, match=r"no \w+ company:mu is recorded"):
            await ann.hold(HoldKind.MANUAL, subject, "company:mu", "Why.", deadline=SOON)
        for blank in ("", " "):
            with pytest.raises(BadInput, match="must say why"):
                await ann.hold(HoldKind.MANUAL, subject, key, blank, deadline=SOON)
            with pytest.raises(BadInput, match="must say why"):
                await ann.release(hold["id"], blank, deadline=SOON)
    assert len(await ann.holds(deadline=SOON)) == len(covered)
