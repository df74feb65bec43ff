"""Signatures, chains and groups."""

from __future__ import annotations

import uuid
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ._task import OPTIONS, check_options
from .exceptions import ChordNotSupported, InvalidSignature, NotSupported
from .result import AsyncResult, EagerResult, GroupResult

__all__ = ["Signature", "chain", "chord", "group", "signature"]

_CHORD = (
    "chord: Penstock has no chords. A counter beside the jobs of the group would be a second truth that a crash can leave "
    "wrong. Let the tasks of a group write to your database, and its last one, by a counter there, start the task that "
    "follows."
)


class Signature(Dict[str, Any]):
    """A task with arguments and options, as a dict that is JSON."""

    def __init__(
        self,
        task: Any = None,
        args: Any = None,
        kwargs: Any = None,
        options: Any = None,
        *,
        immutable: bool = False,
        app: Any = None,
        **_: Any,
    ) -> None:
        if isinstance(task, Mapping):
            super().__init__(
                task=task.get("task"),
                args=list(task.get("args") or ()),
                kwargs=dict(task.get("kwargs") or {}),
                options=dict(task.get("options") or {}),
                immutable=bool(task.get("immutable")),
            )
        else:
            name = task if isinstance(task, str) else getattr(task, "name", None)
            if not name:
                raise InvalidSignature(f"{task!r} is no task")
            super().__init__(
                task=name, args=list(args or ()), kwargs=dict(kwargs or {}), options=dict(options or {}), immutable=immutable
            )
        if not isinstance(self["task"], str):
            raise InvalidSignature("a signature names its task")
        check_options(self["options"], OPTIONS, f"the signature of {self['task']}")
        self._app = app

    task = property(lambda self: self["task"])
    name = property(lambda self: self["task"])
    args = property(lambda self: tuple(self["args"]))
    kwargs = property(lambda self: self["kwargs"])
    options = property(lambda self: self["options"])
    immutable = property(lambda self: self["immutable"])
    id = property(lambda self: self["options"].get("task_id"))

    @property
    def app(self) -> Any:
        from .app import current_app

        return self._app or current_app()

    @property
    def type(self) -> Any:
        return self.app._task_named(self["task"])

    def __repr__(self) -> str:
        parts = [repr(a) for a in self["args"]] + [f"{k}={v!r}" for k, v in self["kwargs"].items()]
        return f"{self['task']}({', '.join(parts)})"

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)

    def __reduce__(self) -> Any:
        return Signature, (dict(self),)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task here."""
        merged, named, _ = self._merged(args, kwargs, {})
        return self.type(*merged, **named)

    def _merged(self, args: Any, kwargs: Any, options: Any) -> Tuple[List[Any], Dict[str, Any], Dict[str, Any]]:
        all_options = {**self["options"], **{k: v for k, v in (options or {}).items() if v is not None}}
        if self["immutable"]:
            return list(self["args"]), dict(self["kwargs"]), all_options
        return list(args or ()) + list(self["args"]), {**self["kwargs"], **(kwargs or {})}, all_options

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply_async(args, kwargs)

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        merged, named, all_options = self._merged(args, kwargs, options)
        return self.type.apply_async(merged, named, **all_options)

    def apply(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        merged, named, all_options = self._merged(args, kwargs, options)
        return self.type.apply(merged, named, **all_options)

    def delay_on_commit(self, *args: Any, **kwargs: Any) -> None:
        self.app._on_commit(lambda: self.apply_async(args, kwargs))

    def apply_async_on_commit(self, args: Any = None, kwargs: Any = None, **options: Any) -> None:
        check_options(options, OPTIONS, "apply_async_on_commit")
        self.app._on_commit(lambda: self.apply_async(args, kwargs, **options))

    def clone(self, args: Any = None, kwargs: Any = None, **options: Any) -> "Signature":
        merged, named, all_options = self._merged(args, kwargs, options)
        return Signature(self["task"], merged, named, all_options, immutable=self["immutable"], app=self._app)

    partial = clone

    def set(self, immutable: Optional[bool] = None, **options: Any) -> "Signature":
        check_options(options, OPTIONS, f"the signature of {self['task']}")
        if immutable is not None:
            self["immutable"] = immutable
        self["options"].update(options)
        return self

    def set_immutable(self, immutable: bool) -> None:
        self["immutable"] = immutable

    def freeze(self, _id: Optional[str] = None) -> AsyncResult:
        """Give the task its ID now."""
        id = self["options"].setdefault("task_id", _id or str(uuid.uuid4()))
        return AsyncResult(id, task_name=self["task"], app=self.app, queue=self._queue())

    def _queue(self) -> str:
        queue: str = self["options"].get("queue") or self.app._queue_of(self.type)
        return queue

    def link(self, *_: Any) -> Any:
        raise NotSupported("link: a callback beside a task could be lost with its worker. Use a chain.")

    def link_error(self, *_: Any) -> Any:
        raise NotSupported("link_error: connect to the signal task_failure, or look at the dead letters of the queue.")

    on_error = link_error

    def __or__(self, other: Any) -> Any:
        if isinstance(other, (Signature, chain, group)):
            return chain(self, other)
        return NotImplemented

    def step(self) -> Dict[str, Any]:
        """The signature as a chain carries it."""
        out = {"task": self["task"], "args": self["args"], "kwargs": self["kwargs"], "options": dict(self["options"])}
        if self["immutable"]:
            out["immutable"] = True
        return out


class chain:
    """Tasks one after the other: each gets the result of the one before as its first argument. The next
    one is published, under an ID that it has from the start, before its predecessor is done."""

    def __init__(self, *tasks: Any, **options: Any) -> None:
        if len(tasks) == 1 and not isinstance(tasks[0], (Signature, chain, group)):
            tasks = tuple(tasks[0])
        self.tasks: List[Any] = []
        check_options(options, OPTIONS, "chain")
        self.options = options
        for task in tasks:
            parts = task.tasks if isinstance(task, chain) else [task]
            for part in parts:
                if isinstance(part, Mapping) and not isinstance(part, Signature):
                    part = Signature(part)
                if not isinstance(part, (Signature, group)):
                    raise InvalidSignature(f"{part!r} is no part of a chain: use task.s(...)")
                if self.tasks and isinstance(self.tasks[-1], group):
                    raise ChordNotSupported(_CHORD)
                self.tasks.append(part)

    def __repr__(self) -> str:
        return " | ".join(repr(t) for t in self.tasks)

    def __or__(self, other: Any) -> "chain":
        if isinstance(other, (Signature, chain, group)):
            return chain(*self.tasks, *(other.tasks if isinstance(other, chain) else [other]), **self.options)
        return NotImplemented

    @property
    def app(self) -> Any:
        return self.tasks[0].app

    def clone(self) -> "chain":
        made = chain(**self.options)
        made.tasks = [t.clone() for t in self.tasks]
        return made

    def set(self, **options: Any) -> "chain":
        check_options(options, OPTIONS, "chain")
        self.options.update(options)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply_async(args, kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> Any:
        return self.apply_async(args, kwargs)

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Publish the first task. The result is that of the last one; ``parent`` leads to the others."""
        check_options(options, OPTIONS, "apply_async")
        if not self.tasks:
            return None
        if self.app._eager():
            return self.apply(args, kwargs)
        parts = [t.clone() for t in self.tasks]
        options = {**self.options, **options}
        last_id = options.pop("task_id", None)
        parent: Any = None
        for i, part in enumerate(parts):
            result = part.freeze(last_id if i == len(parts) - 1 else None)
            result.parent, parent = parent, result
        first, rest = parts[0], [p.step() for p in parts[1:]]
        if isinstance(first, group):
            first._publish(args, kwargs, options)
        else:
            merged, named, all_options = first._merged(args, kwargs, options)
            check_options((k for k in all_options if k != "task_id"), OPTIONS, "apply_async")
            task = first.type
            task._check_arguments(merged, named)
            queue, message = task._message(merged, named, meta={"chain": rest or None}, **all_options)
            task.app._publish(queue, message)
        return parent

    def apply(self, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        """Run all of it here."""
        result: Any = None
        for i, task in enumerate(self.tasks):
            if i == 0:
                made = task.apply(args, kwargs)
            else:
                made = task.apply((result.get(),))
            made.parent, result = result, made
            if isinstance(result, EagerResult) and not result.successful():
                return result
        return result

    def freeze(self, _id: Optional[str] = None) -> Any:
        parent: Any = None
        for i, part in enumerate(self.tasks):
            result = part.freeze(_id if i == len(self.tasks) - 1 else None)
            result.parent, parent = parent, result
        return parent


class group:
    """Tasks side by side."""

    def __init__(self, *tasks: Any, **options: Any) -> None:
        if len(tasks) == 1 and not isinstance(tasks[0], (Signature, chain, group)):
            tasks = tuple(tasks[0])
        check_options(options, OPTIONS, "group")
        self.options = options
        self.id: Optional[str] = None
        self.tasks: List[Any] = []
        for task in tasks:
            if isinstance(task, group):
                self.tasks += task.tasks
            elif isinstance(task, Mapping) and not isinstance(task, Signature):
                self.tasks.append(Signature(task))
            elif isinstance(task, (Signature, chain)):
                self.tasks.append(task)
            else:
                raise InvalidSignature(f"{task!r} is no part of a group: use task.s(...)")

    def __repr__(self) -> str:
        return f"group({', '.join(repr(t) for t in self.tasks)})"

    def __len__(self) -> int:
        return len(self.tasks)

    def __or__(self, other: Any) -> Any:
        raise ChordNotSupported(_CHORD)

    @property
    def app(self) -> Any:
        from .app import current_app

        return self.tasks[0].app if self.tasks else current_app()

    def clone(self) -> "group":
        made = group(**self.options)
        made.tasks = [t.clone() for t in self.tasks]
        return made

    def set(self, **options: Any) -> "group":
        check_options(options, OPTIONS, "group")
        self.options.update(options)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> GroupResult:
        return self.apply_async(args, kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> GroupResult:
        return self.apply_async(args, kwargs)

    def apply_async(self, args: Any = None, kwargs: Any = None, **options: Any) -> GroupResult:
        check_options(options, OPTIONS, "apply_async")
        if self.app._eager():
            return self.apply(args, kwargs)
        made = self.clone()
        result = made.freeze(options.pop("task_id", None))
        made._publish(args, kwargs, {**self.options, **options})
        return result

    def apply(self, args: Any = None, kwargs: Any = None, **options: Any) -> GroupResult:
        return GroupResult(str(uuid.uuid4()), [t.apply(args, kwargs) for t in self.tasks], app=self.app)

    def freeze(self, _id: Optional[str] = None) -> GroupResult:
        self.id = self.id or _id or str(uuid.uuid4())
        return GroupResult(self.id, [t.freeze() for t in self.tasks], app=self.app)

    def step(self) -> Dict[str, Any]:
        return {"id": self.id, "group": [[p.step() for p in t.tasks] if isinstance(t, chain) else t.step() for t in self.tasks]}

    def _publish(self, args: Any, kwargs: Any, options: Any) -> None:
        """Publish what freeze gave IDs: the tasks of a queue in one request."""
        by_queue: Dict[str, List[Any]] = {}
        app = self.app
        options = {k: v for k, v in options.items() if k != "task_id"}
        for part in self.tasks:
            first, rest = (part.tasks[0], part.tasks[1:]) if isinstance(part, chain) else (part, [])
            merged, named, all_options = first._merged(args, kwargs, options)
            task = first.type
            task._check_arguments(merged, named)
            meta = {"chain": [p.step() for p in rest] or None, "group_id": self.id}
            queue, message = task._message(merged, named, meta=meta, **all_options)
            by_queue.setdefault(queue, []).append(message)
        for queue, messages in by_queue.items():
            app._publish_many(queue, messages)


def steps_of(step: Any) -> Any:
    """The part of a chain that a step tells of."""
    if isinstance(step, Mapping) and isinstance(step.get("group"), list):
        made = group(chain(*[steps_of(s) for s in part]) if isinstance(part, list) else steps_of(part) for part in step["group"])
        made.id = step.get("id")
        return made
    if isinstance(step, Mapping):
        return Signature(step)
    raise InvalidSignature("a step of the chain is no signature")


def publish_next(steps: List[Any], result: Any, app: Any) -> None:
    """Publish the next task of a chain. Its ID is fixed, so a repeat publishes nothing new."""
    following = steps_of(steps[0])
    if isinstance(following, group):
        # IDs of the tasks of a group were given when the chain was published.
        following._publish((result,), None, {})
        return
    following._app = app
    merged, named, options = following._merged((result,), None, {})
    task = following.type
    queue, message = task._message(merged, named, meta={"chain": list(steps[1:]) or None}, **options)
    app._publish(queue, message)


def signature(varies: Any, args: Any = None, kwargs: Any = None, options: Any = None, app: Any = None, **more: Any) -> Signature:
    """A signature of a task by its name, or from a dict."""
    if isinstance(varies, Mapping):
        return Signature(varies, app=app)
    immutable = bool(more.pop("immutable", False))
    return Signature(varies, args, kwargs, {**(options or {}), **more}, immutable=immutable, app=app)


subtask = signature


def chord(*_: Any, **__: Any) -> Any:
    """Refused."""
    raise ChordNotSupported(_CHORD)


