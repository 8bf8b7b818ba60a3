"""Memory over many runs, at the default caps: the long version of `test_memory`.

    python tests/bench/soak.py                # about two minutes

The caps are reached after 10,000 runs, one per remembered thread; fewer ``--runs`` show tables
that still fill. Prints growth of the resident memory per program; exits with 1 when one grows.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import sys
import time
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from prometheus_client import CollectorRegistry

from otel_journal import Journal, Settings

RUNS = 20_000
MOST_KIB = 2_048
"""Growth that is no leak: what the allocator keeps. One record per run would take 6,900 KiB."""
TIMES = {
    "complete": 1,
    "never_end": 5,
    "abandon_stream": 2.5,
    "repeat": 1,
    "come_late": 1,
    "by_hand": 1,
}
"""How many runs of each program, in units of ``--runs``."""


def _tests() -> Any:
    """Return the module whose programs are run."""
    path = Path(__file__).parent.parent / "integration" / "test_memory.py"
    spec = importlib.util.spec_from_file_location("test_memory", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Run every program twice as long as it takes to reach the caps."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    tests, leaks = _tests(), False
    for name, times in TIMES.items():
        runs = int(given.runs * times)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(tests.Nowhere()))
        settings = Settings(grace=0.0)
        registry = CollectorRegistry()
        with Journal(settings, tracer_provider=provider, registry=registry) as journal:
            handler, program = journal.handler(), getattr(tests, name)
            tests.drive(journal, handler, program, range(runs))
            gc.collect()
            before, began = tests.rss_kib(), time.monotonic()
            tests.drive(journal, handler, program, range(runs, 2 * runs))
            gc.collect()
            grown = tests.rss_kib() - before
            took = time.monotonic() - began
            stats = journal.ledger.stats
        leaks = leaks or grown > MOST_KIB
        closed = {reason: count for reason, count in stats.closed.items() if count}
        sys.stdout.write(
            f"{name}: {runs} runs after as many, {grown:+} KiB, {1e6 * took / runs:.0f} µs a run, "
            f"{stats.operations_open} open of {stats.operations_limit}, closed {closed}\n"
        )
        sys.stdout.flush()
    sys.exit(int(leaks))


if __name__ == "__main__":
    main()
