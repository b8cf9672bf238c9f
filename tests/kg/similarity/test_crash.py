"""A worker killed before any of its statements loses nothing, doubles nothing, and shows nobody half an index."""

from __future__ import annotations

from tests.conftest import Stack
from tests.kg.similarity.conftest import SimilarityHarness
from tests.kg.similarity.test_index import agree, crowd, exact
from tests.killed_programs import printed
from tests.servers import as_pipelines


async def test_killed_before_every_statement(harness: SimilarityHarness, light_stack: Stack) -> None:
    """One worker after the other dies a statement later than the one before; in the end all is as if none had."""
    await harness.say(*crowd(30))
    given = f"{as_pipelines(light_stack.settings, harness.url)}\n"
    out = await printed("tests.kg.similarity.killed", given=given)

    assert int(out.splitlines()[-1]) >= 20
    lists = await harness.lists()
    assert set(lists) == {f"a{number:03}" for number in range(30)}
    assert agree(lists, await exact(harness)) >= 0.95
    assert await harness.rows("SELECT FROM due_row WHERE queue = 'similar'") == []
    assert [row["state"] for row in await harness.rows("SELECT state FROM similarity_build")] == ["current"]
    assert await harness.rows("SELECT key FROM embedding GROUP BY key HAVING count(*) <> 1") == []
    orphans = "SELECT FROM similar_analysis WHERE version NOT IN (SELECT version FROM similarity_build)"
    assert await harness.rows(orphans) == []
