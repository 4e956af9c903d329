"""What the control plane refuses people, each kind with its own meaning. Nothing has changed when one is raised."""

from collections.abc import Iterable

from gpuyard.errors import YardError, quote, suggest


class Refusal(YardError):
    """A request that is not served."""

    exit_code = 2


class Unacceptable(Refusal):
    """It can be understood, and can never be served as it stands."""


class CouldNever(Unacceptable):
    """A job that makes sense and that this yard could never start."""


class NotYet(Refusal):
    """Nobody can say yet whether it can be served; asking again in a moment helps."""


class Forbidden(Refusal):
    """Someone else may ask for this."""


class NotFound(Refusal):
    """There is no such thing."""


def unknown_tenant(wanted: str, seen: Iterable[str]) -> NotFound:
    """That a report was asked for about a tenant that is not there, or not in sight."""
    names = sorted([name for name in seen if name])
    known = suggest(wanted, names, "tenants") if names else "there are none that you may see"
    return NotFound(f"there is no tenant {quote(wanted)}; {known}")


class Removed(Refusal):
    """It was there, and was removed on purpose."""


class Impossible(Refusal):
    """It makes no sense in the present state."""


class Overloaded(YardError):
    """Too many requests wait already. Nothing was written; asking again later helps."""
