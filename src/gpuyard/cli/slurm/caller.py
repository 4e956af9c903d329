"""The user who calls."""

import os
import pwd


def user_name() -> str:
    """The name of the user who runs this command."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return os.environ.get("USER", str(uid))
