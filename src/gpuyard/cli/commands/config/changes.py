"""A change of the configuration in words: what differs, what is against it, what it would have done."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from gpuyard.cli.line.options import Argument, Option
from gpuyard.cli.terminal.streams import style_text
from gpuyard.errors import Misuse
from gpuyard.job_sizes import SIZES_TEXT
from gpuyard.quantities import percent_text

if TYPE_CHECKING:
    from gpuyard.api.client import Client

FileArgument = Annotated[Path | None, Argument(metavar="FILE", help="A yard.yaml; - for standard input.")]
FileOption = Annotated[
    Path | None, Option("-f", "--file", metavar="FILE", help="The same file, given as an option.")
]

_SIGNS = {"added": "+", "removed": "-", "changed": "~"}
_STYLES = {"added": "green", "removed": "red", "changed": "yellow"}


def choose_file(command: str, *files: Path | None) -> Path:
    """The one file that was named, as a word or by an option."""
    found = [file for file in files if file is not None]
    if len(found) != 1:
        what = "two files were named" if found else "which file?"
        raise Misuse(
            f"yard {command}", what, f"yard {command} FILE; 'yard {command} --help' lists what it takes."
        )
    return found[0]


def read_change(yard: "Client", file: Path) -> tuple[dict[str, str], int]:
    """The text of a configuration as it is sent, checked here first: the file is here, and so is its editor.

    Of manifests it is the configuration in force with what they change, and the number of that version.
    """
    from gpuyard.config.reading import loads, read_text

    name = "standard input" if str(file) == "-" else str(file)
    text = sys.stdin.read() if str(file) == "-" else read_text(file)
    from gpuyard.intake.kubernetes.quotas import is_manifest, patch_configuration

    if is_manifest(text):
        live = yard.config()
        patch = patch_configuration(live["yaml"], text, name)
        show_notes(patch.notes)
        loads(patch.text, f"version {live['version']} with {name}")
        return {"yaml": patch.text, "name": name}, live["version"]
    loads(text, name)
    return {"yaml": text, "name": name}, 0


def show_changes(difference: Mapping[str, Any]) -> None:
    """One line for each change, signs as in a diff."""
    rows = [
        (
            change["what"],
            " ".join(filter(None, (change["kind"], change["name"]))),
            change["key"],
            _after(change),
        )
        for change in difference["changes"]
    ]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)] if rows else []
    for what, name, key, text in rows:
        line = f"  {_SIGNS[what]} {name.ljust(widths[1])}  {key.ljust(widths[2])}  {text}".rstrip()
        print(style_text(line, _STYLES[what], sys.stdout))


def _after(change: Mapping[str, Any]) -> str:
    if change["what"] == "changed":
        return f"{change['before']} → {change['after']}"
    return str(change["after"] or change["before"])


def show_notes(notes: Sequence[str]) -> None:
    """Print what the user should know besides."""
    from gpuyard.cli.terminal.streams import print_notice

    for note in notes:
        print_notice(note, before="note: ", style="bold")


def run_preview(yard: "Client", wanted: Mapping[str, Any], days: int, sizes: str) -> dict[str, Any]:
    """The preview, with its progress on a terminal."""
    # A yard of an earlier release does not know the field.
    parted = {} if sizes == SIZES_TEXT else {"sizes": sizes}
    from gpuyard.errors import YardError

    said: Callable[[str], None] = _line if sys.stderr.isatty() else lambda _text: None
    said("simulating the recorded jobs …")
    try:
        for name, data in yard.config_preview(**wanted, **parted, days=days):
            if name == "progress":
                said(f"simulating {data['side']}: {data['done']:,} of {data['jobs']:,} jobs …")
            elif name == "error":
                raise YardError(data["detail"], data.get("hint", ""))
            elif name == "preview":
                found: dict[str, Any] = data
                return found
    except OSError as error:
        raise YardError(f"the connection to the yard broke: {error.strerror or error}") from error
    finally:
        said("")
    raise YardError("the preview ended before it was done", "The log of the yard has the details.")


def _line(text: str) -> None:
    print(f"\r\x1b[2K{text}", end="", file=sys.stderr, flush=True)


def show_preview(preview: Mapping[str, Any]) -> None:
    """The sentence, the table behind it, and how far to trust it."""
    from gpuyard.cli.listings.tables import format_table
    from gpuyard.sim.preview_words import pair_text
    from gpuyard.tables import Column

    print(preview["sentence"])
    figures = [
        Column("JOBS", lambda row: str(row["jobs"]), right=True),
        Column("MEAN WAIT", lambda row: pair_text(*row["wait_mean_ms"])),
        Column("95 % WAIT AT MOST", lambda row: pair_text(*row["wait_p95_ms"])),
    ]

    def show(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        print()
        format_table(columns, [[column.cell(row) for column in columns] for row in rows])

    if len(preview["tenants"]) and preview["jobs"]:
        tenant = Column("TENANT", lambda row: row["tenant"])
        show([tenant, *figures], [*preview["tenants"], preview["all"]])
        # A yard of an earlier release tells no sizes.
        if len(sizes := preview.get("sizes", ())) > 1:
            size = Column("GPUS OF A JOB", lambda row: row["size"])
            half = Column("HALF WAIT AT MOST", lambda row: pair_text(*row["wait_median_ms"]))
            jobs, mean, most = figures
            show([size, jobs, mean, half, most], sizes)
        print()
    before, after = preview["utilisation"]
    used = "" if before is None else f"utilisation {100 * before:.1f} → {percent_text(100 * after, 1)}, "
    stops = "{} → {}".format(*preview["preemptions"])
    print(
        f"{used}preemptions {stops}; from {preview['jobs']:,} recorded jobs, {preview['live']:,} of them live"
    )
