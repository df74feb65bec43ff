"""When a periodic task is sent. The broker keeps the time: no process of its own is needed."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any, Optional, Union

from .exceptions import ConfigurationError, NotSupported

__all__ = ["crontab", "schedule"]

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class schedule:
    """Every so many seconds."""

    def __init__(self, run_every: Union[timedelta, int, float], relative: bool = False, **_: Any) -> None:
        self.run_every = run_every if isinstance(run_every, timedelta) else timedelta(seconds=run_every)
        if self.run_every < timedelta(seconds=1):
            raise ConfigurationError("a schedule has an interval of at least a second")

    def __repr__(self) -> str:
        return f"<freq: {self.run_every}>"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, schedule) and not isinstance(other, crontab) and self.run_every == other.run_every

    def __hash__(self) -> int:
        return hash(self.run_every)

    def interval(self) -> str:
        """The interval as ISO 8601 writes it."""
        seconds = self.run_every.total_seconds()
        return f"PT{int(seconds)}S" if seconds == int(seconds) else f"PT{seconds:.3f}".rstrip("0") + "S"

    def recurrence(self, zone: Optional[str], now: Optional[datetime] = None) -> str:
        """X-Broker-Recurrence; the first message comes after one interval."""
        start = (now or datetime.now(timezone.utc)) + self.run_every
        return f"R/{start.strftime('%Y-%m-%dT%H:%M:%S')}Z/{self.interval()}"

    def same(self, recurrence: str, zone: Optional[str]) -> bool:
        """Whether a recurrence is this schedule, whenever it began."""
        return recurrence.startswith("R/") and recurrence.endswith("/" + self.interval())


class crontab(schedule):
    """As the five fields of cron, with Celery's forms: numbers, texts, names of days and months."""

    def __init__(
        self,
        minute: Any = "*",
        hour: Any = "*",
        day_of_week: Any = "*",
        day_of_month: Any = "*",
        month_of_year: Any = "*",
        **options: Any,
    ) -> None:
        if options.get("nowfun") or options.get("app"):
            options = {}
        self._orig = (minute, hour, day_of_month, month_of_year, day_of_week)
        self.fields = (
            _field(minute, 0, 59, ()),
            _field(hour, 0, 23, ()),
            _field(day_of_month, 1, 31, ()),
            _field(month_of_year, 1, 12, _MONTHS),
            _field(day_of_week, 0, 6, _DAYS),
        )
        if self.fields[2] != "*" and self.fields[4] != "*":
            raise NotSupported(
                "crontab with day_of_month and day_of_week: Celery sends on days for which both are true, cron on those for "
                "which one is. Give one of them, and look at the date in the task."
            )

    def __repr__(self) -> str:
        return f"<crontab: {' '.join(self.fields)} (m/h/dM/MY/d)>"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, crontab) and self.fields == other.fields

    def __hash__(self) -> int:
        return hash(self.fields)

    def recurrence(self, zone: Optional[str], now: Optional[datetime] = None) -> str:
        at = f"TZ={zone} " if zone and zone.upper() != "UTC" else ""
        return f"cron:{at}{' '.join(self.fields)}"

    def same(self, recurrence: str, zone: Optional[str]) -> bool:
        return recurrence == self.recurrence(zone)


def _field(value: Any, least: int, most: int, names: Any) -> str:
    """A field in the form of the broker: ``*``, ``*/n``, or a list of numbers."""
    if isinstance(value, str) and value.strip() == "*":
        return "*"
    every = re.fullmatch(r"\*/(\d+)", value.strip()) if isinstance(value, str) else None
    if every and int(every.group(1)) == 1:
        return "*"
    if every and 0 < int(every.group(1)) <= most:
        return f"*/{int(every.group(1))}"
    if isinstance(value, bool) or not isinstance(value, (int, str, list, tuple, set, frozenset)):
        raise ConfigurationError(f"crontab: {value!r} is no field")
    parts: "list[Any]" = [value] if isinstance(value, int) else value.split(",") if isinstance(value, str) else list(value)
    numbers = set()
    for part in parts:
        numbers |= {part} if isinstance(part, int) else _part(str(part).strip().lower(), least, most, names)
    top = 7 if names is _DAYS else most
    if not numbers or min(numbers) < least or max(numbers) > top:
        raise ConfigurationError(f"crontab: {value!r} is not from {least} to {most}")
    if names is _DAYS:
        numbers = {n % 7 for n in numbers}
    if len(numbers) == most - least + 1:
        return "*"
    return ",".join(str(n) for n in sorted(numbers))


def _part(text: str, least: int, most: int, names: Any) -> "set[int]":
    found = re.fullmatch(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/(\d+))?", text)
    if not found:
        raise ConfigurationError(f"crontab: {text!r} is no part of a field")
    begin, end, step = found.groups()
    first = least if begin == "*" else _number(begin, names, least)
    last = _number(end, names, least) if end else most if begin == "*" or step else first
    stride = int(step) if step else 1
    if stride < 1:
        raise ConfigurationError(f"crontab: {text!r} has no step")
    if last < first:  # as sat-mon
        span = most - least + 1
        return {least + (n - least) % span for n in range(first, last + span + 1, stride)}
    return set(range(first, last + 1, stride))


def _number(text: str, names: Any, least: int) -> int:
    if text.isdigit():
        return int(text)
    for i, name in enumerate(names):
        if len(text) >= 3 and text.startswith(name):
            return i + (least if names is _MONTHS else 0)
    raise ConfigurationError(f"crontab: {text!r} is no number or name")


def maybe_schedule(value: Any) -> schedule:
    if isinstance(value, schedule):
        return value
    if isinstance(value, (int, float, timedelta)):
        return schedule(value)
    raise NotSupported(f"{value!r} is no schedule: give seconds, a timedelta or a crontab")
