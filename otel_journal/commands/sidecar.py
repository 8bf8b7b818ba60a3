"""``otel-journal sidecar``: export a journal, from a process of its own."""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import click

from otel_journal.errors import JournalError, SettingsError, SidecarError

from .reading import EXIT_FAILED

if TYPE_CHECKING:
    from types import FrameType

    from otel_journal.sidecar.configuration import Configuration
    from otel_journal.sidecar.service import Sidecar

_logger: Final = logging.getLogger("otel_journal")


@click.command()
@click.option("--store", metavar="URL", help="Journal to read; default OTEL_JOURNAL_STORE.")
@click.option("--state", metavar="PATH", help="The sidecar's own file; default beside the journal.")
@click.option("--listen", metavar="HOST:PORT", help="Where HTTP is served; '' for nowhere.")
@click.option("--shard", metavar="I/N", help="Read the share I of N sidecars.")
@click.option(
    "--settings",
    "file",
    type=click.Path(dir_okay=False),
    help="TOML file with the tables [sidecar] and [otlp]; read again at SIGHUP.",
)
@click.option("--once", is_flag=True, help="Send what is there, and end; serves nothing.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="S",
    help="Most seconds for --once; default as long as it takes.",
)
def sidecar(*, file: str | None, once: bool, timeout: float | None, **given: str | None) -> int:
    """Export a journal: spans by OTLP, counters by /metrics, and a live view.

    Where spans go is said by OTEL_EXPORTER_OTLP_ENDPOINT and its siblings, everything else by
    OTEL_JOURNAL_SIDECAR_*, a settings file, or the options. The exit code is 0 when everything
    that was in the journal was delivered, 1 when not, 2 when a setting is not allowed.
    """  # fmt: skip
    if once:
        given["listen"] = ""
    life = Life(file, given)
    return 0 if life.live(once=once, timeout=timeout) else EXIT_FAILED


class Life:
    """From the first settings over reloads to the last signal."""

    def __init__(self, file: str | None, given: dict[str, Any]) -> None:
        """Work with the settings of `file` and those `given` on the command line."""
        self._file = file
        self._given = given
        self._running: Sidecar | None = None
        self._next: Configuration | None = None

    def live(self, *, once: bool, timeout: float | None) -> bool:
        """Run until a signal; return whether everything was delivered.

        Raises:
            SettingsError: a setting is not allowed.
            SidecarError: something that is needed cannot be opened.
        """
        configuration: Configuration | None = self._read()
        from otel_journal.sidecar import log_lines, service, workers  # noqa: PLC0415 - an extra

        workers.look_for_cycles_less()
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its core writes to stderr by itself
        complete = False
        while configuration is not None:
            log_lines.set_up(configuration.sidecar.log_format)
            self._next = None
            self._running = service.Sidecar(configuration)
            self._listen_to_signals()
            if once:
                self._running.finish()
            limit = timeout if once else configuration.sidecar.drain_timeout
            complete = self._running.run(drain_timeout=limit)
            configuration = self._next
        return complete

    def _read(self) -> Configuration:
        try:
            from otel_journal.sidecar import configuration, service  # noqa: F401, PLC0415 - an extra
        except ModuleNotFoundError as error:
            msg = f"the sidecar needs {error.name}: pip install 'otel-journal[sidecar]'"
            raise JournalError(msg) from error
        return configuration.read(os.environ, self._file, self._given)

    def _listen_to_signals(self) -> None:
        signal.signal(signal.SIGTERM, self._finish)
        signal.signal(signal.SIGINT, self._finish)
        if hasattr(signal, "SIGHUP"):  # not on Windows
            signal.signal(signal.SIGHUP, self._reload)

    def _finish(self, _number: int, _frame: FrameType | None) -> None:
        """Drain; a second signal does not wait for it."""
        self._next = None
        running = self._running
        if running is None:
            return
        if running.finishing:
            running.halt()
        running.finish()

    def _reload(self, _number: int, _frame: FrameType | None) -> None:
        """Begin anew with the settings as they are now, if they are good."""
        from otel_journal.sidecar import service  # noqa: PLC0415 - an extra

        running = self._running
        if running is None or running.finishing:
            return
        try:
            again = self._read()
            service.Sidecar(again)  # what can be wrong is found now, while the old one still runs
        except (SettingsError, SidecarError) as error:
            _logger.error("settings are not reloaded: %s", error)  # noqa: TRY400 - one line
            return
        _logger.info("settings are reloaded")
        self._next = again
        running.halt()
