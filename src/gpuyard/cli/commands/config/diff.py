"""`yard diff`: what a yard.yaml would change."""

from gpuyard.cli.commands.config.changes import FileOption, read, show_changes, show_notes
from gpuyard.cli.connection.places import client
from gpuyard.cli.line.options import OutputOption
from gpuyard.cli.listings.listing import Output

DIFFERS = 1


def diff(file: FileOption, output: OutputOption = Output.TABLE) -> int:
    """Compare a yard.yaml with the configuration in force: what it says, not how it is written.

    Exit code 0 if nothing would change, 1 if something would, 2 or more if that is unknown.
    """
    wanted = read(file)
    with client() as yard:
        difference = yard.config_diff(**wanted)
    if output in (Output.TABLE, Output.WIDE):
        if difference["same"]:
            print(f"nothing would change: version {difference['version']} is in force")
        else:
            print(f"against version {difference['version']}, which is in force:")
            show_changes(difference)
        show_notes([*difference["obstacles"], *difference["notes"]])
    elif output is Output.CSV:
        from gpuyard.cli.listings.tables import emit

        emit(difference["changes"], (), output.value)
    else:
        from gpuyard.cli.listings.listing import Listing
        from gpuyard.cli.listings.listing import emit as emit_listing

        emit_listing(Listing(difference, lambda: difference["changes"], lambda _wide: ()), output)
    return 0 if difference["same"] else DIFFERS
