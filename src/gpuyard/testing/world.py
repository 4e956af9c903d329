"""What really ran in the simulated engine, kept apart from its books: checkers compare the two."""

from dataclasses import dataclass, field

from gpuyard.engines.contract import Launch, Part
from gpuyard.model import Capability, Node, Outcome


@dataclass(frozen=True, slots=True)
class Life:
    """How a job lives without interference."""

    run_ms: int
    exit_code: int = 0
    outcome: Outcome | None = None
    """The outcome of its own end; None: by its exit code."""
    term_ms: int = 0
    """How long it takes to end after TERM."""
    ignores_term: bool = False
    checkpoint_every_ms: int = 0
    """It saves its work this often while it runs; 0: never."""
    output: bytes = b""
    pull_ms: int = 0
    """How long its image is pulled before anything of it runs; 0: it runs in none, or its image is there."""
    no_image: str = ""
    """Why there is no such image, as it turns out when the pull is over; empty: there is."""


@dataclass(slots=True, eq=False)
class Run:
    """One time that an attempt's processes really ran."""

    key: str
    job_id: int
    attempt: int
    parts: tuple[Part, ...]
    tasks: int
    """How many really started; 0: its image is still pulled, or was never there."""
    started_ms: int
    ended_ms: int | None = None
    """None: still running."""


@dataclass(slots=True)
class World:
    """Every run so far, in the order of the starts."""

    runs: list[Run] = field(default_factory=list)
    _live: dict[int, Run] = field(default_factory=dict)

    def begin(self, launch: Launch, *, tasks: int, now_ms: int) -> Run:
        """Processes start."""
        run = Run(launch.key, launch.job_id, launch.attempt, launch.parts, tasks, now_ms)
        self.runs.append(run)
        self._live[id(run)] = run
        return run

    def end(self, run: Run, now_ms: int) -> None:
        """The processes of a run are gone; a run that has already ended stays as it is."""
        if self._live.pop(id(run), None) is not None:
            run.ended_ms = now_ms

    def live(self) -> list[Run]:
        """What runs now."""
        return list(self._live.values())

    def of(self, key: str) -> list[Run]:
        """Every run of this attempt: at most one, if all is well."""
        return [run for run in self.runs if run.key == key]


@dataclass(slots=True)
class NodeState:
    """A node and its state."""

    node: Node
    up: bool = True
    why: str = ""
    crashed: list[str] = field(default_factory=list)
    """Keys of attempts that died with it and are not reported yet."""


def flaw_of(launch: Launch, nodes: dict[str, Node], capabilities: frozenset[Capability]) -> str:
    """Why this launch can never run in such a world; empty: it can."""
    recipe = launch.recipe
    if recipe.containers and Capability.IMAGES not in capabilities:
        return "this engine runs no images"
    if not recipe.argv and not recipe.script and not recipe.containers:
        return "there is nothing to run: no argv and no script"
    if any(["\0" in text for text in (*recipe.argv, *recipe.env, *recipe.env.values(), recipe.cwd)]):
        return "a NUL character cannot be passed on"
    if not launch.parts:
        return "it has no part on any node"
    for part in launch.parts:
        node = nodes.get(part.node)
        if node is None:
            return f"there is no node {part.node}"
        if any([not 0 <= gpu < node.gpus for gpu in part.gpus]):
            return f"there are no GPUs {list(part.gpus)} on {part.node}"
        if part.gpus and part.milli != 1000 and Capability.SHARES not in capabilities:
            return "this engine gives whole GPUs only"
    if sum([part.tasks for part in launch.parts]) > 1 and Capability.GANG not in capabilities:
        return "this engine runs single tasks only"
    return ""
