"""Connections that are closed if no request arrives on them."""

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 30.0
"""How long the head of a request may be on its way. Its body has a time limit of its own, in the gate."""


class Connection(H11Protocol):
    """A connection of uvicorn, which by itself would wait without end for the rest of the head of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._close_without_request(None)

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()
        self._close_without_request(answered)

    def _close_without_request(self, last: object) -> None:
        def close() -> None:
            if self.cycle is last:
                self.transport.close()

        self.loop.call_later(SECONDS, close)
