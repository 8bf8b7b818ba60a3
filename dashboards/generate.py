"""Writes the dashboards as Grafana JSON: ``python dashboards/generate.py [FOLDER]``.

The JSON is committed, so that nobody needs Python to use it; a test keeps it current.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from boards import BOARDS, rendered

GRAFANA = Path(__file__).parent / "grafana"
"""Where the committed files lie."""


def main(folder: Path) -> None:
    """Write one file per board into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        path = folder / f"{board.uid}.json"
        path.write_text(json.dumps(rendered(board), indent=2) + "\n", encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else GRAFANA)
