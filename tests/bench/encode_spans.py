"""How fast a sidecar encodes spans, beside the SDK's way for the same blocks.

    python tests/bench/encode_spans.py [--blocks 20000] [--rounds 7]

Every round encodes new blocks both ways, one after the other; times are CPU times, and the table
shows medians over the rounds. The blocks are those of chat calls with eight attributes: ids,
response ids and token counts differ from block to block, models and operations repeat. In the
first round nothing is remembered yet. What stays in memory is shown last.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence

import msgspec
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider

from otel_journal import semconv
from otel_journal.events import Link, SpanBlock
from otel_journal.exceptions_log import Shape
from otel_journal.sidecar.otlp import encoding
from otel_journal.spans import SdkTracer, direct_emit

BATCH = 512
"""Spans per request."""
SPANS_PER_RUN = 10
NS_PER_S = 1_000_000_000
START_NS = 1_700_000_000_000_000_000
TEXT_CHARS = {"1 KB": 500, "5 KB": 4_500}
"""Characters in the one long attribute of a block, by the size of the stored row."""


def hexadecimal(source: random.Random, digits: int) -> str:
    """Return an id."""
    return f"{source.getrandbits(digits * 4):0{digits}x}"


def blocks(count: int, text_chars: int, seed: int) -> list[SpanBlock]:
    """Return the end blocks of chat calls, the same for the same seed."""
    source = random.Random(seed)  # noqa: S311 - data, no secret
    made: list[SpanBlock] = []
    for number in range(count):
        if number % SPANS_PER_RUN == 0:
            trace, root, run = (hexadecimal(source, digits) for digits in (32, 16, 32))
        text = "".join(source.choices("abcdefghij klmnop", k=50)) * (text_chars // 50)
        start = START_NS + number * 1_000_003
        made.append(
            SpanBlock(
                op_id=hexadecimal(source, 32),
                kind="chat",
                name="chat gpt-4o",
                trace_id=trace,
                span_id=hexadecimal(source, 16),
                parent_span_id=root,
                start_ns=start,
                end_ns=start + source.randrange(NS_PER_S),
                outcome="ok",
                links=(Link(trace, root, "requested_by"),) if number % SPANS_PER_RUN == 1 else (),
                attributes={
                    semconv.OPERATION_NAME: "chat",
                    semconv.REQUEST_MODEL: "gpt-4o",
                    semconv.RESPONSE_ID: f"chatcmpl-{hexadecimal(source, 24)}",
                    semconv.RESPONSE_FINISH_REASONS: ["stop"],
                    semconv.USAGE_INPUT_TOKENS: source.randrange(8_000),
                    semconv.REQUEST_TEMPERATURE: 0.2,
                    semconv.RUN_ID: run,
                    semconv.OUTPUT_MESSAGES: text,
                },
            )
        )
    return made


Way = Callable[[Sequence[SpanBlock]], bytes]
"""Makes a request of blocks."""


def sdk_way(shape: Shape) -> Way:
    """Return the way of the exporter inside an application, without its queue."""
    kept: list[ReadableSpan] = []

    class Keeping(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            kept.append(span)

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Keeping())
    emit = direct_emit(SdkTracer(provider.get_tracer("bench")), shape)

    def encode(batch: Sequence[SpanBlock]) -> bytes:
        kept.clear()
        for block in batch:
            emit(block)
        return encode_spans(kept).SerializeToString()

    return encode


def our_way(shape: Shape) -> Way:
    """Return the way of the sidecar."""
    encoder = encoding.SpanEncoder(shape)
    owner = encoding.resource({"service.name": "bench"})
    return lambda batch: encoding.request([(owner, [encoder.span(block) for block in batch])])


def rate(way: Way, given: Sequence[SpanBlock]) -> float:
    """Return spans per second of CPU."""
    gc.collect()
    before = time.process_time_ns()
    for start in range(0, len(given), BATCH):
        way(given[start : start + BATCH])
    return len(given) * NS_PER_S / (time.process_time_ns() - before)


def growth(way: Way, rounds: int, count: int, text_chars: int) -> list[int]:
    """Return the KiB held after each round of `count` new blocks."""
    tracemalloc.start()
    held = []
    for seed in range(rounds):
        given = blocks(count, text_chars, seed)
        rate(way, given)
        del given
        gc.collect()
        held.append(tracemalloc.get_traced_memory()[0] // 1024)
    tracemalloc.stop()
    return held


def main() -> None:
    """Print both rates, their quotient, and what is held after more and more blocks."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--blocks", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=7)
    given = options.parse_args()
    shape = Shape("0.1", capture_content=False)
    ours, sdk = our_way(shape), sdk_way(shape)
    for label, text_chars in TEXT_CHARS.items():
        pairs = []
        for seed in range(given.rounds):
            fresh = blocks(given.blocks, text_chars, seed)
            pairs.append((rate(ours, fresh), rate(sdk, fresh)))
        row = len(msgspec.json.encode(fresh[0]))
        mine, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        sys.stdout.write(
            f"{label} ({row} B as a row): {mine:,.0f} spans/s, SDK {theirs:,.0f}, x {ratio:.1f}; "
            f"first round {pairs[0][0]:,.0f}\n"
        )
    held = growth(ours, given.rounds, given.blocks, text_chars=500)
    sys.stdout.write(f"KiB held after each round: {held}\n")


if __name__ == "__main__":
    main()
