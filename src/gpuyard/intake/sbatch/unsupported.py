"""Options that are understood but not served, each with what that means for the job. None is dropped silently."""

WARNINGS: dict[str, str] = {
    "acctg-freq": "usage is sampled at the yard's own pace",
    "batch": "every node of a job is of the same kind; the script starts on the first",
    "bb": "there are no burst buffers; stage data in the script",
    "bbf": "there are no burst buffers; stage data in the script",
    "cluster-constraint": "there is no federation; the yard chooses the cluster",
    "comment": "it is not kept",
    "container-entrypoint": "the script runs in place of the image's entrypoint",
    "container-env": "the job's variables come before the image's",
    "container-readonly": "a container can be written to, and what is written there goes with it",
    "container-remap-root": "the script runs under your own id",
    "container-writable": "a container can be written to, and what is written there goes with it",
    "context": "it is not kept",
    "contiguous": "nodes are chosen without regard to their order",
    "core-spec": "no cores are set apart for the system",
    "cores-per-socket": "nodes are not chosen by their sockets and cores",
    "cpu-freq": "clock rates are left alone",
    "delay-boot": "nodes are not rebooted for a job",
    "export-file": "variables are not read from a file; use --export",
    "extra-node-info": "nodes are not chosen by their sockets and cores",
    "get-user-env": "the login environment is not read; load what is needed in the script",
    "gid": "the job runs with the groups of the user who submits it",
    "gpu-freq": "clock rates are left alone",
    "gres-flags": "cores and GPUs are not tied to each other",
    "hint": "cores are given without regard to hardware threads",
    "input": "standard input is /dev/null; redirect it in the script",
    "kill-on-invalid-dep": "a job whose dependency can no longer come true is cancelled, and says why",
    "mail-type": "no mail is sent",
    "mail-user": "no mail is sent",
    "mcs-label": "there are no MCS labels",
    "mem-bind": "memory is not bound to sockets",
    "mincpus": "nodes are not chosen by their size; ask for the cores with --cpus-per-task",
    "network": "switch resources are not managed",
    "nice": "order comes from fair share and class; choose a class with --qos",
    "no-kill": "a job that loses a node is stopped, and waits again unless --no-requeue",
    "ntasks-per-core": "the job's own launcher places its processes",
    "ntasks-per-socket": "the job's own launcher places its processes",
    "oversubscribe": "no job gets what another one holds",
    "power": "power is not managed by job",
    "priority": "order comes from fair share and class; choose a class with --qos",
    "profile": "there are no profiles by plugin",
    "propagate": "limits of the submitter's shell are not carried over; set them in the script",
    "reboot": "nodes are not rebooted for a job",
    "reservation": "there are no reservations by name",
    "sockets-per-node": "nodes are not chosen by their sockets and cores",
    "spread-job": "tasks are packed onto as few nodes as will hold them",
    "thread-spec": "no threads are set apart for the system",
    "threads-per-core": "cores are given without regard to hardware threads",
    "time-min": "a time limit is not shortened to start sooner",
    "tmp": "disk space is not counted",
    "uid": "the job runs as the user who submits it",
    "use-min-nodes": "a range of nodes is read as its least number anyway",
    "wait-all-nodes": "a job starts when all its nodes are there",
}
"""What is different, by option."""

NOTHING_ASKED = {
    "hint": "multithread",
    "input": "/dev/null",
    "kill-on-invalid-dep": "yes",
    "mail-type": "none",
    "no-kill": "off",
    "profile": "none",
    "propagate": "none",
}
"""Values that ask for what is true anyway."""

SILENT = frozenset(
    {"ignore-pbs", "verbose", "no-container-entrypoint", "no-container-mount-home", "no-container-remap-root"}
)
"""Options that ask for nothing of the job."""

REFUSED: dict[str, str] = {
    "container-name": "names a container to use again, and containers go with their attempt; name the image",
    "container-save": "saves a container, and containers go with their attempt; build the image with podman build",
    "help": "prints help and submits nothing; take it out",
    "usage": "prints help and submits nothing; take it out",
    "version": "prints a version and submits nothing; take it out",
    "nodefile": "node lists are not read from files; use --nodelist",
}
"""Options without which the job would not be what its author meant."""
