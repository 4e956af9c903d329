"""The kind of engine for the world of `world.py`: its keys, its driver and its observer."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuyard.engines.contract import (
    Answer,
    AttemptReport,
    Launch,
    LogPiece,
    NodeReport,
    NoMig,
    Phase,
    Reply,
    Stale,
    StopRequest,
    Transient,
    offset_of,
)
from gpuyard.engines.machine.launches import flaw_of_recipe
from gpuyard.engines.observer import ForeignJob, ForeignJobs, ForeignState, OwnScheduler
from gpuyard.engines.registry import Context, EngineKind
from gpuyard.keys.fields import Boolean, Word, YamlMapping, key, required
from gpuyard.model import Capability, Node, Outcome, WaitCause
from gpuyard.model.units import MILLI
from rigs.outside.world import Wire

HARBOUR = OwnScheduler(
    "Harbour",
    {"cancel": "berth unload", "hold": "berth keep", "release": "berth go"},
    {
        "submit": "Load it with berth load: it shows up here by itself",
        "checkpoint": "Harbour knows nothing of checkpoints",
        "nodes": "Use berth shut",
        "logs": "Its crates talk to nobody",
    },
)
STATES = {"queued": ForeignState.WAITING, "loaded": ForeignState.RUNNING, "paused": ForeignState.SUSPENDED}
OUTCOMES = {
    "delivered": Outcome.COMPLETED,
    "dropped": Outcome.FAILED,
    "unloaded": Outcome.CANCELLED,
    "bumped": Outcome.PREEMPTED,
    "overdue": Outcome.TIMEOUT,
}
LEAVES = {Outcome.CANCELLED: "unloaded", Outcome.PREEMPTED: "bumped"}
_CURSOR = re.compile(r"piece(\d{1,9})\+(\d{1,18})")
LOOK_S = 0.05
ANSWERS = {"done": Answer.DONE, "barred": Answer.BARRED}


class Keys(YamlMapping):
    """What a cluster of this kind has below `outside:`."""

    address: Word = required("Where the world listens.", example="127.0.0.1:7000")
    looks_on: Boolean | None = key("Whether Harbour decides, and the yard looks on.", default=False)
    counts: Boolean | None = key("Whether its jobs count against quotas then.", default=False)


class _Spoken:
    """What driver and observer have in common: the line to the world, and the berths as nodes."""

    def __init__(self, keys: Keys, context: Context) -> None:
        self.name = "outside"
        self._wire, self._cluster = Wire(keys.address), context.cluster

    def _ask(self, do: str, **more: Any) -> Any:
        try:
            found = self._wire.ask(do, **more)
        except OSError as error:
            raise Transient(f"{do}: nobody answers ({error})") from error
        if found == "stale":
            raise Stale("another leader is in charge")
        return found

    def nodes(self) -> tuple[NodeReport, ...]:
        return tuple(
            NodeReport(
                Node(
                    name, self._cluster, "quay", "A100-80GB", it["gpus"], it["cores"] * 1000, it["memory_mib"]
                ),
                not it["lost"],
                it["lost"],
                drained=it["shut"],
            )
            for name, it in self._ask("berths").items()
        )

    def close(self) -> None:
        """Nothing is held."""


class Onlooker(_Spoken):
    """An observer."""

    scheduler = HARBOUR

    def jobs(self) -> ForeignJobs:
        return ForeignJobs([_foreign(it) for it in self._ask("cargo") if it["state"] in STATES])

    def ended(self, from_ms: int) -> ForeignJobs:
        return ForeignJobs([_foreign(it) for it in self._ask("cargo") if it["left_ms"] >= max(1, from_ms)])


def _foreign(it: dict[str, Any]) -> ForeignJob:
    return ForeignJob(
        number=it["number"],
        submitted_ms=it["came_ms"],
        state=STATES.get(it["state"], ForeignState.ENDED),
        name=it["name"],
        user=it["owner"],
        account=it["fleet"],
        klass="normal",
        eligible_ms=it["came_ms"],
        started_ms=it["loaded_ms"],
        ended_ms=it["left_ms"],
        gpus=it["gpus"],
        nodes=tuple(it["at"]),
        gpus_on=tuple(it["at"].values()),
        reason=it["excuse"],
        cause=WaitCause.ROOM if it["excuse"] else WaitCause.UNKNOWN,
        outcome=OUTCOMES.get(it["state"]),
    )


class Driver(_Spoken, NoMig):
    """An engine: as much as the contract asks of one that cuts no GPUs and suspends nothing."""

    capabilities = frozenset({Capability.GANG})

    def __init__(self, keys: Keys, context: Context) -> None:
        super().__init__(keys, context)
        self._ended: set[str] = set()
        """What had ended when somebody last waited."""

    def start(self, epoch: int, launches: Sequence[Launch]) -> list[Reply]:
        berths = self._ask("berths")
        return [self._start(epoch, each, _flaw(each, berths)) for each in launches]

    def _start(self, epoch: int, launch: Launch, flaw: str) -> Reply:
        if flaw:
            return Reply(Answer.REFUSED, flaw)
        return _reply(
            self._ask(
                "load",
                epoch=epoch,
                key=launch.key,
                words=list(launch.recipe.argv),
                at={part.node: len(part.gpus) for part in launch.parts},
                limit_ms=launch.limit_ms,
                grace_ms=launch.grace_ms,
                crew=sum(part.tasks for part in launch.parts),
            )
        )

    def stop(self, epoch: int, halts: Sequence[StopRequest]) -> list[Reply]:
        return [
            _reply(
                self._ask(
                    "drop", epoch=epoch, key=each.key, left=LEAVES[each.outcome], grace_ms=each.grace_ms
                )
            )
            for each in halts
        ]

    def suspend(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        return [_reply(self._ask("pause", epoch=epoch)) for _ in keys]

    def resume(self, epoch: int, keys: Sequence[str]) -> list[Reply]:
        return self.suspend(epoch, keys)

    def status(self, keys: Sequence[str]) -> list[AttemptReport]:
        known = {report.key: report for report in self.listing()}
        return [known.get(each, AttemptReport(each, Phase.UNKNOWN)) for each in keys]

    def listing(self) -> list[AttemptReport]:
        return [_report(it) for it in self._ask("orders") if it["state"] != "forgotten"]

    def forget(self, epoch: int, keys: Sequence[str]) -> None:
        self._ask("forget", epoch=epoch, keys=list(keys))

    def wait(self, timeout_s: float) -> bool:
        """The world tells nothing by itself: it is asked now and then."""
        until_s = time.monotonic() + timeout_s
        while True:
            ended = {each.key for each in self.listing() if each.phase is Phase.ENDED}
            news, self._ended = bool(ended - self._ended), ended
            left_s = until_s - time.monotonic()
            if news or left_s <= 0:
                return news
            time.sleep(min(left_s, LOOK_S))

    def log(self, key: str, stream: str, cursor: str, limit: int) -> LogPiece:
        """Pieces behind a place in the stream. A cursor is the number of a piece and the bytes of it that were read."""
        own = _CURSOR.fullmatch(cursor)
        number, skip = (int(own[1]), int(own[2])) if own else (0, offset_of(cursor))
        content = b""
        for piece in self._ask("stream", key=key, number=number) if stream == "stdout" else ():
            said = piece.encode()
            some = said[skip : skip + limit - len(content)]
            content += some
            if skip + len(some) < len(said):
                return LogPiece(content, f"piece{number}+{skip + len(some)}")
            number, skip = number + 1, skip - min(skip, len(said))
        return LogPiece(content, f"piece{number}+{skip}")


def _flaw(launch: Launch, berths: dict[str, Any]) -> str:
    """Why it could never be loaded; empty: it could."""
    if launch.recipe.containers:
        return "a crate is no image"
    for part in launch.parts:
        if part.node not in berths:
            return f"there is no berth {part.node}"
        if part.milli != MILLI or part.slices:
            return "a crate takes whole GPUs"
        if any(gpu >= berths[part.node]["gpus"] for gpu in part.gpus):
            return f"berth {part.node} has {berths[part.node]['gpus']} GPUs"
    return flaw_of_recipe(launch)


def _reply(said: str) -> Reply:
    return Reply(ANSWERS[said]) if said in ANSWERS else Reply(Answer.REFUSED, said)


def _report(it: dict[str, Any]) -> AttemptReport:
    report = AttemptReport(
        it["key"],
        Phase.STOPPING if it["leaving"] else Phase.RUNNING,
        started_ms=it["loaded_ms"],
        checkpoint_ms=it["saved_ms"],
        gpus=tuple((berth, tuple(slots)) for berth, slots in it["slots"].items() if slots),
    )
    if not it["left"]:
        return report
    return replace(
        report, phase=Phase.ENDED, outcome=OUTCOMES[it["left"]], exit_code=it["code"], ended_ms=it["left_ms"]
    )


KIND = EngineKind(
    "outside",
    Driver,
    Keys,
    words=lambda keys: "Harbour decides" if keys.looks_on else "jobs are loaded by Harbour",
    title="Harbour",
    takes_nodes=False,
    observer=Onlooker,
    observes=lambda keys: bool(keys.looks_on),
    counts=lambda keys: bool(keys.counts),
    lacks=frozenset({Capability.SHARES, Capability.SLICES, Capability.IMAGES, Capability.SUSPEND}),
)


def install(folder: Path) -> list[str]:
    """Name the kind by an entry point, as `pip` would have: the paths on which Python finds both."""
    told = folder / "outside_engine-1.0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-engine\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[gpuyard.engines]\noutside = rigs.outside.kind:KIND\n")
    return [str(folder), str(Path(__file__).resolve().parents[2])]


@contextmanager
def registered() -> Iterator[EngineKind]:
    """The kind in this process, registered by the program that embeds the yard."""
    from gpuyard.engines.registry import register, unregister  # noqa: PLC0415

    register(KIND)
    try:
        yield KIND
    finally:
        unregister(KIND.name)
