"""`sinfo`: partitions and nodes."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuyard.api.client import Client
from gpuyard.cli.slurm.language.columns import Field, Format, parse_long_format, parse_short_format
from gpuyard.cli.slurm.language.getopt import Grammar, Read, parse_option_table, read
from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.cli.slurm.language.sinfo_groups import (
    NO_NODE,
    NOTHING,
    STATES,
    SinfoLine,
    SlurmNode,
    group_nodes,
    node_from_view,
)
from gpuyard.cli.slurm.language.stopping import Stop, make_stop
from gpuyard.cli.slurm.language.times import clock_line
from gpuyard.engines.name_lists import natural_key

GRAMMAR = Grammar(
    "sinfo",
    parse_option_table(
        """
        all,a clusters,M= cluster=:clusters dead,d exact,e federation format,o= Format,O= help hide
        iterate,i= json list-reasons,R local long,l Node,N nodes,n= noconvert noheader,h partition,p=
        reservation,T responding,r sort,S= states,t= summarize,s usage verbose,v version,V yaml
        """
    ),
)
HELP = """\
Usage: sinfo [-i seconds] [-n nodes] [-o format | -O format] [-p partitions] [-t states] [-dehlNrRs]
Shows partitions and nodes of the yard. A partition is a pool; it is marked with a star if it is the only one."""
_NOT_SERVED = {
    "clusters": "there is one yard",
    "reservation": "there are no reservations by name",
    "json": "ask `yard nodes -o json`",
    "yaml": "ask `yard nodes -o yaml`",
}

DEFAULT = "%9P %.5a %.10l %.6D %.6t %N"
LONG = "%9P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
SUMMARY = "%9P %.5a %.10l %.16F %N"
NODE = "%{node}N %.6D %{partition}P %6t"
NODE_LONG = "%{node}N %.6D %{partition}P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
REASONS = "%20E %9u %19H %N"
REASONS_LONG = "%20E %12U %19H %6t %N"


def _unknown(_: SinfoLine) -> str:
    return "Unknown"


def _first(group: SinfoLine) -> SlurmNode:
    return group.nodes[0] if group.nodes else NOTHING


def _why(group: SinfoLine) -> str:
    return _first(group).why or "none"


def _user(group: SinfoLine) -> str:
    """The user in the yard's own reason for a drain, unless another reason was given."""
    return _first(group).why.partition("drained by ")[2] or "Unknown"


def _cpus_state(group: SinfoLine) -> str:
    taking = [node for node in group.nodes if node.up]
    used = [node.cpus_used for node in group.nodes]
    idle = [node.cpus - node.cpus_used for node in taking]
    out = [node.cpus - node.cpus_used for node in group.nodes if not node.up]
    return group.sums(used, idle, out, [node.cpus for node in group.nodes])


def _used(group: SinfoLine) -> str:
    node = _first(group)
    return f"gpu:{node.model.lower()}:{node.gpus_used}" if node.gpus else "(null)"


