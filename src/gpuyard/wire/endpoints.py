"""The endpoints of the API, in one table: how each is asked, what it does, what it takes and what it answers.

The server makes its routes and the description of the API from it (`api/edge/routes.py`), the client its calls
(`api/client.py`); `replies/` has the forms of the answers, `api/messages` those of the bodies, both by their
names. An action decides which people may ask an endpoint (`control/access/rights.py`).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any


class Action(Enum):
    """What a route does. A route that does not say so is not served."""

    ANYBODY = "anybody"
    """For unknown callers too: health, and how to log in."""
    SELF = "self"
    """About the person that asks: their rights and tokens."""
    SEE_QUEUE = "see-queue"
    SEE_NODES = "see-nodes"
    SEE_JOB = "see-job"
    SUBMIT = "submit"
    ACT_ON_JOB = "act-on-job"
    MOVE_JOB = "move-job"
    """Puts a job before all others, so it needs the right to act on all of them."""
    READ_JOB = "read-job"
    """What is in a job: what it wrote, its script, its environment."""
    ENTER_JOB = "enter-job"
    """Do something inside a running job, as its owner: its terminal, a shell, its ports, its files."""
    SEE_TENANTS = "see-tenants"
    """What tenants may use and use: one's own, with those above it."""
    MAKE_TOKEN = "make-token"
    UNBIND_NAME = "unbind-name"
    """From the person whose it is by their first login, so that another one can have it."""
    MANAGE_NODES = "manage-nodes"
    WRITE_SAMPLES = "write-samples"
    """Hand in what was seen on a node: its collector's token may do that for its own node, and nothing else."""
    MANAGE_CONFIG = "manage-config"
    """The configuration tells what everyone may use."""
    PRUNE = "prune"
    """Remove what is kept of everybody's ended jobs."""
    REBUILD = "rebuild"
    """Fill projections again from the log, and see how far they are."""
    CLOSE_MONTH = "close-month"
    """Close the books of a month, for everybody and for good."""
    SEE_ALL = "see-all"
    """The log and the whole state, which hold everybody's jobs."""


DOES = {
    Action.ANYBODY: "ask anything",
    Action.SELF: "ask about themselves",
    Action.SEE_QUEUE: "see the queue",
    Action.SEE_NODES: "see the nodes",
    Action.SEE_JOB: "see jobs",
    Action.SUBMIT: "submit jobs",
    Action.ACT_ON_JOB: "act on jobs",
    Action.MOVE_JOB: "move jobs to the top of the queue",
    Action.READ_JOB: "read what jobs wrote",
    Action.ENTER_JOB: "enter jobs",
    Action.SEE_TENANTS: "see the tenants",
    Action.MAKE_TOKEN: "make tokens",
    Action.UNBIND_NAME: "unbind names",
    Action.MANAGE_NODES: "drain and resume nodes",
    Action.WRITE_SAMPLES: "send samples of nodes",
    Action.MANAGE_CONFIG: "see or change the configuration",
    Action.PRUNE: "remove what is kept of ended jobs",
    Action.REBUILD: "fill projections again",
    Action.CLOSE_MONTH: "close the books of a month",
    Action.SEE_ALL: "see what everybody did",
}
"""What each of them lets someone do, for people."""

API = "/api/v1"
DESCRIPTION = f"{API}/openapi.json"

PAGE_MAX = 1000
"""Entries on a page of jobs, versions or lines of the audit."""
QUEUE_MAX = 1_000_000
QUEUE_COLUMNS = (
    "id", "label", "name", "tenant", "user", "class", "state", "attempt_state", "gpus", "nodes",
    "submitted_ms", "started_ms", "time_limit_s", "reason",
)  # fmt: skip
"""What a row of the queue has, in this order; a wide row has more behind it."""
KEY_LENGTH_MAX = 200
READ_BYTES_MAX = 4 * 1024 * 1024
MOVES_MAX = 10_000
SEED_MAX = 2**31

EVENTS = "text/event-stream"

Parameter = Mapping[str, Any]
"""A parameter of the query or a header, as OpenAPI has it."""


