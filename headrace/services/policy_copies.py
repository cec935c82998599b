"""Policy bundles that two people adopted: copies in the home folder, and the link to the one in force.

Where the setting ``policy.four_eyes`` names ``policy``, an edit of a bundle's files changes nothing. Its
folder is copied when somebody asks for it, so what is approved is what was looked at. The copy is put in
force when somebody else approves.
"""

import os
import shutil
from pathlib import Path

from governance.policy import PolicyBundle, load_bundle
from headrace.app.home import Home
from trajectory.canonical import bytes_hash, content_hash
from trajectory.errors import IntegrityError
from trajectory.files import make_folders, sync_files, sync_folder


def copy_bundle(home: Home, folder: Path) -> tuple[str, PolicyBundle]:
    """Copy a bundle's folder; return the copy's name, by which it is adopted, and the copied bundle.

    Raises:
        PolicyError: it is none, or something in it is wrong.
    """
    source = load_bundle(folder).path
    copies = home.policies
    make_folders(copies, mode=0o700)
    fresh = copies / f".{os.getpid()}-{os.urandom(4).hex()}"
    try:
        shutil.copytree(source, fresh, ignore=shutil.ignore_patterns(".*", "__pycache__", "*.py"))
        name = _name_of(fresh)
        load_bundle(fresh)
        if not (copies / name).exists():
            sync_files(one for one in fresh.rglob("*") if one.is_file())
            sync_folder(fresh)
            fresh.rename(copies / name)
            sync_folder(copies)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return name, load_bundle(copies / name)


def adopt(home: Home, name: str) -> PolicyBundle:
    """Put a copy in force, at once for everything that reads the policy.

    Raises:
        IntegrityError: the copy is not what it was when it was made.
    """
    copy = home.policies / name
    if not copy.is_dir() or _name_of(copy) != name:
        raise IntegrityError(f"{copy} was changed since it was asked for; ask for it anew")
    fresh = home.policies / f".{os.getpid()}-{os.urandom(4).hex()}-link"
    fresh.symlink_to(name, target_is_directory=True)
    fresh.replace(home.policy_in_force)
    sync_folder(home.policies)
    return load_bundle(copy)


def _name_of(folder: Path) -> str:
    """Return the hash of all files of a folder, as a file name."""
    files = sorted(one for one in folder.rglob("*") if one.is_file())
    said = {str(one.relative_to(folder)): bytes_hash(one.read_bytes()) for one in files}
    return content_hash(dict(said)).replace(":", "-")
