"""`yard store`: the whole store, apart from any server. For operators: backups, restores, moves."""

from typing import Annotated

from gpuyard.cli.line.options import Argument

_WORDS = {
    "events": ("event", "events"),
    "history": ("ended job", "ended jobs"),
    "blobs": ("kept text", "kept texts"),
    "configs": ("version of the configuration", "versions of the configuration"),
    "tokens": ("token", "tokens"),
}
"""Tables that are named in the output; the rest is copied without a word."""


def copy(
    source: Annotated[
        str,
        Argument(
            metavar="FROM",
            help="The store: a file such as yard.db, postgresql://…, or @FILE that holds this.",
        ),
    ],
    target: Annotated[str, Argument(metavar="TO", help="An empty place: a new file, or an empty database.")],
) -> None:
    """Copy everything that a store holds: log, history, scripts, configuration, tokens, counters.

    A server may go on writing to the source: the copy is the store as it was at one moment. The target
    must be empty; it gets everything or nothing. The copy is the same yard: ids go on where they were, and
    running jobs are found again.
    """
    import time

    from gpuyard.cli.terminal.streams import notice
    from gpuyard.control.places import named_store
    from gpuyard.store.copying import copy_store

    done = copy_store(named_store(source), named_store(target), int(time.time()))
    said = [f"{done.rows[table]:,} {words[done.rows[table] != 1]}" for table, words in _WORDS.items()]
    print(f"copied to {done.target}: {', '.join(said)}; the next job is {done.next_job_id}")
    if done.writer is not None:
        notice(
            f"note: a yard runs on {done.source} ({done.writer}): "
            "what it writes from now on is not in the copy; to move it, stop it first with `yard down`"
        )
