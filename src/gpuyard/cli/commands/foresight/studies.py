"""What `yard simulate` is to compare: every seed on every fleet, each with the policies that were named."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from gpuyard.cli.commands.foresight import caveats, fleet, own_past
from gpuyard.cli.terminal.progress import show_busy
from gpuyard.config import Config
from gpuyard.errors import BadInput
from gpuyard.model import PolicySpec
from gpuyard.sim.runs.at_once import Comparison, run_all
from gpuyard.sim.runs.kept_results import KeptResults
from gpuyard.sim.simulate import Progress
from gpuyard.sim.study import Faults, Study, cut_trace, plan_node_changes
from gpuyard.sim.trace import Trace

ReadTrace = Callable[[int], Trace]
"""The jobs, with what a source lacks drawn from a seed."""


class NamedFleet(NamedTuple):
    """A fleet and the policies to try on it."""

    name: str
    config: Config
    policies: Sequence[PolicySpec]


class SeededStudy(NamedTuple):
    """A study, and what tells it from the others."""

    study: Study
    fleet: NamedFleet
    seed: int
    title: str
    """Empty where it is the only one."""


def choose_fleets(
    configs: Sequence[Path],
    gpus: Sequence[int],
    gpu_model: str | None,
    gpus_per_node: int,
    policies: Sequence[str],
    *,
    spot: bool,
    own: bool,
) -> list[NamedFleet]:
    """The fleets that the options name, each once; `own`: where they name none, it is the yard's own."""
    if own and not configs and not gpus:
        config = own_past.read_fleet()
        return [NamedFleet("", config, fleet.choose_policies(config, list(policies)))]
    if configs and gpus:
        raise BadInput(
            "--config already describes the fleet", "Leave out --gpus and --gpu-model, or leave out --config."
        )
    named: dict[str, tuple[Path | None, int | None]] = {str(path): (path, None) for path in configs}
    named |= {f"{count} GPUs": (None, count) for count in gpus}
    found = []
    for name, (path, count) in (named or {"": (None, None)}).items():
        config = fleet.choose_config(path, count, gpu_model, gpus_per_node, spot=spot)
        found.append(NamedFleet(name, config, fleet.choose_policies(config, list(policies))))
    return found


def make_studies(
    fleets: Sequence[NamedFleet],
    seeds: Sequence[int],
    read_trace: ReadTrace,
    source: Path,
    faults: Faults,
    limit_jobs: int | None,
) -> list[SeededStudy]:
    """A study for each fleet and seed, the seeds of a fleet next to each other."""
    traces = {}
    for seed in dict.fromkeys(seeds):
        with show_busy(f"reading {source}" + (f", seed {seed}" if len(seeds) > 1 else "")):
            traces[seed] = read_trace(seed)
    first = next(iter(traces.values()))
    found = []
    for each in fleets:
        caveats.print_trace_caveats(first, source, each.config.settings)
        for seed, whole in traces.items():
            trace = cut_trace(whole, limit_jobs or len(whole))
            pools = each.config.pools
            changes = plan_node_changes(trace, pools, faults, seed)
            settings, lacks = fleet.settings_of_today(each.config), fleet.find_lacking(each.config)
            title = [each.name] * (len(fleets) > 1) + [f"seed {seed}"] * (len(traces) > 1)
            study = Study(trace, pools, settings, changes, lacks)
            found.append(SeededStudy(study, each, seed, ", ".join(title)))
    return found


def run(
    made: Sequence[SeededStudy],
    cores: int | None,
    keep: Path | None,
    progress: Callable[[str], Progress | None],
) -> bool:
    """Run all of them; False: Ctrl-C came."""
    runs = [Comparison(each.study, each.fleet.policies) for each in made]
    names = [spec.name for each in runs for spec in each.policies]
    said = names[0] if len(names) == 1 else f"{len(names)} simulations"
    try:
        return run_all(runs, progress(said), cores=cores, kept=KeptResults(keep) if keep else None)
    except KeyboardInterrupt:
        return False
