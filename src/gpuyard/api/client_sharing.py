"""The part of the Python client that is about GPUs: what they do, MIG layouts and defragmentation."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuyard.api.calling import API, Caller
from gpuyard.api.quoting import part, query


class SharingCalls(Caller):
    """Calls about slices. A layout is `{"layout": "7x1g.18gb", "gpus": [0, 1]}`; without `gpus`, for all of a node."""

    def gpus(self) -> dict[str, Any]:
        """What GPUs do now, and the jobs on them: `GET /gpus`."""
        found: dict[str, Any] = self._call("GET", f"{API}/gpus")
        return found

    def mig(self) -> dict[str, Any]:
        """How GPUs are cut: `GET /mig`."""
        found: dict[str, Any] = self._call("GET", f"{API}/mig")
        return found

    def mig_plan(self, node: str = "", layouts: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
        """What layouts would do to a node; without any, what the queue leads to."""
        body = json.dumps({"node": node, "layouts": list(layouts)}).encode()
        found: dict[str, Any] = self._call("POST", f"{API}/mig/plan", body)
        return found

    def mig_apply(self, node: str, layouts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Pin GPUs of a node to layouts. `mig` tells when they are made."""
        body = json.dumps({"layouts": list(layouts)}).encode()
        done: dict[str, Any] = self._call("POST", f"{API}/nodes/{part(node)}/mig", body)
        return done

    def mig_release(self, node: str, gpus: Sequence[int] | None = None) -> dict[str, Any]:
        """Let GPUs of a node be cut by demand again."""
        body = json.dumps({"gpus": None if gpus is None else list(gpus)}).encode()
        done: dict[str, Any] = self._call("POST", f"{API}/nodes/{part(node)}/mig/release", body)
        return done

    def defrag(self, moves: int | None = None) -> dict[str, Any]:
        """Moves that would free whole GPUs or nodes."""
        asked = query({"moves": "" if moves is None else moves})
        found: dict[str, Any] = self._call("GET", f"{API}/defrag{asked}")
        return found
