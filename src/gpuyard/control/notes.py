"""What people should know about a yard, in sentences: told at its start, and in `/readyz` to those who may see all."""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuyard.control.access.people import has_other_people
from gpuyard.control.clock import Steady
from gpuyard.control.fleet import Fleet
from gpuyard.control.options import Options
from gpuyard.control.places import SYSTEM_DATA, DataDir
from gpuyard.engines.contract import Engine
from gpuyard.engines.local.gpus.stand_in import COMMANDS
from gpuyard.engines.local.hosts import EMULATED
from gpuyard.engines.machine.installation import note_for_others
from gpuyard.shipping.contract import Sends


class Notes:
    """Those of one server. Each call looks anew."""

    def __init__(
        self,
        options: Options,
        data: DataDir,
        fleet: Fleet,
        engines: Mapping[str, Engine],
        clock: Steady,
        senders: Sequence[Sends],
    ) -> None:
        self._options = options
        self._data = data
        self._fleet = fleet
        self._engines = engines
        self._clock = clock
        self._senders = senders

    def all(self, *told: str) -> tuple[str, ...]:
        """All that there is to know; `told` are notes of others, empty where there is nothing."""
        of_clock = [read_by_all(self._options.tls_key), self._clock.note]
        lasting = [
            *self._of_port(),
            *self._fleet.notes,
            *self._of_engines(),
            *self._of_auth(),
            *self._of_root(),
        ]
        return (*lasting, *[note for note in (*told, *of_clock) if note], *self._of_senders())

    def _of_port(self) -> list[str]:
        taken = self._options.port_taken
        if not taken:
            return []
        other = another_yard(self._data)
        return [f"port {taken} is taken, perhaps by {other}: this one listens at {self._options.port}"]

    def _of_auth(self) -> list[str]:
        unused = self._fleet.access is not None and not self._options.auth
        return ["yard.yaml has `auth`: roles and tokens hold only with `yard up --auth`"] if unused else []

    def _of_engines(self) -> list[str]:
        """Notes of engines. Where the fleet says which GPUs are emulated and why, the engine's own word is too many."""
        said = any(["emulated" in note for note in self._fleet.notes])
        notes = [note for engine in self._engines.values() for note in getattr(engine, "notes", ())]
        return [note for note in notes if note != EMULATED or not said]

    def _of_root(self) -> list[str]:
        """What other people of the machine meet on a yard of root, where there are any."""
        runs = any([not cluster.observed for cluster in self._fleet.clusters])
        if os.geteuid() != 0 or not runs or not has_other_people():
            return []
        fence = "jobs that root submits run as root: no fence keeps them from what other users of this machine have"
        hidden = note_for_others(str(self._data.engine / COMMANDS))
        return [note for note in ("" if self._fleet.allow_root else fence, hidden) if note]

    def _of_senders(self) -> list[str]:
        """Receivers of logs that wait. Anybody may ask for notes; what a receiver said is for the server's own log."""
        return [
            f"logs for {each.spec.name} wait: it does not take them now; the server's log says why"
            for each in self._senders
            if each.trouble
        ]


def read_by_all(key: Path | None) -> str:
    """What is to be said about a TLS key; empty: nothing."""
    if key is None or not key.stat().st_mode & stat.S_IROTH:
        return ""
    return (
        f"every user of this machine can read the TLS key {key} and pretend to be this yard: `chmod o= {key}`"
    )


def another_yard(own: DataDir, system: Path = SYSTEM_DATA) -> str:
    """Which yard may have the port that this one wanted: that of the machine, where it answers."""
    machine = DataDir(system)
    if own.root != machine.root and any([each.socket.exists() for each in machine.instances()]):
        return f"the machine's yard, in {system}"
    return "another user's yard"
