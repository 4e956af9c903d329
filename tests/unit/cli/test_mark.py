"""`yard label` and `yard taint`: which words are nodes, and which changes."""

import pytest

from gpuyard.cli.commands.yard.mark import label, parse_labels, parse_taints, taint
from gpuyard.errors import BadInput


def test_words_of_labels_are_nodes_or_changes() -> None:
    nodes, labels = parse_labels(["n1", "main:n2", "zone=a", "ib=", "old-"])
    assert (["n1", "main:n2"], {"zone": "a", "ib": "", "old": None}) == (nodes, labels)


def test_words_of_taints_are_nodes_or_changes() -> None:
    words = ["n1", "main:n2", "debug=ana:NoSchedule", "gone:NoExecute", "old-", "older:NoSchedule-"]
    nodes, changes = parse_taints(words)
    assert ["n1", "main:n2"] == nodes
    assert changes == {
        "untaint": ["old", "older:NoSchedule"],
        "taints": ["debug=ana:NoSchedule", "gone:NoExecute"],
    }


def test_words_without_a_change_say_how_one_is_written() -> None:
    with pytest.raises(BadInput, match="no change of taints stands among: n1 gone:Never") as found:
        taint(["n1", "gone:Never"])
    assert "NoExecute" in found.value.hint
    with pytest.raises(BadInput, match="no change of labels stands among: a100"):
        label([], pool=["a100"])
