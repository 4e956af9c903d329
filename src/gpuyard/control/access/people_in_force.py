"""The people of the configuration in force: renewed while the server runs, in every server of a yard.

The people of a start are those of its file. Once another version of the configuration is in force, by `yard apply`,
a rollback or another server's start, the people of that version count, within a moment and without a restart. A
version whose text says nothing of `auth` leaves the people as they are.
"""

import logging
import threading
from collections.abc import Callable

from gpuyard.config.reading import read_access
from gpuyard.config.values import Access
from gpuyard.control.access.oidc import Provider
from gpuyard.control.access.people import UserDirectory
from gpuyard.control.access.tokens import TokenService
from gpuyard.control.parsing import Parse, run_here
from gpuyard.control.refusals import Unacceptable
from gpuyard.control.replica.committer import Committer
from gpuyard.control.replica.replica import Replica
from gpuyard.keys.problems import ConfigError
from gpuyard.store import ConfigVersion, VersionCause

_log = logging.getLogger(__name__)

LOOK_S = 0.5
"""How soon another server's version is heeded, about; and how often it is looked for while the log grows."""
WAIT_S = 1.0
"""How long one round waits for news: the end of a server waits for it."""
SHORT_BYTES = 64 * 1024
"""A version that is no longer is read in the server itself."""


class PeopleInForce:
    """The people of one server."""

    def __init__(
        self,
        replica: Replica,
        committer: Committer,
        now_ms: Callable[[], int],
        access: Access | None,
        *,
        auth: bool,
        parse: Parse = run_here,
        valid_ms: Callable[[], int] | None = None,
    ) -> None:
        """`parse` reads the texts of later versions; that of a start is read before anybody is served.
        `now_ms` is the time of the log, and tokens end by `valid_ms`; left out, by the same.
        """
        self.valid_ms = valid_ms or now_ms
        self.access = access or Access()
        self._store = replica.store
        self._told: list[Callable[[Access], None]] = []
        self._lock = threading.Lock()
        self._seen_seq = -1
        live = self._store.configs.version()
        # The version of a start comes from a file like ours, and ours is newer; an applied version is not undone.
        self._seen = 0 if live is None or live.how is not VersionCause.START else live.version
        self._of = self._seen
        """The version whose people these are; a later one that was seen is not understood here."""
        self.directory = UserDirectory(self.access.users, self.access.uid_min)
        self.token_service = (
            TokenService(replica, committer, now_ms, self.access, self.directory, self.valid_ms)
            if auth
            else None
        )
        self.oidc = self._provider()
        self._parse: Parse = run_here
        self.look()
        self._parse = parse

    def _provider(self) -> Provider | None:
        oidc = self.access.oidc if self.token_service is not None else None
        return None if oidc is None else Provider(oidc, self.directory)

    def when_renewed(self, tell: Callable[[Access], None]) -> None:
        """Have a function called at every version that comes into force: the people may have changed."""
        self._told.append(tell)

    def look(self, version: int = 0, people: Access | None = None) -> None:
        """Take up the people of the version in force, if it is newer than the last one seen.

        `people`: those of `version`, which this server has just read; others are read from the store.
        """
        with self._lock:
            live = self._store.configs.version()
            if live is None or live.version <= self._seen:
                return
            try:
                access = people if live.version == version else self._read(live)
            except (ConfigError, Unacceptable) as error:
                # A text of a newer release: the people of the last version that was understood stay.
                _log.warning("people stay as they are: %s", error.message)
                self._seen = live.version
                return
            if access is not None and access != self.access:
                self._renew(access)
                _log.info("people and limits are those of version %d of the configuration", live.version)
            for tell in self._told:
                tell(self.access)
            self._seen = self._of = live.version

    def looked_up(self) -> tuple[int, Access]:
        """The people in force, and the version that they are of."""
        self.look()
        with self._lock:
            return self._of, self.access

    def _read(self, live: ConfigVersion) -> Access | None:
        body = self._store.blob(live.hash)
        if body is None:
            return None
        # The server that took it has read it within bounds. A process for it may take seconds to come, and as long
        # would rights stay in open streams here that another server took away.
        parse = run_here if len(body) <= SHORT_BYTES else self._parse
        return parse(read_access, body.decode(), f"version {live.version}")

    def _renew(self, access: Access) -> None:
        self.access = access
        self.directory = UserDirectory(access.users, access.uid_min)
        if self.token_service is not None:
            self.token_service.renew(access, self.directory)
        self.oidc = self._provider()

    def round(self, rest: Callable[[float], bool]) -> None:
        """Wait for news, and heed them. While the store is away the people stay as they were."""
        if self._store.wait(self._seen_seq, WAIT_S) and not rest(0):
            seq = self._store.head()
            self.look()
            self._seen_seq = seq
