"""A job without a name is called after what it runs."""

import pytest

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
    assert name == JobRequest(command=line.split()).new_job().name
