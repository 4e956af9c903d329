"""A small training job, as many of them are: a few layers, small batches, seconds of work. Prints its result.

    python benchmarks/train_small.py STEPS [--cpu]

Only the last layer learns, in double precision: a convex problem, whose answer does not depend on the order in which a
GPU with more or fewer multiprocessors adds things up. With `--cpu` it learns a line without PyTorch, for rehearsals.
"""

import sys
import time


def on_gpu(steps: int) -> None:
    import torch  # noqa: PLC0415 (a rehearsal does without)

    torch.manual_seed(7)
    device = torch.device("cuda")
    layers = [torch.nn.Linear(256, 512), torch.nn.Tanh(), torch.nn.Linear(512, 512), torch.nn.Tanh()]
    features = torch.nn.Sequential(*layers).double().to(device)
    head = torch.nn.Linear(512, 1).double().to(device)
    data = torch.randn(4096, 256, dtype=torch.float64).to(device)
    target = data[:, :8].sum(1, keepdim=True).sin()
    optimiser = torch.optim.SGD(head.parameters(), lr=0.02)
    began = time.perf_counter()
    loss = torch.zeros(1)
    for step in range(steps):
        rows = slice(step * 256 % 4096, step * 256 % 4096 + 256)
        loss = torch.nn.functional.mse_loss(head(features(data[rows])), target[rows])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.cuda.synchronize()
    report(loss.item(), began)


def on_cpu(steps: int) -> None:
    began = time.perf_counter()
    slope = loss = 0.0
    for step in range(steps):
        x = step % 7 / 7
        error = slope * x - 3 * x
        slope -= 1e-4 * error * x
        loss += error * error
    report(loss / steps, began)


def report(loss: float, began: float) -> None:
    print(f"loss {loss:.6f} in {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    (on_cpu if "--cpu" in sys.argv[2:] else on_gpu)(int(sys.argv[1]))
