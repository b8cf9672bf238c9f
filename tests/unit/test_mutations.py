"""The deliberate defects of ``tools/mutations`` can all be tried; trying them is ``make mutate``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).resolve().parent.parent.parent


def mutate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutate", TOP / "tools" / "mutate.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    # Its dataclass looks itself up there.
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


MUTATE = mutate()
STATEMENTS = {
    line.partition("\t")[0] for line in (TOP / "tests/data/statements.txt").read_text(encoding="utf-8").splitlines()
}


@pytest.mark.parametrize("mutation", MUTATE.mutations(), ids=lambda mutation: mutation.path.stem)
def test_a_mutation_can_be_tried(mutation: MUTATE.Mutation) -> None:  # type: ignore[name-defined]
    """Its patch applies to the present code, and its tests and statements exist."""
    assert mutation.problem() is None
    assert set(mutation.statements) <= STATEMENTS


def test_what_cannot_be_tried_is_said(tmp_path: Path) -> None:
    """Code that has changed, a test that is gone, and a header that names none."""
    patch = tmp_path / "some.patch"
    patch.write_text("Breaks: it.\nTest: t.py::test_it\n\n--- a/m.py\n+++ b/m.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n")
    mutation = MUTATE.Mutation.read(patch)
    (tmp_path / "m.py").write_text("x = 1\n")
    (tmp_path / "t.py").write_text("def test_it():\n    import m\n\n    assert m.x == 1\n")

    assert mutation.problem(tmp_path) is None
    (tmp_path / "m.py").write_text("x = 3\n")
    assert "patch does not apply" in str(mutation.problem(tmp_path))
    (tmp_path / "t.py").write_text("def test_others(): ...\n")
    assert mutation.problem(tmp_path) == "t.py has no test test_it"
    patch.write_text("Breaks: it.\n\n")
    with pytest.raises(ValueError, match="which test fails"):
        MUTATE.Mutation.read(patch)


@pytest.mark.parametrize(
    ("test", "failures"),
    [
        ("def test_it():\n    import m\n\n    assert m.x == 1\n", {"t.py::test_it"}),
        ("def test_it():\n    pass\n", set()),
        ("import nothing\n\ndef test_it():\n    pass\n", None),
        ("import pytest\n\n@pytest.fixture\ndef a():\n    raise ValueError\n\ndef test_it(a):\n    pass\n", None),
    ],
    ids=["fails", "passes", "cannot be collected", "fixture breaks"],
)
def test_only_a_test_that_fails_has_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, test: str, failures: set[str] | None
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "m.py").write_text("x = 2\n")
    (tmp_path / "t.py").write_text(test)

    assert MUTATE._failures(tmp_path, ["t.py::test_it"]) == failures
