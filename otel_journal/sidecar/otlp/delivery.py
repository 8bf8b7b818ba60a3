"""Delivery of spans: blocks until the collector has taken each one, or blamed it.

No failure of the collector loses a span: it is retried for ever. A request that is refused or too
large is halved until the span that is to blame stands alone; only that one becomes a dead letter.
"""

from __future__ import annotations

import logging
import random
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from . import encoding
from .replies import Reply
from .truncation import SMALLEST_LIMIT

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from otel_journal.events import Event

    from .counts import DeadReason, ExportCounts, Result
    from .encoding import SpanEncoder
    from .transport import Transport

_LOGGER: Final = logging.getLogger(__name__)

MAX_BYTES: Final = 4_000_000
"""Bytes of a request's body, uncompressed: gRPC servers take 4 MiB unless told otherwise."""

MAX_SPANS: Final = 1_000
"""Spans of a request; more win nothing, and make a lost reply repeat more."""

CUT_BYTES: Final = 65_536
"""Bytes to which a span is cut that is too large even alone: every server takes that much."""

SPAN_ROOM: Final = 8
"""Bytes around a span in a request: a tag and a length."""

GROUP_ROOM: Final = 256
"""Bytes around a resource and its spans: tags, lengths, and the scope with its version."""

_HINTS: Final = {
    "auth": "check OTEL_EXPORTER_OTLP_HEADERS",
    "tls": "check OTEL_EXPORTER_OTLP_CERTIFICATE, CLIENT_CERTIFICATE, CLIENT_KEY and ENDPOINT",
    "not_found": "check the path and port of OTEL_EXPORTER_OTLP_ENDPOINT and PROTOCOL",
    "not_otlp": "an empty request is refused, too: check the scheme and port of the ENDPOINT",
    "redirect": "redirects are not followed; set OTEL_EXPORTER_OTLP_ENDPOINT to the final URL",
}
"""What a person can do about each reason to hold."""


class Outgoing(NamedTuple):
    """One span to send."""

    event: Event
    """The end event it was made of."""
    resource: bytes
    """Encoded resource of its process."""
    data: bytes
    """Encoded span."""


class DeadLetter(NamedTuple):
    """One span that the collector does not take."""

    event: Event
    reason: str
    """``refused`` or ``too_large``."""
    detail: str
    """The collector's answer, its own words included: they may repeat content."""


@dataclass(frozen=True)
class Waits:
    """How long to wait before a request is sent again."""

    first_s: float = 1.0
    """Upper bound of the first wait, in seconds; it doubles with each failure in a row."""
    longest_s: float = 30.0
    """Upper bound of every wait, in seconds, unless the server asks for more."""
    held_s: float = 30.0
    """Average wait in seconds when only a person can help."""
    random: Callable[[], float] = random.random
    """Gives numbers from 0 up to 1."""

    def before_retry(self, failures: int, asked: float | None) -> float:
        """Return seconds with full jitter, at least what the server asked for.

        Args:
            failures: Failures in a row before this one.
            asked: Seconds that the server asked for.
        """
        doublings = min(failures, 32)  # beyond it only the number grows
        bound = min(self.longest_s, self.first_s * 2.0**doublings)
        return max(bound * self.random(), asked or 0.0)

    def while_held(self, asked: float | None) -> float:
        """Return seconds from half to one and a half times `held_s`, at least those asked for."""
        return max(self.held_s * (0.5 + self.random()), asked or 0.0)


@dataclass
class _Settled:
    """What is decided about the spans of one delivery."""

    sent: int = 0
    rejected: int = 0
    dead: list[tuple[DeadReason, DeadLetter]] = field(default_factory=list)


class _Part(NamedTuple):
    """Spans of one request."""

    spans: Sequence[Outgoing]
    cut: bool = False
    """True for a single span that has been cut since a server found it too large."""

    def halves(self) -> tuple[_Part, _Part]:
        middle = len(self.spans) // 2
        return _Part(self.spans[:middle]), _Part(self.spans[middle:])


