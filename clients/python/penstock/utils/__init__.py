"""Small parts that Celery has under ``celery.utils``."""

from __future__ import annotations

import uuid as _uuid


def uuid() -> str:
    """A new ID of a task."""
    return str(_uuid.uuid4())


gen_unique_id = uuid
