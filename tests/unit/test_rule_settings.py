"""From budgets, objectives, limits and prices to Prometheus rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from otel_journal.cli import commands
from otel_journal.errors import SettingsError
from otel_journal.rule_settings import EXAMPLE, settings_group

Rules = dict[tuple[str, frozenset[tuple[str, str]]], str]


def rules_of(text: str) -> Rules:
    """Return what a settings file records: (record, labels) -> expression."""
    (group,) = yaml.safe_load(settings_group(text, "settings.toml"))["groups"]
    assert group["name"] == "otel-journal.settings"
    return {
        (rule["record"], frozenset(rule.get("labels", {}).items())): rule["expr"]
        for rule in group["rules"]
    }


def test_the_example_makes_every_kind_of_rule() -> None:
    """What people begin with is right, and shows all there is."""
    rules = rules_of(EXAMPLE)

    def labels(**given: str) -> frozenset[tuple[str, str]]:
        return frozenset((f"gen_ai_{name}", value) for name, value in given.items())

    def price(kind: str) -> str:
        model = labels(provider_name="openai", request_model="gpt-4o")
        return rules["otel_journal:token_price_usd:per_token", model | {("type", kind)}]

    oncall = labels(agent_name="oncall")
    assert rules["otel_journal:token_budget:tokens30d", oncall] == "vector(100000000)"
    assert rules["otel_journal:run_objective_default:ratio", labels()] == "vector(0.99)"
    assert rules["otel_journal:run_objective:ratio", oncall] == "vector(0.98)"
    assert rules["otel_journal:run_stuck_after_default:seconds", labels()] == "vector(1800)"
    assert rules["otel_journal:run_stuck_after:seconds", oncall] == "vector(3600)"
    assert price("input") == "vector(2.5e-06)"
    assert price("output") == "vector(1e-05)"
    grafana = frozenset({("url", "http://localhost:3000")})
    assert rules["otel_journal:grafana:info", grafana] == "vector(1)"


@pytest.mark.parametrize(
    ("kind", "usd", "expected"),
    [
        ("cache_read", "0.30", "vector(-2.7e-06)"),
        ("cache_write", "3.75", "vector(7.5e-07)"),
        ("cache_read", "3.00", "vector(0)"),
        ("reasoning", "60", "vector(4.5e-05)"),
    ],
)
def test_a_part_is_priced_by_its_difference(kind: str, usd: str, expected: str) -> None:
    """Cache reads are input tokens already: the line holds what they cost less, or more."""
    text = f'[prices.p."m.1"]\ninput = 3\noutput = 15\n{kind} = {usd}\n'
    (found,) = (expr for (_, labels), expr in rules_of(text).items() if ("type", kind) in labels)

    assert found == expected


def test_names_are_quoted() -> None:
    """An agent may have any name; it must not become YAML of its own."""
    text = '[budgets]\n"a: {b} \\"c\\" \\\\ #é" = 1\n'
    ((_, labels),) = rules_of(text)

    assert labels == frozenset({("gen_ai_agent_name", 'a: {b} "c" \\ #é')})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[budgets]\n\na = -1\n", "line 3: budgets.a = -1 is not allowed; allowed: a number"),
        ("[budgets]\na = 'many'\n", "line 2: budgets.a = 'many' is not allowed"),
        ("[budgets]\na = true\n", "line 2: budgets.a = True is not allowed"),
        ("[objectives]\ndefault = 99\n", "line 2: objectives.default = 99 is not allowed; allowed"),
        ("[objectives]\na=1.0\n", "a share above 0.0 and below 1.0"),
        ("[stuck_after]\na = 0\n", "line 2: stuck_after.a = 0 is not allowed; allowed: seconds"),
        ("[stuck_after]\na = inf\n", "stuck_after.a = inf is not allowed"),
        ("[links]\nwiki = 'http://x'\n", "line 2: links.wiki = 'http://x' is not allowed; allowed"),
        ("[links]\ngrafana = 'http://x/'\n", "an http or https URL without a slash at the end"),
        ("[links]\ngrafana = 'x'\n", "links.grafana = 'x' is not allowed"),
        ("[alerts]\na = 1\n", "line 1: alerts is not allowed; allowed: [budgets], "),
        ("budgets = 1\n", "line 1: budgets = 1 is not allowed; allowed: a table"),
        ("\n[prices.p.m]\ninput = 1\ncached = 1\n", "line 4: prices.p.m.cached = 1 is not allowed"),
        ("[prices.p.m]\ncache_read = 1\n", "line 2: prices.p.m.cache_read = 1 is not allowed; "),
        ("[prices.p]\nm = 1\n", "line 2: prices.p.m = 1 is not allowed; allowed: tables"),
        ("prices = 1\n", "prices = 1 is not allowed; allowed: tables"),
        ('[prices.p."m.1"]\ninput = nan\n', "line 2: prices.p.m.1.input = nan is not allowed"),
        ("[budgets\n", "line 1"),
    ],
)
def test_a_bad_file_gets_one_message(text: str, said: str) -> None:
    """With line, key, value and what is allowed."""
    with pytest.raises(SettingsError) as caught:
        settings_group(text, "my.toml")
    assert str(caught.value).startswith("settings file 'my.toml'")
    assert said in str(caught.value)


def run(*arguments: str) -> Any:
    """Run `otel-journal rules`."""
    return CliRunner().invoke(commands, ["rules", *arguments], standalone_mode=False)


def test_the_command_writes_a_whole_file(tmp_path: Path) -> None:
    """To a file or to standard output; the example can be read back."""
    settings, output = tmp_path / "s.toml", tmp_path / "settings.rules.yml"
    settings.write_text(run("--example").output)
    shown = run("--settings", str(settings))
    written = run("--settings", str(settings), "--output", str(output))

    assert written.output == ""
    assert output.read_text() == shown.output
    assert yaml.safe_load(shown.output)["groups"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.toml", "settings.rules.yml"]


def test_a_bad_file_leaves_the_rules_as_they_were(tmp_path: Path) -> None:
    """Nothing is half written."""
    settings, output = tmp_path / "s.toml", tmp_path / "settings.rules.yml"
    settings.write_text("[budgets]\na = 0\n")
    output.write_text("groups: []\n")
    result = run("--settings", str(settings), "--output", str(output))

    assert isinstance(result.exception, SettingsError)
    assert output.read_text() == "groups: []\n"


@pytest.mark.parametrize("arguments", [[], ["--settings", "none.toml"]])
def test_without_a_file_it_says_what_to_do(arguments: list[str]) -> None:
    """One line, no traceback."""
    assert run(*arguments).exception is not None


def test_an_output_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The message names the option and the path."""
    settings = tmp_path / "s.toml"
    settings.write_text(EXAMPLE)
    result = run("--settings", str(settings), "--output", str(tmp_path / "no" / "r.yml"))

    assert "--output" in str(result.exception)
    assert "No such file" in str(result.exception)
