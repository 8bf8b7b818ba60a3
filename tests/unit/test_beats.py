"""Signs of life: when a process gives one, and what it says."""

from __future__ import annotations

from opentelemetry.sdk.resources import Resource

from otel_journal.beats import BEAT_S, Beats


class Clock:
    """A clock that a test turns by hand."""

    def __init__(self) -> None:
        """Begin somewhere."""
        self.now = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def beats(clock: Clock) -> Beats:
    """Return the signs of a process with a known resource."""
    return Beats(export="sidecar", resource=Resource({"service.name": "shop"}), clock=clock)


def test_an_idle_process_gives_no_sign() -> None:
    """A journal does not grow without work."""
    assert beats(Clock()).next(working=False) is None


def test_the_first_sign_comes_with_the_first_work_and_then_regularly() -> None:
    """A sidecar can count on one sign in every `BEAT_S` seconds while there is work."""
    clock = Clock()
    signs = beats(clock)
    first = signs.next(working=True)
    clock.now += BEAT_S / 2
    between = signs.next(working=True)
    clock.now += BEAT_S / 2
    second = signs.next(working=True)

    assert first is not None
    assert second is not None
    assert between is None
    assert first.event_id == f"{signs.process}/1/beat"
    assert second.event_id == f"{signs.process}/2/beat"
    assert first.run_id == first.process == signs.process
    assert first.metadata["resource"]["service.name"] == "shop"
    assert first.metadata["export"] == "sidecar"
    assert first.metadata["started_ns"] == second.metadata["started_ns"]


def test_a_forked_child_is_another_process() -> None:
    """Its operations end with it, not with its parent."""
    signs = beats(Clock())
    parent = signs.process
    signs.next(working=True)
    signs.forked()
    sign = signs.next(working=True)

    assert sign is not None
    assert sign.process == signs.process != parent
    assert sign.event_id == f"{signs.process}/1/beat"


def test_the_resource_of_the_environment_is_the_default(monkeypatch) -> None:
    """OTEL_SERVICE_NAME of the application is the service of its spans, whoever sends them."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "billing")
    sign = Beats(export="inline").next(working=True)

    assert sign is not None
    assert sign.metadata["resource"]["service.name"] == "billing"