class Endpoint:
    """One endpoint. `reply` names the form of the answer; without one it has the media types of `also`."""

    __slots__ = (
        "action", "also", "body", "body_required", "form", "method", "name", "others", "parameters", "path", "problems",
        "reply", "status", "summary", "tag",
    )  # fmt: skip

    def __init__(
        self,
        method: str,
        path: str,
        action: Action,
        reply: str | type,
        summary: str,
        *,
        tag: str,
        status: int = 200,
        body: str = "",
        body_required: bool = True,
        parameters: tuple[Parameter, ...] = (),
        problems: tuple[int, ...] = (),
        others: Mapping[int, str] | None = None,
        also: tuple[str, ...] = (),
        name: str = "",
    ) -> None:
        """`path` is below `/api/v1`, unless it is about the server; `reply` is a form, or its name in `replies`."""
        self.method, self.action, self.summary = method, action, summary
        self.reply = reply if isinstance(reply, str) else reply.__name__
        self.form = None if isinstance(reply, str) else reply
        self.path = path if tag == "health" else f"{API}{path}"
        self.tag, self.status, self.body, self.body_required = tag, status, body, body_required
        self.parameters, self.problems, self.others, self.also = parameters, problems, others or {}, also
        self.name = name
        """In the description; empty: its handler's."""

    def address(self, **values: Any) -> str:
        """Its path with these values in their places, and the others as the query; those that are None or empty not."""
        path, said = self.path, []
        for name, value in values.items():
            if f"{{{name}}}" in path:
                # Of a job, a number is the one that replies have as `id`; what people type is a text.
                text = f":{value}" if name == "id" and isinstance(value, int) else str(value)
                path = path.replace(f"{{{name}}}", _quoted(text).replace("/", "%2F"))
            elif value is not None and value != "":
                said.append(f"{name}={_quoted(str(value))}")
        return f"{path}?{'&'.join(said)}" if said else path

    def for_verb(self, verb: str, action: Action) -> "Endpoint":
        """The endpoint of one verb, of one that is for all of them."""
        made = Endpoint.__new__(Endpoint)
        for each in self.__slots__:
            setattr(made, each, getattr(self, each))
        made.path, made.name = self.path.replace("{verb}", verb), f"{self.name}_{verb}"
        made.summary, made.action = self.summary.format(verb=verb.capitalize()), action
        return made


def _quoted(text: str) -> str:
    """Text for a path or a query; slashes and commas stand. The standard library's own takes long to import."""
    plain = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/,")
    return "".join(
        [char if char in plain else "".join(f"%{byte:02X}" for byte in char.encode()) for char in text]
    )


def query(name: str, text: str, kind: str = "string", **more: Any) -> Parameter:
    """A parameter of the query."""
    return {"name": name, "in": "query", "description": text, "schema": {"type": kind, **more}}


def header(name: str, text: str, **more: Any) -> Parameter:
    """A header."""
    return {"name": name, "in": "header", "description": text, "schema": {"type": "string", **more}}


def limit(most: int, of: str = "entries") -> Parameter:
    """How many."""
    return query("limit", f"At most N {of}.", "integer", minimum=1, maximum=most)


STATE = query("state", "Only jobs in these states, as PENDING,RUNNING; may be repeated.")
TENANT = query("tenant", "Only this tenant and those below it.", maxLength=512)
USER = query("user", "Only this user's jobs.", maxLength=512)
CLUSTER = query("cluster", "Only jobs that run in this cluster, or may.", maxLength=512)
OF_CLUSTER = query("cluster", "Only nodes of this cluster.", maxLength=512)
NAME = query("name", "Only jobs of this name.", maxLength=512)
CURSOR = query("cursor", "`next_cursor` of the previous page.")
_FILTER = (STATE, TENANT, USER, NAME)

# fmt: off
# -- jobs ------------------------------------------------------------------------------------------------------------

SUBMIT = Endpoint("POST", "/jobs", Action.SUBMIT, "JobReply", "Submit a job", tag="jobs", status=201, body="JobRequest",
    parameters=(header("Idempotency-Key", "Your own name for this request: sending it again submits nothing.",
                       maxLength=KEY_LENGTH_MAX),), problems=(409,))
