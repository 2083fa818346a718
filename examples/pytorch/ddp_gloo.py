"""Fashion-MNIST with DistributedDataParallel over gloo: torchrun --nproc-per-node 2 ddp_gloo.py"""
import os

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import fashion

STEPS, BATCH = int(os.environ.get("STEPS", 300)), 128

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
net = fashion.network()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
begin = fashion.resume(net, optimizer)
model = DistributedDataParallel(net)
images, labels = fashion.data()
for step in range(begin, STEPS):
    x, y = fashion.batch(images, labels, step, BATCH, rank, ranks)
    optimizer.zero_grad()
    loss = cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if (step + 1) % 50 == 0 and rank == 0:
        print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
        fashion.save(net, optimizer, step + 1)
if rank == 0:
    print(f"accuracy {fashion.accuracy(net):.4f}")
dist.destroy_process_group()
