"""
Mutation testing with hand-written defects: each must make the tests fail that it names.

Each file of ``tools/mutations`` is one defect: a header that says what it breaks, which statements of the specification
those are and which tests must fail; a blank line; a patch. The working tree is copied, not changed. All named tests
have to pass on a copy, and to fail on a copy with the patch: a test that cannot be collected, whose fixture breaks, or
that hangs, does not count as failed.

Usage: python tools/mutate.py [--list | --check] [--only NAME …]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

TOP: Final = Path(__file__).resolve().parent.parent
MUTATIONS: Final = TOP / "tools" / "mutations"
RUN_S: Final = 1800  # for one run of tests, servers included


@dataclass(frozen=True, slots=True)
class Mutation:
    """
    One deliberate defect.

    Attributes:
        path: of its file, whose stem is its name.
        breaks: what it does, in a sentence.
        statements: ids of the specification; may be empty.
        tests: node ids, each of which must fail.
    """

    path: Path
    breaks: str
    statements: tuple[str, ...]
    tests: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Mutation:
        """Return the mutation of a file; raises ValueError where its header is incomplete."""
        fields: dict[str, list[str]] = {"Breaks": [], "Statement": [], "Test": []}
        for line in path.read_text(encoding="utf-8").partition("\n\n")[0].splitlines():
            name, _, value = line.partition(": ")
            if name not in fields or not value:
                raise ValueError(f"{path.name}: {line!r} is no line of a header.")
            fields[name].append(value)
        if not fields["Breaks"] or not fields["Test"]:
            raise ValueError(f"{path.name} does not say what it breaks, or which test fails.")
        return cls(path, " ".join(fields["Breaks"]), tuple(fields["Statement"]), tuple(fields["Test"]))

    def problem(self, tree: Path = TOP) -> str | None:
        """Return why the mutation cannot be tried on *tree*; None when it applies and its tests exist."""
        for test in self.tests:
            file, _, name = test.partition("[")[0].partition("::")
            if not re.search(rf"^(?:async )?def {name}\(", (tree / file).read_text(encoding="utf-8"), re.MULTILINE):
                return f"{file} has no test {name}"
        return self.apply(tree, "--check")

    def apply(self, tree: Path, *options: str) -> str | None:
        """Patch *tree*; return git's error if the patch does not apply, in which case nothing is changed."""
        command = ["git", "apply", *options, str(self.path)]
        done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)  # noqa: S603 - git
        return done.stderr.strip() if done.returncode else None


def mutations(names: Collection[str] = ()) -> list[Mutation]:
    """Return the mutations of those names, or all, sorted; raises ValueError for a name that none has."""
    paths = {path.stem: path for path in sorted(MUTATIONS.glob("*.patch"))}
    if unknown := set(names) - set(paths):
        raise ValueError(f"No mutation is called {', '.join(sorted(unknown))}.")
    return [Mutation.read(paths[name]) for name in names or paths]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """Copy the working tree's versioned and new files, links as links; the copy is deleted afterwards."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=TOP, check=True, capture_output=True).stdout.decode()  # noqa: S603 - git
    with TemporaryDirectory(prefix="imem-copy-", ignore_cleanup_errors=True) as folder:
        tree = Path(folder)
        tree.chmod(0o755)  # Postgres' own user reads in it where root runs the tests.
        for name in filter(None, listed.split("\0")):
            if os.path.lexists(TOP / name):
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(TOP / name, tree / name, follow_symlinks=False)
        yield tree


def _failures(tree: Path, tests: Collection[str]) -> set[str] | None:
    """Run *tests* in *tree*; return those of which a case failed, None if one had an error or hung instead."""
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "--tb=no", *tests]
    # First on the path, so that programs which a test starts find the copy as well, and not this checkout.
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ran = subprocess.run(  # noqa: S603 - pytest
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    failed = re.findall(r"^FAILED (.+?)(?:\[.*| - .*)?$", ran.stdout, re.MULTILINE)
    if bool(failed) != (ran.returncode == 1) or ran.returncode > 1:
        sys.stderr.write(ran.stdout + ran.stderr)
        return None
    return {test for test in tests if test.partition("[")[0] in failed}


def _try_mutation(mutation: Mutation) -> str:
    """Return ``noticed``, or why *mutation* was not; its tests pass without it."""
    with copied_tree() as tree:
        trouble = mutation.apply(tree)
        unnoticed = set(mutation.tests) - (_failures(tree, mutation.tests) or set())
    return trouble or (f"NOT noticed by {', '.join(sorted(unnoticed))}" if unnoticed else "noticed")


def main() -> int:
    """Do what the command line says; return the exit code."""
    parser = argparse.ArgumentParser(description="Break the product on purpose, and demand that the tests notice.")
    parser.add_argument("--list", action="store_true", help="only show what there is")
    parser.add_argument("--check", action="store_true", help="only look whether patches apply and their tests exist")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these alone")
    given = parser.parse_args()
    chosen, wrong = mutations(given.only), 0
    if not given.list and not given.check:
        with copied_tree() as tree:
            failing = _failures(tree, sorted({test for mutation in chosen for test in mutation.tests}))
        if failing != set():
            sys.exit(f"Nothing was tried, since without any defect fails {' '.join(failing or ['the run of tests'])}.")
    for mutation in chosen:
        if given.list:
            said = f"{mutation.breaks} {' '.join(mutation.statements)}".strip()
        else:
            said = mutation.problem() or ("applies" if given.check else _try_mutation(mutation))
            wrong += said not in {"applies", "noticed"}
        print(f"{mutation.path.stem}: {said}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