JOBS = Endpoint("GET", "/jobs", Action.SEE_JOB, "JobsReply", "Jobs, newest first", tag="jobs",
    parameters=(*_FILTER, limit(PAGE_MAX, "jobs"), CURSOR))
JOB = Endpoint("GET", "/jobs/{id}", Action.SEE_JOB, "JobView", "One job", tag="jobs", problems=(404,),
    parameters=(query("explain", "Whether to explain why the job waits. Default: true.", "boolean"),))
RECIPE = Endpoint("GET", "/jobs/{id}/recipe", Action.READ_JOB, "RecipeReply",
    "How a job is run: command or script, folder, environment", tag="jobs", problems=(404, 410))
REQUEST = Endpoint("GET", "/jobs/{id}/request", Action.READ_JOB, "RequestReply",
    "The request that would submit a job or an array again", tag="jobs", problems=(404, 410))
CURVES = Endpoint("GET", "/jobs/{id}/curves", Action.SEE_JOB, "CurvesReply",
    "What a job's last try did over time: GPU, memory, CPU, I/O", tag="jobs", problems=(404,))
CANCEL = Endpoint("DELETE", "/jobs/{id}", Action.ACT_ON_JOB, "AskedReply", "Cancel a job", tag="jobs", status=202,
    problems=(404, 409))
CHECKPOINT = Endpoint("POST", "/jobs/{id}/checkpoint", Action.ACT_ON_JOB, "CheckpointReply",
    "Say that a running job has saved its work", tag="jobs", status=202, body="CheckpointRequest", body_required=False,
    problems=(404, 409))
ASK = Endpoint("POST", "/jobs/{id}/{verb}", Action.ACT_ON_JOB, "AskedReply", "{verb} a job", tag="jobs", status=202,
    problems=(404, 409), name="ask")
ASK_MANY = Endpoint("POST", "/jobs/{verb}", Action.ACT_ON_JOB, "ManyReply", "{verb} many jobs", tag="jobs",
    body="ManyRequest", name="many")
UPDATE = Endpoint("POST", "/jobs/update", Action.ACT_ON_JOB, "ManyReply", "Change jobs", tag="jobs",
    body="UpdateRequest")
REHEARSE_UPDATE = Endpoint("POST", "/jobs/{id}/update/dry-run", Action.ACT_ON_JOB, "DryRunReply",
    "What would become of a job with a change; nothing is changed", tag="foresight", body="ChangeRequest",
    problems=(404, 409))

# -- why and when ----------------------------------------------------------------------------------------------------

WHY = Endpoint("GET", "/jobs/{id}/why", Action.SEE_JOB, "ExplainedReply",
    "Why a job waits; with at_ms, why it waited then", tag="explained", problems=(404,),
    parameters=(query("at_ms", "Answer for this past time, in milliseconds since 1970.", "integer", minimum=0),))
SHARE = Endpoint("GET", "/share", Action.SEE_TENANTS, "ShareReply",
    "The tenant tree: shares, usage, guarantees, what is borrowed and lent", tag="explained", parameters=(TENANT,),
    problems=(404,))
ETA = Endpoint("GET", "/jobs/{id}/eta", Action.SEE_JOB, "EtaReply", "When a job will start", tag="foresight",
    problems=(404,), parameters=(query("seed", "Seed of the random draws; the same one gives the same answer.",
                                       "integer", minimum=0, maximum=SEED_MAX),))
DRY_RUN = Endpoint("POST", "/jobs/dry-run", Action.SUBMIT, "DryRunReply",
    "What would happen to a job; nothing is submitted", tag="foresight", body="JobRequest")
READ = Endpoint("POST", "/jobs/read", Action.SUBMIT, "ReadJobsReply",
    "What a batch script, a manifest of Kubernetes or native YAML asks for; nothing is submitted", tag="foresight",
    body="ReadRequest")

# -- lists -----------------------------------------------------------------------------------------------------------

QUEUE = Endpoint("GET", "/queue", Action.SEE_QUEUE, "QueueReply", "Live jobs in the order of the scheduler, as rows",
    tag="lists", parameters=(*_FILTER, CLUSTER, limit(QUEUE_MAX, "jobs"),
        query("wide", "1: rows with more columns.", "integer", enum=[0, 1])), problems=(404,))