class Delivery:
    """Sends spans, one request at a time, from the thread that calls `deliver`."""

    def __init__(  # noqa: PLR0913 - what it works with, and its limits
        self,
        transport: Transport,
        encoder: SpanEncoder,
        *,
        counts: ExportCounts,
        stop: threading.Event,
        max_bytes: int = MAX_BYTES,
        max_spans: int = MAX_SPANS,
        cut_bytes: int = CUT_BYTES,
        waits: Waits | None = None,
    ) -> None:
        """Deliver by `transport`.

        Args:
            transport: Carries the requests; whoever made it closes it.
            encoder: Encodes a span anew that had to be cut.
            counts: Where requests and spans are booked.
            stop: Ends every wait at once, and `deliver` with it.
            max_bytes: Bytes of a request's body before compression.
            max_spans: Spans of a request.
            cut_bytes: Bytes to which a span is cut that a server finds too large.
            waits: Pauses between requests.
        """
        self._transport = transport
        self._encoder = encoder
        self._counts = counts
        self._stop = stop
        self._max_bytes = max_bytes
        self._max_spans = max_spans
        self._cut_bytes = cut_bytes
        self._waits = waits or Waits()
        self._held: str | None = None
        """What the log said last: a reason, empty while retrying, None while it works."""

    @property
    def rejected(self) -> int:
        """Spans that partial successes have rejected so far."""
        return self._counts.snapshot().rejected

    def deliver(self, spans: Sequence[Outgoing]) -> list[DeadLetter] | None:
        """Block until every span is accepted, rejected by a partial success, or dead.

        Returns:
            The spans to set aside, in their order; None when `stop` was set before all was
            decided: then nothing may be taken as sent, and sending all of it again is right.
        """
        pending = deque(_Part(part) for part in self._parts(spans))
        settled = _Settled()
        while pending:
            part = pending.popleft()
            reply = self._answer(part)
            if reply is None:
                return None
            pending.extendleft(reversed(self._settle(part, reply, settled)))
        self._counts.settled(settled.sent, settled.rejected, (why for why, _ in settled.dead))
        return [letter for _, letter in settled.dead]

    def _parts(self, spans: Iterable[Outgoing]) -> Iterator[list[Outgoing]]:
        """Yield the spans in requests below both limits; one that is too large alone is cut."""
        part: list[Outgoing] = []
        resources: set[bytes] = set()
        size = 0
        for span in map(self._fitting, spans):
            new = 0 if span.resource in resources else len(span.resource) + GROUP_ROOM
            cost = len(span.data) + SPAN_ROOM + new
            if part and (size + cost > self._max_bytes or len(part) >= self._max_spans):
                yield part
                part, resources, size = [], set(), 0
                cost = len(span.data) + SPAN_ROOM + len(span.resource) + GROUP_ROOM
            part.append(span)
            resources.add(span.resource)
            size += cost
        if part:
            yield part

    def _fitting(self, span: Outgoing) -> Outgoing:
        room = self._max_bytes - len(span.resource) - GROUP_ROOM - SPAN_ROOM
        return span if len(span.data) <= room else self._cut(span, room)

    def _cut(self, span: Outgoing, limit: int) -> Outgoing:
        if span.event.span is None:
            return span
        block = encoding.truncated(span.event.span, max(limit, SMALLEST_LIMIT))
        return span._replace(data=self._encoder.span(block))

    def _answer(self, part: _Part) -> Reply | None:
        """Send until the collector has decided about these spans; None when stopped."""
        body = encoding.request(_groups(part.spans))
        failures = 0
        while not self._stop.is_set():
            started = time.monotonic()
            reply = self._transport.send(body)
            error = "" if reply.reason == "ok" else f"{reply.reason}: {reply.detail}"
            self._counts.answered(_result(reply, part), time.monotonic() - started, error)
            if reply.verdict not in {"retry", "held"}:
                self._log_recovery()
                return reply
            self._log_failure(reply)
            if reply.verdict == "held":
                wait = self._waits.while_held(reply.retry_after)
            else:
                wait = self._waits.before_retry(failures, reply.retry_after)
            failures += 1
            self._stop.wait(wait)
        return None

    def _settle(self, part: _Part, reply: Reply, settled: _Settled) -> Sequence[_Part]:
        """Book what a reply decides; return what is to be sent again instead, in order."""
        if reply.verdict == "accepted":
            rejected = min(reply.rejected, len(part.spans))
            settled.sent += len(part.spans) - rejected
            settled.rejected += rejected
            return ()
        if len(part.spans) > 1:
            return part.halves()
        span = part.spans[0]
        if _can_be_cut(reply, part):
            limit = min(self._cut_bytes, len(span.data) // 2)
            return (_Part((self._cut(span, limit),), cut=True),)
        if reply.verdict == "refused" and not settled.dead and self._held_as_not_otlp():
            return (part,)
        why: DeadReason = "too_large" if reply.verdict == "too_large" else "refused"
        detail = f"{reply.detail}: {reply.text}" if reply.text else reply.detail
        settled.dead.append((why, DeadLetter(span.event, why, detail)))
        return ()

    def _held_as_not_otlp(self) -> bool:
        """Ask with an empty request whether it is the span that is not taken; hold while it is not.

        What speaks no OTLP at all, such as a TLS port or some other service, must not make dead
        letters of a whole backlog. Returns whether the span is to be sent again.
        """
        held = False
        while not self._stop.is_set():
            reply = self._transport.send(encoding.request(()))
            if reply.verdict != "refused":
                break
            held = True
            self._log_failure(Reply("held", "not_otlp", reply.detail))
            self._stop.wait(self._waits.while_held(None))
        return held or self._stop.is_set()

    def _log_failure(self, reply: Reply) -> None:
        """Say once that the export is held, and why, or that it is being retried."""
        held = reply.reason if reply.verdict == "held" else ""
        self._counts.fails(held)
        if held == self._held:
            return
        self._held = held
        if held:
            message = "the export of spans is held (%s, %s); nothing is lost, it is tried again: %s"
            _LOGGER.error(message, held, reply.detail, _HINTS[held])
        else:
            message = "the export of spans fails (%s, %s); nothing is lost, it is tried again"
            _LOGGER.warning(message, reply.reason, reply.detail)

    def _log_recovery(self) -> None:
        seconds = self._counts.works()
        if self._held is not None:
            self._held = None
            _LOGGER.warning("the export of spans works again after %.0f s", seconds)


def _groups(spans: Iterable[Outgoing]) -> Iterable[tuple[bytes, list[bytes]]]:
    groups: dict[bytes, list[bytes]] = {}
    for span in spans:
        groups.setdefault(span.resource, []).append(span.data)
    return groups.items()


def _can_be_cut(reply: Reply, part: _Part) -> bool:
    return reply.verdict == "too_large" and not part.cut and part.spans[0].event.span is not None


def _result(reply: Reply, part: _Part) -> Result:
    """Return the name under which a request is counted."""
    match reply.verdict:
        case "accepted":
            return "partial" if reply.rejected else "ok"
        case "retry" | "held":
            return reply.verdict
        case _:
            return "split" if len(part.spans) > 1 or _can_be_cut(reply, part) else "dead_letter"
