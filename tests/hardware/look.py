"""What a job sees of its GPU, as one line of JSON. Run by jobs, with PyTorch."""

import json
import sys
import time

import torch

role, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
properties = torch.cuda.get_device_properties(0)
matrix = torch.randn(512, 512, device="cuda")
if role == "idle":
    time.sleep(seconds)
until = time.time() + seconds
while role != "idle" and time.time() < until:
    matrix = torch.nn.functional.normalize(matrix @ matrix)
    torch.cuda.synchronize()
matrix.sum().item()
refused = False
if role == "hog":
    gib = int(sys.argv[3])
    try:
        torch.empty(gib << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        refused = True
if role == "bad":
    beyond = torch.tensor([10**9], device="cuda")
    print(matrix.view(-1)[beyond].item())
if role == "wild":
    write = "template <typename T> T wild(T x) { *(volatile int*)(x == x ? 64 : 128) = 1; return x; }"
    torch.cuda.jiterator._create_jit_fn(write)(matrix)
    torch.cuda.synchronize()
print(
    json.dumps(
        {
            "role": role,
            "devices": torch.cuda.device_count(),
            "memory_mib": properties.total_memory >> 20,
            "multiprocessors": properties.multi_processor_count,
            "refused": refused,
        }
    )
)
