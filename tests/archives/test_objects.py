"""Objects are stored whole or not at all, in a folder and in a service that speaks S3 over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from imem.journal.deadline import Deadline
from imem.journal.endpoints.objects import ObjectStore, sha256_of
from imem.journal.errors import BudgetExceeded, ConsistencyError, ObjectMissing, ObjectsUnavailable, SettingsError
from imem.journal.settings import Settings

BUDGET_MS = 60_000


def soon() -> Deadline:
    return Deadline.after_ms(BUDGET_MS)


@pytest.fixture(scope="session")
def s3() -> Iterator[str]:
    """Serve S3 over HTTP; return its address."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest_asyncio.fixture(params=["folder", "s3"])
async def store(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ObjectStore]:
    if request.param == "folder":
        yield ObjectStore(str(tmp_path / "objects"))
        return
    import s3fs

    for name, value in (("ENDPOINT_URL", request.getfixturevalue("s3")), ("ACCESS_KEY_ID", "a"),
                        ("SECRET_ACCESS_KEY", "b"), ("DEFAULT_REGION", "us-east-1")):  # fmt: skip
        monkeypatch.setenv(f"AWS_{name}", value)
    fs = s3fs.S3FileSystem(skip_instance_cache=True)
    if not await asyncio.to_thread(fs.exists, "evidence"):
        await asyncio.to_thread(fs.mkdir, "evidence")
    yield ObjectStore(f"s3://evidence/{tmp_path.name}")


async def test_what_is_put_is_read_listed_and_deleted(store: ObjectStore) -> None:
    first = await store.put("a/b.json", b"one", deadline=soon())
    await store.put("a/c/d.json", b"", deadline=soon())
    await store.put("ab/e.json", b"other", deadline=soon())
    assert (first.sha256, first.size) == (sha256_of(b"one"), 3)
    assert await store.get("a/b.json", sha256=first.sha256, deadline=soon()) == b"one"
    assert [*await store.keys("a", deadline=soon())] == ["a/b.json", "a/c/d.json"]

    await store.put("a/b.json", b"two", deadline=soon())
    with pytest.raises(ConsistencyError, match=r"a/b\.json is not what was stored"):
        await store.get("a/b.json", sha256=first.sha256, deadline=soon())

    await store.delete("a/b.json", deadline=soon())
    await store.delete("a/b.json", deadline=soon())
    with pytest.raises(ObjectMissing):
        await store.get("a/b.json", deadline=soon())
    assert await store.keys("nothing", deadline=soon()) == {}


async def test_what_is_read_back_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that loses a byte is noticed when the object is stored."""
    from fsspec.implementations.local import LocalFileSystem

    read = LocalFileSystem.cat_file
    monkeypatch.setattr(LocalFileSystem, "cat_file", lambda *given, **named: read(*given, **named)[:-1])
    with pytest.raises(ConsistencyError):
        await ObjectStore(str(tmp_path)).put("key", b"content", deadline=soon())


async def test_a_store_that_is_away_is_named(tmp_path: Path, store: ObjectStore) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ObjectsUnavailable, match="IMEM_OBJECTS_URL"):
        await ObjectStore(str(tmp_path / "file")).put("key", b"content", deadline=soon())
    with pytest.raises(BudgetExceeded):
        await store.put("key", b"content", deadline=Deadline.after_ms(0))


async def test_a_service_that_does_not_listen_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ENDPOINT_URL", "http://127.0.0.1:9"), ("ACCESS_KEY_ID", "a"), ("SECRET_ACCESS_KEY", "b")):
        monkeypatch.setenv(f"AWS_{name}", value)
    with pytest.raises(ObjectsUnavailable):
        await ObjectStore("s3://evidence").get("key", deadline=soon())


@given(st.text(max_size=5))
async def test_no_key_leaves_the_folder(text: str) -> None:
    for key in ("", "..", f"../{text}", f"a/../{text}", "a//b", "/a", "a/.", "a?versionId=1"):
        with pytest.raises(ValueError, match="no key"):
            await ObjectStore("/nowhere").get(key, deadline=soon())


@pytest.mark.parametrize(
    "url", ["objects", "s3:///prefix", "s3://bucket", "s3://bucket/", "s3://key:secret@bucket/x", "ftp://host/x"]
)
def test_an_address_that_nothing_can_use_is_refused(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.read({"IMEM_OBJECTS_URL": url})
    assert "secret" not in str(refused.value)


def test_the_default_is_a_folder_of_the_installation(tmp_path: Path) -> None:
    assert ObjectStore.of(Settings.read({}, home=tmp_path))._url == str(tmp_path / "objects")