_TABLE: tuple[tuple[str, str, str, Any], ...] = (
    ("a", "available", "AVAIL", lambda _: "up"),
    ("A", "nodeai", "NODES(A/I)", lambda group: "{}/{}".format(*group.counted())),
    ("b", "features_act", "ACTIVE_FEATURES", lambda group: _first(group).features),
    ("B", "maxcpuspernode", "MAX_CPUS_PER_NODE", lambda _: "UNLIMITED"),
    ("c", "cpus", "CPUS", lambda group: group.span(node.cpus for node in group.nodes)),
    ("C", "cpusstate", "CPUS(A/I/O/T)", _cpus_state),
    ("d", "disk", "TMP_DISK", lambda _: "0"),
    ("D", "nodes", "NODES", lambda group: str(len(group.nodes))),
    ("e", "freemem", "FREE_MEM", lambda group: group.span(n.memory_mib - n.memory_used for n in group.nodes)),
    ("E", "reason", "REASON", _why),
    ("f", "features", "AVAIL_FEATURES", lambda group: _first(group).features),
    ("F", "nodeaiot", "NODES(A/I/O/T)", lambda group: "{}/{}/{}/".format(*group.counted()) + str(len(group.nodes))),
    ("g", "groups", "GROUPS", lambda _: "all"),
    ("G", "gres", "GRES", lambda group: _first(group).gres),
    ("h", "oversubscribe", "OVERSUBSCRIBE", lambda _: "NO"),
    ("H", "timestamp", "TIMESTAMP", _unknown),
    ("I", "priorityjobfactor", "PRIO_JOB_FACTOR", lambda _: "1"),
    ("l", "time", "TIMELIMIT", lambda _: "infinite"),
    ("L", "defaulttime", "DEFAULTTIME", lambda _: "n/a"),
    ("m", "memory", "MEMORY", lambda group: group.span(node.memory_mib for node in group.nodes)),
    ("M", "preemptmode", "PREEMPT_MODE", lambda _: "REQUEUE"),
    ("n", "nodehost", "HOSTNAMES", lambda group: group.nodelist),
    ("N", "nodelist", "NODELIST", lambda group: group.nodelist),
    ("o", "nodeaddr", "NODE_ADDR", lambda group: group.nodelist),
    ("O", "cpusload", "CPU_LOAD", lambda _: "N/A"),
    ("p", "prioritytier", "PRIO_TIER", lambda _: "1"),
    ("P", "partition", "PARTITION", lambda group: group.shown_partition),
    ("r", "root", "ROOT", lambda _: "no"),
    ("R", "partitionname", "PARTITION", lambda group: group.partition),
    ("s", "size", "JOB_SIZE", lambda _: "1-infinite"),
    ("S", "allocnodes", "ALLOCNODES", lambda _: "all"),
    ("t", "statecompact", "STATE", lambda group: STATES.get(_first(group).state, NO_NODE)),
    ("T", "statelong", "STATE", lambda group: _first(group).state),
    ("u", "user", "USER", _user),
    ("U", "userlong", "USER", _user),
    ("v", "version", "VERSION", lambda _: "N/A"),
    ("V", "cluster", "CLUSTER", lambda _: "N/A"),
    ("w", "weight", "WEIGHT", lambda _: "1"),
    ("X", "sockets", "SOCKETS", lambda _: "1"),
    ("Y", "cores", "CORES", lambda group: group.span(node.cpus for node in group.nodes)),
    ("z", "socketcorethread", "S:C:T", lambda group: f"1:{_first(group).cpus}:1"),
    ("Z", "threads", "THREADS", lambda _: "1"),
    ("", "gresused", "GRES_USED", _used),
    ("", "allocmem", "ALLOCMEM", lambda group: group.span(node.memory_used for node in group.nodes)),
    ("", "statecomplete", "STATECOMPLETE", lambda group: _first(group).state),
)  # fmt: skip
BY_LETTER = {letter: Field(head, text) for letter, _, head, text in _TABLE if letter}
BY_NAME = {name: Field(head, text) for _, name, head, text in _TABLE}

_GROUPING = {
    "t": lambda node: node.state, "T": lambda node: node.state, "G": lambda node: node.gres,
    "E": lambda node: node.why, "u": lambda node: node.why, "U": lambda node: node.why,
    "n": lambda node: node.name, "o": lambda node: node.name, "O": lambda node: node.name,
    "f": lambda node: node.features, "b": lambda node: node.features,
}  # fmt: skip
"""Fields that differ from node to node: nodes of one line have the same values in those that are shown."""


def run(words: Sequence[str]) -> int:
    """Print partitions or nodes."""
    given = read(GRAMMAR, words)
    for name, why in _NOT_SERVED.items():
        if given.has(name):
            raise make_stop("sinfo", f"--{name} is not served: {why}")
    pause = given.last("iterate")
    if pause and (not pause.isdecimal() or not int(pause)):
        raise make_stop("sinfo", f"--iterate: {pause!r} is not a number of seconds")
    with Client() as yard:
        while True:
            if pause or (given.has("long") and not given.has("noheader")):
                print(clock_line())
            fleet = yard.fleet()
            _print([node_from_view(node) for node in fleet["nodes"]], Pools.of_fleet(fleet), given)
            if not pause:
                return 0
            sys.stdout.flush()
            time.sleep(int(pause))


