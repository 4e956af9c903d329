"""A small training job, as many of them are: a few layers, small batches, seconds of work. Prints its result.

Only the last layer learns, in double precision: a convex problem, whose answer does not depend on the order in which a
GPU with more or fewer multiprocessors adds things up.
"""

import sys
import time

import torch

steps = int(sys.argv[1])
torch.manual_seed(7)
device = torch.device("cuda")
model = (
    torch.nn.Sequential(
        torch.nn.Linear(256, 512),
        torch.nn.Tanh(),
        torch.nn.Linear(512, 512),
        torch.nn.Tanh(),
        torch.nn.Linear(512, 1),
    )
    .double()
    .to(device)
)
data = torch.randn(4096, 256, dtype=torch.float64, device=device)
target = data[:, :8].sum(1, keepdim=True).sin()
optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
began = time.perf_counter()
loss = torch.zeros(1)
for step in range(steps):
    rows = slice(step * 256 % 4096, step * 256 % 4096 + 256)
    loss = torch.nn.functional.mse_loss(model(data[rows]), target[rows])
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
torch.cuda.synchronize()
print(f"loss {loss.item():.6f} in {time.perf_counter() - began:.2f} s")
