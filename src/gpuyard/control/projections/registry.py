"""Which projections follow the log: the yard's own, those that were registered, and those of installed packages."""

from gpuyard.control.projections.following import Projection
from gpuyard.errors import YardError

ENTRY_POINTS = "gpuyard.projections"
"""Projections of installed packages are found under this name."""

_registered: dict[str, Projection] = {}


def register(projection: Projection) -> None:
    """Have servers that this process opens from now on fill a projection."""
    _registered[check_projection(projection).name] = projection


def check_projection(projection: Projection) -> Projection:
    """A projection that can be filled; raises otherwise."""
    name = getattr(projection, "name", "")
    if not (name and name.replace("-", "").isalnum() and name.isascii() and name == name.lower()):
        raise YardError(f"{name!r} is not a name for a projection", "Use small letters, digits and hyphens.")
    if type(projection.version) is not int or projection.version < 1:
        raise YardError(f"projection {name} has version {projection.version!r}", "Give it 1, 2, 3, …")
    return projection


def list_projections() -> tuple[Projection, ...]:
    """The books, the nodes over time, what was waited for, those that were registered or are of packages, by name."""
    # Only a server looks, once; a program that has a projection of its own does not wait for the books.
    from importlib.metadata import entry_points  # noqa: PLC0415

    from gpuyard.control.projections.fleet import Fleet  # noqa: PLC0415
    from gpuyard.control.projections.ledger import Ledger  # noqa: PLC0415
    from gpuyard.control.projections.waits import Waits  # noqa: PLC0415

    ours = (Fleet(), Ledger(), Waits())
    found: dict[str, Projection] = {**{each.name: each for each in ours}, **_registered}
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            made = entry.load()
            projection = check_projection(made() if isinstance(made, type) else made)
        except Exception as error:
            raise YardError(
                f"the projection {entry.name} ({entry.value}) cannot be loaded: {error}",
                "Repair the package that has it, or remove the package.",
            ) from error
        found.setdefault(projection.name, projection)
    return tuple([found[name] for name in sorted(found)])
