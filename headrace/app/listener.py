"""Which process of this machine listens on a port, for people who find it taken."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LISTENS = "0A"
_PROC = Path("/proc")


def listener_on(port: int) -> str:
    """Return who listens on a port, by process and name, as far as the system tells this user."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for folder in _PROC.glob("[0-9]*") if sockets else ():
        if not sockets.isdisjoint(_open_files(folder)):
            return f"process {folder.name} ({_name(folder)})"
    return "another process (another `headrace up`?)"


def _listening(port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port."""
    for table in ("net/tcp", "net/tcp6"):
        try:
            lines = (_PROC / "self" / table).read_text("ascii").splitlines()[1:]
        except OSError:  # not Linux, or no IPv6
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _open_files(process: Path) -> Iterator[str]:
    try:
        links = [*(process / "fd").iterdir()]
    except OSError:  # of another user, or gone by now
        return
    for link in links:
        with suppress(OSError):  # closed by now, as what listed our own files is
            yield str(link.readlink())


def _name(process: Path) -> str:
    """Return the ``headrace`` command that a process runs, or its program's name."""
    try:
        said = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        if "headrace" in said:
            return " ".join(said[said.index("headrace") :]).strip()
        return (process / "comm").read_text("utf-8", "replace").strip()
    except OSError:
        return "gone by now"
