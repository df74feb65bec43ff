"""Verified push for Flask."""

from __future__ import annotations

from typing import Any

from .push import Endpoint, MemoryStore, Message, Store

__all__ = ["Consumer", "MemoryStore", "Message", "Store"]


class Consumer(Endpoint):
    """The endpoint ``path`` of a Flask app. Set it as the callbackUrl of consumers with this secret.

        consumer = Consumer(app, secret="whsec_...")

        @consumer.on("orders")
        def order(message): ...
    """

    def init_app(self, app: Any) -> None:
        app.add_url_rule(self.path, f"penstock-{id(self)}", self.view, methods=["POST"])
        csrf = app.extensions.get("csrf") if hasattr(app, "extensions") else None
        if csrf is not None:  # Flask-WTF: the signature is the proof
            csrf.exempt(self.view)

    def view(self) -> Any:
        from flask import Response, request

        # The raw bytes are what is signed, whatever the content type says.
        answer = self.receive(dict(request.headers), request.get_data(cache=False, parse_form_data=False))
        return Response(answer.body, answer.status, answer.headers)
