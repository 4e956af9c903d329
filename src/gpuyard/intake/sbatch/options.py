"""Every option of sbatch 22.05: its spelling, whether it takes a value, and its environment variable.

Options that are not served are here too: the meaning of an abbreviation depends on all of them.
"""

from enum import Enum
from typing import NamedTuple


class Takes(Enum):
    """Whether a value follows."""

    VALUE = "value"
    """Always, in the same word or the next."""
    NOTHING = "nothing"
    MAYBE = "maybe"
    """Only in the same word, after `=` or behind the letter."""


class Option(NamedTuple):
    """One option."""

    name: str
    short: str = ""
    takes: Takes = Takes.VALUE
    variable: str = ""
    """The environment variable with the same meaning."""
    means: str = ""
    """The option for which this is another name."""

    @property
    def key(self) -> str:
        """The name under which its value is stored."""
        return self.means or self.name


_N, _M = Takes.NOTHING, Takes.MAYBE

OPTIONS: tuple[Option, ...] = (
    Option("account", "A", variable="SBATCH_ACCOUNT"),
    Option("acctg-freq", variable="SBATCH_ACCTG_FREQ"),
    Option("array", "a", variable="SBATCH_ARRAY_INX"),
    Option("batch", variable="SBATCH_BATCH"),
    Option("bb"),
    Option("bbf"),
    Option("begin", "b"),
    Option("chdir", "D"),
    Option("cluster", means="clusters"),
    Option("cluster-constraint"),
    Option("clusters", "M", variable="SBATCH_CLUSTERS"),
    Option("comment"),
    Option("constraint", "C", variable="SBATCH_CONSTRAINT"),
    Option("container", variable="SBATCH_CONTAINER"),
    Option("context"),
    Option("contiguous", takes=_N),
    Option("core-spec", "S", variable="SBATCH_CORE_SPEC"),
    Option("cores-per-socket"),
    Option("cpu-freq"),
    Option("cpus-per-gpu", variable="SBATCH_CPUS_PER_GPU"),
    Option("cpus-per-task", "c"),
    Option("deadline"),
    Option("delay-boot", variable="SBATCH_DELAY_BOOT"),
    Option("dependency", "d"),
    Option("distribution", "m", variable="SBATCH_DISTRIBUTION"),
    Option("error", "e", variable="SBATCH_ERROR"),
    Option("exclude", "x"),
    Option("exclusive", takes=_M, variable="SBATCH_EXCLUSIVE"),
    Option("export", variable="SBATCH_EXPORT"),
    Option("export-file"),
    Option("extra-node-info", "B"),
    Option("get-user-env", takes=_M, variable="SBATCH_GET_USER_ENV"),
    Option("gid"),
    Option("gpu-bind", variable="SBATCH_GPU_BIND"),
    Option("gpu-freq", variable="SBATCH_GPU_FREQ"),
    Option("gpus", "G", variable="SBATCH_GPUS"),
    Option("gpus-per-node", variable="SBATCH_GPUS_PER_NODE"),
    Option("gpus-per-socket"),
    Option("gpus-per-task", variable="SBATCH_GPUS_PER_TASK"),
    Option("gres", variable="SBATCH_GRES"),
    Option("gres-flags", variable="SBATCH_GRES_FLAGS"),
    Option("help", "h", takes=_N),
    Option("hint", variable="SBATCH_HINT"),
    Option("hold", "H", takes=_N),
    Option("ignore-pbs", takes=_N, variable="SBATCH_IGNORE_PBS"),
    Option("input", "i", variable="SBATCH_INPUT"),
    Option("job-name", "J", variable="SBATCH_JOB_NAME"),
    Option("kill-on-invalid-dep"),
    Option("licenses", "L"),
    Option("mail-type"),
    Option("mail-user"),
    Option("mcs-label"),
    Option("mem", variable="SBATCH_MEM_PER_NODE"),
    Option("mem-bind", variable="SBATCH_MEM_BIND"),
    Option("mem-per-cpu", variable="SBATCH_MEM_PER_CPU"),
    Option("mem-per-gpu", variable="SBATCH_MEM_PER_GPU"),
    Option("mincpus"),
    Option("network", variable="SBATCH_NETWORK"),
    Option("nice", takes=_M),
    Option("no-kill", "k", takes=_M, variable="SBATCH_NO_KILL"),
    Option("no-requeue", takes=_N, variable="SBATCH_NO_REQUEUE"),
    Option("nodefile", "F"),
    Option("nodelist", "w"),
    Option("nodes", "N"),
    Option("ntasks", "n"),
    Option("ntasks-per-core"),
    Option("ntasks-per-gpu"),
    Option("ntasks-per-node"),
    Option("ntasks-per-socket"),
    Option("ntasks-per-tres", means="ntasks-per-gpu"),
    Option("open-mode", variable="SBATCH_OPEN_MODE"),
    Option("output", "o", variable="SBATCH_OUTPUT"),
    Option("overcommit", "O", takes=_N, variable="SBATCH_OVERCOMMIT"),
    Option("oversubscribe", "s", takes=_N),
    Option("parsable", takes=_N),
    Option("partition", "p", variable="SBATCH_PARTITION"),
    Option("power", variable="SBATCH_POWER"),
    Option("prefer"),
    Option("priority"),
    Option("profile", variable="SBATCH_PROFILE"),
    Option("propagate", takes=_M),
    Option("qos", "q", variable="SBATCH_QOS"),
    Option("quiet", "Q", takes=_N),
    Option("reboot", takes=_N),
    Option("requeue", takes=_N, variable="SBATCH_REQUEUE"),
    Option("reservation", variable="SBATCH_RESERVATION"),
    Option("signal", variable="SBATCH_SIGNAL"),
    Option("sockets-per-node"),
    Option("spread-job", takes=_N, variable="SBATCH_SPREAD_JOB"),
    Option("switches", variable="SBATCH_REQ_SWITCH"),
    Option("tasks-per-node", means="ntasks-per-node"),
    Option("test-only", takes=_N),
    Option("thread-spec", variable="SBATCH_THREAD_SPEC"),
    Option("threads-per-core", variable="SBATCH_THREADS_PER_CORE"),
    Option("time", "t", variable="SBATCH_TIMELIMIT"),
    Option("time-min"),
    Option("tmp"),
    Option("uid"),
    Option("usage", takes=_N),
    Option("use-min-nodes", takes=_N, variable="SBATCH_USE_MIN_NODES"),
    Option("verbose", "v", takes=_N, variable="SBATCH_DEBUG"),
    Option("version", "V", takes=_N),
    Option("wait", "W", takes=_N, variable="SBATCH_WAIT"),
    Option("wait-all-nodes", variable="SBATCH_WAIT_ALL_NODES"),
    Option("wckey", variable="SBATCH_WCKEY"),
    Option("wrap"),
)

BY_NAME = {option.name: option for option in OPTIONS}
BY_LETTER = {option.short: option for option in OPTIONS if option.short}

GONE = {"workdir": "chdir", "share": "oversubscribe", "immediate": "", "jobid": "", "jobname": "job-name"}
"""Names of older versions, and what replaced them."""
