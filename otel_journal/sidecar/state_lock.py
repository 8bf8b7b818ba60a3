"""One sidecar per state file: a lock that the kernel frees when its holder dies."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Final

from otel_journal.errors import SidecarError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pathlib import Path

_PRIVATE: Final = 0o600
"""Readable by its owner only, like the state file beside it."""
_PATIENCE_S: Final = 0.5
"""How long a holder may take to write its pid; until then the file names the one before it."""
_PAUSE_S: Final = 0.02
"""Time between two looks at a lock whose holder is not known yet."""
_PID_BYTES: Final = 32
"""More than any pid has digits."""


class StateLock:
    """Exclusive lock on ``PATH.lock``; the file stays, with the pid of its last holder inside."""

    def __init__(self, path: Path) -> None:
        """Lock the state file at `path`.

        Raises:
            SidecarError: another process has it, the system has no such locks, or the lock file
                cannot be made.
        """
        lock = path.with_name(path.name + ".lock")
        if fcntl is None:
            msg = f"state file {path}: this system has no flock; run the sidecar on Linux or macOS"
            raise SidecarError(msg)
        try:
            self._file = os.open(lock, os.O_RDWR | os.O_CREAT, _PRIVATE)
        except OSError as error:
            msg = f"state file {path}: {_words(path, error)}"
            raise SidecarError(msg) from error
        try:
            self._wait(path, lock)
            self.used_before = bool(_pid(self._file))
            """True when somebody held it earlier: then a state file should be there."""
            _write_pid(self._file)
        except OSError as error:
            os.close(self._file)
            msg = f"state file {path}: its lock {lock} cannot be taken: {error.strerror}"
            raise SidecarError(msg) from error
        except BaseException:
            os.close(self._file)
            raise

    def release(self) -> None:
        """Let others have it; once only."""
        os.close(self._file)

    def _wait(self, path: Path, lock: Path) -> None:
        """Take the lock, or name who has it."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            pid = _pid(self._file)
            if _alive(pid) or time.monotonic() > deadline:
                holder = f"process {pid}" if pid else "another process"
                msg = (
                    f"state file {path}: {holder} works with it (it holds {lock}); "
                    "stop it first, or name another state file"
                )
                raise SidecarError(msg)
            time.sleep(_PAUSE_S)


def _words(path: Path, error: OSError) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if isinstance(error, PermissionError) and not os.access(path.parent, os.W_OK):
        return f"the folder {path.parent} is not writable"
    return f"its lock cannot be made ({error.strerror})"


def _pid(file: int) -> int:
    """Return what the lock file says, 0 when that is nothing."""
    said = os.pread(file, _PID_BYTES, 0).strip()
    return int(said) if said.isdigit() else 0


def _alive(pid: int) -> bool:
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it is another user's
        return True
    return True


def _write_pid(file: int) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
