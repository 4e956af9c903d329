"""A terminal's link for tests that wait: what is said over it, one after the other, with a limit on each wait."""

import asyncio
from collections.abc import Iterator
from types import TracebackType

from gpuyard.engines.contract import LinkFrame, TerminalLink
from harness.patience import patient

WAIT_S = 60.0


class Line:
    """A link, used in an event loop of its own. Closed at the end of a `with`."""

    def __init__(self, link: TerminalLink) -> None:
        self._link = link
        self._runner = asyncio.Runner()
        self._closed = False

    def send(self, kind: bytes, content: bytes = b"") -> None:
        self._runner.run(self._link.send(kind, content))

    def receive(self) -> LinkFrame:
        return self._runner.run(asyncio.wait_for(self._link.receive(), patient(WAIT_S)))

    def frames(self) -> Iterator[LinkFrame]:
        """Up to the end of the link, which is the last of them."""
        while True:
            frame = self.receive()
            yield frame
            if frame.end is not None:
                return

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._runner.run(self._link.close(drop=True))
            self._runner.close()

    def __enter__(self) -> "Line":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
