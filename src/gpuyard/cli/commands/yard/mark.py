"""`yard label`, `yard taint`: labels and taints of nodes."""

from collections.abc import Sequence
from typing import Annotated, Any

from gpuyard.cli.connection.places import open_client
from gpuyard.cli.line.options import Argument, Option, Output, OutputOption
from gpuyard.errors import BadInput

WordsArgument = Annotated[
    list[str], Argument(metavar="NODE... [CHANGE]...", help="The nodes, then what to change.")
]
PoolOption = Annotated[
    list[str] | None, Option("--pool", metavar="POOL", help="All nodes of this pool; may be repeated.")
]
ResetOption = Annotated[
    bool, Option("--reset", help="First forget everything that was set live on these nodes.")
]

_EFFECTS = (":noschedule", ":prefernoschedule", ":noexecute")


def label(
    words: WordsArgument = [],  # noqa: B006 (read, never changed)
    pool: PoolOption = None,
    reset: ResetOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set labels of nodes, or show those of one node.

    KEY=VALUE sets a label and KEY- removes it. What is set holds, whatever yard.yaml says, until it is reset.

    \b
    Examples:
      yard label n1 disk=nvme old-
      yard label --pool a100 team=mlops
      yard label n1
      yard label n1 --reset
    """
    nodes, labels = parse_labels(words)
    _mark(nodes, {"labels": labels} if labels else {}, pool, reset, output, "labels")


def taint(
    words: WordsArgument = [],  # noqa: B006 (read, never changed)
    pool: PoolOption = None,
    reset: ResetOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Set taints of nodes, or show those of one node.

    KEY=VALUE:EFFECT or KEY:EFFECT sets a taint, KEY- or KEY:EFFECT- removes it. Jobs that do not tolerate it no longer
    start there (NoSchedule), come there last (PreferNoSchedule), or are stopped too (NoExecute).

    \b
    Examples:
      yard taint n1 debug=ana:NoSchedule
      yard taint n1 n2 gone:NoExecute
      yard taint n1 debug-
    """
    nodes, changes = parse_taints(words)
    _mark(nodes, changes, pool, reset, output, "taints")


def parse_labels(words: Sequence[str]) -> tuple[list[str], dict[str, str | None]]:
    """The nodes, and the labels by key; None: to be removed."""
    nodes = [word for word in words if not _is_change(word)]
    labels: dict[str, str | None] = {}
    for word in [each for each in words if _is_change(each)]:
        key, sign, value = word.partition("=")
        labels[key if sign else word.removesuffix("-")] = value if sign else None
    return nodes, labels


def parse_taints(words: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """The nodes, and the taints to set and to remove."""
    nodes = [word for word in words if not (_is_change(word) or word.lower().endswith(_EFFECTS))]
    changes = [word for word in words if word not in nodes]
    gone = [word.removesuffix("-") for word in changes if word.endswith("-")]
    new = [word for word in changes if not word.endswith("-")]
    return nodes, ({"untaint": gone} if gone else {}) | ({"taints": new} if new else {})


def _is_change(word: str) -> bool:
    return "=" in word or word.endswith("-")


def _mark(
    nodes: list[str], changes: dict[str, Any], pools: list[str] | None, reset: bool, output: Output, what: str
) -> None:
    if not changes and not reset:
        if pools or len(nodes) != 1:
            raise BadInput(
                f"no change of {what} stands among: {' '.join(nodes) or ', '.join(pools or [])}",
                "A label is written KEY=VALUE or KEY-, a taint KEY=VALUE:EFFECT, KEY:EFFECT or KEY-; the effects are "
                "NoSchedule, PreferNoSchedule and NoExecute. Without a change, name one node to see what it has.",
            )
        _show(nodes[0], output, what)
        return
    with open_client() as yard:
        yard.mark({"nodes": nodes, "pools": pools or [], "reset": reset, **changes})


def _show(node: str, output: Output, what: str) -> None:
    from gpuyard.cli.listings.tables import print_records
    from gpuyard.tables import Column

    with open_client() as yard:
        found = yard.marks(node)
    if what == "taints":
        columns = [Column("TAINT", lambda row: row["taint"]), Column("FROM", lambda row: row["from"])]
        print_records([dict(row) for row in found["taints"]], columns, output)
        return
    columns = [
        Column("LABEL", lambda row: row["key"]),
        Column("VALUE", lambda row: row["value"] or "-"),
        Column("FROM", lambda row: row["from"]),
    ]
    print_records([dict(row) for row in found["labels"]], columns, output)
