"""Every dashboard, as a table: what a panel shows, by which query, in which unit. `grafana` makes the JSON of it.

A query is written once. `$node` and `$tenant` are chosen at the top of a dashboard. Where several servers answer, each
tells the same of queue, fleet and tenants, so the largest value is taken; what each server counted by itself is added.
"""

from typing import NamedTuple


class PanelKind(NamedTuple):
    """A way to draw."""

    type: str
    """As Grafana calls it."""
    format: str = "time_series"
    width: int = 12
    """Of 24."""
    height: int = 8


LINES, STACKED = PanelKind("timeseries"), PanelKind("timeseries", width=12)
FIGURE = PanelKind("stat", width=6, height=4)
BARS = PanelKind("bargauge")
CELLS = PanelKind("status-history", width=24)
HEAT = PanelKind("heatmap", format="heatmap")


class Panel(NamedTuple):
    """One picture. The legend names labels of the query: `{{node}}`."""

    title: str
    query: str
    legend: str
    unit: str = "short"
    kind: PanelKind = LINES
    help: str = ""
    hot: tuple[float, float] = (0, 0)
    """From where on it is shown in orange, and in red; (0, 0): never."""


class Variable(NamedTuple):
    """Something to choose at the top, from the values that a label has."""

    name: str
    title: str
    metric: str
    label: str


class Dashboard(NamedTuple):
    """One page."""

    name: str
    title: str
    about: str
    variables: tuple[Variable, ...]
    panels: tuple[Panel, ...]


_NODE = Variable("node", "Node", "gpuyard_node_info", "node")
_TENANT = Variable("tenant", "Tenant", "gpuyard_tenant_gpus", "tenant")


def _by_node(metric: str, how: str, label: str) -> str:
    """A signal of GPUs, taken together by what their nodes are: by rack, or by model."""
    info = f"max by (node, {label}) (gpuyard_node_info)"
    return f"{how} by ({label}) ({metric} * on (node) group_left ({label}) {info})"


def _of_rack(metric: str, how: str) -> str:
    return _by_node(metric, how, "rack")


def _of_job(metric: str) -> str:
    """What a job takes on all its nodes, with its name, user and tenant."""
    info = 'max by (job_id, name, user, tenant) (gpuyard_job_info{tenant=~"$tenant"})'
    return f"sum by (job_id) (max by (node, job_id) ({metric})) * on (job_id) group_left (name, user, tenant) {info}"


def _rate(counter: str) -> str:
    return f"rate({counter}[$__rate_interval])"


def _risen(counter: str, by: str) -> str:
    return f"sum by ({by}) (increase({counter}[1h]))"


def _quantile(part: str, histogram: str, by: str = "") -> str:
    also = f", {by}" if by else ""
    return f"histogram_quantile({part}, sum by (le{also}) ({_rate(f'{histogram}_bucket')}))"


_GPU = "{{node}} GPU {{gpu}}"
_JOB = "{{job_id}} {{name}} ({{user}})"

GPUS = Dashboard(
    "gpus",
    "GPUs over time",
    "What each GPU does.",
    (_NODE,),
    (
        Panel("Busy", 'gpuyard_gpu_busy_ratio{node=~"$node"}', _GPU, "percentunit"),
        Panel("Memory in use", 'gpuyard_gpu_memory_used_bytes{node=~"$node"}', _GPU, "bytes"),
        Panel(
            "Part of the memory in use",
            'gpuyard_gpu_memory_used_bytes{node=~"$node"} '
            "/ (gpuyard_gpu_memory_used_bytes + gpuyard_gpu_memory_free_bytes)",
            _GPU,
            "percentunit",
        ),
        Panel("Power", 'gpuyard_gpu_power_watts{node=~"$node"}', _GPU, "watt"),
        Panel("Temperature", 'gpuyard_gpu_temperature_celsius{node=~"$node"}', _GPU, "celsius", hot=(80, 90)),
        Panel(
            "Busy, by model",
            _by_node("gpuyard_gpu_busy_ratio", "avg", "model"),
            "{{model}}",
            "percentunit",
        ),
        Panel(
            "Busy, as dcgm-exporter has it",
            'DCGM_FI_DEV_GPU_UTIL{Hostname=~"$node"}',
            "{{Hostname}} GPU {{gpu}} {{modelName}}",
            "percent",
        ),
    ),
)

