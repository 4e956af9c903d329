"""The calling user."""

import os
import pwd


def user_name() -> str:
    """The name of the calling user."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return os.environ.get("USER", str(uid))
