"""Image resizing with tasks in Celery's form."""

import os
import tempfile

from PIL import Image, UnidentifiedImageError

from penstock import Penstock
from penstock.exceptions import Reject

app = Penstock("resize", broker=os.environ.get("PENSTOCK_URL", "http://127.0.0.1:8080"))


@app.task(queue="resize", autoretry_for=(OSError,), retry_backoff=True, max_retries=5, soft_time_limit=60)
def thumbnail(source, target, width):
    """Write a picture of that width, and return its size. Done twice, it writes the same file again."""
    try:
        with Image.open(source) as picture:
            height = max(1, round(picture.height * width / picture.width))
            small = picture.convert("RGB").resize((width, height), Image.LANCZOS)
    except UnidentifiedImageError:
        # No retry makes a picture of it: a dead letter keeps it for a person.
        raise Reject("%s is no picture" % source, requeue=False)
    handle, path = tempfile.mkstemp(suffix=".png", dir=os.path.dirname(target))
    os.close(handle)
    small.save(path)
    os.replace(path, target)  # a reader sees the whole picture or none
    return [width, height]
