"""Numbered SQL files, one folder a backend; a file that has been released never changes."""

from __future__ import annotations

from importlib.resources import files


def after(backend: str, schema: int) -> list[tuple[int, str]]:
    """Return number and text of the migrations that a store of `schema` lacks, in order."""
    folder = files(__name__) / backend
    scripts = [script for script in folder.iterdir() if script.name.endswith(".sql")]
    numbered = {int(script.name.split("_")[0]): script for script in scripts}
    return [(n, numbered[n].read_text("utf-8")) for n in sorted(numbered) if n > schema]
