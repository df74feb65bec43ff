"""python -m penstock worker -A module -Q queue -c 8 --pool prefork"""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from typing import Any, List, Optional, Sequence

from ._version import __version__
from .app import Penstock, current_app
from .exceptions import ConfigurationError, NotSupported, PenstockError

REFUSED = {
    "beat": "beat: no process of its own is needed. A worker registers the schedules of its app with the broker, which sends "
    "their messages on time.",
    "inspect": "inspect: nothing speaks to a running worker. GET /channel/q/consumer/q/workers lists the workers of a queue.",
    "control": "control: nothing speaks to a running worker. Pause, resume and purge are routes of the broker.",
    "multi": "multi: start one worker for each machine or container, and let its supervisor look after it",
    "events": "events: look at the metrics and the pages of the broker",
    "flower": "flower: look at the metrics and the pages of the broker",
    "purge": "purge: POST /channel/q/consumer/q/purge",
}


def find_app(name: str) -> Penstock:
    """The app of ``module``, ``module:attribute``, or of ``module.celery``."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module, _, attribute = name.partition(":")
    found: Any = None
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        head, _, tail = module.rpartition(".")
        if error.name != module or not head:
            raise ConfigurationError(f"-A {name}: there is no module {error.name}") from None
        found, attribute = importlib.import_module(head), attribute or tail
    if attribute:
        named = getattr(found, attribute, None)
        if not isinstance(named, Penstock):
            raise ConfigurationError(f"-A {name}: {attribute} is no app")
        return named
    for attribute in ("app", "celery", "celery_app"):
        if isinstance(getattr(found, attribute, None), Penstock):
            app: Penstock = getattr(found, attribute)
            return app
    for value in list(vars(found).values()):
        if isinstance(value, Penstock):
            return value
    if hasattr(found, "__path__"):
        for part in ("celery", "penstock", "app"):
            try:
                return find_app(f"{module}.{part}")
            except ConfigurationError:
                continue
    raise ConfigurationError(f"-A {name}: the module has no app")


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="penstock", description="Workers of the message broker Penstock.")
    top.add_argument("--version", action="version", version=f"penstock {__version__}")
    top.add_argument("-A", "--app", dest="top_app", help="module of the app, or module:attribute")
    top.add_argument("-b", "--broker", dest="top_broker", help="URL of the broker")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    worker = commands.add_parser("worker", help="work on the jobs of queues", description="Work on the jobs of queues.")
    worker.add_argument("-A", "--app", help="module of the app, or module:attribute")
    worker.add_argument("-b", "--broker", help="URL of the broker (else the app's, or PENSTOCK_URL)")
    worker.add_argument("-Q", "--queues", action="append", help="queues, with commas between them (else task_default_queue)")
    worker.add_argument("-c", "--concurrency", type=int, help="jobs at a time (else the number of processors)")
    worker.add_argument(
        "-P", "--pool", choices=("prefork", "threads", "solo", "asyncio"), help="what runs the tasks (prefork)"
    )
    worker.add_argument("--health", metavar="HOST:PORT", help="answer GET /healthz there")
    worker.add_argument("--lease", type=int, help="length of a lease, seconds (else visibility_timeout or PENSTOCK_LEASE)")
    worker.add_argument("-n", "--hostname", help="the name of the worker")
    worker.add_argument("-l", "--loglevel", default="INFO", help="DEBUG, INFO, WARNING, ERROR or CRITICAL")
    worker.add_argument("-f", "--logfile", help="a file for the log (else stderr)")
    worker.add_argument("--max-tasks-per-child", type=int, help="tasks after which a process is replaced")
    worker.add_argument("--stop-timeout", type=float, help="seconds after which a stop ends running tasks, too")
    worker.add_argument("-I", "--include", help="modules to import, with commas between them")
    worker.add_argument("-B", "--beat", action="store_true", help="accepted: the broker keeps the schedules")
    worker.add_argument("-E", "--task-events", action="store_true", help=argparse.SUPPRESS)
    for option in ("--without-gossip", "--without-mingle", "--without-heartbeat"):
        worker.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    schedules = commands.add_parser("schedules", help="register the schedules of an app, and list them")
    schedules.add_argument("-A", "--app", help="module of the app, or module:attribute")
    return top


def work(o: argparse.Namespace, app: Optional[Penstock]) -> int:
    level = getattr(logging, o.loglevel.upper(), None)
    if not isinstance(level, int):
        raise ConfigurationError(f"--loglevel: there is no {o.loglevel}")
    logging.basicConfig(
        level=level, filename=o.logfile, format="[%(asctime)s: %(levelname)s/%(processName)s] %(message)s"
    )
    name = o.app or o.top_app
    if name:
        app = find_app(name)
    if app is None:
        raise ConfigurationError("the worker needs an app: -A module")
    broker = o.broker or o.top_broker
    if broker:
        app.conf.broker_url = broker
    if o.hostname:
        app._client_options["worker"] = o.hostname.replace("%h", os.uname().nodename if hasattr(os, "uname") else "host")
    if o.include:
        app.conf.include = [*(app.conf.include or ()), *o.include.split(",")]
    queues: List[str] = [q.strip() for part in o.queues or () for q in part.split(",") if q.strip()]
    worker = app.Worker(
        queues=queues or None,
        concurrency=o.concurrency,
        pool=o.pool,
        lease=o.lease,
        stop_timeout=o.stop_timeout,
        health=o.health,
        max_tasks_per_child=o.max_tasks_per_child,
    )
    code: int = worker.run()
    app.close()
    return code


def main(argv: Optional[Sequence[str]] = None, app: Optional[Penstock] = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    words = [a for a in argv if not a.startswith("-")]
    refused = next((w for w in words if w in REFUSED), None)
    if refused is not None and "worker" not in words:
        print(f"penstock: {REFUSED[refused]}", file=sys.stderr)
        return 1
    o = parser().parse_args(argv)
    try:
        if o.command == "worker":
            return work(o, app)
        if o.command == "schedules":
            found = find_app(o.app or o.top_app) if o.app or o.top_app else app or current_app()
            found.finalize()
            for id in found.register_schedules():
                print(id)
            found.close()
            return 0
    except (PenstockError, NotSupported) as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    parser().print_help(sys.stderr)
    return 1


def run() -> None:
    """The program ``penstock``. It ends even if a thread of a task does not."""
    code = main()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
