"""A job without a name is called after what it runs; the labels that it may have."""

from typing import Any

import pytest
from pydantic import ValidationError

from gpuyard.api.messages.schemas import JobRequest


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("nvidia-smi -L", "nvidia-smi"),
        ("/usr/bin/nvidia-smi", "nvidia-smi"),
        ("python3 train.py", "train"),
        ("python3.12 -u src/train.py --config big.py", "train"),
        ("python3 -m pack.train --lr 1", "pack.train"),
        ("python3 -m torch.distributed.run --nproc-per-node 8 train.py", "train"),
        ("torchrun --nproc-per-node=2 fine_tune.py", "fine_tune"),
        ("bash run.sh", "run"),
        ("./run.sh now", "run"),
        ("Rscript fit.R", "fit"),
        ("sh -c x.sh", "sh"),
        ("python3", "python3"),
        ("grep main train.py", "grep"),
        ("conda run -n env python train.py", "train"),
    ],
)
def test_a_job_is_called_after_what_it_runs(line: str, name: str) -> None:
    assert name == JobRequest(command=line.split()).new_job().wanted.name


def test_the_project_is_one_of_the_labels() -> None:
    labels = {"stage": "eval", "a.b/c": "two words"}
    request = JobRequest(command=["true"], project="vision", labels=labels)

    assert (
        ("a.b/c", "two words"),
        ("project", "vision"),
        ("stage", "eval"),
    ) == request.new_job().wanted.labels
    assert () == JobRequest(command=["true"]).new_job().wanted.labels


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"labels": {"_a": "b"}}, "'_a=b' cannot be a label: a key has up to 63 letters"),
        ({"labels": {"a" * 64: "b"}}, "a key has up to 63 letters"),
        ({"labels": {"a": ""}}, "a value has 1 to 128 characters"),
        ({"labels": {"a": "b\nc"}}, "a value has 1 to 128 characters in one line"),
        ({"labels": {f"k{i}": "v" for i in range(17)}}, "at most 16 items"),
        ({"project": "x" * 129}, "at most 128 characters"),
        ({"project": "a", "labels": {"project": "b"}}, "'project' is 'a', and the label 'project' is 'b'"),
    ],
)
def test_labels_have_bounds(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        JobRequest(command=["true"], **fields)
