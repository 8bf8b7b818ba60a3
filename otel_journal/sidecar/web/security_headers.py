"""Headers of every answer: nothing is kept, framed, guessed or told to other sites."""

from __future__ import annotations

from typing import Final

SECURITY_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""An answer that sets one of these itself keeps its own: pages have scripts and styles."""
