"""One worker of bench/session.py: steps of the same network by the way that WAY names. Index 0 prints a JSON object."""
import json
import os
import statistics
import time

import torch
from torch.nn.functional import cross_entropy

from client_torch import network

WAY, STEPS, WARM_UP, BATCH = os.environ["WAY"], int(os.environ["STEPS"]), 20, 16


def timed(steps, index):
    """The steps; in the end worker 0 tells the median of milliseconds from one to the next, behind the warm-up."""
    taken, before = [], None
    for batch in steps:
        now = time.perf_counter()
        if before is not None:
            taken.append((now - before) * 1e3)
        before = now
        yield batch
    if index == 0:
        print(json.dumps({"milliseconds": statistics.median(taken[WARM_UP:])}), flush=True)


torch.set_num_threads(1)
net = network()
# The same batch in each step: what is measured is what follows from it.
x, y = torch.randn(BATCH, 784), torch.randint(0, 10, (BATCH,))
if WAY in ("state", "server"):
    import trainyard as ty
    import trainyard.torch as tyt

    job = ty.job()
    torchs = torch.optim.SGD(net.parameters(), lr=0.01)
    keeper = tyt.State(job, net, torchs) if WAY == "state" else tyt.ServerOptimizer(net, job)
    for _ in timed(job.steps(job.batches(2 * BATCH)), job.index):
        torchs.zero_grad()
        loss = cross_entropy(net(x), y)
        loss.backward()
        keeper.step(loss)
else:
    import torch.distributed as dist

    if WAY == "trainyard":
        import trainyard.torch  # noqa: F401  it registers the backend
    dist.init_process_group(WAY)
    model = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in timed(range(STEPS), dist.get_rank()):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    dist.destroy_process_group()
