"""Keys that are for `yard` and not for the job: `~` at the beginning of a line, as `ssh` has them."""

DETACH = "Enter ~ ."
"""As people are told."""
_HELP = (
    b"\r\nyard: at the beginning of a line:\r\n"
    b"  ~.  detach: the job goes on, and `yard attach` comes back to it\r\n"
    b"  ~~  send a ~\r\n"
    b"  ~?  this\r\n"
)


class Escapes:
    """What is typed, in pieces: what of it is for the job."""

    def __init__(self) -> None:
        self._fresh = True
        """Whether a line begins."""
        self._held = False
        """Whether a `~` is held back, until the next key says what it means."""
        self.detached = False
        self.help = b""
        """What is to be shown here, once."""

    def sift(self, typed: bytes) -> bytes:
        """The part that is for the job. What follows the keys that detach is for nobody."""
        passed = bytearray()
        for at in range(len(typed) if not self.detached else 0):
            key = typed[at : at + 1]
            if self._held:
                self._held = False
                if key == b".":
                    self.detached = True
                    break
                if key == b"?":
                    self.help = _HELP
                    continue
                passed += b"~" if key == b"~" else b"~" + key
                self._fresh = key in b"\r\n"
            elif key == b"~" and self._fresh:
                self._held = True
            else:
                passed += key
                self._fresh = key in b"\r\n"
        return bytes(passed)