HISTORY = Endpoint("GET", "/history", Action.SEE_JOB, "JobsReply", "Jobs that have ended, newest first", tag="lists",
    parameters=(*_FILTER, query("since_ms", "Only jobs that ended at or after this time.", "integer", minimum=0),
                limit(PAGE_MAX, "jobs"), CURSOR))
NODES = Endpoint("GET", "/nodes", Action.SEE_NODES, "NodesReply", "The fleet", tag="lists",
    parameters=(OF_CLUSTER,), problems=(404,))
OVERVIEW = Endpoint("GET", "/overview", Action.SEE_NODES, "OverviewReply",
    "Every GPU with its jobs, every tenant with its use", tag="lists")
SNAPSHOT = Endpoint("GET", "/debug/snapshot", Action.SEE_ALL, "SnapshotReply",
    "The whole state, to be replayed elsewhere", tag="lists")

# -- what goes on over time ------------------------------------------------------------------------------------------

LOGS = Endpoint("GET", "/jobs/{id}/logs", Action.READ_JOB, "", "What a job wrote", tag="streams", problems=(404, 410),
    also=("application/octet-stream", EVENTS), parameters=(
        query("stream", "Which output to read.", enum=["stdout", "stderr"]),
        query("attempt", "Which attempt. Default: the last.", "integer", minimum=0),
        query("offset", "Start at this byte.", "integer", minimum=0),
        query("cursor", "Start behind this place: `X-Next-Cursor` of a reply, or `cursor` of an event."),
        limit(READ_BYTES_MAX, "bytes"),
        query("follow", "Whether to send events until the job ends.", "boolean"),
        query("standing", "With follow: also send what the job waits for, and where it runs.", "boolean")))
TERMINAL = Endpoint("GET", "/jobs/{id}/terminal", Action.ENTER_JOB, "",
    "A WebSocket into a running job: its terminal, a shell, a port, files", tag="streams", status=101,
    problems=(404, 426))
LOG_EVENTS = Endpoint("GET", "/events", Action.SEE_ALL, "", "Watch the log", tag="streams", also=(EVENTS,),
    parameters=(query("after", "Start after this event. Default: now.", "integer", minimum=0),))
CHANGES = Endpoint("GET", "/changes", Action.SEE_QUEUE, "", "Follow the queue", tag="streams", also=(EVENTS,),
    parameters=(query("after",
                      "Start after this event: `seq` of a list, or the id of this stream's last event. Default: now."),
                query("rows", "0: send only that something has changed, not what.", "integer", enum=[0, 1])))

# -- nodes and GPUs --------------------------------------------------------------------------------------------------

DRAIN = Endpoint("POST", "/nodes/{name}/drain", Action.MANAGE_NODES, "DrainReply",
    "Stop new jobs from starting on a node", tag="nodes", body="DrainRequest", body_required=False, problems=(404,))
RESUME = Endpoint("POST", "/nodes/{name}/resume", Action.MANAGE_NODES, "DrainReply", "Let a node take work again",
    tag="nodes", problems=(404,))
MARKS = Endpoint("GET", "/nodes/{name}/marks", Action.SEE_NODES, "NodeMarksReply",
    "All labels and taints of a node, and where they come from", tag="nodes", problems=(404,))
LIVE_MARKS = Endpoint("GET", "/nodes/marks", Action.SEE_NODES, "LiveMarksReply",
    "Labels and taints that were set live, in place of those of the configuration", tag="nodes")
MARK = Endpoint("POST", "/nodes/marks", Action.MANAGE_NODES, "MarkedReply",
    "Set labels and taints of nodes, on all that are named or on none", tag="nodes", body="MarkRequest",
    problems=(404,))
SAMPLES = Endpoint("POST", "/nodes/{name}/samples", Action.WRITE_SAMPLES, "SamplesReply",
    "Send samples of a node, as its collector", tag="nodes", body="SamplesRequest", problems=(404,))
GPUS = Endpoint("GET", "/gpus", Action.SEE_NODES, "GpusReply",
    "How busy the GPUs are, and the jobs on them", tag="sharing",
    parameters=(OF_CLUSTER,), problems=(404,))
