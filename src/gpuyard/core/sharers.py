"""Which GPUs take a share: not those that are cut, and by default shares of one GPU belong to one user.

One MPS server serves one user at a time, so shares of two users would take turns instead of running side by side, and
what one breaks may reach the other. A share that names its user (`Milli.user`) is put beside that user's own only.
"""

from typing import TYPE_CHECKING

from gpuyard.core.bits import positions
from gpuyard.model.plans import Grant

if TYPE_CHECKING:
    from gpuyard.core.nodes import Nodes

Sharers = dict[int, dict[int, dict[str, int]]]
"""By node and GPU: how many shares each user has there."""


def enter(sharers: Sharers, grant: Grant, sign: int) -> None:
    """Note a share (-1) or strike it (1)."""
    row = sharers.setdefault(grant.node, {})
    for gpu in positions[grant.gpus]:
        users = row.setdefault(gpu, {})
        users[grant.user] = users.get(grant.user, 0) - sign
        if not users[grant.user]:
            del users[grant.user]
        if not users:
            del row[gpu]
    if not row:
        del sharers[grant.node]


def barred(nodes: "Nodes", number: int, user: str) -> int:
    """The GPUs of a node that take no share of this user, however much of them is free, as a mask."""
    cut = nodes.cut.get(number)
    mask = strangers(nodes, number, user)
    return mask if cut is None else mask | cut_mask(nodes, number)


def cut_mask(nodes: "Nodes", number: int) -> int:
    """The GPUs of a node that are cut into slices: a share goes beside no slice."""
    return sum([1 << gpu for gpu in nodes.cut.get(number, ())])


def strangers(nodes: "Nodes", number: int, user: str) -> int:
    """The GPUs of a node on which others than this user have shares, as a mask; none for a share of nobody's own."""
    row = nodes.sharers.get(number)
    if not user or row is None:
        return 0
    return sum([1 << gpu for gpu, users in row.items() if users.keys() - {user}])
