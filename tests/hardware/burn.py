"""A load of known size on a GPU, for SECONDS once its input ends; then one line of what it did, as JSON.

    python3 burn.py MEMORY_MIB DUTY_PERCENT SECONDS </dev/null

Before, it takes its memory and says that it has begun, so that several can start at one time. Of every 100 ms it
multiplies matrices for as many percent and sleeps for the rest.
"""

import json
import sys
import time

import torch

SIZE = 4096


def main() -> None:
    memory_mib, duty, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    held = torch.ones(memory_mib << 20, dtype=torch.uint8, device="cuda")
    left = torch.randn(SIZE, SIZE, dtype=torch.bfloat16, device="cuda")
    right = torch.randn(SIZE, SIZE, dtype=torch.bfloat16, device="cuda")
    _ = left @ right
    torch.cuda.synchronize()
    print(json.dumps({"begun": True}), flush=True)
    sys.stdin.read()
    began = time.monotonic()
    products, busy_s = 0, 0.0
    while (now := time.monotonic()) < began + seconds:
        while duty and time.monotonic() - now < duty / 1000:
            for _turn in range(4):
                right = left @ right * 1e-3
            torch.cuda.synchronize()
            products += 4
        busy_s += time.monotonic() - now if duty else 0.0
        time.sleep(max(0.0, now + 0.1 - time.monotonic()))
    took_s = time.monotonic() - began
    print(
        json.dumps(
            {
                "memory_mib": torch.cuda.memory_reserved() >> 20,
                "held_mib": held.numel() >> 20,
                "tflop": products * 2 * SIZE**3 / 1e12,
                "busy": round(1000 * busy_s / took_s),
                "seconds": took_s,
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
