"""A Prometheus in the place of collectors: asked as often as it scrapes for what it has kept of our nodes.

Only steps that are over are read, with the times of the scrapes. What it lacks is a hole; while it does not answer,
nothing is told, and what it kept meanwhile is read later, up to an hour back. An attempt that has its GPUs to itself is
told of by them; of shared GPUs and slices nobody says whose work it was.
"""

import json
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from urllib.parse import urlencode, urlsplit

from gpuyard.config.values import PrometheusSpec
from gpuyard.control.replica.labels import current_key, node_key
from gpuyard.control.replica.replica import Replica
from gpuyard.control.upkeep.handed_in_samples import Batch
from gpuyard.control.upkeep.watching import Watch
from gpuyard.core.fleet.bits import positions
from gpuyard.shipping.contract import Away, Refused
from gpuyard.shipping.http import Poster
from gpuyard.telemetry.collector import Collector
from gpuyard.telemetry.samples import LATE_MS
from gpuyard.telemetry.sources import AttemptPlace, GpuLook
from gpuyard.telemetry.sources.prometheus import Places, Step, find_lone_attempts, make_query, read_steps

SETTLE_MS = 3_000
"""How long after its end a step is read: a scrape may take as long."""
PIECE_MS = 300_000
"""The longest time of which one question asks."""
MARGIN_MS = 120_000
"""What is nearly too late is not asked for: it would be, until it is here."""
ANSWER_BYTES_MAX = 256 << 20
SHARE = 4
"""A round is followed by a pause of at least so many times the CPU time that it took."""
_log = logging.getLogger(__name__)

Held = Mapping[str, tuple[Sequence[int], int]]


class _Node:
    """One node as Prometheus tells of it, in the place of the machine itself: what a collector asks."""

    def __init__(self, name: str) -> None:
        self.step = Step()
        self.places: Sequence[AttemptPlace] = ()
        self.collector = Collector(name, self, lambda: self.places, self)

    def look(self, _now_ms: int) -> list[GpuLook]:
        """The GPUs."""
        return self.step.looks(self.places)

    def close(self) -> None:
        """Nothing is held."""

    def node(self) -> dict[str, float]:
        """The machine."""
        return self.step.node

    def attempt(self, _place: AttemptPlace) -> dict[str, int]:
        """Prometheus has nothing of processes."""
        return {}

    def attempt_of(self, _places: Sequence[AttemptPlace]) -> Callable[[int], str]:
        """Of a process: it was said whose it is."""
        return lambda _pid: ""

    def name_of(self, _pid: int) -> str:
        """Nobody knows."""
        return ""


class Asking:
    """What one Prometheus tells this server."""

    def __init__(
        self,
        spec: PrometheusSpec,
        replica: Replica,
        watch: Watch,
        now_ms: Callable[[], int],
        here: Collection[str] = (),
    ) -> None:
        """`here`: clusters that are this machine, which the yard watches by itself."""
        self.spec = spec
        self._replica = replica
        self._watch = watch
        self._now_ms = now_ms
        self._here = frozenset(here)
        path = urlsplit(spec.place.url).path.rstrip("/") + "/api/v1/query"
        self._poster = Poster(spec.place, path, {"Content-Type": "application/x-www-form-urlencoded"})
        self._nodes: dict[str, _Node] = {}
        self._read_ms = 0
        """Up to when everything was read."""
        self.trouble = ""
        """Why it tells nothing; empty: it does."""
        self.pause_s = spec.every_ms / 1000

    def close(self) -> None:
        """Ask no more."""
        self._poster.close()

    def round(self, rest: Callable[[float], bool]) -> float:
        """Read what is new; the pause until the next round."""
        began_s = time.thread_time()
        try:
            self.read(rest)
            if self.trouble:
                _log.info("%s answers again", self.spec.place.url)
            self.trouble = ""
        except (Away, Refused, ValueError) as error:
            if not self.trouble:
                _log.warning("what nodes do cannot be read: %s", error)
            self.trouble = str(error)
        return max(self.pause_s, SHARE * (time.thread_time() - began_s))

    def read(self, rest: Callable[[float], bool] = lambda _pause_s: False) -> None:
        """Read what was scraped since the last time, piece by piece. `rest` says when to break off."""
        step_ms, now_ms = self.spec.every_ms, self._now_ms()
        until_ms = (now_ms - SETTLE_MS) // step_ms * step_ms
        oldest_ms = now_ms - LATE_MS + MARGIN_MS
        from_ms = max(self._read_ms, -(-oldest_ms // step_ms) * step_ms)
        while from_ms < until_ms:
            to_ms = min(until_ms, from_ms + max(step_ms, PIECE_MS // step_ms * step_ms))
            self._take(self._asked(from_ms, to_ms), from_ms, to_ms)
            self._read_ms = from_ms = to_ms
            if rest(0.0):
                return

    def _asked(self, from_ms: int, to_ms: int) -> list[Mapping[str, object]]:
        """The rows of an answer. Raises `Away`, `Refused`, or `ValueError` for what is no answer of a Prometheus."""
        asked = {
            "query": make_query(self.spec.match, -(-(to_ms - from_ms) // 1000)),
            "time": f"{to_ms / 1000:.3f}",
        }
        content = self._poster.post(urlencode(asked).encode(), ANSWER_BYTES_MAX)
        try:
            found = json.loads(content)["data"]
            rows = found["result"]
            if found["resultType"] != "matrix" or not all([isinstance(row["metric"], dict) for row in rows]):
                raise ValueError("no matrix")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.spec.place.url} gives no answer of a Prometheus: {error!r}") from None
        return list(rows)

    def _take(self, rows: list[Mapping[str, object]], from_ms: int, to_ms: int) -> None:
        nodes, held = self._standing()
        cards = {card.uuid: at for at, card in self._watch.cards().items() if card.uuid}
        found = read_steps(rows, self.spec.every_ms, Places(nodes, cards))
        now_ms = self._now_ms()
        for (at_ms, key), step in sorted(found.items(), key=lambda each: each[0]):
            # The edges of a range belong to it or do not, by the release of Prometheus.
            if not from_ms <= at_ms < to_ms:
                continue
            node = self._nodes.setdefault(key, _Node(key))
            node.step, node.places = step, find_lone_attempts(step, held.get(key, {}))
            told = node.collector.take(at_ms) | step.no_numbers()
            series = {name: [value] for name, value in told.items()}
            batch = Batch(now_ms, now_ms, [at_ms], series, {}, step.cards)
            self._watch.take(key, batch, ())

    def _standing(self) -> tuple[dict[str, str], dict[str, Held]]:
        """Our nodes by name, and the GPUs that attempts hold on each, by key."""
        replica = self._replica
        nodes: dict[str, str] = {}
        held: dict[str, dict[str, tuple[Sequence[int], int]]] = {}
        with replica.lock:
            state = replica.state
            for node in state.nodes.node:
                if node.cluster in (self.spec.clusters or {node.cluster} - self._here):
                    nodes[node.name] = node_key(node.cluster, node.name)
            for record in state.running.values():
                for grant in record.grants:
                    node = state.nodes.node[grant.node]
                    key = node_key(node.cluster, node.name)
                    milli = 0 if grant.slices else grant.milli
                    held.setdefault(key, {})[current_key(replica.store.yard, record)] = (
                        list(positions[grant.gpus]),
                        milli,
                    )
        return nodes, held  # type: ignore[return-value]
