"""Exceptions of the public API. Telemetry itself never raises into the agent."""

from __future__ import annotations


class JournalError(Exception):
    """Base of every error this package raises on purpose."""


class SettingsError(JournalError):
    """A setting has a value that is not allowed; the message names it and what is."""


class StoreError(JournalError):
    """A store cannot do what was asked."""


class SidecarError(JournalError):
    """The sidecar cannot start or go on; the message names what is in its way."""


class EventError(StoreError):
    """An event that no store takes, whatever its state: the rest of its batch may go in."""
