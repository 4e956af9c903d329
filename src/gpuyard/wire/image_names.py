"""Names of images as people write them: as podman and Kubernetes have them, and as enroot and pyxis do."""


def full_reference(text: str) -> str:
    """The name of an image with `/` after its registry: `nvcr.io#nvidia/pytorch:24.01-py3` is enroot's spelling."""
    registry, sign, rest = text.partition("#")
    # Credentials are those of the user on the node, and not in a script.
    return f"{registry.rpartition('@')[2]}/{rest}" if sign and registry and rest else text