def _print(nodes: list[SlurmNode], pools: Pools, given: Read) -> None:
    partitions = pools.known if given.has("all") else pools.listed
    if given.has("partition"):
        partitions = {
            name: of for name, of in sorted(pools.known.items()) if name in given.listed("partition")
        }
    chosen = _format(given, nodes, partitions)
    groups = _groups(_wanted(nodes, given), partitions, pools.default, given, chosen)
    if not given.has("Node") and not given.has("list-reasons"):
        # A partition with no matching node is still listed.
        shown = {group.partition for group in groups}
        groups += [SinfoLine(name, name == pools.default, []) for name in partitions if name not in shown]
        groups.sort(key=lambda group: group.partition)
    if not given.has("noheader"):
        print(chosen.header())
    for line in chosen.lines(groups):
        print(line)


def _format(given: Read, nodes: list[SlurmNode], partitions: Iterable[str]) -> Format:
    which = next((key for key, _ in reversed(given.given) if key in ("format", "Format")), "")
    long = given.has("long")
    if which == "Format":
        chosen = parse_long_format(given.last("Format"), BY_NAME)
    else:
        text = given.last("format")
        if not which and given.has("list-reasons"):
            text = REASONS_LONG if long else REASONS
        elif not which and given.has("Node"):
            width = max([9, *[len(node.name) for node in nodes]])
            partition = max([9, *[len(name) + 1 for name in partitions]])
            form = NODE_LONG if long else NODE
            # Slurm puts the partition on the right here and the name on the left.
            text = form.replace("{node}", str(width)).replace("{partition}", f".{partition}")
        elif not which:
            text = LONG if long else SUMMARY if given.has("summarize") else DEFAULT
        chosen = parse_short_format(text, BY_LETTER)
    for name in chosen.unknown:
        if which == "Format":
            print(f"sinfo: error: Invalid job format specification: {name}", file=sys.stderr)
        else:
            print(f"Invalid node format specification: {name}", file=sys.stderr)
    return chosen


def _wanted(nodes: list[SlurmNode], given: Read) -> list[SlurmNode]:
    if given.has("nodes"):
        from gpuyard.intake.sbatch.hostlists import expand

        try:
            names = set(expand(given.last("nodes")))
        except ValueError as wrong:
            raise make_stop("sinfo", f"--nodes {wrong}") from None
        nodes = [node for node in nodes if node.name in names]
    if given.has("states"):
        states = {state for text in given.listed("states") for state in _states(text)}
        nodes = [node for node in nodes if node.state in states]
    if given.has("list-reasons"):
        nodes = [node for node in nodes if node.why]
    if given.has("dead"):
        nodes = [node for node in nodes if node.state == "down"]
    if given.has("responding"):
        nodes = [node for node in nodes if node.state != "down"]
    return nodes


def _states(text: str) -> set[str]:
    """The states for a word of -t."""
    word = text.lower()
    if word in ("drain", "drained", "draining", "drng"):
        both = {"draining", "drained"}
        return both if word == "drain" else {"draining" if word in ("draining", "drng") else "drained"}
    found = {long for long, short in STATES.items() if word in (long, short)}
    if not found and word not in ("all", "comp", "completing", "fail", "maint", "resv", "unknown", "future"):
        raise Stop(
            f'sinfo: error: Bad state string: "{text}"',
            f"sinfo: error: valid states: {','.join([*STATES, 'drain'])}",
        )
    return set(STATES) if word == "all" else found


def _groups(
    nodes: list[SlurmNode], partitions: Mapping[str, Sequence[str]], default: str, given: Read, chosen: Format
) -> list[SinfoLine]:
    if given.has("Node") or given.has("exact"):
        groups = group_nodes(nodes, partitions, default, lambda node: node.name)
        return (
            sorted(groups, key=lambda group: natural_key(group.nodes[0].name))
            if given.has("Node")
            else groups
        )
    fields = {column.field for column in chosen.columns}
    keys = [by for letter, by in _GROUPING.items() if BY_LETTER[letter] in fields]
    keys += [_GROUPING["T"]] if BY_NAME["statecomplete"] in fields else []
    keys += [lambda node: node.gpus_used] if BY_NAME["gresused"] in fields else []
    return group_nodes(nodes, partitions, default, lambda node: tuple([by(node) for by in keys]))
