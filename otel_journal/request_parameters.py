"""Request parameters of model calls, whatever a provider's LangChain class calls them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from . import semconv as sc
from .foreign import identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HTTP_PORTS: Final = {"https": 443, "http": 80}
_MAX_STOP_SEQUENCES: Final = 16
"""Providers allow four to sixteen."""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and value is not True else None


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and value is not True else None


def _not_one(value: object) -> int | None:
    return value if isinstance(value, int) and value != 1 else None


def _texts(value: object) -> tuple[str, ...] | None:
    if isinstance(value, str):
        return (identifier(value),)
    if isinstance(value, (list, tuple)) and value:
        return tuple(map(identifier, value[:_MAX_STOP_SEQUENCES]))
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _effort(value: object) -> str | None:
    return _text(value.get("effort")) if isinstance(value, dict) else None


def _only_true(value: object) -> bool | None:
    return True if value is True else None


def _tier(value: object) -> str | None:
    return None if value == "auto" else _text(value)


def _json_format(value: object) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else None
    return "json" if kind in {"json_schema", "json_object"} else None


Parameters = tuple[tuple[str, Any], ...]
"""Names and values of a model call's parameters."""

_Rule = tuple[str, "Callable[[object], Any]", int]

PARAMETERS: Final[dict[str, _Rule]] = {
    "temperature": (sc.REQUEST_TEMPERATURE, _number, 0),
    "top_p": (sc.REQUEST_TOP_P, _number, 0),
    "top_k": (sc.REQUEST_TOP_K, _count, 0),
    "frequency_penalty": (sc.REQUEST_FREQUENCY_PENALTY, _number, 0),
    "presence_penalty": (sc.REQUEST_PRESENCE_PENALTY, _number, 0),
    "seed": (sc.REQUEST_SEED, _count, 0),
    "n": (sc.REQUEST_CHOICE_COUNT, _not_one, 0),
    "stream": (sc.REQUEST_STREAM, _only_true, 0),
    "max_completion_tokens": (sc.REQUEST_MAX_TOKENS, _count, 2),
    "max_tokens": (sc.REQUEST_MAX_TOKENS, _count, 1),
    "max_output_tokens": (sc.REQUEST_MAX_TOKENS, _count, 0),
    "stop": (sc.REQUEST_STOP_SEQUENCES, _texts, 1),
    "stop_sequences": (sc.REQUEST_STOP_SEQUENCES, _texts, 0),
    "reasoning_effort": (sc.REQUEST_REASONING_LEVEL, _text, 1),
    "reasoning": (sc.REQUEST_REASONING_LEVEL, _effort, 0),
    "output_config": (sc.REQUEST_REASONING_LEVEL, _effort, 0),
    "previous_response_id": (sc.REQUEST_PREVIOUS_RESPONSE_ID, _text, 0),
    "service_tier": (sc.OPENAI_REQUEST_SERVICE_TIER, _tier, 0),
    "response_format": (sc.OUTPUT_TYPE, _json_format, 0),
}
"""``invocation_params`` key -> attribute, conversion, precedence among keys of one attribute."""

_METADATA: Final[dict[str, str]] = {
    "ls_temperature": "temperature",
    "ls_max_tokens": "max_tokens",
    "ls_stop": "stop",
}
"""Fallbacks in LangChain's standard metadata -> the rule that reads them."""

_STANDARD: Final = ("ls_provider", "ls_model_name", *_METADATA)
_IMMUTABLE: Final = (str, int, float, type(None))
_MODEL_KEYS: Final = ("model_name", "model_id", "model")
_ENDPOINT_KEYS: Final = ("base_url", "azure_endpoint", "openai_api_base", "anthropic_api_url")
_NESTED: Final = ("effort", "type")
"""What is read of parameters that are mappings."""
_READ: Final = frozenset({*PARAMETERS, *_MODEL_KEYS, *_ENDPOINT_KEYS, "_type"})


def copied_parameters(given: Mapping[str, Any]) -> Parameters:
    """The parameters that are read later, without anything that may change until then."""
    return tuple(
        (key, value if isinstance(value, _IMMUTABLE) else _copied(value))
        for key, value in given.items()
        if key in _READ
    )


def _copied(value: object) -> object:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        return {key: value[key] for key in _NESTED if key in value}
    return value


def model_attributes(
    attributes: dict[str, Any],
    parameters: Parameters,
    metadata: Mapping[str, Any],
    endpoint: object,
) -> str:
    """Add provider, model and request parameters to `attributes`; return the model's name.

    `endpoint` is the URL the model was constructed with, when that is known.
    """
    standard = tuple([metadata.get(key) for key in _STANDARD])
    try:
        known, model = _remembered(parameters, standard, endpoint)
    except TypeError:  # an unhashable parameter, such as a nested one
        known, model = _described(parameters, standard, endpoint)
    attributes.update(known)
    return model


def _described(
    parameters: Parameters, standard: tuple[Any, ...], endpoint: object
) -> tuple[dict[str, Any], str]:
    given, metadata = dict(parameters), dict(zip(_STANDARD, standard, strict=True))
    attributes: dict[str, Any] = {
        sc.PROVIDER_NAME: sc.provider_name(metadata["ls_provider"], given.get("_type"))
    }
    names = [given.get(key) for key in _MODEL_KEYS] + [metadata["ls_model_name"]]
    known = (identifier(name) for name in names if name is not None)
    model = next(filter(None, known), "").removeprefix("models/")
    if model:
        attributes[sc.REQUEST_MODEL] = model
    ranks: dict[str, int] = {}
    for key, value in parameters:
        rule = PARAMETERS.get(key)
        if rule is not None and value is not None:
            attribute, convert, rank = rule
            if rank >= ranks.get(attribute, 0) and (good := convert(value)) is not None:
                attributes[attribute] = good
                ranks[attribute] = rank
    _from_metadata(attributes, metadata)
    _server(attributes, given, endpoint)
    return attributes, model


_remembered = lru_cache(maxsize=256)(_described)
"""An application calls a model with the same parameters again and again."""


def _from_metadata(attributes: dict[str, Any], metadata: Mapping[str, Any]) -> None:
    for key, name in _METADATA.items():
        value = metadata.get(key)
        if value is not None:
            attribute, convert, _ = PARAMETERS[name]
            if attribute not in attributes and (good := convert(value)) is not None:
                attributes[attribute] = good


def _server(attributes: dict[str, Any], parameters: Mapping[str, Any], endpoint: object) -> None:
    for key in _ENDPOINT_KEYS:
        url = parameters.get(key)
        if url is not None:
            break
    else:
        url = endpoint
    if isinstance(url, str) and (found := _endpoint(url)) is not None:
        attributes[sc.SERVER_ADDRESS], attributes[sc.SERVER_PORT] = found


def constructor_endpoint(serialized: Mapping[str, Any]) -> object:
    """The endpoint a model was constructed with, when LangChain serialised it."""
    constructor = serialized.get("kwargs")
    if isinstance(constructor, dict):
        for key in _ENDPOINT_KEYS:
            if (url := constructor.get(key)) is not None:
                return url
    return None


@lru_cache(maxsize=256)
def _endpoint(url: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(url)
        port = parts.port or _HTTP_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and port else None