TOPOLOGY = Endpoint("GET", "/topology", Action.SEE_NODES, "TopologyReply", "How the GPUs of each node are linked",
    tag="nodes", parameters=(OF_CLUSTER,), problems=(404,))
DOCTOR = Endpoint("GET", "/doctor", Action.SEE_NODES, "DoctorReply", "What holds a job to what it asked for, by kind",
    tag="nodes")
MIG = Endpoint("GET", "/mig", Action.SEE_NODES, "MigReply", "How GPUs are cut into MIG slices", tag="sharing")
MIG_PLAN = Endpoint("POST", "/mig/plan", Action.SEE_NODES, "MigPlanReply",
    "What a layout would do to GPUs; without a layout, what the queue would do", tag="sharing", body="MigPlanRequest",
    body_required=False, problems=(404,))
MIG_PIN = Endpoint("POST", "/nodes/{name}/mig", Action.MANAGE_NODES, "PinnedReply", "Pin GPUs of a node to a layout",
    tag="sharing", body="PinRequest", problems=(404, 409))
MIG_RELEASE = Endpoint("POST", "/nodes/{name}/mig/release", Action.MANAGE_NODES, "ReleasedReply",
    "Release pinned GPUs, to be cut on demand again", tag="sharing", body="ReleaseRequest", body_required=False,
    problems=(404,))
DEFRAG = Endpoint("GET", "/defrag", Action.MANAGE_NODES, "DefragReply",
    "Moves of jobs that would free whole GPUs or nodes, with the work that they would destroy", tag="sharing",
    parameters=(query("moves", "At most N moves.", "integer", minimum=1, maximum=MOVES_MAX),))

# -- the configuration, and the upkeep of the store ------------------------------------------------------------------

CONFIG = Endpoint("GET", "/config", Action.MANAGE_CONFIG, "ConfigReply", "The configuration in force", tag="config",
    problems=(409,))
APPLY = Endpoint("PUT", "/config", Action.MANAGE_CONFIG, "AppliedReply", "Put a yard.yaml in force", tag="config",
    body="ConfigRequest", problems=(409,))
VERSIONS = Endpoint("GET", "/config/versions", Action.MANAGE_CONFIG, "ConfigVersionsReply",
    "Versions of the configuration, newest first", tag="config", parameters=(limit(PAGE_MAX),))
CONFIG_VERSION = Endpoint("GET", "/config/versions/{version}", Action.MANAGE_CONFIG, "ConfigReply",
    "One version with its text", tag="config", problems=(404, 409))
DIFF = Endpoint("POST", "/config/diff", Action.MANAGE_CONFIG, "DifferenceReply", "What a configuration would change",
    tag="config", body="ConfigRequest", body_required=False, problems=(404, 409))
PREVIEW = Endpoint("POST", "/config/preview", Action.MANAGE_CONFIG, "PreviewReply",
    "What a configuration would have done to the recorded jobs", tag="config", body="ConfigRequest",
    body_required=False, problems=(404, 409), also=(EVENTS,))
ROLLBACK = Endpoint("POST", "/config/rollback", Action.MANAGE_CONFIG, "AppliedReply",
    "Put an earlier version in force again", tag="config", body="ConfigRequest", body_required=False,
    problems=(404, 409))
TENANTS = Endpoint("GET", "/tenants", Action.SEE_TENANTS, "TenantsReply",
    "The tenant tree: what each tenant may use and uses", tag="config")
PROJECTIONS = Endpoint("GET", "/projections", Action.REBUILD, "ProjectionsReply",
    "How much of the log each projection holds", tag="store")
REBUILD = Endpoint("POST", "/projections/{name}/rebuild", Action.REBUILD, "ProjectionReply", "Fill a projection again",
    tag="store", status=202, problems=(404,))
CLOSE_MONTH = Endpoint("POST", "/cost/months/{month}/close", Action.CLOSE_MONTH, "ClosedMonthReply",
    "Close the books of a month", tag="store", problems=(409, 422),
    parameters=(query("dry_run", "Only say which months would be closed.", "boolean"),))
