"""Settings of an app, with Celery's names."""

from __future__ import annotations

import difflib
import importlib
from typing import Any, Dict, Iterator, Mapping, Optional

from .exceptions import ImproperlyConfigured, NotSupported

DEFAULTS: Dict[str, Any] = {
    "broker_url": None,
    "result_backend": None,
    "broker_transport_options": {},
    "task_default_queue": "celery",
    "task_default_priority": None,
    "task_routes": None,
    "task_queues": None,
    "task_always_eager": False,
    "task_eager_propagates": False,
    "task_store_eager_result": False,
    "task_ignore_result": False,
    "task_serializer": "json",
    "result_serializer": "json",
    "accept_content": ["json"],
    "result_accept_content": None,
    "task_time_limit": None,
    "task_soft_time_limit": None,
    "task_annotations": None,
    "task_acks_late": True,
    "timezone": "UTC",
    "enable_utc": True,
    "beat_schedule": {},
    "imports": (),
    "include": (),
    "worker_concurrency": None,
    "worker_pool": "prefork",
    "worker_max_tasks_per_child": None,
    "result_timeout": 30.0,
    "on_commit": None,
}

# Settings of Celery that mean nothing here, because the broker does it, or does it always.
PASSED_OVER = (
    "broker_",
    "result_",
    "redis_",
    "database_",
    "cache_",
    "worker_",
    "event_",
    "events_",
    "beat_",
    "security_",
    "task_acks_",
    "task_reject_on_worker_lost",
    "task_track_started",
    "task_send_sent_event",
    "task_create_missing_queues",
    "task_default_",
    "task_publish_retry",
    "task_compression",
    "task_protocol",
    "task_store_errors_even_if_ignored",
    "task_remote_tracebacks",
    "task_allow_error_cb_on_chord_header",
    "task_queue_max_priority",
    "task_inherit_parent_priority",
    "task_eager_",
    "deprecated_",
    "control_",
    "django_",
)
# The names of Celery 3.
OLD = {
    "BROKER_URL": "broker_url",
    "CELERY_RESULT_BACKEND": "result_backend",
    "CELERY_TASK_SERIALIZER": "task_serializer",
    "CELERY_RESULT_SERIALIZER": "result_serializer",
    "CELERY_ACCEPT_CONTENT": "accept_content",
    "CELERY_TIMEZONE": "timezone",
    "CELERY_ENABLE_UTC": "enable_utc",
    "CELERY_ALWAYS_EAGER": "task_always_eager",
    "CELERY_TASK_ALWAYS_EAGER": "task_always_eager",
    "CELERY_IGNORE_RESULT": "task_ignore_result",
    "CELERY_DEFAULT_QUEUE": "task_default_queue",
    "CELERY_ROUTES": "task_routes",
    "CELERYBEAT_SCHEDULE": "beat_schedule",
    "CELERY_IMPORTS": "imports",
}
_SERIALIZERS = ("task_serializer", "result_serializer", "event_serializer")


def check_serializer(value: Any, where: str) -> None:
    names = value if isinstance(value, (list, tuple, set, frozenset)) else [value]
    for name in names:
        text = str(name).lower()
        if "pickle" in text:
            raise NotSupported(
                f"{where}: pickle is not supported: whoever may publish to a queue could run any code in its workers, and "
                "workers of other languages could not read the job. Use json."
            )
        if text not in ("json", "application/json", "none"):
            raise NotSupported(f"{where}: {text} is not supported: a job is JSON, which workers of all languages read")


class Conf(Mapping[str, Any]):
    """Settings as attributes and as members."""

    def __init__(self) -> None:
        self.__dict__["_values"] = dict(DEFAULTS, beat_schedule={}, broker_transport_options={})
        self.__dict__["_given"] = set()

    def _set(self, name: str, value: Any) -> None:
        if name == "task_routes" or name == "beat_schedule" or not name.startswith("_"):
            self._check(name, value)
        self._values[name] = value
        self._given.add(name)

    def _check(self, name: str, value: Any) -> None:
        if name in _SERIALIZERS or name in ("accept_content", "result_accept_content"):
            check_serializer(value, name)
        if name in DEFAULTS or name.startswith(PASSED_OVER):
            return
        near = difflib.get_close_matches(name, DEFAULTS, 1, 0.8)
        if near:
            raise ImproperlyConfigured(f"there is no setting {name!r}: did you mean {near[0]!r}?")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            if name.startswith(PASSED_OVER):
                return None
            raise AttributeError(f"there is no setting {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._set(name, value)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._set(name, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def update(self, *args: Any, **named: Any) -> None:
        for name, value in dict(*args, **named).items():
            self._set(name, value)

    def load(self, source: Any, namespace: Optional[str] = None) -> None:
        """Read a module, its name, the name of an object in it (``module:object``), a class or a mapping."""
        if isinstance(source, str):
            module, _, attribute = source.partition(":")
            found: Any = importlib.import_module(module)
            source = getattr(found, attribute) if attribute else found
        members = dict(source) if isinstance(source, Mapping) else {n: getattr(source, n) for n in dir(source)}
        prefix = (namespace + "_").upper() if namespace else ""
        for name, value in members.items():
            if name.startswith("_") or isinstance(value, type(importlib)):
                continue
            if prefix:
                if name.upper().startswith(prefix) and name.isupper():
                    self._set(name[len(prefix) :].lower(), value)
            elif name in OLD:
                self._set(OLD[name], value)
            elif name.islower() and (name in DEFAULTS or name.startswith(PASSED_OVER)):
                self._set(name, value)
            elif name.islower() and not callable(value):
                self._set(name, value)
