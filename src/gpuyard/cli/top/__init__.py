"""`yard top`: GPUs, queue and tenants on one screen, live, with keys to look closer and to act.

Textual draws it and comes with the extra `ui`; this module is what starts without it. `feed` fetches, the panes draw
only what can be seen, `app` binds the keys.
"""

import sys
from typing import Annotated

from gpuyard.cli.line.options import ClusterOption, Option, TenantOption, UserOption
from gpuyard.errors import BadInput

EVERY_S = 2


def top(
    tenant: TenantOption = "",
    user: UserOption = "",
    cluster: ClusterOption = "",
    every: Annotated[
        int,
        Option("--every", metavar="SECONDS", min=1, max=3600, help="How often to refresh without changes."),
    ] = EVERY_S,
) -> None:
    """Watch GPUs, queue and tenants on a full screen; look at a job, read its log or cancel it.

    Changes show at once. F1 lists the keys.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise BadInput(
            "yard top draws on a terminal", "`yard queue` and `yard nodes` print for pipes and files."
        )
    try:
        import textual  # noqa: F401 (asked for here, so that the way to get it can be said)
    except ImportError:
        from gpuyard.extras import install_text

        raise BadInput(
            "yard top needs the package textual, which is not installed",
            f"Install it with: {install_text('ui')}",
        ) from None
    from gpuyard.api.client import Client
    from gpuyard.cli.top.app import Top

    # Fail here, in a line, if there is no yard, and not on an empty screen.
    with Client() as yard:
        yard.overview()
        if cluster:
            yard.queue(cluster=cluster, limit=1)
    Top(tenant=tenant, user=user, cluster=cluster, every_s=every).run()
