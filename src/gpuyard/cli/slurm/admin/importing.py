"""`yard slurm import`: a running cluster, or saved output of its commands, as a yard.yaml and a trace."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.line.options import Option
from gpuyard.cli.slurm.admin.site_options import (
    ConfOption,
    ForceOption,
    GpuTypeOption,
    SinceOption,
    days_since,
    make_commands,
    parse_types,
    unreachable,
    write_new,
)
from gpuyard.errors import BadInput

if TYPE_CHECKING:
    from gpuyard.engines.slurm.site.gpu_types import GpuTypes
    from gpuyard.engines.slurm.site.notes import Notes
    from gpuyard.engines.slurm.site.site import SlurmSite
    from gpuyard.sim.slurm_history import History

NOTES_SHOWN_MAX = 12


def run(
    dir: Annotated[Path, Option("--dir", metavar="DIR", help="The folder to write into.")] = Path(),
    since: SinceOption = "30d",
    conf: ConfOption = None,
    files: Annotated[
        Path | None,
        Option(
            "--files",
            metavar="DIR",
            help="Read the saved output of --commands instead of a cluster.",
        ),
    ] = None,
    add_to: Annotated[
        Path | None,
        Option(
            "--add-to",
            metavar="FILE",
            help="Add the cluster to this yard.yaml, and write the result to DIR/yard.yaml.",
        ),
    ] = None,
    list_commands: Annotated[
        bool, Option("--commands", help="Print the commands whose output --files reads, and exit.")
    ] = False,
    gpu_type: GpuTypeOption = None,
    keep_cpu_jobs: Annotated[
        bool, Option("--keep-cpu-jobs", help="Keep jobs without GPUs in the trace.")
    ] = False,
    force: ForceOption = False,
) -> None:
    """Turn a Slurm cluster into DIR/yard.yaml, and its jobs into DIR/trace.csv.

    The command changes nothing on the cluster. It lists what yard.yaml cannot express, also in DIR/notes.txt.

    \b
    Examples:
      yard slurm import --dir site --since 30d
      yard simulate --trace site/trace.csv --config site/yard.yaml
      yard slurm import --conf /etc/slurm-b/slurm.conf --add-to site/yard.yaml --dir both
    """
    from gpuyard.engines.contract import EngineError
    from gpuyard.engines.slurm.site.gpu_types import GpuTypes
    from gpuyard.engines.slurm.site.notes import Notes
    from gpuyard.engines.slurm.site.site import read_running_site, read_saved_site
    from gpuyard.engines.slurm.words.forms import Unreadable

    number = days_since(since)
    if list_commands:
        _print_commands(number)
        return
    types, notes = GpuTypes(parse_types(gpu_type or [])), Notes()
    try:
        if files is not None:
            if conf is not None:
                raise BadInput("--files and --conf are two ways to read a cluster", "Give one of them.")
            site = read_saved_site(files)
        else:
            site = read_running_site(make_commands(conf), number)
        texts = _texts(site, types, notes, str(conf.resolve()) if conf is not None else "", add_to)
        past = _history(site, types, notes, keep_cpu_jobs)
    except EngineError as error:
        raise unreachable(error) from error
    except Unreadable as wrong:
        raise BadInput(
            str(wrong), "`yard slurm import --commands` prints what each file should hold."
        ) from None
    _write(dir, texts, past, site, notes, force)
    _tell(dir, site, past, notes, f" of {number} days" if files is None else "")


def _print_commands(number: int) -> None:
    from gpuyard.engines.slurm.site.accounting import make_mark
    from gpuyard.engines.slurm.site.site import ENVIRONMENT, list_sources, mark_command

    print("# On a machine of the cluster, in an empty folder; nothing is changed there.")
    print("export " + " ".join(f"{name}={value}" for name, value in ENVIRONMENT.items()))
    for source in list_sources(number):
        words = mark_command(source.words, make_mark()) if source.marked else source.words
        print(f"{shlex.join(words)} > {source.file}")
    print("# Then, where yard is: yard slurm import --files FOLDER --dir site")


def _texts(
    site: "SlurmSite", types: "GpuTypes", notes: "Notes", conf: str, add_to: Path | None
) -> dict[str, str]:
    """The files to write, by name."""
    import yaml

    from gpuyard.config.reading import loads, read_text
    from gpuyard.config.slurm.importing import make_document

    plain = make_document(site, types, notes, conf)
    if add_to is not None:
        from gpuyard.config.slurm.joining import join_site

        first = read_text(add_to)
        loads(first, str(add_to))
        plain = join_site(yaml.safe_load(first), plain, notes)
    body = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110)
    what = f"{site.name}, Slurm {site.version or '?'}"
    text = f"# {what}, read by `yard slurm import`. What is not in it stands in notes.txt.\n{body}"
    # It is checked by the same rules as any file; a fault in it is a defect of ours, reported with its line.
    loads(text, "yard.yaml")
    return {"yard.yaml": text}


def _history(site: "SlurmSite", types: "GpuTypes", notes: "Notes", cpu_jobs: bool) -> "History | None":
    from gpuyard.config.slurm.importing import name_classes
    from gpuyard.config.slurm.importing_tenants import find_places, find_tenant
    from gpuyard.engines.slurm.words.forms import guess_models
    from gpuyard.sim.slurm_history import make_history

    if "jobs.txt" in site.missing:
        return None
    places = find_places(site)
    # A name that may mean two models means the model that the nodes were taken for.
    models = {each: model for kind, model in types.chosen.items() for each in guess_models(kind)}
    try:
        past = make_history(
            site.jobs.rows,
            lambda row: find_tenant(row.account, row.user, places),
            models,
            classes=name_classes(site),
            cpu_jobs=cpu_jobs,
        )
    except BadInput as wrong:
        notes.leave(wrong.message)
        return None
    said: list[tuple[int, str]] = [
        (past.never_ran, "not in the trace: jobs that never ran"),
        (past.without_gpus, "not in the trace: jobs without GPUs; --keep-cpu-jobs keeps them"),
        (
            past.later,
            "jobs that could not start when they were submitted; their wait begins later in the trace",
        ),
        (past.again, "further tries of jobs; each is a job of its own in the trace"),
        (past.running, "jobs that have not ended; the trace has the time that they have run"),
        (len(past.broken) + site.jobs.broken, "rows of sacct that could not be used"),
    ]
    for count, text in said:
        if count:
            notes.leave(f"{text}: {count:,}")
    for text in [*site.jobs.broken_named, *past.broken][:5]:
        notes.leave(f"not used: {text}")
    return past


def _write(
    folder: Path,
    texts: dict[str, str],
    past: "History | None",
    site: "SlurmSite",
    notes: "Notes",
    force: bool,
) -> None:
    from gpuyard.sim.traces import save

    texts["notes.txt"] = notes.text(f"What {site.name} says and yard.yaml does not.")
    if site.jobs_text:
        texts["sacct.txt"] = site.jobs_text
    write_new(folder, texts, force, ["trace.csv"] if past else [])
    if past is not None:
        save(past.trace, folder / "trace.csv")


def _tell(folder: Path, site: "SlurmSite", past: "History | None", notes: "Notes", span: str) -> None:
    gpus = sum(node.gpu_count for node in site.nodes)
    accounts = len({each.account for each in site.associations if each.account != "root"})
    parts: list[Any] = [
        f"{len(site.nodes):,} nodes", f"{gpus:,} GPUs", f"{accounts:,} accounts", f"{len(site.qos):,} QOS",
        f"{len(site.jobs.rows):,} jobs{span}",
    ]  # fmt: skip
    print(f"{site.name}, Slurm {site.version or '?'}: {', '.join(parts)}")
    jobs = f", trace.csv ({len(past.trace):,} jobs)" if past is not None else ""
    print(f"wrote {folder}/yard.yaml{jobs}, notes.txt{', sacct.txt' if site.jobs_text else ''}")
    shown = [*notes.guessed, *notes.unsaid]
    if shown:
        print(f"\n{len(shown)} values were guessed or have no place in yard.yaml:")
        for text in shown[:NOTES_SHOWN_MAX]:
            print(f"  - {text}")
        if len(shown) > NOTES_SHOWN_MAX:
            print(f"  and {len(shown) - NOTES_SHOWN_MAX} more in notes.txt")
    if past is None:
        print(f"\nThere is no trace: {site.missing.get('jobs.txt', 'no job to replay')}")
    else:
        here = shlex.quote(str(folder))
        print(f"\nReplay it: yard simulate --trace {here}/trace.csv --config {here}/yard.yaml")
