"""The OpenAPI document: complete, and true for whatever a program may send."""

from __future__ import annotations

import contextlib
import json
import warnings
from typing import Any

import hypothesis
import pytest
from starlette.routing import Route

from otel_journal.sidecar.web import parameters
from otel_journal.sidecar.web.openapi import document

SEED = 20_251
EXAMPLES = 25
QUERIES = {
    "/v1/runs": parameters.RUNS,
    "/v1/runs/{run_id}": parameters.RUN,
    "/v1/runs/{run_id}/events": parameters.EVENTS,
    "/v1/runs/{run_id}/events/stream": parameters.EVENTS_STREAM,
    "/v1/runs/stream": parameters.STREAM,
    "/v1/threads/{thread_id}/messages": parameters.MESSAGES,
    "/v1/threads/{thread_id}/messages/stream": parameters.STREAM,
}


def _resolved(schemas: dict[str, Any], value: Any) -> None:
    if isinstance(value, dict):
        if "$ref" in value:
            assert value["$ref"].removeprefix("#/components/schemas/") in schemas
        for one in value.values():
            _resolved(schemas, one)
    elif isinstance(value, list):
        for one in value:
            _resolved(schemas, one)


def test_every_route_is_in_the_document(site):
    """With its methods, and nothing else is."""
    routes = {
        (route.path, method.lower())
        for route in site.app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    described = {(path, method) for path, found in document()["paths"].items() for method in found}
    assert described == routes


def test_every_parameter_is_in_the_document(site):
    """Query and path; a parameter that a route does not know is refused, so these are all."""
    paths = document()["paths"]
    for path, query in QUERIES.items():
        found = paths[path]["get"]["parameters"]
        names = [one["name"] for one in found if one["in"] == "query"]
        assert names == [one.name for one in query], path
        in_path = [one["name"] for one in found if one["in"] == "path"]
        assert in_path == [part[1:-1] for part in path.split("/") if part.startswith("{")]
        refused = site.get(path.format(run_id="r", thread_id="t"), params={"other": "1"})
        assert refused.status_code == 400
        for name in names:
            assert name in refused.json()["detail"]
    others = [found for path, found in paths.items() if path not in QUERIES]
    assert not [one for found in others for one in found.get("get", {}).get("parameters", ())]


def test_the_document_is_served_and_holds_together(site):
    """What is served is what was written; every reference leads somewhere."""
    served = site.get("/openapi.json").json()
    assert served == json.loads(json.dumps(document()))
    assert served["openapi"] == "3.1.0"
    _resolved(served["components"]["schemas"], served)
    names = [one["operationId"] for path in served["paths"].values() for one in path.values()]
    assert len(names) == len(set(names))


@pytest.mark.timeout(110)
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
def test_whatever_is_sent_is_answered_as_described(site, record, mode):
    """Fuzzed from the document, with a fixed seed: statuses, media types, bodies, no 500."""
    schemathesis = pytest.importorskip("schemathesis")
    for number in range(3):
        record("t1", f"r{number}")
    # Streams have no end; test_streams reads them.
    schema = schemathesis.openapi.from_dict(document()).exclude(path_regex="stream$")
    operations = [found.ok() for found in schema.get_all_operations()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own code
        fuzzed = [_fuzz(one, schemathesis.GenerationMode[mode], site.url) for one in operations]
    assert len(fuzzed) == len(document()["paths"]) - 3
    assert sum(fuzzed) > EXAMPLES


def _fuzz(operation: Any, mode: Any, url: str) -> int:
    """Send what one operation may get, or may not; return how many requests that made."""
    sent = 0

    @hypothesis.seed(SEED)
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def fuzz(case: Any) -> None:
        nonlocal sent
        sent += 1
        case.call_and_validate(base_url=url, timeout=30)

    with contextlib.suppress(hypothesis.errors.Unsatisfiable):  # nothing of it can be wrong
        fuzz()
    return sent