JOBS = Dashboard(
    "jobs",
    "Memory, job by job",
    "What each running job takes of what it has.",
    (_TENANT,),
    (
        Panel("GPU memory", _of_job("gpuyard_attempt_gpu_memory_bytes"), _JOB, "bytes", STACKED),
        Panel("Memory", _of_job("gpuyard_attempt_memory_bytes"), _JOB, "bytes", STACKED),
        Panel(
            "GPU busy",
            _of_job("gpuyard_attempt_gpu_busy_ratio"),
            _JOB,
            "percentunit",
            help="Measured, on average of the job's GPUs; a job on several nodes has the sum of them.",
        ),
        Panel("Cores in use", _of_job(_rate("gpuyard_attempt_cpu_seconds_total")), _JOB, "short"),
        Panel(
            "Most memory at a time",
            _of_job(
                "gpuyard_attempt_memory_peak_bytes or max_over_time(gpuyard_attempt_memory_bytes[$__range])"
            ),
            _JOB,
            "bytes",
            BARS,
            help="As the kernel counts it; without cgroups, the most that was seen in the time shown.",
        ),
        Panel(
            "GPU memory of tenants",
            f"sum by (tenant) ({_of_job('gpuyard_attempt_gpu_memory_bytes')})",
            "{{tenant}}",
            "bytes",
            STACKED,
        ),
    ),
)

RACKS = Dashboard(
    "racks",
    "Temperature by rack",
    "Where it is hot. Racks are those of yard.yaml.",
    (),
    (
        Panel(
            "Hottest GPU of each rack",
            _of_rack("gpuyard_gpu_temperature_celsius", "max"),
            "rack {{rack}}",
            "celsius",
            CELLS,
            hot=(75, 85),
        ),
        Panel(
            "Mean temperature",
            _of_rack("gpuyard_gpu_temperature_celsius", "avg"),
            "rack {{rack}}",
            "celsius",
            hot=(75, 85),
        ),
        Panel("Power", _of_rack("gpuyard_gpu_power_watts", "sum"), "rack {{rack}}", "watt", STACKED),
        Panel(
            "The ten hottest GPUs",
            "topk(10, gpuyard_gpu_temperature_celsius)",
            _GPU,
            "celsius",
            BARS,
            hot=(75, 85),
        ),
        Panel(
            "Hottest memory of each rack",
            _of_rack("gpuyard_gpu_memory_temperature_celsius", "max"),
            "rack {{rack}}",
            "celsius",
            hot=(85, 95),
        ),
    ),
)

QUEUE = Dashboard(
    "queue",
    "Queue",
    "What waits, why, for how long, and how the scheduler does.",
    (_TENANT,),
    (
        Panel("Running", 'max(gpuyard_jobs{state="running"})', "jobs", kind=FIGURE),
        Panel("Waiting", 'max(gpuyard_jobs{state="waiting"})', "jobs", kind=FIGURE),
        Panel("GPUs free", "sum(max by (cluster, pool, model) (gpuyard_gpus_free))", "GPUs", kind=FIGURE),
        Panel(
            "Of them, of no use to the queue",
            "sum(max by (cluster, pool, model) (gpuyard_gpus_stranded))",
            "GPUs",
            kind=FIGURE,
            help="Free on nodes where none of the waiting jobs has room.",
        ),
        Panel(
            "Waiting jobs, by reason",
            'sum by (reason) (max by (tenant, class, reason) (gpuyard_queue_jobs{tenant=~"$tenant"}))',
            "{{reason}}",
            kind=STACKED,
        ),
        Panel(
            "Waiting jobs, by tenant",
            'sum by (tenant) (max by (tenant, class, reason) (gpuyard_queue_jobs{tenant=~"$tenant"}))',
            "{{tenant}}",
            kind=STACKED,
        ),
        Panel("Wait, nine of ten jobs", _quantile("0.9", "gpuyard_wait_seconds", "class"), "{{class}}", "s"),
        Panel("Waits", f"sum by (le) ({_rate('gpuyard_wait_seconds_bucket')})", "{{le}}", "s", HEAT),
        Panel("Starts", f"sum by (class) ({_rate('gpuyard_attempts_started_total')})", "{{class}}", "ops"),
        Panel("Preemptions in an hour", _risen("gpuyard_preemptions_total", "cause"), "{{cause}}"),
        Panel(
            "Nodes by wholly free GPUs",
            "sum by (gpus_free) (max by (cluster, pool, model, gpus_free) (gpuyard_nodes_open))",
            "{{gpus_free}} free",
            kind=STACKED,
        ),
        Panel("A decision takes, at p99", _quantile("0.99", "gpuyard_decision_seconds"), "decision", "s"),
    ),
)

