"""An app: tasks, settings and a broker, in Celery's form."""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import logging
import os
import re
import sys
import threading
import weakref
from datetime import datetime, timezone
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar, overload
from urllib.parse import urlsplit

from . import _beat, _settings
from ._conf import Conf, check_serializer
from ._core import path
from ._task import REFUSED, TASK_OPTIONS, P, R, Task, check_options
from ._types import Message, Published
from .client import Client
from .exceptions import BrokerError, ImproperlyConfigured, ManagementClosed, NotRegistered, NotSupported, RefusedError
from .result import AsyncResult, GroupResult

log = logging.getLogger("penstock.app")
F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["Celery", "Penstock", "current_app", "current_task", "set_default_app", "shared_task"]

MOST_RETRIES = 1000

_CONTROL = (
    "control: nothing speaks to a running worker. GET /channel/q/consumer/q/workers lists the workers of a queue, pause and "
    "resume of the consumer hold its jobs, purge ends them, and AsyncResult.revoke ends one that has not begun."
)

TaskOf = Task
_mu = threading.Lock()
_current: Optional["Penstock"] = None
_shared: Dict[str, Task[Any, Any]] = {}
_apps: "weakref.WeakSet[Penstock]" = weakref.WeakSet()


class Registry(Dict[str, Any]):
    """The tasks by name."""

    def __missing__(self, name: str) -> Any:
        if name in _shared:
            return _shared[name]
        raise NotRegistered(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in _shared

    def names(self) -> List[str]:
        return sorted({*self, *_shared})

    def register(self, task: Any) -> Any:
        task = task() if isinstance(task, type) else task
        self[task.name] = task
        return task


class _Event:
    """on_after_configure and its like: their receivers are called when the app is ready for it."""

    def __init__(self) -> None:
        self._receivers: List[Any] = []
        self._sent: Optional[Tuple[Any, Dict[str, Any]]] = None

    def connect(self, *args: Any, **_: Any) -> Any:
        def register(function: F) -> F:
            self._receivers.append(function)
            return function

        return register(args[0]) if args else register

    def send(self, sender: Any, **named: Any) -> None:
        receivers, self._receivers = self._receivers, []
        for receiver in receivers:
            receiver(sender, **named)


class Penstock:
    """The tasks of a program, and the broker that carries them.

    ``broker`` is the URL of the broker (else PENSTOCK_URL, else http://127.0.0.1:8080). ``backend`` is
    accepted and means nothing: the broker carries results back.
    """

    Task: Any = Task

    def __init__(
        self,
        main: Optional[str] = None,
        broker: Optional[str] = None,
        backend: Optional[str] = None,
        include: Optional[Sequence[str]] = None,
        config_source: Any = None,
        set_as_current: bool = True,
        task_cls: Optional[type] = None,
        client_options: Optional[Mapping[str, Any]] = None,
        **options: Any,
    ) -> None:
        global _current
        self.main = main
        self.conf = Conf()
        self.tasks = Registry()
        if broker is not None:
            self.conf.broker_url = broker
        if backend is not None:
            self.conf.result_backend = backend
        if include:
            self.conf.include = include
        for name, value in options.items():
            self.conf[name] = value
        if config_source is not None:
            self.config_from_object(config_source)
        if task_cls is not None:
            self.Task = task_cls
        self.on_configure = _Event()
        self.on_after_configure = _Event()
        self.on_after_finalize = _Event()
        self.on_after_fork = _Event()
        self._client_options = dict(client_options or {})
        self._client: Optional[Client] = None
        self._mu = threading.RLock()
        self._ready: Dict[str, float] = {}  # queues that were made, and how many retries they bear
        self._autodiscover: List[Tuple[Any, str]] = []
        self._local = threading.local()
        if set_as_current:
            self.set_current()
        _apps.add(self)

    def __repr__(self) -> str:
        return f"<Penstock {self.main or '__main__'}>"

    def __enter__(self) -> "Penstock":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def set_current(self) -> None:
        global _current
        with _mu:
            _current = self

    set_default = set_current

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    # Settings

    def config_from_object(self, obj: Any, silent: bool = False, force: bool = False, namespace: Optional[str] = None) -> None:
        """Read settings from a module, an object or their name (``"django.conf:settings"``)."""
        try:
            self.conf.load(obj, namespace)
        except ImportError:
            if not silent:
                raise

    def config_from_envvar(self, variable: str, silent: bool = False, force: bool = False) -> None:
        name = os.environ.get(variable)
        if name:
            self.config_from_object(name, silent)
        elif not silent:
            raise ImproperlyConfigured(f"the variable {variable} is not set")

    def add_defaults(self, source: Any) -> None:
        for name, value in dict(source() if callable(source) else source).items():
            if name not in self.conf._given:
                self.conf[name] = value

    @property
    def client(self) -> Client:
        """The low-level client of the broker."""
        with self._mu:
            if self._client is None:
                self._client = Client(self._url(), **self._client_options)
            return self._client

    def _url(self) -> Optional[str]:
        url = self.conf.broker_url
        if url is None:
            return None
        if isinstance(url, (list, tuple)):
            url = url[0]
        scheme = urlsplit(str(url)).scheme
        if scheme in ("http", "https"):
            return str(url)
        # A program that comes from Celery may keep the address of its former broker.
        found = _settings.setting("PENSTOCK_URL")
        if found is None:
            raise ImproperlyConfigured(
                f'the broker "{scheme or url}://..." is not Penstock\'s: give broker="http://host:8080", or set PENSTOCK_URL'
            )
        return found

    @property
    def control(self) -> Any:
        raise NotSupported(_CONTROL)

    @property
    def timezone(self) -> Any:
        return self.conf.timezone

    def now(self) -> datetime:
        return datetime.now(self._zone())

    def _zone(self) -> Any:
        name = self.conf.timezone or "UTC"
        if not isinstance(name, str):
            return name
        if name.upper() == "UTC":
            return timezone.utc
        from zoneinfo import ZoneInfo

        return ZoneInfo(name)

    def _aware(self, at: datetime) -> datetime:
        """A time in UTC. One without a zone is in that of the app, or in UTC where it has ``enable_utc``."""
        if not isinstance(at, datetime):
            raise TypeError(f"eta must be a datetime, not {at!r}")
        if at.tzinfo is None:
            at = at.replace(tzinfo=timezone.utc if self.conf.enable_utc else self._zone())
        return at.astimezone(timezone.utc)

    def _eager(self) -> bool:
        return bool(self.conf.task_always_eager) or os.environ.get("PENSTOCK_EAGER") == "1"

    # Tasks

    @overload
    def task(self, function: "Callable[P, R]", /) -> "TaskOf[P, R]": ...

    @overload
    def task(self, **options: Any) -> "Callable[[Callable[..., Any]], TaskOf[Any, Any]]": ...

    def task(self, *args: Any, **options: Any) -> Any:
        """Make a function a task: ``@app.task`` or ``@app.task(bind=True, max_retries=5)``."""
        options.pop("shared", None)
        options.pop("lazy", None)

        def make(function: Callable[..., Any]) -> Any:
            made = make_task(function, self, options.get("base") or self.Task, options, self)
            self.tasks[made.name] = made
            return made

        if args and callable(args[0]):
            return make(args[0])
        _check_task_options(options)
        return make

    def register_task(self, task: Any, **options: Any) -> Any:
        """Register a task that is a class."""
        made = task() if isinstance(task, type) else task
        type(made)._app = self
        self.tasks[made.name] = made
        return made

    def gen_task_name(self, name: str, module: str) -> str:
        """``module.function``; of the program that runs, the name of the app stands for its module."""
        if module == "__main__":
            module = self.main or "__main__"
        return f"{module}.{name}"

    def _task_named(self, name: str) -> Any:
        if name in self.tasks:
            return self.tasks[name]
        # A task of another program, perhaps in another language: it can be published, and not be run here.
        made = type(name, (Task,), {"name": name, "typing": False, "__module__": __name__})()
        made._app = self
        return made

    def send_task(self, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> AsyncResult:
        """Publish a job of a task that this program need not have, in whatever language."""
        task = type(name, (Task,), {"name": name, "typing": False})()
        task._app = self
        known = self.tasks[name] if name in self.tasks else None
        if known is not None:
            task.queue, task.priority = known.queue, known.priority
        made: AsyncResult = task.apply_async(args, kwargs, **options)
        return made

    def signature(self, varies: Any, *args: Any, **options: Any) -> Any:
        from .canvas import signature

        return signature(varies, *args, **{"app": self, **options})

    @property
    def Signature(self) -> Any:
        from .canvas import Signature

        return Signature

    def AsyncResult(self, id: str, **options: Any) -> AsyncResult:
        return AsyncResult(id, app=self, **options)

    def GroupResult(self, id: Optional[str] = None, results: Iterable[Any] = (), **options: Any) -> GroupResult:
        return GroupResult(id, results, app=self, **options)

    @property
    def current_task(self) -> Any:
        return current_task()

    def autodiscover_tasks(self, packages: Any = None, related_name: str = "tasks", force: bool = False) -> None:
        """Import the module ``tasks`` of packages, or of the apps of Django, when the worker starts."""
        self._autodiscover.append((packages, related_name))
        if force:
            self.finalize()

    def finalize(self) -> None:
        """Import what the settings name, and let the receivers of on_after_configure add schedules."""
        with self._mu:
            found, self._autodiscover = self._autodiscover, []
        for name in [*(self.conf.imports or ()), *(self.conf.include or ())]:
            importlib.import_module(name)
        for packages, related in found:
            for package in _packages(packages):
                _import_related(package, related)
        self.on_configure.send(self)
        self.on_after_configure.send(self)
        self.on_after_finalize.send(self)

    # Publishing

    def _queue_of(self, task: Any) -> str:
        routed = self._routed(task.name)
        return str(routed or task.queue or self.conf.task_default_queue)

    def _routed(self, name: str) -> Optional[str]:
        routes = self.conf.task_routes
        for route in [routes] if isinstance(routes, (Mapping, str)) or callable(routes) else routes or ():
            found: Any = None
            if callable(route):
                found = route(name, (), {}, {}, None)
            elif isinstance(route, Mapping):
                found = route.get(name)
                if found is None:
                    for pattern, to in route.items():
                        if pattern.match(name) if isinstance(pattern, re.Pattern) else fnmatch.fnmatch(name, pattern):
                            found = to
                            break
            if found:
                queue = found if isinstance(found, str) else found.get("queue")
                return queue if isinstance(queue, str) or queue is None else str(getattr(queue, "name", queue))
        return None

    def _result_queues(self, name: Optional[str]) -> List[str]:
        """Where the message of a task may be, if only its ID is known."""
        found = []
        if name:
            found.append(self._queue_of(self._task_named(name)))
        found.append(self.conf.task_default_queue)
        found += [self._queue_of(self.tasks[n]) for n in self.tasks.names()]
        found += [str(getattr(q, "name", q)) for q in self.conf.task_queues or ()]
        found += list(self._ready)
        return list(dict.fromkeys(found))

    def _publish(self, queue: str, message: Message) -> Published:
        self._make_queue(queue)
        try:
            return self.client._run(self.client._core.publish(queue, message))
        except RefusedError as error:
            if error.code != "schedule_too_soon":
                raise
            message.at = message.delay = None  # its time came while it was on its way
            return self.client._run(self.client._core.publish(queue, message))

    def _publish_many(self, queue: str, messages: Sequence[Message]) -> None:
        self._make_queue(queue)
        for done in self.client._run(self.client._core.publish_many(queue, messages)):
            if done.error is not None:
                raise done.error

    def _make_queue(self, queue: str) -> None:
        """Make channel and consumer, and let the consumer carry results, where the broker lets us."""
        if queue in self._ready:
            return
        client = self.client
        core = client._core
        if core.o.channel_token and core.o.consumer_token:
            self._ready[queue] = MOST_RETRIES
            return
        client._run(core.channel(queue))
        client._run(core.consumer(queue, queue))
        self._ready[queue] = self._set_policy(queue, 0)

    def _set_policy(self, queue: str, retries: int) -> float:
        """Let the consumer keep results, and bear at least so many retries; returns how many it bears."""
        manage = self.client.manage
        try:
            shown = manage.consumer(queue)
            policy = shown.get("Policy") or {}
            bears = int(policy.get("MaxRetries") or 0)
            change: Dict[str, Any] = {}
            if policy.get("Responses") == "off":
                change["responses"] = "store"
                change["responseMaxBytes"] = 1 << 20
            if retries > bears and "MaxRetries" in (shown.get("Inherited") or ()):
                bears = min(MOST_RETRIES, max(retries, 2 * bears))
                change["maxRetries"] = bears
                if "MaxLeasesLost" in (shown.get("Inherited") or ()):
                    # Jobs that kill their workers end as soon as before.
                    change["maxLeasesLost"] = int(policy.get("MaxRetries") or 5)
            elif retries > bears:
                log.warning("queue %s bears %d retries only, as its maxRetries says", queue, bears)
                bears = MOST_RETRIES
            if change:
                manage("PUT", path("channel", queue, "consumer", queue), change)
            return bears
        except ManagementClosed:
            return MOST_RETRIES

    def _bears(self, queue: str, attempt: int) -> None:
        """Before a job is given back as failed: its queue must bear one more attempt."""
        if attempt <= self._ready.get(queue, 0):
            return
        try:
            with self._mu:
                self._ready[queue] = self._set_policy(queue, attempt + 1)
        except BrokerError as error:
            log.warning("queue %s: its maxRetries cannot be read: %s", queue, error)

    def _on_commit(self, call: Callable[[], Any]) -> None:
        hook = self.conf.on_commit
        if hook is None:
            try:
                from django.db import transaction
            except ImportError:
                raise ImproperlyConfigured(
                    "delay_on_commit asks Django when the transaction has committed, and Django is not installed: "
                    "set app.conf.on_commit to a function that calls its argument after the commit"
                ) from None
            hook = transaction.on_commit
        hook(call)

    # Reading results

    def _read_message(self, queue: str, id: str) -> Dict[str, Any]:
        answer = self.client._run(
            self.client._core.read("GET", path("channel", queue, "message", id), queue, f'message "{id}"')
        )
        import json

        try:
            value = json.loads(answer.body)
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def _failure_detail(self, queue: str, job: Mapping[str, Any]) -> Optional[str]:
        """The end of the traceback that the worker reported, where this client may see it."""
        if not job.get("ID"):
            return None
        try:
            shown = self.client.manage("GET", path("channel", queue, "consumer", queue, "job", str(job["ID"])))
        except BrokerError:
            return None
        for attempt in reversed(shown.get("AttemptHistory") or []):
            if attempt.get("Answer"):
                return str(attempt["Answer"])
        return None

    def _revoke(self, queue: str, id: str) -> bool:
        """End a job that no worker has, or a message that is not sent yet."""
        client = self.client
        if client.unschedule(queue, id):
            return True
        try:
            message = self._read_message(queue, id)
        except RefusedError as error:
            if error.status == 404:
                return False
            raise
        for job in message.get("Jobs") or []:
            if job.get("ConsumerID") == queue and job.get("Status") == "QUEUED":
                return client._run(_beat.end_job(client._core, queue, str(job["ID"]), "revoked"))
        return False

    # Schedules

    def add_periodic_task(
        self, schedule: Any, sig: Any, args: Any = (), kwargs: Any = None, name: Optional[str] = None, **options: Any
    ) -> str:
        """Send a task again and again. A worker registers it with the broker when it starts."""
        key, entry = _beat.entry_of(schedule, sig, args, kwargs, name, options)
        self.conf.beat_schedule[key] = entry
        return key

    def register_schedules(self) -> List[str]:
        """Register ``beat_schedule`` with the broker, each entry once, whoever is first."""
        return _beat.register(self)

    # Working

    def worker_main(self, argv: Optional[Sequence[str]] = None) -> int:
        from .__main__ import main

        return main(["worker", *[a for a in argv or () if a != "worker"]], self)

    def start(self, argv: Optional[Sequence[str]] = None) -> None:
        from .__main__ import main

        sys.exit(main(list(sys.argv[1:] if argv is None else argv), self))

    def Worker(self, **options: Any) -> Any:
        from ._work import AppWorker

        return AppWorker(self, **options)


Celery = Penstock


def _check_task_options(options: Mapping[str, Any]) -> None:
    known = [*TASK_OPTIONS, "bind", "name", "base", "run"]
    base = options.get("base")
    check_options((o for o in options if not (base and hasattr(base, o))), known, "the task")


def make_task(function: Callable[..., Any], app: Optional[Penstock], base: type, options: Mapping[str, Any], namer: Any) -> Any:
    """A task of a function, in a class of its own."""
    _check_task_options(options)
    options = dict(options)
    name = options.pop("name", None)
    bound = options.pop("bind", False)
    options.pop("base", None)
    check_serializer(options.get("serializer", "json"), "serializer")
    for key in ("autoretry_for", "dont_autoretry_for", "throws"):
        value = options.get(key)
        if value is not None and not isinstance(value, (list, tuple)):
            options[key] = (value,)
    annotations = app.conf.task_annotations if app is not None else None
    if name is None:
        name = namer.gen_task_name(function.__name__, function.__module__) if namer else f"{function.__module__}.{function.__name__}"
    if isinstance(annotations, Mapping):
        own = {**annotations.get("*", {}), **annotations.get(name, {})}
        if "rate_limit" in own:
            raise NotSupported(REFUSED["rate_limit"])
        options.update({k: v for k, v in own.items() if k in TASK_OPTIONS})
    members: Dict[str, Any] = {
        **options,
        "name": name,
        "abstract": False,
        "run": function if bound else staticmethod(function),
        "_app": app,
        "__module__": function.__module__,
        "__doc__": function.__doc__,
        "__qualname__": function.__qualname__,
        "__wrapped__": function if not bound else function,
    }
    made = type(function.__name__, (base,), members)()
    made.__name__ = function.__name__
    return made


@overload
def shared_task(function: "Callable[P, R]", /) -> "Task[P, R]": ...


@overload
def shared_task(**options: Any) -> "Callable[[Callable[..., Any]], Task[Any, Any]]": ...


def shared_task(*args: Any, **options: Any) -> Any:
    """A task of whichever app is current: for modules that do not know the app."""
    options.pop("shared", None)
    options.pop("lazy", None)

    def make(function: Callable[..., Any]) -> Task[Any, Any]:
        made: Task[Any, Any] = make_task(function, None, options.get("base") or Task, options, None)
        _shared[made.name] = made
        return made

    if args and callable(args[0]):
        return make(args[0])
    _check_task_options(options)
    return make


def current_app() -> Penstock:
    """The app that was made last; one from the environment where there is none."""
    global _current
    with _mu:
        if _current is not None:
            return _current
    return Penstock("default")


def set_default_app(app: Penstock) -> None:
    app.set_current()


def current_task() -> Any:
    """The task that runs here, None outside of one."""
    from ._task import current

    stack = current.get()
    return stack[-1][0] if stack else None


def _packages(packages: Any) -> Iterator[str]:
    if callable(packages):
        packages = packages()
    if packages is None:
        try:
            from django.apps import apps
        except ImportError:
            return
        packages = [config.name for config in apps.get_app_configs()]
    yield from packages


def _import_related(package: str, related: str) -> None:
    if not related:
        importlib.import_module(package)
        return
    try:
        found = importlib.util.find_spec(f"{package}.{related}")
    except ModuleNotFoundError:
        return
    if found is not None:
        importlib.import_module(f"{package}.{related}")


