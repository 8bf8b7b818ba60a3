"""The command ``otel-journal``."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import threading
import traceback
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from .commands.check import check
from .commands.dead_letters import dead_letters
from .commands.import_checkpoint import import_checkpoint
from .commands.migrate import migrate
from .commands.prune import prune
from .commands.reading import EXIT_FAILED
from .commands.rules import rules
from .commands.runs import runs
from .commands.show import show
from .commands.sidecar import sidecar
from .commands.tail import tail
from .errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prometheus_client import CollectorRegistry

    from .demo import Report, Stage

PROGRAM: Final = "otel-journal"
LOOPBACK: Final = "127.0.0.1"
"""The only address the demo listens on."""
DEFAULT_PORT: Final = 9464
"""The port that OpenTelemetry's Prometheus exporters use."""

EXIT_USAGE: Final = 2
"""The command line or a setting is not allowed."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C, as shells report it: 128 + SIGINT."""


@dataclass(slots=True)
class _Options:
    """Options that concern the handling of errors, wherever they stand on the command line."""

    debug: bool = False


def _remember_debug(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's signature
    context.ensure_object(_Options).debug |= value


_debug_option: Final = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_remember_debug,
    help="Show the traceback of an error.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=PROGRAM, prog_name=PROGRAM)
@_debug_option
def commands() -> None:
    """Record LangGraph agents: traces, token counters, and a feed that add up."""


for _command in (
    runs,
    show,
    tail,
    check,
    prune,
    migrate,
    import_checkpoint,
    rules,
    sidecar,
    dead_letters,
):
    commands.add_command(_debug_option(_command))


@commands.command()
@click.option(
    "--runs",
    "incidents",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    show_default=True,
    help="Play the incident N times, without pauses if more than 1.",
)
@click.option("--serve", is_flag=True, help="Keep /metrics up after the run, until Ctrl-C.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port of --serve; 0 picks a free one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@_debug_option
def demo(*, incidents: int, serve: bool, port: int, as_json: bool) -> int:
    """Run a scripted agent and check every account.

    Its callbacks arrive twice and some usage late; no network, no key. The exit code is 0 only
    when every event reached every sink and all totals match the script. With
    OTEL_EXPORTER_OTLP_ENDPOINT set, spans are exported there too.
    """  # fmt: skip
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - --help stays fast

    from .demo import Stage  # noqa: PLC0415 - imports langgraph, a second

    registry = CollectorRegistry()
    with ExitStack() as closing:
        stage = closing.enter_context(Stage(registry))
        if serve:
            address = _serve(registry, port, closing)
        report = _play(stage, incidents)
        click.echo(_as_json(report) if as_json else _as_text(report), color=_colour())
        if serve:
            _wait_for_interrupt(f"Metrics on {address} until Ctrl-C.")
    return 0 if report.ok else EXIT_FAILED


def _play(stage: Stage, incidents: int) -> Report:
    if incidents == 1:
        return stage.play()
    with click.progressbar(length=incidents, label="Incidents", file=sys.stderr) as progress:
        return stage.play(incidents, lambda: progress.update(1))


def _as_json(report: Report) -> str:
    return json.dumps({"ok": report.ok, **dataclasses.asdict(report)}, indent=2)


def _as_text(report: Report) -> str:
    from .demo import ASCII, UNICODE, render  # noqa: PLC0415 - as in `demo`

    encoding = getattr(sys.stdout, "encoding", "") or ""
    return render(report, UNICODE if "utf" in encoding.lower() else ASCII)


def _colour() -> bool | None:
    """Return None, which leaves it to click to see a terminal, unless colour is unwanted."""
    return False if os.environ.get("NO_COLOR") else None


def _serve(registry: CollectorRegistry, port: int, closing: ExitStack) -> str:
    """Expose the registry; return the URL.

    Raises:
        JournalError: the port cannot be listened on.
    """
    from prometheus_client import start_http_server  # noqa: PLC0415 - as in `demo`

    try:
        server, thread = start_http_server(port, addr=LOOPBACK, registry=registry)
    except OSError as error:
        msg = f"--port {port}: cannot listen on {LOOPBACK}:{port}: {error.strerror}"
        raise JournalError(msg) from error
    closing.callback(thread.join)
    closing.callback(server.server_close)
    closing.callback(server.shutdown)
    return f"http://{LOOPBACK}:{server.server_port}/metrics"


def _wait_for_interrupt(message: str) -> None:
    try:
        click.echo(message, err=True)
        threading.Event().wait()
    except KeyboardInterrupt:
        click.echo(err=True)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 good, 1 failed, 2 not allowed, 130 interrupted."""
    options = _Options()
    sys.exit(_guarded(lambda: _invoke(arguments, options), options))


def _invoke(arguments: Sequence[str] | None, options: _Options) -> int:
    result: Any = commands.main(arguments, prog_name=PROGRAM, standalone_mode=False, obj=options)
    return result if isinstance(result, int) else 0


def _guarded(run: Callable[[], int], options: _Options) -> int:
    """Turn every error into one line on stderr and an exit code."""
    try:
        return run()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    except JournalError as error:
        return _told(str(error), EXIT_USAGE, options)
    except Exception as error:  # noqa: BLE001 - the boundary towards the user
        return _told(f"unexpected {type(error).__name__}: {error}", EXIT_FAILED, options)


def _told(message: str, code: int, options: _Options) -> int:
    if options.debug:
        traceback.print_exc()
    hint = "" if options.debug or code == EXIT_USAGE else " (--debug shows where)"
    click.echo(f"{PROGRAM}: {' '.join(message.split())}{hint}", err=True)
    return code