TENANTS = Dashboard(
    "tenants",
    "Tenants",
    "What tenants have, and what they want besides.",
    (_TENANT,),
    (
        Panel(
            "GPUs held",
            'max by (tenant) (gpuyard_tenant_gpus{tenant=~"$tenant"})',
            "{{tenant}}",
            kind=STACKED,
        ),
        Panel(
            "GPUs that waiting jobs ask for",
            'max by (tenant) (gpuyard_tenant_gpus_wanted{tenant=~"$tenant"})',
            "{{tenant}}",
            kind=STACKED,
        ),
        Panel(
            "Part of the fleet",
            'max by (tenant) (gpuyard_tenant_gpus{tenant=~"$tenant"}) / on () group_left () '
            "sum(max by (cluster, pool, model) (gpuyard_gpus))",
            "{{tenant}}",
            "percentunit",
        ),
        Panel(
            "Jobs that run", 'max by (tenant) (gpuyard_tenant_jobs_running{tenant=~"$tenant"})', "{{tenant}}"
        ),
        Panel(
            "Jobs that wait", 'max by (tenant) (gpuyard_tenant_jobs_waiting{tenant=~"$tenant"})', "{{tenant}}"
        ),
        Panel(
            "Jobs that ended in an hour",
            _risen('gpuyard_jobs_ended_total{tenant=~"$tenant"}', "tenant"),
            "{{tenant}}",
            kind=BARS,
        ),
    ),
)

FAILED = Dashboard(
    "failed",
    "Failed jobs",
    "How jobs end, and whose fail.",
    (_TENANT,),
    (
        Panel(
            "Jobs that ended in an hour",
            _risen('gpuyard_jobs_ended_total{tenant=~"$tenant"}', "state"),
            "{{state}}",
            kind=STACKED,
        ),
        Panel(
            "Jobs that failed in an hour, by tenant",
            _risen(
                'gpuyard_jobs_ended_total{tenant=~"$tenant",state=~"failed|timeout|out_of_memory|node_fail"}',
                "tenant",
            ),
            "{{tenant}}",
            kind=BARS,
        ),
        Panel(
            "Part of all jobs that failed, since the servers began",
            'sum(gpuyard_jobs_ended_total{state=~"failed|timeout|out_of_memory|node_fail"}) '
            "/ sum(gpuyard_jobs_ended_total)",
            "failed",
            "percentunit",
            FIGURE,
        ),
        Panel(
            "Tries that ended in an hour", _risen("gpuyard_attempts_ended_total", "outcome"), "{{outcome}}"
        ),
        Panel(
            "Nodes that are not up",
            'sum by (cluster, state) (max by (cluster, state) (gpuyard_nodes{state!="up"})) or '
            "sum by (cluster) (max by (cluster, state) (gpuyard_nodes)) * 0",
            "{{cluster}} {{state}}",
        ),
        Panel("Troubles of the last step", "max(gpuyard_troubles)", "troubles", kind=FIGURE),
    ),
)

HARDWARE = Dashboard(
    "hardware",
    "Hardware",
    "Errors and limits of GPUs, and how nodes, engines and clocks are.",
    (_NODE,),
    (
        Panel(
            "Memory errors that could not be corrected",
            'gpuyard_gpu_ecc_uncorrected_total{node=~"$node"}',
            _GPU,
            kind=BARS,
            hot=(1, 1),
        ),
        Panel(
            "Memory errors corrected in an hour",
            _risen('gpuyard_gpu_ecc_corrected_total{node=~"$node"}', "node, gpu"),
            _GPU,
        ),
        Panel(
            "Rows of memory remapped",
            'gpuyard_gpu_rows_remapped_total{node=~"$node"} + gpuyard_gpu_rows_remapped_hard_total',
            _GPU,
            kind=BARS,
            hot=(1, 8),
        ),
        Panel(
            "Rows that could not be remapped",
            'gpuyard_gpu_row_remap_failed{node=~"$node"}',
            _GPU,
            kind=BARS,
            hot=(1, 1),
        ),
        Panel(
            "Reasons for throttling, as NVML's bits",
            'gpuyard_gpu_throttle_reasons{node=~"$node"}',
            _GPU,
            help="1: idle. 4: power. 32: temperature, by software. 64 and 128: temperature or power, by hardware.",
        ),
        Panel(
            "PCIe packets sent again in an hour",
            _risen('gpuyard_gpu_pcie_replays_total{node=~"$node"}', "node, gpu"),
            _GPU,
        ),
        Panel("Clock of the multiprocessors", 'gpuyard_gpu_sm_clock_hertz{node=~"$node"}', _GPU, "hertz"),
        Panel(
            "Nodes, by how they stand",
            "sum by (state) (max by (cluster, state) (gpuyard_nodes))",
            "{{state}}",
            kind=STACKED,
        ),
        Panel("Engines that answer", "max by (cluster) (gpuyard_engine_up)", "{{cluster}}", kind=BARS),
        Panel(
            "Last answer of each engine",
            "min by (cluster) (gpuyard_engine_report_age_seconds)",
            "{{cluster}}",
            "s",
            hot=(30, 120),
        ),
        Panel(
            "Clocks of nodes behind the yard's",
            'gpuyard_node_clock_off_seconds{node=~"$node"}',
            "{{node}}",
            "s",
        ),
    ),
)

DASHBOARDS = {each.name: each for each in (GPUS, JOBS, RACKS, QUEUE, TENANTS, FAILED, HARDWARE)}
