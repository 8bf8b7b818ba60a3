"""The command line: exit codes, and one clear line for every error."""

from __future__ import annotations

import json

import click
import pytest

from otel_journal import SettingsError, StoreError, cli


def exit_of(*arguments: str) -> int:
    """Run `main` and return the exit code it asks for."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.fixture
def failing(monkeypatch):
    """Provide a function that adds a command `fail`, which raises the given exception."""

    def add(error: BaseException) -> None:
        @click.command()
        @cli._debug_option
        def fail() -> None:
            raise error

        monkeypatch.setitem(cli.commands.commands, "fail", fail)

    return add


class TestErrors:
    """`main` is the boundary towards the user."""

    @pytest.mark.parametrize("error", [SettingsError, StoreError])
    def test_our_own_errors_are_one_line_and_exit_2(self, error, failing, capsys):
        """A JournalError explains itself: no traceback, no class name, no hint."""
        failing(error("OTEL_JOURNAL_X='y' is not allowed"))
        assert exit_of("fail") == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err == "otel-journal: OTEL_JOURNAL_X='y' is not allowed\n"

    def test_an_unexpected_error_is_one_line_and_exit_1(self, failing, capsys):
        """Even a message of several lines becomes one, with the class and where to look."""
        failing(ZeroDivisionError("first\n  second"))
        assert exit_of("fail") == 1
        expected = "otel-journal: unexpected ZeroDivisionError: first second (--debug shows where)"
        assert capsys.readouterr().err == expected + "\n"

    @pytest.mark.parametrize("arguments", [("--debug", "fail"), ("fail", "--debug")])
    @pytest.mark.parametrize(("error", "code"), [(SettingsError, 2), (ZeroDivisionError, 1)])
    def test_debug_shows_the_traceback(self, arguments, error, code, failing, capsys):
        """--debug works before and after the command; the last line is the message."""
        failing(error("broken"))
        assert exit_of(*arguments) == code
        err = capsys.readouterr().err
        assert err.startswith("Traceback (most recent call last):")
        assert err.splitlines()[-1].endswith("broken")
        assert err.splitlines()[-1].startswith("otel-journal: ")
        assert "--debug" not in err.splitlines()[-1]

    def test_ctrl_c_exits_130(self, failing):
        """As shells report SIGINT."""
        failing(KeyboardInterrupt())
        assert exit_of("fail") == 130

    @pytest.mark.parametrize(
        "arguments", [("nonsense",), ("demo", "--runs", "0"), ("demo", "--port", "65536")]
    )
    def test_a_wrong_command_line_exits_2(self, arguments, capsys):
        """What is wrong and how to get help is on stderr."""
        assert exit_of(*arguments) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "--help" in err
        assert arguments[-1] in err


class TestInformation:
    """What the command says about itself."""

    def test_version(self, capsys):
        """--version names program and version."""
        assert exit_of("--version") == 0
        assert capsys.readouterr().out.startswith("otel-journal, version ")

    @pytest.mark.parametrize("flag", ["-h", "--help"])
    def test_help_lists_the_commands(self, flag, capsys):
        """-h and --help are the same."""
        assert exit_of(flag) == 0
        assert "demo" in capsys.readouterr().out

    def test_help_of_the_demo_names_its_options(self, capsys):
        """Every option is explained."""
        assert exit_of("demo", "--help") == 0
        out = capsys.readouterr().out
        for option in ("--runs", "--serve", "--port", "--json", "--debug"):
            assert option in out


class TestDemo:
    """`otel-journal demo`, run within this process."""

    def test_json_is_all_there_is_on_stdout(self, capsys):
        """The report can be piped into a parser."""
        assert exit_of("demo", "--json") == 0
        assert json.loads(capsys.readouterr().out)["ok"] is True

    def test_a_failed_check_exits_1(self, monkeypatch, capsys):
        """When an account does not come to what the script says, the demo fails and says which."""
        from otel_journal.demo import agent, checks  # noqa: PLC0415

        wrong = agent.Known(calls=3, input_tokens=1, output_tokens=1)
        monkeypatch.setitem(checks.KNOWN, agent.LEAD, wrong)
        assert exit_of("demo") == 1
        last = capsys.readouterr().out.splitlines()[-1]
        assert last == "FAILED: run summaries, otel_journal_* series, gen_ai_* series, spans."

    def test_a_dishonest_flush_exits_1(self, monkeypatch, capsys):
        """The demo believes a flush that says False, whatever the totals say."""
        from otel_journal import Journal  # noqa: PLC0415

        really = Journal.flush
        monkeypatch.setattr(Journal, "flush", lambda *given: really(*given) and False)
        assert exit_of("demo") == 1
        assert capsys.readouterr().out.splitlines()[-1] == "FAILED: flush."

    @pytest.mark.parametrize("variable", ["OTEL_SDK_DISABLED", "OTEL_JOURNAL_DISABLED"])
    def test_a_disabled_journal_has_nothing_to_show(self, variable, monkeypatch, capsys):
        """The demo says why instead of failing its checks."""
        monkeypatch.setenv(variable, "true")
        assert exit_of("demo") == 2
        assert capsys.readouterr().err.startswith("otel-journal: nothing to show: ")

    @pytest.mark.parametrize("settings", [
        {"OTEL_JOURNAL_SEMCONV": "1.41"},
        {"OTEL_JOURNAL_SEMCONV": "both"},
        {"OTEL_JOURNAL_METRICS": "false", "OTEL_JOURNAL_TRACK_TOKEN_USAGE": "false"},
        {"OTEL_JOURNAL_SPANS": "none"},
        {"OTEL_JOURNAL_SPANS": "all"},
        {"OTEL_JOURNAL_GRACE": "0"},
        {"OTEL_JOURNAL_CAPTURE_CONTENT": "true"},
        {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "64"},
    ])  # fmt: skip
    def test_the_accounts_agree_under_any_settings(self, settings, monkeypatch, capsys):
        """What the demo shows cannot be switched off; the rest is the user's choice."""
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        assert exit_of("demo", "--json") == 0, capsys.readouterr().out
