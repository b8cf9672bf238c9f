"""What the workers count can be scraped: from files that several processes share, printed or over HTTP."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from imem.local.servers.server import free_port
from imem.metrics import VARIABLE, clear_metrics, folder_of, serve, text_of

TOP = Path(__file__).resolve().parents[3]

COUNTS = """
import os, sys
from pathlib import Path
from imem.metrics import count_in_files
count_in_files(Path(sys.argv[1]))
from imem.checkpoints.metrics import SAVE_ERRORS, SAVE_LATENCY
SAVE_ERRORS.labels(store="durable").inc()
if os.fork() == 0:
    SAVE_ERRORS.labels(store="durable").inc(2)
    SAVE_LATENCY.labels(store="postgres").observe(3.0)
    os._exit(0)
os.wait()
"""


def counted(home: Path) -> None:
    """Count in a process and in a child of it, both gone afterwards."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    subprocess.run([sys.executable, "-c", COUNTS, str(home)], cwd=TOP, env=environment, check=True)


def test_processes_that_are_gone_still_count(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over all of them, children among them, until a stack begins anew."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert text_of(home) == b""
    counted(home)
    counted(home)

    lines = text_of(home).decode().splitlines()
    assert 'checkpoint_save_errors_total{store="durable"} 6.0' in lines
    assert 'checkpoint_save_latency_ms_count{store="postgres"} 2.0' in lines
    assert 'checkpoint_save_latency_ms_bucket{le="5.0",store="postgres"} 2.0' in lines
    assert folder_of(home).stat().st_mode & 0o077 == 0

    clear_metrics(home)
    assert text_of(home) == b""


def test_they_are_shown_to_a_scraper(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the loopback interface, until it ends; a port that another holds stops nobody."""
    monkeypatch.delenv(VARIABLE, raising=False)
    counted(home)
    port = free_port()
    end = serve(home, port)
    assert end is not None
    assert serve(home, port) is None
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert b'checkpoint_save_errors_total{store="durable"} 3.0' in answer.read()
    end()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)
