"""What the standard environment says about the process that exports."""

from __future__ import annotations

from importlib import metadata
from typing import Final

from opentelemetry.sdk.resources import (
    SERVICE_NAME,
    TELEMETRY_SDK_LANGUAGE,
    TELEMETRY_SDK_NAME,
    TELEMETRY_SDK_VERSION,
    OTELResourceDetector,
    Resource,
)
from opentelemetry.sdk.trace import TracerProvider

_DEFAULT: Final = {
    TELEMETRY_SDK_LANGUAGE: "python",
    TELEMETRY_SDK_NAME: "opentelemetry",
    TELEMETRY_SDK_VERSION: metadata.version("opentelemetry-sdk"),
    SERVICE_NAME: "unknown_service",
}


def environment_resource() -> Resource:
    """Return the SDK's resource: detectors, ``OTEL_SERVICE_NAME``, ``OTEL_RESOURCE_ATTRIBUTES``.

    Its detectors run in a thread pool, which no longer starts once the interpreter is ending. A
    journal first used by then makes do with the environment, and its spans are not lost.
    """
    try:
        return Resource.create()
    except RuntimeError:
        return Resource(_DEFAULT).merge(OTELResourceDetector().detect())


def provider_without_export() -> TracerProvider:
    """Return a provider with the sampler and the resource of the environment, and no exporter."""
    return TracerProvider(resource=environment_resource(), shutdown_on_exit=False)
