"""Verified push for Django, and jobs that wait for a commit."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

from ..push import MemoryStore, Message, Receiver, Store

__all__ = ["Consumer", "MemoryStore", "Message", "Store", "on_commit"]


class Consumer(Receiver):
    """An endpoint of a Django project. Set its URL as the callbackUrl of consumers with this secret.

        consumer = Consumer(secret="whsec_...")
        urlpatterns = [path("hook/", include(consumer.urls))]

        @consumer.on("orders")
        def order(message): ...
    """

    @property
    def urls(self) -> List[Any]:
        """For ``include``: the endpoint at the empty path below it."""
        from django.urls import path

        return [path("", self.view)]

    @property
    def view(self) -> Callable[..., Any]:
        """The view: the signature is its proof, so it takes no CSRF token."""
        from django.views.decorators.csrf import csrf_exempt
        from django.views.decorators.http import require_POST

        def receive(request: Any) -> Any:
            from django.http import HttpResponse

            answer = self.receive(dict(request.headers), request.body)
            response = HttpResponse(answer.body, status=answer.status, content_type=answer.headers.get("Content-Type"))
            for name, value in answer.headers.items():
                response[name] = value
            return response

        return csrf_exempt(require_POST(receive))  # type: ignore[no-any-return]


def on_commit(call: Callable[[], Any], using: Optional[str] = None) -> None:
    """Call a function after the transaction of the database has committed; at once outside of one."""
    from django.db import transaction

    transaction.on_commit(call, using=using)
