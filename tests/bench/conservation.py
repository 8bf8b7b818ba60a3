"""The long form of `tests/sidecar/test_conservation.py`: kills, faults, and the books at the end.

    python tests/bench/conservation.py [--seconds 600] [--workers 3] [--seed 1]

Run it from the root of the repository. It fails with an AssertionError when anything is lost,
made up or counted wrong. Beside it, the same faults against the plain SDK's BatchSpanProcessor
(``--sdk``): how many of its spans arrive.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from servers.otlp_answers import Answer
from servers.otlp_sink import OtlpSink
from sidecar.conservation import FAULTS, HELD, Conservation, Found, check


def report(found: Found, seconds: float) -> str:
    """Say in one paragraph what happened."""
    repeats = len(found.received) - len({span.span_id for span in found.received})
    lines = [
        f"{seconds:.0f} s with faults, kills: {dict(found.kills)}, faults: {dict(found.faults)}",
        (
            f"{len(found.stored):,} events in the journal, {len(found.received):,} spans received, "
            f"{repeats:,} of them repeats with equal ids"
        ),
        (
            f"rejected by partial successes: {found.rejected}, dead letters: "
            f"{found.total('otel_journal_dead_letters_added_total'):.0f}, closed after a death: "
            f"{found.total('otel_journal_operations_closed_total', reason='process_died'):.0f}"
        ),
        "0 lost, 0 made up, counters exact",
    ]
    return "\n".join(lines) + "\n"


def with_sdk(seconds: float, seed: int) -> str:
    """Give the same faults to the SDK's own processor and exporter, without any kill."""
    dice = random.Random(seed)  # noqa: S311 - a bench's dice
    over = threading.Event()
    with OtlpSink() as sink:

        def misbehave() -> None:
            while not over.is_set():
                sink.script(then=dice.choice(list(FAULTS.values())))
                over.wait(dice.uniform(0.1, 0.6))
            sink.script(then=Answer())

        provider = TracerProvider(shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{sink.http_endpoint}/v1/traces", timeout=1)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        tracer = provider.get_tracer("bench")
        misbehaviour = threading.Thread(target=misbehave)
        misbehaviour.start()
        made, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            with tracer.start_as_current_span("x"):
                made += 1
            time.sleep(0.01)
        over.set()
        misbehaviour.join()
        provider.force_flush()
        provider.shutdown()
        arrived = len({span.span_id for span in sink.spans})
    return f"plain SDK, no kills: {arrived:,} of {made:,} spans arrived\n"


def main() -> None:
    """Run, check and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sdk", action="store_true")
    given = parser.parse_args()
    if given.sdk:
        sys.stdout.write(with_sdk(given.seconds, given.seed))
        return
    with tempfile.TemporaryDirectory() as folder:
        run = Conservation(Path(folder), seed=given.seed, workers=given.workers)
        found = run.run(given.seconds, FAULTS | HELD)
    check(found)
    sys.stdout.write(report(found, given.seconds))


if __name__ == "__main__":
    main()
