"""A power cut: of a folder, only what somebody has synced is there afterwards, as POSIX allows it."""

import os
import shutil
from pathlib import Path
from typing import Self


class Power:
    """Watches what is synced below a folder while the block runs, and cuts the power after it.

    A name lasts when its folder was synced after it was made or went; bytes when their file was.
    """

    def __init__(self, root: Path) -> None:
        """Watch ``root``; what is there already is taken as synced."""
        self.root = root
        self._vault = root.with_name(f"{root.name}.vault")
        self._vault.mkdir()
        self._names: dict[int, dict[str, int]] = {}
        self._sizes: dict[int, int] = {}
        self._real = os.fsync, os.fdatasync
        self._syncs = 0
        self._stop: tuple[int, type[Exception]] | None = None
        for folder, _, files in root.walk():
            self._see_folder(folder)
            for name in files:
                self._see_file(folder / name)

    def __enter__(self) -> Self:
        os.fsync = os.fdatasync = self._fsync
        return self

    def __exit__(self, *_: object) -> None:
        os.fsync, os.fdatasync = self._real

    def stop_after(self, syncs: int, error: type[Exception]) -> None:
        """Raise ``error`` at the sync after so many."""
        self._stop = syncs, error

    def _fsync(self, file: int) -> None:
        if self._stop is not None and self._syncs >= self._stop[0]:
            raise self._stop[1]
        self._real[0](file)
        self._syncs += 1
        path = Path(f"/proc/self/fd/{file}").readlink()
        if path.is_relative_to(self.root):
            if path.is_dir():
                self._see_folder(path)
            else:
                self._see_file(path)

    def _see_folder(self, folder: Path) -> None:
        names = self._names[folder.lstat().st_ino] = {}
        for path in folder.iterdir():
            number = names[path.name] = path.lstat().st_ino
            kept = self._vault / str(number)
            if path.is_file() and not kept.exists():
                kept.hardlink_to(path)

    def _see_file(self, path: Path) -> None:
        status = path.lstat()
        self._sizes[status.st_ino] = status.st_size

    def cut(self) -> None:
        """Make the folder what a power cut may leave of it."""
        folders = {path.lstat().st_ino for path in self.root.rglob("*") if path.is_dir()}
        folders |= {*self._names}  # those that went, too
        left = self._left(self.root, self.root.lstat().st_ino, folders)
        shutil.rmtree(self.root)
        for path, number in left.items():
            if number is None:
                path.mkdir(parents=True)
                continue
            shutil.copyfile(self._vault / str(number), path)
            os.truncate(path, min(path.stat().st_size, self._sizes.get(number, 0)))
        shutil.rmtree(self._vault)

    def _left(self, folder: Path, number: int, folders: set[int]) -> dict[Path, int | None]:
        left: dict[Path, int | None] = {folder: None}
        for name, below in self._names.get(number, {}).items():
            if below in folders:
                left |= self._left(folder / name, below, folders)
            elif (self._vault / str(below)).exists():
                left[folder / name] = below
        return left
