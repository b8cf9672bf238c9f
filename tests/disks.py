"""
Disks that fill up, for servers of a test's own.

A small tmpfs is a disk like any other, but only who may mount gets one: root, unless a container has taken that right
away. Everybody can do the other thing: a limit on the size of files, which the kernel keeps for every write of a
process and of those it starts. The write fails there as on a full disk, with another number (EFBIG).

Tests ask :func:`may_mount`, and do the one or the other; none is left out.
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

BLOCK = 65_536

LIMITED = "IMEM_TEST_LIMITED_DISK"
"""Environment variable: where it is set, the limit is used although this user may mount."""


@cache
def may_mount() -> bool:
    """Whether this process may mount a disk: being root does not say so in a container."""
    if os.geteuid() != 0 or os.environ.get(LIMITED):
        return False
    with TemporaryDirectory(prefix="imem-mount-") as folder:
        try:
            with small_disk(Path(folder), 1):
                return True
        except (subprocess.CalledProcessError, FileNotFoundError):
            return False


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """Mount a disk of *megabytes* on *folder*."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0711", "imem-test", str(folder)]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    try:
        yield folder
    finally:
        # Lazily: a server that is just ending may still have a file open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@dataclass(frozen=True)
class Disk:
    """
    The disk of one server that a test started as its own user.

    Attributes:
        folder: where the server keeps everything.
        mounted: whether it is a disk; otherwise the server's files have a limit.
    """

    folder: Path
    mounted: bool

    def fill(self, pid: int) -> None:
        """Leave the server *pid* no room for another byte."""
        if self.mounted:
            fill(self.folder)
        else:
            limit_files(pid, max(path.stat().st_size for path in self.folder.rglob("*") if path.is_file()))

    def make_room(self, pid: int) -> None:
        """Give it room again."""
        if self.mounted:
            (self.folder / "ballast").unlink()
        else:
            limit_files(pid, None)


@contextmanager
def own_disk(folder: Path, megabytes: int) -> Iterator[Disk]:
    """Lend a disk for a server, of *megabytes* if it can be one."""
    if may_mount():
        with small_disk(folder, megabytes):
            yield Disk(folder, mounted=True)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        yield Disk(folder, mounted=False)


def fill(disk: Path, *, leave: int = 0) -> Path:
    """Fill *disk* until so many bytes are left; return the file to remove for there to be room again."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while (room := free(disk) - leave) > 0 and file.write(b"x" * min(BLOCK, room)):
            pass
    return ballast


def free(disk: Path) -> int:
    """Return how many bytes are free."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


@contextmanager
def files_limited(size: int) -> Iterator[None]:
    """Let no file grow beyond *size* bytes in processes that are started within the block, however long they live."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def limit_files(pid: int, size: int | None) -> None:
    """Let no file of a running process of our own grow beyond *size* bytes from now on; None: as far as it may."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (hard if size is None else size, hard))
