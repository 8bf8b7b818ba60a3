"""Processes that die, and others that take over."""

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from . import killed_process
from .registry import Caller, scenario


@scenario("39", way="sync")
def killed_and_resumed(call: Caller) -> None:
    """A process is killed in its second node; a new one resumes from the checkpoint.

    Only the second process is seen here: what the first left open is closed by the sidecar.
    """
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "checkpoints.db")
        killed = subprocess.run(  # noqa: S603 - our own interpreter and program
            [sys.executable, killed_process.__file__, database],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL
        with closing(sqlite3.connect(database, check_same_thread=False)) as connection:
            graph = killed_process.build(connection, killed=False)
            call.invoke(graph, None, call.config(thread_id="t1"), durability="sync")
