"""
Write the jar lock of one Neo4j version: every run-time jar with its SHA-256, and no address.

Usage::

    python tools/lock_jars.py 5.26.30

The dependency tree is resolved from the POMs once, here, which takes minutes; the product only reads the flat list.
The lock is written beside the stack's code (``imem/local/jars/neo4j-VERSION.lock``) and committed.
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from jgo.maven import MavenContext

LOCKS = Path(__file__).resolve().parent.parent / "imem" / "local" / "jars"
ROOTS = (("org.neo4j", "neo4j"), ("org.neo4j.app", "neo4j-server"))
SCOPES = frozenset({"", "compile", "runtime"})


def resolve(context: MavenContext, version: str) -> list[tuple[str, str, str, str]]:
    """Return (group, artifact, version, classifier) of every jar that Neo4j *version* needs to run, sorted."""
    wanted = [context.create_dependency(f"{group}:{artifact}:{version}") for group, artifact in ROOTS]
    inputs, transitive = context.resolver.resolve(wanted)
    return sorted(
        {
            (dep.groupId, dep.artifactId, dep.version, dep.classifier)
            for dep in [*inputs, *transitive]
            if dep.type == "jar" and (dep.scope or "") in SCOPES
        }
    )


def digest(context: MavenContext, jar: tuple[str, str, str, str]) -> tuple[str, str, int]:
    """Fetch *jar* and return its coordinates as text, its SHA-256 and its size in bytes."""
    group, artifact, version, classifier = jar
    path = Path(context.project(group, artifact).at_version(version).artifact(classifier=classifier).resolve())
    content = path.read_bytes()
    return ":".join(part for part in jar if part), hashlib.sha256(content).hexdigest(), len(content)


def main() -> int:
    """Write the lock of the version named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--cache", type=Path, help="a Maven repository cache to use again")
    arguments = parser.parse_args()
    logging.getLogger("jgo").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as scratch:
        context = MavenContext(repo_cache=arguments.cache or Path(scratch), timeout=60)
        jars = resolve(context, arguments.version)
        with ThreadPoolExecutor(16) as pool:
            rows = list(pool.map(lambda jar: digest(context, jar), jars))
    lock = LOCKS / f"neo4j-{arguments.version}.lock"
    head = (
        f"# Neo4j {arguments.version} (GPL-3.0) and its run-time dependencies: group:artifact:version[:classifier], "
        "SHA-256, bytes.\n# Written by tools/lock_jars.py; do not edit.\n"
    )
    lock.write_text(head + "".join(f"{name} {sha} {size}\n" for name, sha, size in rows), encoding="ascii")
    sys.stderr.write(f"{lock}: {len(rows)} jars, {sum(size for *_, size in rows) / 1e6:.0f} MB\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
