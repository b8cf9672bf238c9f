"""The files of Lua: each script is explained, flagged, used, and known to servers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imem.cache.scripts import _made, scripts
from imem.journal.statements import load, root_of

from .conftest import World

FREEING = {
    "fence", "mark", "expire", "heartbeat", "clear", "settle", "free", "expire_snapshot", "drop",
    "free_whole", "free_list", "free_hash", "free_set", "free_zset",
    "forget_pushed", "drop_notices", "get_memory_snapshot",
}  # fmt: skip
COUNTING = {"changes_publish", "changes_invalidate_all", "changes_heartbeat"}
"""They must agree on one clock, whoever tells: the server's."""

LIKE = re.compile("free$|(one|free)_")
"""Called like *write*."""

READING = {
    "stand", "read", "look", "names", "get_snapshot", "get_copy", "get_call", "get_result", "keys_there",
    "published", "known", "waiting", "server_run",
    "get_entries", "poll_entry", "changes_versions", "changes_after",
}  # fmt: skip


def test_every_script_says_how_it_is_called() -> None:
    """Signature first: its keys, its arguments, its answer."""
    texts = load(root_of("cache", "lua"), ".lua")
    files = {statement.path: statement.path.read_text(encoding="utf-8") for statement in texts.values()}
    called = "\n".join(files.values())

    assert len(scripts()) >= 16
    assert [
        name
        for name in scripts()
        if not re.search(rf"^-- +{name}\([^)]*\)", called, re.MULTILINE) and not LIKE.match(name)
    ] == []


def test_every_script_is_used_and_every_use_exists(root_folder: Path) -> None:
    """A script that nobody runs is a promise that nobody keeps."""
    packages = (root_folder / package for package in ("cache", "checkpoints", "sync"))
    code = "\n".join(path.read_text(encoding="utf-8") for one in packages for path in sorted(one.rglob("*.py")))

    assert {name for name in scripts() if f'"{name}"' not in code} == set()


def test_flags_are_those_of_the_work() -> None:
    """Who frees memory or moves expiries may do so on a full server; who reads cannot write."""
    for name, script in scripts().items():
        first = script.text.split(b"\n", 1)[0]
        flag = b" flags=allow-oom" if name in FREEING else b" flags=no-writes" if name in READING else b""
        assert first == b"#!lua" + flag, name
        assert script.writes == (name not in READING), name


@pytest.mark.spec("CK-16")
def test_no_script_looks_for_keys_or_asks_the_time() -> None:
    """Keys come from the index, the time from the caller's clock; but changes are counted by the server's own."""
    for name, script in scripts().items():
        commands = set(re.findall(r"redis\.p?call\('(\w+)'", script.text.decode()))
        time = set() if name in COUNTING else {"TIME"}
        assert commands & time == set(), name
        assert commands & {"KEYS", "SCAN", "RANDOMKEY", "FLUSHDB", "EVAL", "DUMP"} == set(), name


def test_no_script_lacks_a_part_that_it_calls() -> None:
    """A server takes it all the same, and fails when it is run."""
    texts = load(root_of("cache", "lua"), ".lua").values()
    defined = {name for statement in texts for name in re.findall(r"local function (\w+)\(", statement.text)}
    assert len(defined) > 10
    for name, script in scripts().items():
        text = re.sub(r"--.*", "", script.text.decode())
        called = defined & set(re.findall(r"(?<![\w.:])(\w+)\(", text))
        assert called <= set(re.findall(r"local function (\w+)\(", text)), name


async def test_servers_take_every_script(world: World) -> None:
    """Each compiles, under the hash that we call it by."""
    for script in scripts().values():
        assert world.bare.script_load(script.text) == script.sha1.decode()


def test_a_part_that_is_not_there_is_named() -> None:
    """A slip in a file is found when it is read."""
    with pytest.raises(ValueError, match="needs nothing, which no file defines"):
        _made("broken", {"broken": "#!lua\n-- with: nothing\nreturn 1"})
    with pytest.raises(ValueError, match="no first line"):
        _made("broken", {"broken": "#!lua flags=Allow OOM\nreturn 1"})


@pytest.fixture
def root_folder() -> Path:
    return Path(__file__).resolve().parents[3]
