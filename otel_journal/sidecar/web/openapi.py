"""``/openapi.json``: the routes for programs, described; the tests hold it against the routes."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from . import feed_pages, parameters, problems
from .gate import MAX_FORM
from .health import LINES
from .streams import MEDIA_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request

    from .parameters import Parameter

_JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_OPENMETRICS: Final = "application/openmetrics-text"
_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
_STRING: Final = {"type": "string"}

_PROBLEMS: Final = {
    "400": "A parameter is not allowed; the message names it and what is allowed.",
    "401": "A token is needed.",
    "404": "There is no such run; `watermark` says when it is worth to ask again.",
    "413": f"The form has more than {MAX_FORM} bytes.",
    "415": "The content type is not allowed.",
    "421": "The Host header does not name this server.",
    "422": f"The run has more than {feed_pages.MAX_RUN_EVENTS} events, too many for one view.",
    "503": "Not now: the store is away, or all places are taken; see Retry-After.",
}


class OpenApi:
    """The document, made once."""

    def __init__(self) -> None:
        """Make it."""
        self._body = msgspec.json.encode(document())

    async def document(self, _request: Request) -> Response:
        """Answer with the document."""
        return Response(self._body, media_type=_JSON)


def document() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "otel-journal sidecar",
            "version": metadata.version("otel-journal"),
            "description": "Runs of agents, read from their journal. Nothing here writes to it.",
        },
        "security": [{"token": []}, {}],
        "paths": {**_feed_paths(), **_stream_paths(), **_other_paths()},
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Problem": _problem_schema(), **_schemas()},
        },
    }


def _feed_paths() -> dict[str, Any]:
    run = _path("run_id", "A run.")
    thread = _path("thread_id", "A thread.")
    return {
        "/v1/runs": _get(
            "listRuns",
            "Runs, newest first.",
            _answer("RunsPage", "A page of runs; `next` leads to older ones."),
            _query(parameters.RUNS),
        ),
        "/v1/runs/{run_id}": _get(
            "getRun",
            "One run: outcome, operations, tool calls, messages, tokens.",
            _answer("RunAnswer", "The run as far as it is recorded."),
            [run, *_query(parameters.RUN)],
            ("404", "422"),
        ),
        "/v1/runs/{run_id}/events": _get(
            "listEvents",
            "Events of a run, oldest first.",
            _answer("EventsPage", "A page of events."),
            [run, *_query(parameters.EVENTS)],
            ("404",),
        ),
        "/v1/threads/{thread_id}/messages": _get(
            "listMessages",
            "Messages of a thread, oldest first: the last ones, or with `after` the next ones.",
            _answer("MessagesPage", "A page of messages; of an unknown thread an empty one."),
            [thread, *_query(parameters.MESSAGES)],
        ),
    }


def _stream_paths() -> dict[str, Any]:
    header = {
        "name": "Last-Event-ID",
        "in": "header",
        "description": "Go on behind this `seq`; browsers send it when they connect again.",
        "schema": dict(parameters.LAST_EVENT_ID.schema),
    }
    return {
        "/v1/runs/stream": _get(
            "streamRuns",
            "Starts and ends of all runs, for a new reader from now on.",
            _stream("RunChange"),
            [header, *_query(parameters.STREAM)],
        ),
        "/v1/runs/{run_id}/events/stream": _get(
            "streamEvents",
            "Events of a run from its beginning, and those that follow.",
            _stream("Event"),
            [_path("run_id", "A run."), header, *_query(parameters.EVENTS_STREAM)],
        ),
        "/v1/threads/{thread_id}/messages/stream": _get(
            "streamMessages",
            "Messages of a thread from its beginning, and those that follow.",
            _stream("FeedMessage"),
            [_path("thread_id", "A thread."), header, *_query(parameters.STREAM)],
        ),
    }


def _other_paths() -> dict[str, Any]:
    series = {_TEXT: {"schema": _STRING}, _OPENMETRICS: {"schema": _STRING}}
    lines = {LINES: {"schema": _STRING}}
    ready = _get(
        "ready",
        "Whether the sidecar may be relied on.",
        {"description": "It is ready; the answer is empty.", "content": lines},
        errors=("421",),
    )
    ready["get"]["responses"]["503"] = {
        "description": "It is not; a line of JSON for each reason.",
        "content": lines,
    }
    alive = {"description": "It lives.", "content": {_TEXT: {"schema": _STRING}}}
    described = {
        "description": "This document.",
        "content": {_JSON: {"schema": {"type": "object"}}},
    }
    return {
        "/metrics": _get(
            "metrics", "The series.", {"description": "The series.", "content": series}
        ),
        "/healthz": _get("alive", "Whether the process lives.", alive, errors=("421",)),
        "/readyz": ready,
        "/openapi.json": _get("describe", "This document.", described),
        "/login": {"post": _login()},
    }


def _login() -> dict[str, Any]:
    form = {
        "type": "object",
        "properties": {"token": _STRING},
        "required": ["token"],
    }
    return {
        "operationId": "login",
        "summary": "Turns the token into a cookie, for browsers.",
        "requestBody": {
            "required": True,
            "content": {"application/x-www-form-urlencoded": {"schema": form}},
        },
        "responses": {
            "303": {"description": "To the page, or back to the form when a browser's was wrong."},
            **_errors("400", "401", "413", "415", "421"),
        },
    }


def _get(
    name: str,
    summary: str,
    answer: dict[str, Any],
    given: Sequence[dict[str, Any]] = (),
    errors: Sequence[str] = (),
) -> dict[str, Any]:
    """One path with one GET; `given` parameters and the errors beside those of all readers."""
    probe = tuple(errors) == ("421",)
    usual = () if probe else ("401", "421", "503", *(("400",) if given else ()))
    found: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "parameters": list(given),
        "responses": {"200": answer, **_errors(*sorted({*usual, *errors}))},
    }
    if probe:
        found["security"] = []
    return {"get": found}


def _errors(*statuses: str) -> dict[str, Any]:
    content = {problems.MEDIA_TYPE: {"schema": _PROBLEM}}
    return {one: {"description": _PROBLEMS[one], "content": content} for one in statuses}


def _answer(schema: str, description: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": description, "content": {_JSON: {"schema": reference}}}


def _stream(schema: str) -> dict[str, Any]:
    description = (
        f"Server-sent events without end. `data:` is a `{schema}`, `id:` its `seq`. The event"
        " `reset` says that another journal is read now, from its beginning."
    )
    return {"description": description, "content": {MEDIA_TYPE: {"schema": _STRING}}}


def _path(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": dict(parameters.THREAD_ID.schema),
    }


def _query(described: Sequence[Parameter]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "in": "query",
            "description": one.description,
            "schema": dict(one.schema),
            "style": "form",
            "explode": False,
        }
        for one in described
    ]


def _schemas() -> dict[str, Any]:
    """Schemas of what the pages are encoded from: they cannot differ from it."""
    _, found = msgspec.json.schema_components(
        [
            feed_pages.RunsPage,
            feed_pages.RunAnswer,
            feed_pages.EventsPage,
            feed_pages.MessagesPage,
            feed_pages.RunChange,
        ],
        ref_template="#/components/schemas/{name}",
    )
    return dict(found)


def _problem_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "An error, as RFC 9457 has it.",
        "properties": {
            "type": _STRING,
            "title": _STRING,
            "status": {"type": "integer"},
            "detail": {"type": "string", "description": "One message for people."},
            "parameter": {"type": "string", "description": "The parameter that is not allowed."},
            "watermark": {"type": "integer"},
            "epoch": _STRING,
        },
        "required": ["type", "title", "status", "detail"],
    }
