"""The form in which a reader gives the token."""

from __future__ import annotations

from .html import Html, element


def login_main(*, failed: bool) -> Html:
    """Return the content of the page; `failed` tells that the last token was wrong."""
    wrong = element("p", {"class": "banner", "role": "alert"}, "The token is wrong.")
    label = element(
        "label",
        {},
        "Token",
        element(
            "input",
            {
                "name": "token",
                "type": "password",
                "autocomplete": "current-password",
                "required": "",
                "autofocus": "",
            },
        ),
    )
    return element(
        "main",
        {"id": "main", "class": "login", "tabindex": "-1"},
        element("h1", {}, "Log in"),
        wrong if failed else None,
        element("p", {}, "The journal is guarded by the token of OTEL_JOURNAL_SIDECAR_TOKEN."),
        element(
            "form",
            {"method": "post", "action": "/login"},
            label,
            element("button", {"type": "submit"}, "Log in"),
        ),
    )
