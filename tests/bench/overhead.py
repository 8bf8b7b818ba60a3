"""What a tracing handler adds to an agent run, beside the floor of bare SDK spans.

    python tests/bench/overhead.py                      # every workload and installed contender
    python tests/bench/overhead.py --rounds 10 --only W1 W4 --contenders otel-journal

Each pair of workload and contender runs in a process of its own, in which blocks of nothing, the
floor and the contender follow each other in rotated order. A round's differences to "nothing" are
divided within the round; the table shows medians and quartiles over the rounds. ``CPU`` is the
whole process, threads, flush and export included; ``thread`` is the calling thread before the
flush: what the agent waits for. Microseconds depend on the machine, ratios hardly. Other
instrumentations take part when they can be imported (`contenders.CONTENDERS`).
"""

from __future__ import annotations

import argparse
import datetime as dt
import gc
import json
import logging
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("LANGSMITH_TRACING", "false")

import contenders
import workloads
from contenders import Contender, Telemetry
from workloads import Workload

CLOCKS = {"cpu": time.process_time_ns, "thread": time.thread_time_ns}
NS_PER_US = 1_000
COLUMNS = (
    "workload", "contender", "version", "CPU, x floor", "thread, x floor",
    "CPU added, µs/run", "thread added, µs/run", "floor CPU, µs/run", "over nothing, CPU",
)  # fmt: skip


class Bench:
    """One workload and the three who take turns at it."""

    def __init__(self, workload: Workload, contender: str) -> None:
        """Set up telemetry, and everybody."""
        self.workload = workload
        self.telemetry = Telemetry()
        self.patches = contenders.Patches()
        self.turns: dict[str, Contender] = {
            "nothing": contenders.nothing(self.telemetry),
            "floor": contenders.floor(self.telemetry),
            "it": contenders.CONTENDERS[contender](self.telemetry),
        }

    def measure(self, rounds: int) -> dict[str, dict[str, list[float]]]:
        """Return clock -> turn -> microseconds per run, one value per round."""
        names = list(self.turns)
        for name in names:
            self._block(self.turns[name])
        found: dict[str, dict[str, list[float]]] = {c: {n: [] for n in names} for c in CLOCKS}
        for number in range(rounds):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                for clock, spent in self._block(self.turns[name]).items():
                    found[clock][name].append(spent)
        return found

    def _block(self, turn: Contender) -> dict[str, float]:
        work, units = self.workload, self.workload.units
        turn.enter()
        handlers = turn.handlers()
        config = {
            "callbacks": [] if turn.patches else handlers,
            "metadata": {"thread_id": "t-1"},
        }
        work.prepare(1)
        work.run(handlers, config, 1)  # caches are warm again after patching
        self._flush(turn)
        work.prepare(units)
        gc.collect()
        before = {clock: read() for clock, read in CLOCKS.items()}
        work.run(handlers, config, units)
        thread = CLOCKS["thread"]()
        self._flush(turn)
        after = {"cpu": CLOCKS["cpu"](), "thread": thread}
        turn.leave()
        if turn.patches:
            self.patches.undo()
        runs = units * work.runs_per_unit * NS_PER_US
        return {clock: (after[clock] - before[clock]) / runs for clock in CLOCKS}

    def _flush(self, turn: Contender) -> None:
        turn.flush()
        self.telemetry.provider.force_flush()


def compare(name: str, contender: str, rounds: int | None) -> dict[str, Any]:
    """Measure one pair; return the figures of its row."""
    workload = workloads.WORKLOADS[name]()
    bench = Bench(workload, contender)
    measured = bench.measure(rounds or workload.rounds)
    row: dict[str, Any] = {
        "workload": name,
        "title": workload.title,
        "contender": contender,
        "version": contenders.versions(bench.turns["it"].packages),
        "spans": bench.telemetry.exporter.spans,
    }
    for clock, turns in measured.items():
        nothing = turns["nothing"]
        base = [spent - none for spent, none in zip(turns["floor"], nothing, strict=True)]
        added = [spent - none for spent, none in zip(turns["it"], nothing, strict=True)]
        ratios = [mine / least for mine, least in zip(added, base, strict=True)]
        row[clock] = {
            "nothing": statistics.median(nothing),
            "floor": statistics.median(base),
            "added": statistics.median(added),
            "ratio": _quartiles(ratios),
        }
    if workload.parts[0]:
        each = NS_PER_US * row["thread"]["added"] / workload.parts[0]
        row["each"] = f"{each:.0f} ns per {workload.parts[1]}"
    return row


def _quartiles(values: list[float]) -> list[float]:
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        cpu, thread = row["cpu"], row["thread"]
        cells = (
            f"{row['workload']}: {row['title']}",
            row["contender"],
            row["version"],
            _range(cpu["ratio"]),
            _range(thread["ratio"]),
            f"{cpu['added']:.0f}",
            f"{thread['added']:.0f}" + (f" ({row['each']})" if "each" in row else ""),
            f"{cpu['floor']:.0f}",
            f"+{100 * cpu['added'] / cpu['nothing']:.1f}%",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _range(quartiles: list[float]) -> str:
    low, middle, high = quartiles
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def run_alone(name: str, contender: str, rounds: int | None) -> dict[str, Any] | None:
    """Measure one pair in a process of its own; None when the contender breaks."""
    command = [sys.executable, __file__, "--alone", name, contender]
    command += ["--rounds", str(rounds)] if rounds else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    lines = done.stdout.strip().splitlines()
    if not lines:
        sys.stderr.write(f"{name} {contender}: failed\n{done.stderr[-2_000:]}\n")
        return None
    row: dict[str, Any] = json.loads(lines[-1])
    return row


def main() -> None:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, help="blocks of each kind; default by workload")
    parser.add_argument("--only", nargs="+", choices=workloads.WORKLOADS, help="workloads")
    parser.add_argument("--contenders", nargs="+", choices=contenders.CONTENDERS)
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.alone:
        logging.disable(logging.CRITICAL)
        sys.stdout.write(json.dumps(compare(*given.alone, given.rounds)) + "\n")
        sys.stdout.flush()
        os._exit(0)  # some contenders leave threads that never end
    rows = []
    for contender in given.contenders or contenders.CONTENDERS:
        if not contenders.installed(contender):
            sys.stderr.write(f"{contender}: not installed, left out\n")
            continue
        for name in given.only or workloads.WORKLOADS:
            if row := run_alone(name, contender, given.rounds):
                rows.append(row)
                sys.stderr.write(f"{name} {contender}: {row['cpu']['ratio'][1]:.2f}\n")
    rows.sort(key=lambda row: row["workload"])
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    sys.stdout.write(f"{today}, Python {sys.version.partition(' ')[0]}\n\n{table(rows)}\n")


if __name__ == "__main__":
    main()
