"""Settings from the environment."""

from __future__ import annotations

import os
import secrets
import socket
from typing import Optional
from urllib.parse import urlsplit

from .exceptions import ConfigurationError

DEFAULT_URL = "http://127.0.0.1:8080"
DEFAULT_PRODUCER = "penstock"
DEFAULT_LEASE = 30
MOST_LEASE = 7 * 24 * 3600


def setting(name: str) -> Optional[str]:
    """The value of a variable, or of the file that NAME_FILE names; None: neither is set."""
    value = os.environ.get(name)
    if value:
        return value
    path = os.environ.get(name + "_FILE")
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().rstrip("\r\n") or None
    except OSError as error:
        raise ConfigurationError(f"{name}_FILE cannot be read: {error.strerror}") from None


def lease_of(value: object, name: str) -> int:
    """A length of a lease, whole seconds."""
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= MOST_LEASE or seconds != int(seconds):
        raise ConfigurationError(f"{name} must be whole seconds from 1 to {MOST_LEASE}, not {value!r}")
    return int(seconds)


def default_lease() -> int:
    value = setting("PENSTOCK_LEASE")
    return DEFAULT_LEASE if value is None else lease_of(value, "PENSTOCK_LEASE")


def worker_name() -> str:
    """PENSTOCK_WORKER, or a name that no other worker has."""
    given = setting("PENSTOCK_WORKER")
    if given:
        return clean_worker_name(given)
    return f"{clean_worker_name(socket.gethostname())[:80]}-{os.getpid()}-{secrets.token_hex(2)}"


def clean_worker_name(name: str) -> str:
    """The name without the characters that separate the parts of X-Broker-Worker."""
    kept = "".join(c if 0x20 < ord(c) < 0x7F and c not in ";|," else "-" for c in name.strip())
    return kept[:128] or "worker"


class Address:
    """Where a broker is: its scheme, host, port and the path in front of all others."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            shown = f"{parts.scheme}://..." if parts.scheme else "..."
            raise ConfigurationError(f"the URL of the broker must be like http://host:8080, not {shown}")
        if parts.username is not None or parts.password is not None:
            raise ConfigurationError("the URL of the broker must not have a user name or password")
        if parts.query or parts.fragment:
            raise ConfigurationError("the URL of the broker must not have a query or fragment")
        self.tls = parts.scheme == "https"
        self.host = parts.hostname
        self.port = port or (443 if self.tls else 80)
        self.prefix = parts.path.rstrip("/")
        name = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = name if self.port == (443 if self.tls else 80) else f"{name}:{self.port}"
        self.url = f"{parts.scheme}://{self.authority}{self.prefix}"
