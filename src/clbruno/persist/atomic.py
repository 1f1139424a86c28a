"""Replace a file so that a reader finds the old one or the new one whole, never a mixture."""

import errno
import fcntl
import os
import re
import secrets
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from clbruno.errors import InputError, LockedFileError, ModelFileError


@dataclass(frozen=True)
class Target:
    """A file that this process alone may replace, for as long as `writing` holds its lock."""

    path: Path

    def replace(self, write: Callable[[BinaryIO], None]) -> None:
        """Give the file the content that `write` produces, or leave it as it was and raise."""
        temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}.tmp")
        try:
            # 0o666 at creation lets the kernel apply the umask, which Python can only read by
            # changing it for the whole process.
            descriptor = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666
            )
            try:
                with open(descriptor, "wb") as file:
                    self._copy_mode(descriptor)
                    write(file)
                    file.flush()
                    os.fsync(descriptor)
                os.replace(temporary, self.path)
            except BaseException:
                with suppress(OSError):
                    temporary.unlink()
                raise
        except OSError as error:
            raise _not_written(self.path, error) from error
        self._sync_folder()

    def _copy_mode(self, descriptor: int) -> None:
        with suppress(FileNotFoundError):
            os.fchmod(descriptor, stat.S_IMODE(os.stat(self.path).st_mode))

    def _sync_folder(self) -> None:
        try:
            descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ModelFileError(
                f"{self.path}: the new file is in place, but the disk did not confirm that it will "
                f"outlive a power cut ({error.strerror}); write it once more"
            ) from error


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[Target]:
    """Hold the lock of one file; whoever else wants to write it meanwhile gets a clear error.

    A symbolic link is followed, so that the file it names is replaced and the link stays.
    """
    target = Path(os.path.realpath(path))
    _check_place(target)
    lock_path = target.with_name(f".{target.name}.lock")
    try:
        lock = _lock(lock_path, target)
    except OSError as error:
        raise _not_written(target, error) from error
    try:
        with suppress(OSError):
            _sweep(target)
        yield Target(target)
    finally:
        with suppress(OSError):
            lock_path.unlink()
        os.close(lock)


def _check_place(target: Path) -> None:
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        if not target.parent.is_dir():
            raise InputError(f"{target}: there is no folder {target.parent}; create it") from None
        return
    except OSError as error:
        raise _not_written(target, error) from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{target} is a folder; name a file in it")
    if not stat.S_ISREG(mode):
        raise InputError(f"{target} is not a regular file, so it cannot be replaced; name another")
    # Renaming over it would work, but who took away the right to write meant it.
    if not os.access(target, os.W_OK):
        raise InputError(f"{target}: no permission to write it; change its mode, or name another")


def _lock(lock_path: Path, target: Path) -> int:
    while True:
        descriptor = _open_lock(lock_path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The last holder removes the lock file before it lets go, so what was locked just now
            # may have lost its name; then a new one must be locked.
            if _same_file(descriptor, lock_path):
                _sign(descriptor)
                return descriptor
        except BlockingIOError:
            holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace") or "another process"
            os.close(descriptor)
            raise LockedFileError(
                f"{target} is being written by {holder}; wait until it is done, then try again"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _open_lock(lock_path: Path) -> int:
    # The lock file is written to: where others may create files, a link of its name must not lead
    # that into a file of ours.
    try:
        return os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise InputError(
            f"{lock_path} is a symbolic link, and no lock of ours ever is: find out who made it, "
            "and remove it"
        ) from None


def _sign(descriptor: int) -> None:
    # Who holds the lock is a courtesy to the others: a full disk must not keep us from locking.
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)


def _same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _sweep(target: Path) -> None:
    # Every writer of this file holds its lock, and that is now us: whatever temporary file is
    # left belongs to a writer that was killed.
    ours = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{16}\.tmp")
    for entry in os.scandir(target.parent):
        if ours.fullmatch(entry.name):
            os.unlink(entry.path)


def _not_written(path: Path, error: OSError) -> InputError | ModelFileError:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return InputError(
            f"{path}: no permission to write in {path.parent}; change its permissions, or name "
            "another place"
        )
    return ModelFileError(
        f"{path} could not be written: {error.strerror or error}; "
        "what was there before is unchanged"
    )
