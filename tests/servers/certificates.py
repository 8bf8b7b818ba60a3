"""Self-signed certificates for servers and clients on loopback, made by the openssl program."""

from __future__ import annotations

import subprocess
from pathlib import Path

from servers.otlp_answers import Tls


def self_signed(folder: Path, name: str) -> Tls:
    """Return a new certificate for localhost and 127.0.0.1, its own authority, and its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    subprocess.run(  # noqa: S603 - our own command line
        [  # noqa: S607 - wherever it is installed
            "openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout", str(key), "-out", str(certificate),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return Tls(certificate, key)
