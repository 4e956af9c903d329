"""Options of a job in a container image, shared by `submit` and `run`."""

import os
from typing import Annotated, Any

from gpuyard.cli.line.options import Option
from gpuyard.errors import BadInput

Image = Annotated[
    str,
    Option(
        "--image",
        metavar="IMAGE",
        help="Run in this container image, as you, with the folder of the job in it.",
        show_default=False,
    ),
]
Volume = Annotated[
    list[str] | None,
    Option(
        "--volume",
        metavar="FOLDER[:INSIDE[:ro]]",
        help="A folder of the node that the image sees; may be repeated. NAME:INSIDE is an empty one.",
        show_default=False,
    ),
]
Secret = Annotated[
    list[str] | None,
    Option(
        "--secret",
        metavar="NAME=FILE",
        help="A file of the node that the image sees as /run/secrets/NAME; may be repeated.",
        show_default=False,
    ),
]
Pull = Annotated[
    str,
    Option(
        "--pull",
        metavar="missing|always|never",
        help="When the image is pulled. Default: once for each user and node.",
        show_default=False,
    ),
]


def boxed(image: str, volume: list[str] | None, secret: list[str] | None, pull: str) -> dict[str, Any]:
    """The fields of a submission that are about its image."""
    fields: dict[str, Any] = {"image": image} if image else {}
    if volume:
        fields["volumes"] = [_volume(each) for each in volume]
    if secret:
        fields["secrets"] = dict([_secret(each) for each in secret])
    if pull:
        fields["pull"] = pull
    return fields


def _volume(text: str) -> str:
    """The volume with whole paths; a first part without a slash is the name of an empty folder."""
    source, colon, rest = text.partition(":")
    if source.startswith(("/", ".", "~")) or not colon:
        source = os.path.abspath(os.path.expanduser(source))
    return f"{source}{colon}{rest}"


def _secret(text: str) -> tuple[str, str]:
    name, sign, file = text.partition("=")
    if not (name and sign and file):
        raise BadInput(f"--secret {text!r} names no file", "For example: --secret hf=~/.hf_token")
    return name, os.path.abspath(os.path.expanduser(file))
