"""A yard with a second set of books beside the core's state: checkers judge by those."""

from typing import Any

from gpuyard import testing
from gpuyard.model import Event
from harness.reference.walled import WalledBooks


class Yard(testing.Yard):
    """The public yard, and reference books that fold the same events."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.books = WalledBooks()
        super().__init__(*args, **kwargs)

    def apply(self, event: Event) -> None:
        """Write an event to the log and fold it, both ways."""
        self.books.fold(event)
        super().apply(event)
