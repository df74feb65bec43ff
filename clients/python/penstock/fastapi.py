"""Verified push for FastAPI and Starlette."""

from __future__ import annotations

from typing import Any, Optional, Sequence, Union

from . import push
from .push import MemoryStore, Message, Store

__all__ = ["Consumer", "MemoryStore", "Message", "Store"]

DEFAULT_PATH = "/penstock"


class Consumer(push.Receiver):
    """The endpoint ``path`` of a FastAPI app. Set it as the callbackUrl of consumers with this secret.

        consumer = Consumer(app, secret="whsec_...")

        @consumer.on("orders")
        async def order(message): ...
    """

    def __init__(
        self,
        app: Any = None,
        *,
        secret: Union[str, Sequence[str]],
        path: str = DEFAULT_PATH,
        window: float = push.WINDOW,
        store: Optional[Store] = None,
    ) -> None:
        super().__init__(secret, window=window, store=store)
        self.path = path
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Any) -> None:
        app.router.add_route(self.path, self.view, methods=["POST"], include_in_schema=False)

    async def view(self, request: Any) -> Any:
        from starlette.responses import Response

        answer = await self.areceive(dict(request.headers), await request.body())
        return Response(answer.body, answer.status, answer.headers)
