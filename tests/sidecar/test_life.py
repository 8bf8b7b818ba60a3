"""The life of a sidecar: start, lock, drain, reload, exit codes; with real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from servers.otlp_answers import Answer
from servers.otlp_sink import OtlpSink
from servers.process import wait_until

from otel_journal import open_store

from .sidecar_process import SPANS_PER_RUN, SidecarProcess, record

OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Provide a journal with three runs."""
    path = tmp_path / "journal.db"
    record(path, runs=3)
    return path


def url(path: Path) -> str:
    """Return the URL of a journal file."""
    return f"sqlite:///{path}"


def test_once_sends_what_is_there_and_ends(journal: Path) -> None:
    """For cron: everything is sent the first time, nothing the second time."""
    with OtlpSink() as sink:
        first = SidecarProcess("--once", "--store", url(journal), **{OTLP: sink.http_endpoint})
        assert first.ended()[0] == 0
        assert len(sink.spans) == 3 * SPANS_PER_RUN
        second = SidecarProcess("--once", "--store", url(journal), **{OTLP: sink.http_endpoint})
        assert second.ended()[0] == 0
        assert len(sink.spans) == 3 * SPANS_PER_RUN
        record(journal)
        third = SidecarProcess("--once", "--store", url(journal), **{OTLP: sink.http_endpoint})
        assert third.ended()[0] == 0
        assert len(sink.spans) == 4 * SPANS_PER_RUN


def test_once_tells_by_its_exit_code_that_something_is_left(journal: Path) -> None:
    """With a collector that is away, within its time; the next one sends it."""
    sidecar = SidecarProcess("--once", "--timeout", "1", "--store", url(journal), **{OTLP: NOBODY})
    code, log = sidecar.ended()

    assert code == 1
    assert "not everything was sent" in log
    with OtlpSink() as sink:
        again = SidecarProcess("--once", "--store", url(journal), **{OTLP: sink.http_endpoint})
        assert again.ended()[0] == 0
        assert len(sink.spans) == 3 * SPANS_PER_RUN


NOBODY = "http://127.0.0.1:9"
"""The port of `discard`, where nobody listens."""


def test_sigterm_drains(journal: Path) -> None:
    """What is in the journal when the signal comes is sent before the end."""
    with OtlpSink() as sink:
        sink.script(then=Answer(503))
        with SidecarProcess("--store", url(journal), **{OTLP: sink.http_endpoint}) as sidecar:
            assert sink.wait_for(lambda sink: len(sink.requests) > 0, timeout=30)
            sink.script(then=Answer())
            code, _ = sidecar.terminated()
        assert code == 0
        assert len(sink.spans) == 3 * SPANS_PER_RUN


def test_sigterm_gives_up_in_time_and_loses_nothing(journal: Path) -> None:
    """A collector that is away holds up the end for the drain time only."""
    limit = {"OTEL_JOURNAL_SIDECAR_DRAIN_TIMEOUT": "1"}
    with SidecarProcess("--store", url(journal), **{OTLP: NOBODY}, **limit) as sidecar:
        assert sidecar.answers("/healthz")
        code, log = sidecar.terminated()
    assert code == 1
    assert "not everything was sent" in log


def test_a_second_sidecar_is_refused(journal: Path) -> None:
    """Two would send everything twice; the message names the file and who has it."""
    with SidecarProcess("--store", url(journal), **{OTLP: NOBODY}) as first:
        assert first.answers("/healthz")
        code, log = SidecarProcess("--once", "--store", url(journal), **{OTLP: NOBODY}).ended()

    assert code == 2
    assert f"{journal}.sidecar" in log
    assert str(first.process.pid) in log


def test_it_waits_for_a_journal_that_is_not_there_yet(tmp_path: Path) -> None:
    """It may start before the application; until then the probe says why it is not ready."""
    path = tmp_path / "journal.db"
    with OtlpSink() as sink:
        arguments = ("--store", url(path))
        with SidecarProcess(*arguments, **{OTLP: sink.http_endpoint}) as sidecar:
            assert sidecar.answers("/healthz")
            assert not sidecar.answers("/readyz", timeout=0)
            record(path)
            assert sidecar.answers("/readyz")
            assert len(sink.wait_for_spans(SPANS_PER_RUN, timeout=30)) == SPANS_PER_RUN
            assert sidecar.terminated()[0] == 0


