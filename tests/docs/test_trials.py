"""Every page of the documentation that begins a trial of its own, run as it stands there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import forking
from tests.docs.test_pages import Reader, environment, follow, trials


@pytest.mark.e2e
@pytest.mark.parametrize("page", trials())
def test_page_with_a_trial_runs_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    """Commands end as they should and print what is shown."""
    (tmp_path / "program").mkdir()
    with environment(tmp_path / "program") as env:
        reader = Reader(tmp_path, env)
        try:
            follow(reader, page, tmp_path)
        finally:
            # Where all goes well the page ends it.
            forking.run("imem", "down", "--purge", "--yes", env=reader.env)
