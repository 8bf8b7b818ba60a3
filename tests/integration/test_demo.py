"""`otel-journal demo`, run as people run it: a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from servers.otlp_sink import Answer, OtlpSink
from servers.process import free_port, listens

PROGRAM = Path(sys.executable).with_name("otel-journal")
TIMEOUT_S = 60.0
TOKENS = {
    "scripted-large": (3_360, 175),
    "scripted-small": (410, 57),
    "scripted-stream": (1_480, 23),
}
"""What the scripted models spend in one incident; written here a second time on purpose."""
LATE = sum(TOKENS["scripted-stream"])
TOTAL = sum(sum(pair) for pair in TOKENS.values())
SPANS = 20
"""Spans of one incident."""

Runner = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(**extra: str) -> dict[str, str]:
    """Return the environment of a process: no telemetry settings but the given ones."""
    # The fixtures of a module run before the environment is cleaned for a test.
    own = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    return {**own, "PYTHONIOENCODING": "utf-8", **extra}


def run(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end."""
    return subprocess.run(  # noqa: S603 - our own program
        [PROGRAM, "demo", *arguments],
        env=environment(**extra),
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        check=False,
    )


def walk(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a step of the JSON report and all below it."""
    yield step
    for child in step["children"]:
        yield from walk(child)


@pytest.fixture(scope="module")
def text() -> list[str]:
    """Provide the lines of a plain demo that went well."""
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """Provide the JSON report of a demo that went well."""
    done = run("--json")
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class TestText:
    """The report for people."""

    def test_the_tree_has_everything_that_happened(self, text):
        """Names, outcomes, tokens and notes of both runs, in tree order."""
        lines = [line for line in text if re.match(r"(invoke_|[│├└ ]+─ )", line)]
        shown = [" ".join(re.sub(r"[│├└─█]|\d+\.\d+ m?s", "", line).split()) for line in lines]
        shown[4:7] = sorted(shown[4:7])  # who starts first is up to the threads
        assert shown == [
            "invoke_workflow oncall interrupted",
            "plan ok",
            "chat scripted-large ok 820 → 96",
            "tools ok",
            "execute_tool query_latency ok",
            "execute_tool query_latency ok",
            "execute_tool read_runbook error ConnectionError",
            "plan ok",
            "chat scripted-large ok 1,150 → 48",
            "tools ok",
            "execute_tool ask_researcher ok",
            "search ok",
            "chat scripted-small ok 410 → 57 subagent:researcher",
            "plan ok",
            "chat scripted-large ok 1,390 → 31",
            "approve interrupted",
            "invoke_workflow oncall ok resumes: run 1",
            "approve ok attempt 2, previous attempt: run 1",
            "report ok",
            "chat scripted-stream ok first chunk after , usage came after the run",
        ]

    def test_every_trace_id_is_shown(self, text):
        """One can look the runs up in a backend."""
        assert len({*re.findall(r"trace ([0-9a-f]{32})$", "\n".join(text), re.MULTILINE)}) == 2

    def test_the_token_table_adds_up(self, text):
        """One row per model, agent and caller, and their sum."""
        rows = [line.split() for line in text]
        assert [
            "scripted-large",
            "oncall",
            "lead_agent",
            "3",
            "3,360",
            "175",
            "3,535",
            "1,920",
        ] in rows
        assert [
            "scripted-small",
            "oncall",
            "subagent:researcher",
            "1",
            "410",
            "57",
            "467",
            "0",
        ] in rows
        assert ["scripted-stream", "oncall", "lead_agent", "1", "1,480", "23", "1,503", "0"] in rows
        assert ["all", "5", "5,250", "255", "5,505", "1,920"] in rows

    def test_what_was_deduplicated(self, text):
        """Repeats by kind, and what became of late usage."""
        rows = [line.split() for line in text]
        assert ["run", "12", "6"] in rows
        assert ["node", "52", "26"] in rows
        assert ["llm", "22", "10"] in rows
        assert ["tool", "16", "8"] in rows
        assert ["all", "102", "50"] in rows
        late = "usage that came late: 1 merged into its span, 1 amended after the end; 0 conflicts"
        assert f"  {late}" in text

    def test_all_accounts_agree_and_the_demo_says_so(self, text):
        """Every check has a good mark; the last line is the verdict."""
        checks = text[text.index("Checks  the script of the models says what must come out") + 1 :]
        marks = [line.split()[0] for line in checks if line.startswith("  ")]
        assert marks == ["✓"] * 9
        assert text[-1] == "OK: all accounts agree."

    def test_a_pipe_gets_no_colour_and_no_stray_space(self, text):
        """Output that is not for a terminal is plain."""
        assert not [line for line in text if "\x1b" in line or line != line.rstrip()]

    def test_a_terminal_that_knows_only_ascii_gets_ascii(self):
        """No UnicodeEncodeError, but another way to draw."""
        done = run(PYTHONIOENCODING="ascii")
        assert (done.returncode, done.stderr) == (0, "")
        assert "|- plan" in done.stdout
        assert done.stdout.isascii()


class TestColour:
    """Colour is for terminals."""

    @pytest.mark.parametrize(("extra", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
    def test_a_terminal_gets_colour_unless_it_is_unwanted(self, extra, coloured):
        """Failures are red on a terminal; NO_COLOR is respected."""
        terminal, slave = os.openpty()
        with subprocess.Popen(  # noqa: S603 - our own program
            [PROGRAM, "demo"], env=environment(TERM="xterm", **extra), stdout=slave
        ) as process:
            os.close(slave)
            output = b"".join(iter(lambda: _read(terminal), b""))
            assert process.wait(TIMEOUT_S) == 0
        os.close(terminal)
        assert (b"\x1b[31merror" in output) is coloured
        assert (b"\x1b" in output) is coloured


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux says so when the other side has closed
        return b""


class TestJson:
    """The report for machines."""

    def test_totals(self, report):
        """Tokens by model, agent, caller and type are those of the script."""
        rows = {row["model"]: row for row in report["tokens"]}
        assert {m: (r["input_tokens"], r["output_tokens"]) for m, r in rows.items()} == TOKENS
        assert rows["scripted-small"]["caller"] == "subagent:researcher"
        assert {row["agent"] for row in report["tokens"]} == {"oncall"}

    def test_the_tree_bears_the_tokens_that_came_in_time(self, report):
        """Usage merged late is on its span; usage that came after the end is not."""
        steps = [step for run in report["runs"] for step in walk(run["tree"])]
        assert len(steps) == SPANS
        on_spans = sum(
            step["input_tokens"] + step["output_tokens"]
            for step in steps
            if step["input_tokens"] is not None
        )
        assert on_spans == TOTAL - LATE

    def test_runs(self, report):
        """The run that paused, and the one that went on, linked to it."""
        paused, resumed = report["runs"]
        assert (paused["outcome"], resumed["outcome"]) == ("interrupted", "ok")
        assert paused["thread_id"] == resumed["thread_id"] == "incident-1"
        assert resumed["tree"]["links"] == [{"relation": "resumes", "trace_id": paused["trace_id"]}]

    def test_parallel_calls_of_one_tool_overlap(self, report):
        """Both calls are open at once and each has its own time."""
        first, second = (
            step
            for step in walk(report["runs"][0]["tree"])
            if step["name"] == "execute_tool query_latency"
        )
        assert second["start_s"] < first["start_s"] + first["duration_s"]
        assert first["duration_s"] != second["duration_s"]

    def test_the_streamed_answer_has_a_first_chunk(self, report):
        """Only the streamed call has one, earlier than its end."""
        streamed = [
            step
            for run in report["runs"]
            for step in walk(run["tree"])
            if step["first_chunk_s"] is not None
        ]
        assert [step["name"] for step in streamed] == ["chat scripted-stream"]
        assert 0 < streamed[0]["first_chunk_s"] < streamed[0]["duration_s"]

    def test_dedupe(self, report):
        """Half of all callbacks were repeats, but for the two that brought late usage."""
        kinds = report["dedupe"]["by_kind"].values()
        repeats = sum(kind["repeats_dropped"] for kind in kinds)
        assert sum(kind["callbacks"] for kind in kinds) == 2 * repeats + 2
        assert report["dedupe"]["usage_merged"] == report["dedupe"]["usage_amended"] == 1
        assert report["dedupe"]["usage_conflicts"] == 0

    def test_nothing_is_lost(self, report):
        """Every sink got every event."""
        assert set(report["sinks"]) == {"spans", "metrics"}
        for sink in report["sinks"].values():
            assert sink["seen"] == sink["exported"] > 0
            assert sink["pending"] == sink["dropped"] == 0

    def test_verdict(self, report):
        """All checks hold, and a single incident is no load."""
        assert report["ok"] is True
        assert all(check["ok"] for check in report["checks"])
        assert report["load"] is None
        assert report["exported_to"] == ""


class TestLoad:
    """`--runs N`."""

    def test_it_fills_a_store_that_a_sidecar_reads(self, tmp_path):
        """With the settings of an application that has one: the report is there all the same."""
        journal = tmp_path / "journal.db"
        store = {"OTEL_JOURNAL_STORE": f"sqlite:///{journal}", "OTEL_JOURNAL_EXPORT": "sidecar"}
        assert run(**store).returncode == 0
        listed = subprocess.run(  # noqa: S603 - our own program
            [PROGRAM, "runs", "--json"],
            env=environment(**store),
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT_S,
            check=True,
        )
        assert len(listed.stdout.splitlines()) >= 2

    def test_totals_grow_with_the_incidents_and_the_speed_is_told(self):
        """All accounts agree under load too; progress goes to stderr, away from the report."""
        done = run("--runs", "30", "--json")
        assert done.returncode == 0
        assert "Incidents" in done.stderr
        report = json.loads(done.stdout)
        assert report["load"]["runs"] == 60
        assert report["load"]["runs_per_second"] == pytest.approx(60 / report["load"]["seconds"])
        spent = {r["model"]: (r["input_tokens"], r["output_tokens"]) for r in report["tokens"]}
        assert spent == {model: (30 * i, 30 * o) for model, (i, o) in TOKENS.items()}
        assert len(report["runs"]) == 2

    def test_the_text_tells_the_speed(self):
        """Runs, seconds and runs per second in one line."""
        done = run("--runs", "2")
        assert done.returncode == 0
        assert re.search(r"^  4 runs in \d+\.\d\d s: \d+ runs/s$", done.stdout, re.MULTILINE)


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run the demo with --serve; yield the process and the URL it names."""
    with subprocess.Popen(  # noqa: S603 - our own program
        [PROGRAM, "demo", "--serve", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            found = re.fullmatch(
                r"Metrics on (http://127\.0\.0\.1:\d+/metrics) until Ctrl-C\.\n", line
            )
            assert found, line
            yield process, found[1]
        finally:
            process.kill()


class TestServe:
    """`--serve`."""

    def test_metrics_stay_up_until_ctrl_c(self):
        """Totals can be scraped after the run; Ctrl-C ends it well and frees the port."""
        port = free_port()
        with serving("--port", str(port)) as (process, url):
            assert url == f"http://127.0.0.1:{port}/metrics"
            scraped = httpx.get(url).text
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0
        assert "Traceback" not in err
        assert out.endswith("OK: all accounts agree.\n")
        assert _sum(scraped, "otel_journal_tokens_total") == TOTAL
        assert _sum(scraped, "gen_ai_client_inference_usage_input_tokens_total") == sum(
            pair[0] for pair in TOKENS.values()
        )
        assert _sum(scraped, "otel_journal_queue_capacity_events") > 0  # the journal is still open
        assert not listens(port)

    def test_port_0_picks_a_free_one(self):
        """The URL names the port that was picked."""
        with serving("--port", "0", "--json") as (process, url):
            assert "otel_journal_info" in httpx.get(url).text
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=TIMEOUT_S)
        assert json.loads(out)["ok"] is True  # the URL is not in the way of the report

    def test_a_port_in_use_is_one_line_and_exit_2(self):
        """Said before anything is played."""
        with OtlpSink() as occupant:
            port = occupant.http_endpoint.rpartition(":")[2]
            done = run("--serve", "--port", port)
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith(f"otel-journal: --port {port}: cannot listen on 127.0.0.1:")
        assert done.stderr.count("\n") == 1


def _sum(exposition: str, name: str) -> float:
    """Return the sum of a metric's samples in a scrape."""
    lines = [line for line in exposition.splitlines() if re.match(rf"{name}(\{{|\s)", line)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


class TestExport:
    """`OTEL_EXPORTER_OTLP_ENDPOINT`."""

    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    def test_every_span_arrives_once(self, protocol, otlp_sink, report):
        """The provider built from the environment exports what the tree shows, and is named."""
        target = otlp_sink.http_endpoint if protocol != "grpc" else otlp_sink.grpc_endpoint
        done = run(
            OTEL_EXPORTER_OTLP_ENDPOINT=target,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_SERVICE_NAME="demo",
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert f"  spans also went to {target} ({protocol})" in done.stdout.splitlines()
        spans = otlp_sink.spans
        assert len(spans) == len({span.span_id for span in spans}) == SPANS
        named = sorted(step["name"] for run in report["runs"] for step in walk(run["tree"]))
        assert sorted(span.name for span in spans) == named
        assert {span.resource["service.name"] for span in spans} == {"demo"}
        assert {span.trace_id for span in spans} == {*re.findall(r"trace (\w{32})", done.stdout)}

    def test_a_refused_export_fails_the_demo(self, otlp_sink):
        """A flush that could not deliver is a failure, and the drops are counted."""
        otlp_sink.script(then=Answer(400))
        done = run(
            "--json",
            OTEL_EXPORTER_OTLP_ENDPOINT=otlp_sink.http_endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
        )
        assert done.returncode == 1
        report = json.loads(done.stdout)
        assert [check["name"] for check in report["checks"] if not check["ok"]] == [
            "events",
            "flush",
        ]
        assert report["sinks"]["spans"]["dropped"] == SPANS
        assert report["sinks"]["metrics"]["dropped"] == 0

    def test_a_refused_export_is_told(self, otlp_sink):
        """The verdict names what failed, and the destination is not praised."""
        otlp_sink.script(then=Answer(400))
        target = otlp_sink.http_endpoint
        done = run(OTEL_EXPORTER_OTLP_ENDPOINT=target, OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf")
        assert done.returncode == 1
        lines = done.stdout.splitlines()
        assert f"  spans did not all go to {target} (http/protobuf)" in lines
        assert lines[-1] == "FAILED: events, flush."


class TestBrokenSettings:
    """Settings that are not allowed."""

    @pytest.mark.parametrize(
        ("variable", "value"),
        [
            ("OTEL_JOURNAL_GRACE", "soon"),
            ("OTEL_JOURNAL_NONSENSE", "1"),
            ("OTEL_TRACES_EXPORTER", "carrier-pigeon"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "smoke"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "-1"),
        ],
    )
    def test_one_line_on_stderr_and_exit_2(self, variable, value):
        """The line names the variable; nothing is played and nothing is printed."""
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
        done = run(**{**endpoint, variable: value})
        assert done.returncode == 2
        assert done.stdout == ""
        assert done.stderr.startswith(f"otel-journal: {variable}")
        assert done.stderr.count("\n") == 1


class TestPackages:
    """What the demo needs."""

    def test_runtime_packages_are_enough(self):
        """The demo does not import langchain, which is a package of the tests only."""
        code = (
            "import sys; sys.modules['langchain'] = None\n"
            "from otel_journal.cli import main; main(['demo', '--json'])"
        )
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, "-W", "error", "-c", code],
            env=environment(),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
