"""What both a yard.yaml and Slurm can say, and a stand-in for sacctmgr that keeps what a script tells it.

The real sacctmgr takes half a second for each command; the stand-in lets a property run over many configurations. One
configuration goes through the real one, in tests/slurm.
"""

import shlex
from typing import Any

from gpuyard.config import Config
from gpuyard.config.slurm.exporting_accounts import list_people
from gpuyard.engines.slurm.words.forms import duration_text
from gpuyard.model import CATALOGUE, Tenant
from gpuyard.model.units import MILLI


def said(config: Config, users: tuple[str, ...] = ()) -> dict[str, Any]:
    """The part of a configuration that Slurm has words for."""
    settings, policy = config.settings, config.settings.policy
    known = list_people(config, users)
    models = {node.gpu_model for pool in config.pools for node in pool.nodes if node.gpus}
    weights = {
        model: settings.share_weights.get(model, CATALOGUE[model].list_price_micro_usd_h // 1000)
        for model in models
    }
    return {
        "pools": {
            pool.name: (
                len(pool.nodes),
                node.gpus,
                node.gpu_model,
                node.cpu_milli,
                node.memory_mib,
                node.features,
            )
            for pool in config.pools
            for node in pool.nodes[:1]
        },
        "tenants": {
            tenant.path: (
                tenant.weight,
                dict(tenant.quota.limit),
                _own_job_limit(config, tenant.path),
                tenant.quota.max_running_jobs,
            )
            for tenant in settings.tenants
            if not _plain_user(tenant, known)
        },
        "users": known,
        "classes": {
            each.name: (each.priority, each.preemptible, each.limit_ms, each.grace_ms, each.min_run_ms)
            for each in settings.classes
        },
        "default class": settings.default_class,
        "fairness": (settings.half_life_ms, settings.period_ms, weights),
        "order": policy.order,
        "backfill": (policy.backfill, policy.backfill_depth, policy.depth_per_tenant),
        "preemption": policy.preemption,
        "quotas": policy.quotas,
    }


def _plain_user(tenant: Tenant, known: dict[str, str]) -> bool:
    """A person who has nothing of their own: no entry among the tenants says the same as one with all defaults."""
    return tenant.path.rpartition("/")[2] in known and tenant == Tenant(tenant.path)


def _own_job_limit(config: Config, path: str) -> int | None:
    """GPUs of the largest job, unless somebody above has the same: Slurm shows that one on all below."""
    limits = {tenant.path: tenant.quota.max_gpus_per_job for tenant in config.settings.tenants}
    own, above = limits.get(path), path.rpartition("/")[0]
    while above and limits.get(above) is None:
        above = above.rpartition("/")[0]
    return None if own == limits.get(above) else own


class StandIn:
    """Keeps accounts, users and QOS as slurmdbd would, as far as an exported script goes."""

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self.accounts: dict[str, dict[str, str]] = {"root": {"parent": "", "fairshare": "1"}}
        self.users: dict[tuple[str, str], dict[str, str]] = {("root", "root"): {"fairshare": "1"}}
        self.qos: dict[str, dict[str, str]] = {"normal": {"priority": "0", "preemptmode": "cluster"}}

    def run(self, script: str) -> None:
        """Every line that begins with one of the script's own words."""
        for line in script.splitlines():
            words = shlex.split(line.replace("$CLUSTER", self.cluster), comments=True)
            if words and words[0] in ("add", "change", "move") and "()" not in line:
                (self._add if words[0] == "add" else self._change)(words[1], words[2:])

    def _add(self, kind: str, words: list[str]) -> None:
        name, values = words[0], dict(word.split("=", 1) for word in words[1:])
        if kind == "qos":
            self.qos.setdefault(name, {"priority": "0", "preemptmode": "cluster"})
        elif kind == "account":
            assert values["parent"] in self.accounts, f"{name}: no parent {values['parent']}"
            self.accounts.setdefault(name, {"parent": values["parent"], "fairshare": "1"})
        else:
            assert values["account"] in self.accounts
            self.users.setdefault((values["account"], name), {"fairshare": "1"})

    def _change(self, kind: str, words: list[str]) -> None:
        at = words.index("set")
        where = dict(word.split("=", 1) for word in words[1:at])
        name = where["name"]
        target = (
            self.qos[name] if kind == "qos"
            else self.accounts[name] if kind == "account"
            else self.users[where["account"], name]
        )  # fmt: skip
        for word in words[at + 1 :]:
            key, value = word.split("=", 1)
            key = key.lower()
            if key == "preempt-":
                before = [each for each in target.get("preempt", "").split(",") if each]
                target["preempt"] = ",".join(each for each in before if each not in value.split(","))
            elif key in ("grptres", "maxtresperjob"):
                parts = [part for part in value.split(",") if not part.endswith("=-1")]
                target[key] = ",".join(parts)
            else:
                target[key] = "" if value == "-1" else value

    def texts(self) -> dict[str, str]:
        """What `sacctmgr --parsable2 show` would print."""
        rows = ["Cluster|Account|User|ParentName|Share|GrpTRES|GrpJobs|MaxTRES|QOS|Def QOS"]
        for name, values in self.accounts.items():
            rows.append(self._row(name, "", values.get("parent", ""), values, self._inherited(name)))
        for (account, user), values in self.users.items():
            inherited = values.get("maxtresperjob") or self._inherited(account)
            rows.append(self._row(account, user, "", values, inherited))
        qos = ["Name|Priority|GraceTime|Preempt|PreemptMode|PreemptExemptTime|Flags|MaxWall"]
        for name, values in self.qos.items():
            grace = duration_text(int(values.get("gracetime", "0")) * MILLI)
            cells = [name, values["priority"], grace, values.get("preempt", ""), values["preemptmode"]]
            qos.append("|".join([*cells, values.get("preemptexempttime", ""), "", values.get("maxwall", "")]))
        return {"associations.txt": "\n".join(rows), "qos.txt": "\n".join(qos)}

    def _inherited(self, account: str) -> str:
        """Slurm shows a limit for each job on everybody below who has none of their own."""
        while account:
            found = self.accounts[account].get("maxtresperjob")
            if found:
                return found
            account = self.accounts[account]["parent"]
        return ""

    def _row(self, account: str, user: str, parent: str, values: dict[str, str], per_job: str) -> str:
        cells = [self.cluster, account, user, parent, values["fairshare"], values.get("grptres", "")]
        return "|".join(
            [*cells, values.get("grpjobs", ""), per_job, values.get("qos", ""), values.get("defaultqos", "")]
        )


def site_texts(files: dict[str, str], cluster: str) -> dict[str, str]:
    """What scontrol would print of a cluster with these lines in its slurm.conf."""
    lines = [line for line in files["slurm.conf"].splitlines() if line and not line.startswith("#")]
    nodes, partitions, settings = [], [], [f"ClusterName = {cluster}"]
    homes = {}
    for line in lines:
        if line.startswith("PartitionName="):
            partitions.append(line)
            homes[line.split("Nodes=")[1].split()[0]] = line.split("=")[1].split()[0]
    for line in lines:
        if line.startswith("NodeName="):
            nodes += _node_lines(line, homes)
        elif not line.startswith("PartitionName="):
            name, _, value = line.partition("=")
            settings.append(f"{name} = {value}")
    return {
        "config.txt": "\n".join(settings),
        "nodes.txt": "\n".join(nodes),
        "partitions.txt": "\n".join(partitions),
    }


def _node_lines(line: str, homes: dict[str, str]) -> list[str]:
    from gpuyard.engines.slurm.words.forms import parse_hosts  # noqa: PLC0415

    words = dict(word.split("=", 1) for word in line.split())
    features = words.get("Feature", "(null)")
    return [
        f"NodeName={name} CPUTot={words['CPUs']} RealMemory={words['RealMemory']} Gres={words.get('Gres', '(null)')} "
        f"AvailableFeatures={features} State=IDLE Partitions={homes[words['NodeName']]}"
        for name in parse_hosts(words["NodeName"])
    ]
