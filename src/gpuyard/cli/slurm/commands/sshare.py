"""`sshare`: shares of tenants, and what they used."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpuyard.api.client import Client
from gpuyard.cli.slurm.language.columns import Cell, Parsable, format_cells
from gpuyard.cli.slurm.language.getopt import Grammar, Read, parse_option_table, read
from gpuyard.cli.slurm.language.ids import user_name
from gpuyard.cli.slurm.language.pools import Pools
from gpuyard.cli.slurm.language.stopping import make_stop

GRAMMAR = Grammar(
    "sshare",
    parse_option_table(
        """
        accounts,A= all,a clusters,M= format,o= help long,l noheader,n parsable,p parsable2,P partition,m
        uid,u= usage user=:uid Users,U verbose,v version,V
        """
    ),
)
HELP = """\
Usage: sshare [-A accounts] [-o format] [-u users] [-alnpPU]
Shows the shares of tenants and their use. RawUsage is the decayed charge of a tenant, in thousandths of a dollar of
share weight."""
DEFAULT = "account,user,rawshares,normshares,rawusage,effectvusage,fairshare"
LONG = "account,user,rawshares,normshares,rawusage,normusage,effectvusage,fairshare,levelfs"
_PPM = 1_000_000


class ShareRow(NamedTuple):
    """A tenant at its depth; a user if it is an end of the tree and has a user's name."""

    account: str
    user: str
    depth: int
    tenant: Mapping[str, Any]
    charged: int = 0
    """The decayed charges and what runs now."""
    of_all: float = 0
    """Its part of what the whole yard was charged."""
    factor: float | None = None
    """Its rank among all ends of the tree: 1 is served first. None for tenants above, or if some are hidden."""

    @property
    def level(self) -> float:
        """Share over use, within its level: above 1 has had less than its share."""
        used = self.tenant["used_ppm"]
        return float(self.tenant["share_ppm"] / used) if used else math.inf


def _fraction(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


_CELLS = (
    Cell("Account", 20, lambda row: " " * row.depth + row.account, left=True),
    Cell("User", 10, lambda row: row.user),
    Cell("RawShares", 10, lambda row: str(row.tenant["weight"])),
    Cell("NormShares", 11, lambda row: _fraction(row.tenant["share_ppm"] / _PPM)),
    Cell("RawUsage", 11, lambda row: str(row.charged)),
    Cell("NormUsage", 11, lambda row: _fraction(row.of_all)),
    Cell("EffectvUsage", 13, lambda row: _fraction(row.tenant["used_ppm"] / _PPM)),
    Cell("FairShare", 10, lambda row: _fraction(row.factor)),
    Cell("LevelFS", 10, lambda row: _fraction(row.level) if row.depth else ""),
)
CELLS = {cell.head.lower(): cell for cell in _CELLS}


def run(words: Sequence[str]) -> int:
    """Print the tree."""
    given = read(GRAMMAR, words)
    for name in ("clusters", "partition"):
        if given.has(name):
            raise make_stop("sshare", f"--{name} is not served by a yard")
    cells = _cells(given)
    with Client() as yard:
        rows = rows_of(yard.share()["tenants"])
        if given.has("accounts"):
            rows = _of_accounts(rows, given.listed("accounts"), Pools.of_fleet(yard.fleet()))
    lines = format_cells(cells, _wanted(rows, given), _how(given), header=not given.has("noheader"))
    if lines:
        print("\n".join(lines))
    return 0


def _cells(given: Read) -> list[Cell]:
    cells = []
    for part in filter(None, (given.last("format") or (LONG if given.has("long") else DEFAULT)).split(",")):
        name, _, width = part.strip().partition("%")
        found = CELLS.get(name.lower())
        if found is None or (width and not width.isdecimal()):
            raise make_stop("sshare", f'Invalid field requested: "{name}"')
        cells.append(found._replace(width=int(width)) if width else found)
    return cells


def _how(given: Read) -> Parsable:
    bare = given.has("parsable") or given.has("parsable2")
    return Parsable(bare, "|", given.has("parsable") and not given.has("parsable2"))


def rows_of(tenants: Sequence[Mapping[str, Any]]) -> list[ShareRow]:
    """The tree in its order, each tenant below the one it belongs to."""
    parents = {tenant["path"].rpartition("/")[0] for tenant in tenants}
    charged = {tenant["path"]: tenant["usage_milli_usd"] + tenant["current_milli_usd"] for tenant in tenants}
    factors = _factors(tenants)
    rows = []
    for tenant in tenants:
        path = tenant["path"]
        parent, _, name = path.rpartition("/")
        leaf = path not in parents and bool(parent)
        account = parent.rpartition("/")[2] if leaf else name or "root"
        # A tenant's own jobs, beside those of the tenants below it, are listed under a dash.
        user = "" if not leaf or name == "-" else name
        of_all = charged[path] / charged[""] if charged.get("") else 0
        rows.append(
            ShareRow(account, user, tenant["depth"], tenant, charged[path], of_all, factors.get(path))
        )
    return rows


def _factors(tenants: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Ranks as a fair tree gives them: level by level, the tenant to be served first, down to the ends of the tree."""
    below: dict[str, list[Mapping[str, Any]]] = {}
    for tenant in tenants:
        if tenant["path"]:
            below.setdefault(tenant["path"].rpartition("/")[0], []).append(tenant)
    if any([len(members) < members[0]["members"] for members in below.values()]):
        # The caller cannot see all tenants, so a rank among all is unknown.
        return {}
    order: list[str] = []
    stack = [""]
    while stack:
        path = stack.pop()
        members = below.get(path, [])
        if path and not members:
            order.append(path)
        stack += [each["path"] for each in sorted(members, key=lambda each: each["place"], reverse=True)]
    return {path: (len(order) - rank) / len(order) for rank, path in enumerate(order)}


def _of_accounts(rows: list[ShareRow], names: Sequence[str], pools: Pools) -> list[ShareRow]:
    """Tenants with one of these names in their path, and those with such a name in yard.yaml."""
    paths = [(row, row.tenant["path"]) for row in rows]
    return [row for row, path in paths if set(names) & set(path.split("/")) or pools.of_account(path, names)]


def _wanted(rows: list[ShareRow], given: Read) -> list[ShareRow]:
    users = set(given.listed("uid")) or ({user_name()} if given.has("Users") else set())
    if users:
        rows = [row for row in rows if row.user in users or (not row.user and not given.has("Users"))]
    return rows