def test_the_journal_is_only_read(journal: Path) -> None:
    """Not a byte of it changes."""
    before = journal.read_bytes()
    with OtlpSink() as sink:
        once = SidecarProcess("--once", "--store", url(journal), **{OTLP: sink.http_endpoint})
        assert once.ended()[0] == 0

    assert journal.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "environ", "said"),
    [
        (("--store", "mysql://x"), {}, "store='mysql://x' is not allowed"),
        (("--listen", "0.0.0.0:0"), {}, "without a token"),
        ((), {"OTEL_JOURNAL_SIDECAR_DEAD_AFTER": "1"}, "DEAD_AFTER='1' is not allowed"),
        ((), {"OTEL_EXPORTER_OTLP_PROTOCOL": "udp"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
        (("--settings", "none.toml"), {}, "No such file"),
    ],
)
def test_bad_settings_stop_it_before_it_touches_anything(
    journal: Path, arguments: tuple[str, ...], environ: dict[str, str], said: str
) -> None:
    """One line, exit code 2, and the backlog is as it was (fault 49)."""
    sidecar = SidecarProcess(*arguments, OTEL_JOURNAL_STORE=url(journal), **environ)
    code, log = sidecar.ended()

    assert code == 2
    assert said in log
    assert "Traceback" not in log
    assert sorted(path.name for path in journal.parent.glob("*.sidecar*")) == []


def test_without_its_packages_it_says_what_to_install(journal: Path) -> None:
    """The application needs none of them, so they are an extra."""
    program = (
        "import sys; sys.modules['starlette'] = None; "
        "from otel_journal.cli import main; main(['sidecar', '--store', sys.argv[1]])"
    )
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program, url(journal)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert "pip install 'otel-journal[sidecar]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_in_use_is_named(journal: Path) -> None:
    """The message says which, and the state is free for the next start."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = ("--store", url(journal), "--listen", listen)
        code, log = SidecarProcess(*arguments, **{OTLP: NOBODY}).ended()

    assert code == 2
    assert f"cannot listen on {listen}" in log


def test_sighup_reads_the_settings_again(journal: Path, tmp_path: Path) -> None:
    """Another collector, without a restart; what is wrong in the file is told, and is not taken."""
    file = tmp_path / "sidecar.toml"
    file.write_text(f"[otlp]\nendpoint = '{NOBODY}'\n")
    with OtlpSink() as sink, SidecarProcess("--store", url(journal), "--settings", file) as sidecar:
        assert sidecar.answers("/metrics")
        file.write_text("[sidecar]\nport = 1\n")
        sidecar.process.send_signal(signal.SIGHUP)
        assert sidecar.answers("/metrics")
        file.write_text(f"[otlp]\nendpoint = '{sink.http_endpoint}'\n")
        sidecar.process.send_signal(signal.SIGHUP)
        assert len(sink.wait_for_spans(3 * SPANS_PER_RUN, timeout=30)) == 3 * SPANS_PER_RUN
        assert sidecar.answers("/metrics")
        runs = 'otel_journal_runs_total{gen_ai_agent_name="adder",outcome="ok"} 3.0'
        assert runs in sidecar.get("/metrics")
        code, log = sidecar.terminated()
    assert code == 0
    assert "settings are not reloaded" in log
    assert "[sidecar] port" in log


def test_log_lines_can_be_json(journal: Path) -> None:
    """For programs that collect logs."""
    format_ = {"OTEL_JOURNAL_SIDECAR_LOG_FORMAT": "json"}
    arguments = ("--once", "--timeout", "1", "--store", url(journal))
    _, log = SidecarProcess(*arguments, **{OTLP: NOBODY}, **format_).ended()
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]

    assert any("the export of spans fails" in line["message"] for line in lines)
    assert {"time", "level", "message"} <= lines[0].keys()


def test_counters_go_on_after_a_kill(journal: Path) -> None:
    """No counter falls and none is doubled, whatever was shown before the kill (fault 50)."""
    runs = 'otel_journal_runs_total{gen_ai_agent_name="adder",outcome="ok"}'

    def shown(sidecar: SidecarProcess) -> float:
        assert sidecar.answers("/metrics")
        (line,) = (x for x in sidecar.get("/metrics").splitlines() if x.startswith(runs))
        return float(line.rpartition(" ")[2])

    values = []
    for _ in range(3):
        with SidecarProcess("--store", url(journal), **{OTLP: NOBODY}) as sidecar:
            values.append(shown(sidecar))
            record(journal)
            assert wait_until(lambda: shown(sidecar) > values[-1], 30)
            values.append(shown(sidecar))
            os.kill(sidecar.process.pid, signal.SIGKILL)

    assert values == [3, 4, 4, 5, 5, 6]


def test_a_state_that_is_lost_ends_it(journal: Path) -> None:
    """Whoever restarts it gets a sidecar that works: this one could only count into nowhere."""
    with SidecarProcess("--store", url(journal), **{OTLP: NOBODY}) as sidecar:
        assert sidecar.answers("/metrics")
        Path(f"{journal}.sidecar").unlink()
        record(journal)
        code, log = sidecar.ended()

    assert code == 1
    assert f"{journal}.sidecar" in log
    assert "Traceback" not in log


def test_a_damaged_state_is_set_aside(journal: Path) -> None:
    """It starts again from the beginning, says so, and does not die at every start."""
    state = Path(f"{journal}.sidecar")
    state.write_bytes(b"not a database, at all" * 100)
    with OtlpSink() as sink:
        once = SidecarProcess("--once", "--store", url(journal), **{OTLP: sink.http_endpoint})
        code, log = once.ended()
        assert len(sink.spans) == 3 * SPANS_PER_RUN
    assert code == 0
    assert str(state) in log
    with sqlite3.connect(state) as connection:
        assert connection.execute("PRAGMA quick_check").fetchone() == ("ok",)
    connection.close()


def test_once_closes_what_died_before(tmp_path: Path) -> None:
    """Cron finds a process that was killed long ago: its run is closed and sent."""
    path = tmp_path / "journal.db"
    record(path)
    store = open_store(url(path))
    long_ago = store.read()
    store.close()
    old = tmp_path / "old.db"
    store = open_store(url(old))
    hour_ns = 3_600 * 10**9
    kept = [event for event in long_ago if event.event_type not in {"run.end", "llm.end"}]
    store.append([replace(event, created_ns=event.created_ns - hour_ns) for event in kept])
    store.close()
    with OtlpSink() as sink:
        once = SidecarProcess("--once", "--store", url(old), **{OTLP: sink.http_endpoint})
        assert once.ended()[0] == 0
        spans = sink.spans
    closed = [s for s in spans if s.attributes.get("otel_journal.closed_by") == "process_died"]

    assert len(spans) == SPANS_PER_RUN
    assert sorted(span.name for span in closed) == [
        "chat scripted-1",
        "chat scripted-1",
        "invoke_agent adder",
    ]
    assert {span.attributes["otel_journal.outcome"] for span in closed} == {"unknown"}
