"""Verified push for FastAPI and Starlette."""

from __future__ import annotations

from typing import Any

from .push import Endpoint, MemoryStore, Message, Store

__all__ = ["Consumer", "MemoryStore", "Message", "Store"]


class Consumer(Endpoint):
    """The endpoint ``path`` of a FastAPI app. Set it as the callbackUrl of consumers with this secret.

        consumer = Consumer(app, secret="whsec_...")

        @consumer.on("orders")
        async def order(message): ...
    """

    def init_app(self, app: Any) -> None:
        app.router.add_route(self.path, self.view, methods=["POST"], include_in_schema=False)

    async def view(self, request: Any) -> Any:
        from starlette.responses import Response

        answer = await self.areceive(dict(request.headers), await request.body())
        return Response(answer.body, answer.status, answer.headers)
