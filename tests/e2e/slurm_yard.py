"""A yard over a private Slurm cluster, and what its jobs leave behind."""

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

from e2e.conftest import Box
from harness.patience import until
from rigs.slurm.cluster import SlurmCluster

CONFIG = """version: 1
clusters:
  hpc:
    engine: slurm
    shared_folder: {shared}
    conf: {conf}
    gpu_types: {{a100: A100-80GB}}
    allow_root: true
{keys}{policy}"""

TEAMS = """tenants:
  research: {weight: 2, guarantee: 32}
  product: {weight: 1, limit: 16}
  interns: {weight: 1}
classes:
  batch: {priority: 0, preemptible: true, min_run: 0s, grace: 2s}
  urgent: {priority: 100, preemptible: false}
"""


class SlurmYard:
    """One yard, its Slurm, and a folder in which its jobs write down what they did."""

    def __init__(self, folder: Path, cluster: SlurmCluster, policy: str = TEAMS, keys: str = "") -> None:
        self.cluster = cluster
        self.effects = folder / "effects"
        self.effects.mkdir(parents=True)
        self.effects.chmod(0o777)
        self.shared = folder / "shared"
        text = CONFIG.format(shared=self.shared, conf=cluster.folder / "slurm.conf", keys=keys, policy=policy)
        self.box = Box(folder / "yard", text)

    def up(self) -> None:
        """Start it, and wait until it has seen the nodes."""
        self.box.up()
        self.until_nodes(len(self.cluster.layout.nodes))

    def until_nodes(self, count: int, s: float = 60) -> None:
        """Wait until so many nodes are up."""
        until(lambda: self.nodes_up() == count, s)

    def nodes_up(self) -> int:
        with self.box.client() as client:
            return sum(1 for node in client.nodes() if node["state"] == "UP")

    def script(self, name: str, body: str = "") -> list[str]:
        """A command that writes down its start, and its end if it gets there."""
        path = self.effects / name
        return ["/bin/sh", "-c", f"echo start $YARD_ATTEMPT >>{path}; {body or 'true'}; echo end >>{path}"]

    def written(self, name: str) -> list[str]:
        """What a job wrote down."""
        path = self.effects / name
        return path.read_text().splitlines() if path.exists() else []

    def ends(self) -> Counter[str]:
        """How often each job has reached its end, as the jobs say."""
        return Counter(
            {path.name: path.read_text().splitlines().count("end") for path in self.effects.iterdir()}
        )

    def history(self) -> dict[str, str]:
        """How the jobs ended, by name."""
        found, cursor = {}, None
        with self.box.client() as client:
            while True:
                page = client.history(limit=1000, cursor=cursor)
                found |= {job["name"]: " ".join([job["state"], job["reason"]]).strip() for job in page.jobs}
                cursor = page.next_cursor
                if cursor is None:
                    return found

    def waiting(self) -> int:
        """Jobs that have not ended."""
        with self.box.client() as client:
            queue = client.queue(limit=1)
            return queue["running"] + queue["waiting"] + queue["set_aside"]

    def handed_in_again(self) -> int:
        """Attempts that were handed to Slurm more than once, because it had forgotten them."""
        notes = [json.loads(path.read_text()) for path in self.shared.glob("*/*/submit.json")]
        return sum(1 for note in notes if len(note["ids"]) > 1)

    def heal(self) -> None:
        """What an administrator does after Slurm has lost its memory: nodes that it drained are taken back."""
        for line in self.cluster.command("sinfo", "-h", "-N", "-o", "%N %T").splitlines():
            name, state = line.split()
            if state.startswith(("drain", "down")):
                with suppress(RuntimeError):
                    # It may have come back by itself in this moment.
                    self.cluster.command("scontrol", "update", f"nodename={name}", "state=resume")

    def close(self) -> None:
        """End it with all its jobs."""
        done = self.box("down", "--jobs")
        assert 0 == done.code, done.err
