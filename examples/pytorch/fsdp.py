"""Fashion-MNIST with FSDP2 over Trainyard: trainyard run -np 2 -- python3 fsdp.py"""
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
except ImportError:
    sys.exit(f"fully_shard needs torch 2.6 or newer; this is {torch.__version__}")

import fashion
import fashion_sharded
import trainyard.torch  # from torch 2.14 on not needed: torch finds the backend by its name

STEPS, BATCH = int(os.environ.get("STEPS", 300)), 128

dist.init_process_group("trainyard")
rank, ranks = dist.get_rank(), dist.get_world_size()
net = fashion.network()
mesh = init_device_mesh("cpu", (ranks,))
for module in (net[0], net[2], net):  # each layer's weights are whole while it is computed, and in parts otherwise
    fully_shard(module, mesh=mesh)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
begin = fashion_sharded.resume(net, optimizer)
images, labels = fashion.data()
for step in range(begin, STEPS):
    x, y = fashion.batch(images, labels, step, BATCH, rank, ranks)
    optimizer.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    if (step + 1) % 50 == 0:
        if rank == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
        fashion_sharded.save(net, optimizer, step + 1)
accuracy = fashion.accuracy(net)  # by all ranks: each has a part of the weights
if rank == 0:
    print(f"accuracy {accuracy:.4f}")
dist.destroy_process_group()