PRUNE = Endpoint("POST", "/prune", Action.PRUNE, "PruneReply", "Remove the files of jobs that ended long ago",
    tag="store", body="PruneRequest", body_required=False)

# -- people ----------------------------------------------------------------------------------------------------------

ME = Endpoint("GET", "/me", Action.SELF, "MeReply", "Your user, role and tenants, and what you may do", tag="people")
TOKENS = Endpoint("GET", "/tokens", Action.SELF, "TokensReply",
    "Your own tokens, and those of the tenants that you administer", tag="people", problems=(409,))
MAKE_TOKEN = Endpoint("POST", "/tokens", Action.MAKE_TOKEN, "NewTokenReply", "Make a token", tag="people", status=201,
    body="TokenRequest", problems=(409,))
REVOKE = Endpoint("DELETE", "/tokens/{id}", Action.SELF, "RevokedReply", "Revoke a token, and those made with it",
    tag="people", problems=(404, 409))
UNBIND = Endpoint("DELETE", "/logins/{user}", Action.UNBIND_NAME, "UnboundReply",
    "Unbind a name from the person who logged in with it first", tag="people", problems=(404, 409))
AUDIT = Endpoint("GET", "/audit", Action.SEE_ALL, "AuditReply", "What everybody did, newest first", tag="people",
    parameters=(query("user", "Only what this user did.", maxLength=512), limit(PAGE_MAX), CURSOR))
LOGIN_WAYS = Endpoint("GET", "/login", Action.ANYBODY, "LoginReply", "How to log in here", tag="people")
LOGIN_OIDC = Endpoint("POST", "/login/oidc", Action.ANYBODY, "NewTokenReply",
    "Trade an ID token for a token of the yard", tag="people", status=201, body="OidcLogin",
    problems=(401, 403, 404, 409, 422))
LOGIN_PROVIDER = Endpoint("GET", "/login/provider", Action.ANYBODY, "ProviderReply",
    "Where the identity provider asks a browser for a login", tag="people", problems=(409,))
LOGIN_OIDC_CODE = Endpoint("POST", "/login/oidc/code", Action.ANYBODY, "NewTokenReply",
    "Trade the code that the identity provider gave a browser for a token of the yard", tag="people", status=201,
    body="OidcCode", problems=(401, 403, 404, 409, 422))
BROWSER_CODE = Endpoint("POST", "/login/codes", Action.SELF, "BrowserCodeReply",
    "Make a code that signs a browser in, once, within a minute", tag="people", status=201, problems=(409, 422))
LOGIN_BROWSER = Endpoint("POST", "/login/browser", Action.ANYBODY, "BrowserReply", "Trade a code for a cookie",
    tag="people", status=201, body="BrowserLogin", problems=(401, 422))
LOGOUT = Endpoint("POST", "/logout", Action.SELF, "SignedOutReply", "Sign this browser out", tag="people")

# -- the server ------------------------------------------------------------------------------------------------------

FRONT = Endpoint("GET", "/", Action.ANYBODY, "FrontReply", "What this address is", tag="health", also=("text/html",))
ASSET = Endpoint("GET", "/assets/{name}", Action.ANYBODY, "", "A file of the console", tag="health",
    problems=(404, 422), also=("text/javascript", "text/css", "image/svg+xml"))
HEALTH = Endpoint("GET", "/healthz", Action.ANYBODY, "HealthReply", "Whether the server process runs", tag="health")
READY = Endpoint("GET", "/readyz", Action.ANYBODY, "ReadyReply", "Whether the server can do its work", tag="health",
    others={503: "ReadyReply"})
METRICS = Endpoint("GET", "/metrics", Action.SEE_NODES, "",
    "GPUs, nodes, jobs and the scheduler, as Prometheus reads them", tag="health",
    also=("text/plain", "application/openmetrics-text"))
VERSION = Endpoint("GET", "/version", Action.ANYBODY, "VersionReply", "Which release this is", tag="health")
# fmt: on

ENDPOINTS = tuple([each for each in list(globals().values()) if isinstance(each, Endpoint)])
"""All of them. `ASK` and `ASK_MANY` stand for one of each verb."""
