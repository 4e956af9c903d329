"""`yard label` and `yard taint`: which words are nodes, and which changes."""

from contextlib import contextmanager
from typing import Any

import pytest

from gpuyard.cli.commands.yard import mark
from gpuyard.errors import BadInput


class Asked:
    def __init__(self) -> None:
        self.wanted: list[dict[str, Any]] = []

    def mark(self, wanted: dict[str, Any]) -> None:
        self.wanted.append(wanted)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found = Asked()

    @contextmanager
    def opened() -> Any:
        yield found

    monkeypatch.setattr(mark, "open_client", opened)
    return found


def test_words_of_labels_are_nodes_or_changes(asked: Asked) -> None:
    mark.label(["n1", "main:n2", "zone=a", "ib=", "old-"])
    mark.label(["zone=b"], pool=["a100"])
    mark.label(["n1"], reset=True)
    assert asked.wanted == [
        {
            "nodes": ["n1", "main:n2"],
            "pools": [],
            "reset": False,
            "labels": {"zone": "a", "ib": "", "old": None},
        },
        {"nodes": [], "pools": ["a100"], "reset": False, "labels": {"zone": "b"}},
        {"nodes": ["n1"], "pools": [], "reset": True},
    ]


def test_words_of_taints_are_nodes_or_changes(asked: Asked) -> None:
    mark.taint(["n1", "main:n2", "debug=ana:NoSchedule", "gone:NoExecute", "old-", "older:NoSchedule-"])
    assert asked.wanted == [
        {
            "nodes": ["n1", "main:n2"],
            "pools": [],
            "reset": False,
            "untaint": ["old", "older:NoSchedule"],
            "taints": ["debug=ana:NoSchedule", "gone:NoExecute"],
        }
    ]


def test_words_without_a_change_say_how_one_is_written(asked: Asked) -> None:
    with pytest.raises(BadInput, match="no change of taints stands among: n1 gone:Never") as found:
        mark.taint(["n1", "gone:Never"])
    assert "NoExecute" in found.value.hint
    with pytest.raises(BadInput, match="no change of labels stands among: a100"):
        mark.label([], pool=["a100"])
    assert not asked.wanted
