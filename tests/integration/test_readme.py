"""The README: what it shows runs, what it lists is what there is."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry

import otel_journal
from otel_journal import Journal, Settings
from otel_journal.events import OUTCOMES
from otel_journal.metric_catalogue import ATTRIBUTION_LABELS, LLM_LABELS
from otel_journal.sidecar.configuration import SidecarSettings
from otel_journal.sidecar.series import OWN
from otel_journal.sidecar.web.openapi import document
from otel_journal.stats import CLOSE_REASONS, DROP_REASONS, OBSERVATION_KINDS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GENERATIONS = ("0.1", "1.41", "both")
QUICK_START_LINES = 12


def section(title: str) -> str:
    """Return the text below a second-level heading."""
    found = re.search(
        rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL
    )
    assert found, f"README has no section {title}"
    return found[1]


def code(text: str, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def table(text: str) -> list[dict[str, str]]:
    """Return the rows of the first table in a text, by column."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    head, _, *rows = cells
    return [dict(zip(head, row, strict=True)) for row in rows]


def names(cell: str) -> list[str]:
    """Return the code-quoted words of a text."""
    return re.findall(r"`([^`]+)`", cell)


class TestCommands:
    """The lines to copy."""

    def test_the_demo_line(self):
        """One line sets up and runs the demo; `test_demo` runs the command it ends with."""
        (line,) = code(section("Run the demo"), "sh")
        assert line == (
            "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/otel-journal demo\n"
        )

    def test_the_test_line_is_the_one_that_ci_runs(self):
        """One line sets up and runs all tests, the same in CI."""
        (line,) = code(section("Run the tests"), "sh")
        found = re.search(r"^test_line='(.*)'$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
        assert found
        assert line == found[1] + "\n"

    def test_every_option_it_names_exists(self):
        """The demo's options are those of the command."""
        named = re.findall(r"`(--[a-z]+)[ `]", section("Run the demo"))
        from otel_journal.cli import demo  # noqa: PLC0415 - the rest runs without the demo

        options = {option for parameter in demo.params for option in parameter.opts}
        assert named
        assert set(named) <= options


def run_python(text: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own."""
    return subprocess.run(  # noqa: S603 - the README's own code
        [sys.executable, "-W", "error", "-c", text],
        env={**os.environ, **extra},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


class TestQuickStart:
    """The block to begin with, run word for word."""

    def test_it_is_short(self):
        """Twelve lines."""
        (block,) = code(section("Quick start"), "python")
        assert len(block.splitlines()) == QUICK_START_LINES

    def test_it_prints_what_it_says(self):
        """It runs as it stands, without a warning, and prints the number of its comment."""
        (block,) = code(section("Quick start"), "python")
        done = run_python(block)
        assert (done.returncode, done.stderr) == (0, "")
        promised = re.search(r"print\(.*\)  # (\d+)$", block, re.MULTILINE)
        assert promised
        assert done.stdout == promised[1] + "\n"

    def test_its_spans_are_exported_by_the_standard_variables(self, otlp_sink):
        """Nothing but the endpoint is needed, and the process may end at once."""
        (block,) = code(section("Quick start"), "python")
        done = run_python(block, OTEL_EXPORTER_OTLP_ENDPOINT=otlp_sink.grpc_endpoint)
        assert (done.returncode, done.stderr) == (0, "")
        assert sorted(span.name for span in otlp_sink.spans) == [
            "answer",
            "chat scripted-1",
            "invoke_workflow adder",
        ]

    def test_without_set_up(self, otlp_sink):
        """`RunJournal()` alone records, and the exit of the interpreter flushes."""
        (block,) = code(section("Quick start"), "python")
        before, _, after = block.partition("with Journal()")
        assert after
        program = before + (
            "from otel_journal import RunJournal\n"
            'inputs = {"messages": [("human", "1 + 2?")]}\n'
            'graph.compile(name="adder").invoke(inputs, {"callbacks": [RunJournal()]})\n'
            "import prometheus_client\n"
            'labels = {"gen_ai_agent_name": "adder", "outcome": "ok"}\n'
            "import time; deadline = time.monotonic() + 10\n"
            "def ended():\n"
            "    return prometheus_client.REGISTRY.get_sample_value("
            '"otel_journal_runs_total", labels)\n'
            "while not ended() and time.monotonic() < deadline: time.sleep(0.01)\n"
            "print(float(ended()))\n"
        )
        done = run_python(program, OTEL_EXPORTER_OTLP_ENDPOINT=otlp_sink.grpc_endpoint)
        assert (done.returncode, done.stdout, done.stderr) == (0, "1.0\n", "")
        assert len(otlp_sink.spans) == 3


class TestOtherCode:
    """Blocks outside the quick start."""

    def test_the_store_block_runs(self):
        """Reading the feed is as simple as it says."""
        _redaction, block = code(section("Content and privacy"), "python")
        program = f"from otel_journal import Journal, open_store\n{block}print(feed)\n"
        done = run_python(program)
        assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


class TestMetrics:
    """The table of families."""

    ROWS = table(section("Metrics"))
    SHORT: ClassVar = {"G": LLM_LABELS, "A": ATTRIBUTION_LABELS}

    def labels(self, cell: str) -> tuple[str, ...]:
        """Return the labels a cell stands for."""
        found: list[str] = []
        for short, name in re.findall(r"\*([GA])\*|`([^`]+)`", cell):
            found += self.SHORT[short] if short else [name]
        return tuple(found)

    def test_the_abbreviations_are_spelt_out(self):
        """*G* and *A* are what the text above the table says."""
        text = section("Metrics")
        for short, labels in self.SHORT.items():
            line = re.search(rf"^\*{short}\* is ([^.]*)\.", text, re.MULTILINE)
            assert line
            assert tuple(names(line[1])) == labels

    @pytest.mark.parametrize("generation", GENERATIONS)
    def test_it_lists_what_a_journal_exposes(self, generation, tracer_provider):
        """Families, types, help texts and their generation: those of a real collector."""
        registry = CollectorRegistry()
        settings = Settings(semconv=generation)
        with Journal(settings, registry=registry, tracer_provider=tracer_provider):
            described = {
                family.name + ("_total" if family.type == "counter" else ""): (
                    family.type,
                    family.documentation,
                )
                for family in registry.collect()
            }
        listed = {
            names(row["family"])[0]: (row["type"], row["meaning"])
            for row in self.ROWS
            if generation == "both" or row["generation"] in {"all", generation}
        }
        assert listed == described

    def test_it_lists_the_labels(self):
        """Every label of every family, in order."""
        from otel_journal.metric_catalogue import FOLDED, PROCESS  # noqa: PLC0415

        listed = {names(row["family"])[0]: self.labels(row["labels"]) for row in self.ROWS}
        assert listed == {series.name: series.labels for series in (*FOLDED, *PROCESS)}

    def test_closed_lists(self):
        """Kinds and reasons are all named."""
        text = section("Metrics")
        for start, expected in (
            ("Kinds are", OBSERVATION_KINDS),
            ("Reasons of dropped events:", DROP_REASONS),
            ("Reasons of closed operations:", CLOSE_REASONS),
        ):
            sentence = text[text.index(start) :].partition(".\n")[0].partition(". ")[0]
            assert tuple(names(sentence)) == expected


def shown(value: Any) -> str:
    """Return a default as an environment variable would say it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def tables(text: str) -> list[list[dict[str, str]]]:
    """Return every table of a text."""
    found = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [table(one) for one in found]


class TestSidecar:
    """The sidecar's settings and series."""

    TABLES: ClassVar = tables(section("The sidecar"))

    def test_settings(self):
        """Every setting with its variable, default, allowed values and meaning, in order."""
        (rows,) = (rows for rows in self.TABLES if "variable" in rows[0])
        assert [tuple(row.values()) for row in rows] == [
            (
                f"`OTEL_JOURNAL_SIDECAR_{field.name.upper()}`",
                f"`{shown(field.default)}`",
                field.metadata["allowed"],
                field.metadata["doc"],
            )
            for field in dataclasses.fields(SidecarSettings)
        ]

    def test_series(self):
        """Every family that only a sidecar has: type, labels, help."""
        (rows,) = (rows for rows in self.TABLES if "family of the sidecar" in rows[0])
        assert [
            (names(row["family of the sidecar"])[0], row["type"], names(row["labels"]))
            for row in rows
        ] == [(series.name, series.type, list(series.labels)) for series in OWN]
        assert [row["meaning"] for row in rows] == [series.help for series in OWN]

    def test_paths(self):
        """Every path it names is served, and every one that is served is named."""
        (rows,) = (rows for rows in self.TABLES if "path" in rows[0])
        listed = {path for row in rows for path in names(row["path"])}
        documented = {
            path.replace("{run_id}", "ID").replace("{thread_id}", "ID")
            for path in document()["paths"]
        }
        assert {path for path in documented if not path.endswith("/stream")} <= listed


class TestLists:
    """Settings, outcomes, names."""

    def test_settings(self):
        """Every setting with its variable, default, allowed values and meaning, in order."""
        rows = table(section("Settings"))
        assert [tuple(row.values()) for row in rows] == [
            (
                f"`OTEL_JOURNAL_{field.name.upper()}`",
                f"`{shown(field.default)}`",
                field.metadata["allowed"],
                field.metadata["doc"],
            )
            for field in dataclasses.fields(Settings)
        ]

    def test_every_setting_it_names_exists(self):
        """No heading or sentence names a setting that is not there."""
        known = {field.name.upper() for field in dataclasses.fields(Settings)}
        known |= {f"SIDECAR_{field.name.upper()}" for field in dataclasses.fields(SidecarSettings)}
        assert set(re.findall(r"OTEL_JOURNAL_([A-Z_]+)", README)) <= known
        caps = {word for row in table(section("Limits")) for word in names(row["at this cap"])}
        assert {word for word in caps if not word.startswith("OTEL_")} <= known

    def test_every_series_it_names_exists(self):
        """No sentence names a family that the table does not have."""
        listed = {names(row["family"])[0] for row in TestMetrics.ROWS}
        listed |= {series.name for series in OWN}
        assert set(re.findall(r"`(otel_journal_[a-z_]+)`", README)) <= listed

    def test_outcomes(self):
        """All of them, in the order of the code; only `error` is a failure."""
        (_, rest) = section("What is recorded").split("Every operation ends", 1)
        rows = table(rest)
        assert tuple(names(row["outcome"])[0] for row in rows) == OUTCOMES
        assert [row["outcome"] for row in rows if row["span status"] == "ERROR"] == ["`error`"]

    def test_public_names(self):
        """The list is `__all__`, and what it says a journal has, it has."""
        rows = {names(row["name"])[0]: row["what it is"] for row in table(section("Public API"))}
        assert sorted(rows) == sorted(otel_journal.__all__)
        attributes = names(rows["Journal"])
        registry = CollectorRegistry()
        with Journal(Settings(spans="none"), registry=registry) as journal:
            assert [name for name in attributes if not hasattr(journal, name)] == []

    def test_links_inside_the_page_lead_somewhere(self):
        """Every anchor is a heading."""
        headings = re.findall(r"^#+ (.*)$", README, re.MULTILINE)
        anchors = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}
        assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= anchors
