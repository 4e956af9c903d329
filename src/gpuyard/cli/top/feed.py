"""Fetches what the screen shows, in threads of its own: after news, and every few seconds without any.

A look at ten thousand jobs costs the server something, so looking takes at most about a tenth of the time. When the
server goes away the feed says so once and tries on.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from gpuyard.api.client import Client
from gpuyard.cli.connection.change_feed import AGAIN_S, CLOSE_S, LOOK_S, Followed
from gpuyard.errors import YardError
from gpuyard.wire.replies.fleet import GpuReply, OverviewReply

APART_S_MIN = 0.3
"""Between two looks, however much happens."""
SHARE = 10
"""After a look, the feed rests for this many times as long as the look took."""
GPUS_MAX = 128
"""GPUs of a larger fleet are not asked what they do until somebody wants to see it."""
USE_S, GLANCE_S = 2.0, 5.0
"""Between two questions about what GPUs do: while it is looked at, and otherwise."""


class Picture(NamedTuple):
    """The yard at one moment."""

    overview: OverviewReply
    rows: list[list[Any]]
    """The queue, in the columns of `QUEUE_COLUMNS` (`wire/endpoints.py`)."""
    taken_s: float
    """On this machine's steady clock."""
    live: bool
    """Whether news come by themselves."""
    gpus: list[GpuReply] | None = None
    """What each GPU does; None: that was not asked for."""


class Feed:
    """Fetches until it is closed. The two functions are called in its threads."""

    def __init__(
        self,
        show: Callable[[Picture], None],
        away: Callable[[str], None],
        *,
        tenant: str = "",
        user: str = "",
        cluster: str = "",
        every_s: float = 2.0,
    ) -> None:
        self._show, self._away = show, away
        self._tenant, self._user, self._cluster, self._every_s = tenant, user, cluster, every_s
        self._closing = threading.Event()
        self._news = threading.Event()
        self._followed = Followed(self._news.set)
        self.use_wanted = False
        """Whether what each GPU does is looked at."""
        self._gpus: list[GpuReply] | None = None
        self._asked_s = -GLANCE_S
        self.looks = 0
        """How many looks there were."""
        self._thread = threading.Thread(target=self._look, name="top-look", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._followed.start()
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait until both threads have."""
        self._closing.set()
        self._news.set()
        self._followed.close()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_S)

    def hurry(self) -> None:
        """Look again soon: something was asked for."""
        self._news.set()

    def _in_cluster(self, overview: OverviewReply) -> OverviewReply:
        """With the nodes of the cluster that is looked at."""
        if self._cluster:
            nodes = [node for node in overview["nodes"] if node["cluster"] == self._cluster]
            overview["nodes_in_all"] += len(nodes) - len(overview["nodes"])
            overview["nodes"] = nodes
        return overview

    def _use(self, yard: Client, overview: OverviewReply) -> list[GpuReply] | None:
        """What GPUs do, as of a moment ago."""
        few = sum([len(node["gpus"]) for node in overview["nodes"]]) <= GPUS_MAX
        if not few and not self.use_wanted:
            return None
        if time.monotonic() - self._asked_s >= (USE_S if self.use_wanted else GLANCE_S):
            found = yard.gpus()["gpus"]
            self._asked_s = time.monotonic()
            self._gpus = [each for each in found if self._cluster in ("", each["cluster"])]
        return self._gpus

    def _look(self) -> None:
        while not self._closing.is_set():
            began_s = time.monotonic()
            try:
                with Client(timeout_s=LOOK_S, patience_s=0) as yard:
                    self._look_with(yard)
            except YardError as error:
                if not self._closing.is_set():
                    self._away(error.message)
            self._closing.wait(max(0.0, AGAIN_S - (time.monotonic() - began_s)))

    def _look_with(self, yard: Client) -> None:
        """Look again and again through one connection."""
        while not self._closing.is_set():
            self._news.clear()
            began_s = time.monotonic()
            overview = self._in_cluster(yard.overview())
            # The queue is kept by its changes, which do not tell of clusters. An older server is asked for all of it.
            kept = self._followed.queue(self._tenant, self._user)
            gpus = self._use(yard, overview)
            usable = None if self._cluster else kept
            found = usable or yard.queue(tenant=self._tenant, user=self._user, cluster=self._cluster)
            now_s = time.monotonic()
            if self._closing.is_set():
                return
            self._show(Picture(overview, found["rows"], now_s, kept is not None, gpus))
            self.looks += 1
            apart_s = max(APART_S_MIN, SHARE * (now_s - began_s))
            self._closing.wait(apart_s)
            self._news.wait(max(0.0, self._every_s - apart_s))
