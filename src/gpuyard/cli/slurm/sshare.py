"""`sshare`: shares of tenants, and what they used."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpuyard.api.client import Client
from gpuyard.cli.slurm.caller import user_name
from gpuyard.cli.slurm.columns import Cell, Parsable, cell_lines
from gpuyard.cli.slurm.getopt import Grammar, Read, options, read
from gpuyard.cli.slurm.stopping import error

GRAMMAR = Grammar(
    "sshare",
    options(
        """
        accounts,A= all,a clusters,M= format,o= help long,l noheader,n parsable,p parsable2,P partition,m
        uid,u= usage user=:uid Users,U verbose,v version,V
        """
    ),
)
HELP = """\
Usage: sshare [-A accounts] [-o format] [-u users] [-alnpPU]
Shows the shares of tenants and what they have used of them. RawUsage is in GPU-seconds."""
DEFAULT = "account,user,rawshares,normshares,rawusage,effectvusage,fairshare"
LONG = "account,user,rawshares,normshares,rawusage,normusage,effectvusage,fairshare"


class Row(NamedTuple):
    """A tenant at its depth, a user if it is the last part of the tree and somebody's name."""

    account: str
    user: str
    depth: int
    tenant: Mapping[str, Any]

    def number(self, name: str) -> str:
        """A fraction with six digits; empty if the yard does not say."""
        value = self.tenant.get(name)
        return "" if value is None else f"{float(value):.6f}"


_CELLS = (
    Cell("Account", 20, lambda row: " " * row.depth + row.account, left=True),
    Cell("User", 10, lambda row: row.user),
    Cell("RawShares", 10, lambda row: str(row.tenant.get("weight", ""))),
    Cell("NormShares", 11, lambda row: row.number("norm_share")),
    Cell("RawUsage", 11, lambda row: str(round(float(row.tenant.get("usage") or 0)))),
    Cell("NormUsage", 11, lambda row: row.number("usage_fraction")),
    Cell("EffectvUsage", 13, lambda row: row.number("usage_fraction")),
    Cell("FairShare", 10, lambda row: row.number("factor")),
)
CELLS = {cell.head.lower(): cell for cell in _CELLS}


def run(words: Sequence[str]) -> int:
    """Print the tree."""
    given = read(GRAMMAR, words)
    for name in ("clusters", "partition"):
        if given.has(name):
            raise error("sshare", f"--{name} is not served by a yard")
    cells = _cells(given)
    with Client() as yard:
        asked = getattr(yard, "share", None)
        if asked is None:
            raise error(
                "sshare", "this yard does not tell shares yet; `yard queue` shows who waits for quota"
            )
        rows = rows_of(asked()["tenants"])
    lines = cell_lines(cells, _wanted(rows, given), _how(given), header=not given.has("noheader"))
    if lines:
        print("\n".join(lines))
    return 0


def _cells(given: Read) -> list[Cell]:
    cells = []
    for part in filter(None, (given.last("format") or (LONG if given.has("long") else DEFAULT)).split(",")):
        name, _, width = part.strip().partition("%")
        found = CELLS.get(name.lower())
        if found is None or (width and not width.isdecimal()):
            raise error("sshare", f'Invalid field requested: "{name}"')
        cells.append(found._replace(width=int(width)) if width else found)
    return cells


def _how(given: Read) -> Parsable:
    bare = given.has("parsable") or given.has("parsable2")
    return Parsable(bare, "|", given.has("parsable") and not given.has("parsable2"))


def rows_of(tenants: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The tree in its order, each tenant below the one it belongs to."""
    parents = {tenant["path"].rpartition("/")[0] for tenant in tenants}
    rows = []
    for tenant in tenants:
        parent, _, name = tenant["path"].rpartition("/")
        leaf = tenant["path"] not in parents and bool(parent)
        depth = int(tenant.get("depth", tenant["path"].count("/")))
        account = parent.rpartition("/")[2] if leaf else name or "root"
        rows.append(Row(account, name if leaf else "", depth, tenant))
    return rows


def _wanted(rows: list[Row], given: Read) -> list[Row]:
    if given.has("accounts"):
        names = set(given.listed("accounts"))
        rows = [row for row in rows if names & set(row.tenant["path"].split("/"))]
    users = set(given.listed("uid")) or ({user_name()} if given.has("Users") else set())
    if users:
        rows = [row for row in rows if row.user in users or (not row.user and not given.has("Users"))]
    return rows
