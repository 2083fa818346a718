"""One rank of bench/client.py and bench/bandwidth: torch.distributed with the backend in BACKEND; with SIZES nothing but
all_reduce of so many bytes. Rank 0 prints a JSON object."""
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn

STEPS, WARM_UP = 30, 5


def network():
    """25 MB of parameters in two layers that matter."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 256),
                         nn.ReLU(), nn.Linear(256, 10))


def milliseconds(act, times):
    """The slowest rank's median of `act`, which begins with all ranks."""
    taken = []
    for i in range(times + WARM_UP):
        dist.barrier()
        begin = time.perf_counter()
        act()
        if i >= WARM_UP:
            taken.append((time.perf_counter() - begin) * 1e3)
    mine = torch.tensor([statistics.median(taken)], dtype=torch.float64)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return mine.item()


def ddp_step():
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())
    x, y = torch.randn(16, 784), torch.randint(0, 10, (16,))

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()

    return milliseconds(step, STEPS)


def leave(result):
    if dist.get_rank() == 0:
        print(json.dumps(result))
    dist.destroy_process_group()


def main():
    torch.set_num_threads(1)
    backend = os.environ["BACKEND"]
    if backend == "trainyard":
        import trainyard.torch  # noqa: F401  it registers the backend
    dist.init_process_group(backend)
    if "SIZES" in os.environ:  # bytes
        arrays = {int(size): torch.ones(int(size) // 4) for size in os.environ["SIZES"].split()}
        leave({size: milliseconds(lambda a=array: dist.all_reduce(a), 100 if size < 1 << 20 else 15)
               for size, array in arrays.items()})
        return
    small, large = torch.ones(256), torch.ones(6_000_000)
    leave({
        "DDP, 25 MB, forward and backward": ddp_step(),
        "all_reduce of 24 MB": milliseconds(lambda: dist.all_reduce(large), STEPS),
        "all_reduce of 1 KB": milliseconds(lambda: dist.all_reduce(small), 300),
    })


if __name__ == "__main__":
    main()
