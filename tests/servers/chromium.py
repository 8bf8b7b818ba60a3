"""A real headless Chromium that shows one page: the DOM after a while, what it logs, a picture."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import httpx
from servers.process import ServerProcess, wait_until
from websockets.sync.client import connect

PROGRAM: Final = "chromium"
SHOW_MS: Final = 4_000
"""Longest wait in milliseconds for a page to load; it is read as soon as it has."""
PATIENCE_S: Final = 60.0
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-proxy-server",
    "--enable-logging=stderr",
)
_CONSOLE: Final = ":CONSOLE"
"""Marks the lines of a page's own console in the browser's log."""


class Shown(NamedTuple):
    """What a page came to."""

    dom: str
    console: list[str]
    """Errors and warnings, violations of the Content-Security-Policy included."""


def show(program: Path, folder: Path, url: str, *flags: str, show_ms: int = SHOW_MS) -> Shown:
    """Open a page, wait, and return its DOM and its console."""
    done = _run(program, folder, "--dump-dom", f"--timeout={show_ms}", *flags, url)
    console = [line for line in done.stderr.splitlines() if _CONSOLE in line]
    return Shown(done.stdout, console)


def picture(program: Path, folder: Path, url: str, *flags: str) -> bytes:
    """Open a page and return a picture of it as PNG."""
    target = folder / "page.png"
    _run(program, folder, f"--screenshot={target}", f"--timeout={SHOW_MS}", *flags, url)
    return target.read_bytes()


def _run(program: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(program), *_FLAGS, f"--user-data-dir={folder / 'profile'}", *arguments]
    return subprocess.run(  # noqa: S603 - our own command line
        command, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )


def appears(program: Path, folder: Path, url: str, text: str) -> bool:
    """Open a page and keep it open; return whether its DOM comes to hold `text`."""
    profile = folder / "live"
    port_file = profile / "DevToolsActivePort"
    command = [program, *_FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", url]
    with ServerProcess(command, folder) as server:
        server.wait_ready(lambda: port_file.exists() and bool(port_file.read_text()))
        port = port_file.read_text().split()[0]
        pages = httpx.get(f"http://127.0.0.1:{port}/json/list", trust_env=False).json()
        address = next(one["webSocketDebuggerUrl"] for one in pages if one["type"] == "page")
        question = {"expression": "String(document.documentElement?.outerHTML)"}
        with connect(address, max_size=None, proxy=None) as link:

            def holds() -> bool:
                link.send(json.dumps({"id": 1, "method": "Runtime.evaluate", "params": question}))
                return text in json.loads(link.recv())["result"]["result"]["value"]

            return wait_until(holds, PATIENCE_S)
