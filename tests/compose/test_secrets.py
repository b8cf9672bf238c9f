"""``compose/secrets.sh`` makes secrets that open what they shall, once, and certificates that clients believe."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
import subprocess
from pathlib import Path

import pytest

from tests.compose.conftest import FOLDER

SERVERS = ("postgres", "neo4j", "valkey-working", "valkey-durable", "valkey-cache")


def _run(folder: Path, path: str = os.defpath) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(FOLDER / "secrets.sh"), str(folder)], env={"PATH": path}, capture_output=True, text=True, check=False
    )


def _content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_only_its_owner_enters_the_folder(secrets: Path) -> None:
    """Files are readable for the users of containers, behind a folder that others cannot enter; but not what signs."""
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in secrets.iterdir()}

    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert modes.pop("ca.key") == 0o400
    assert set(modes.values()) == {0o444}
    assert [name for name in modes if name.endswith((".new", ".ext"))] == []


def test_what_is_there_stays(tmp_path: Path) -> None:
    """A second run changes nothing, makes what is missing anew, and says nothing."""
    folder = tmp_path / "secrets"
    first = _run(folder)
    before = _content(folder)
    second = _run(folder)

    assert (first.returncode, first.stdout, first.stderr) == (0, "", "")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert _content(folder) == before

    (folder / "neo4j_password").unlink()
    (folder / "neo4j.crt").unlink()
    _run(folder)
    changed = {name for name, data in _content(folder).items() if data != before[name]}
    assert changed == {"neo4j_password", "neo4j_auth", "neo4j.crt", "neo4j.key"}


def test_somebody_elses_authority_is_left_alone(tmp_path: Path) -> None:
    """Without the key that signs everything stays as it is; a certificate that is missing is then an error."""
    folder = tmp_path / "secrets"
    _run(folder)
    (folder / "ca.key").unlink()
    before = _content(folder)

    assert _run(folder).returncode == 0
    assert _content(folder) == before
    (folder / "neo4j.crt").unlink()
    missing = _run(folder)
    assert missing.returncode != 0
    assert "nothing could be made for neo4j.crt" in missing.stderr
    assert not (folder / "neo4j.crt").exists()


def test_passwords_are_long_and_differ(secrets: Path) -> None:
    """24 random bytes each, without a character that an address would have to escape."""
    passwords = [path.read_text(encoding="ascii").strip() for path in secrets.glob("*_password")]

    assert len(set(passwords)) == len(passwords) >= 6
    assert all(len(bytes.fromhex(one)) == 24 for one in passwords)


def test_without_openssl_nothing_is_made(tmp_path: Path) -> None:
    """An empty password is worse than none: the script ends with an error and leaves no file that counts."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sh", "cat", "chmod", "mkdir", "mv", "rm", "dirname"):
        found = shutil.which(name)
        assert found is not None
        (programs / name).symlink_to(found)
    folder = tmp_path / "secrets"
    ran = _run(folder, str(programs))

    assert ran.returncode != 0
    assert "nothing could be made for ca.key" in ran.stderr
    assert [path.name for path in folder.iterdir() if not path.name.endswith(".new")] == []


@pytest.mark.parametrize("server", SERVERS)
def test_a_client_believes_the_certificate(server: str, secrets: Path) -> None:
    """For the service's name and for this machine, by strict rules; for no other name, and by no other authority."""
    assert _shake_hands(secrets, server, server) is None
    assert _shake_hands(secrets, server, "localhost") is None
    assert _shake_hands(secrets, server, "127.0.0.1") is None
    assert "mismatch" in str(_shake_hands(secrets, server, "example"))
    assert "certificate verify failed" in str(_shake_hands(secrets, server, server, ssl.create_default_context()))


def _shake_hands(
    secrets: Path, server: str, name: str, trusting: ssl.SSLContext | None = None
) -> ssl.SSLCertVerificationError | None:
    """Return why a client that asks for *name* refuses *server*; None when it does not."""
    if trusting is None:
        trusting = ssl.create_default_context(cafile=secrets / "ca")
        trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(secrets / f"{server}.crt", secrets / f"{server}.key")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(back, there, server_hostname=name)
    service = serving.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for side in (client, service):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error
    return None
