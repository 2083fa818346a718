"""Fashion-MNIST with Horovod's names over Trainyard: trainyard run -np 2 -- python3 horovod_names.py"""
import os

import torch
import trainyard.torch as hvd
from torch.nn.functional import cross_entropy

import fashion

STEPS, BATCH = int(os.environ.get("STEPS", 300)), 128

hvd.init()
net = fashion.network()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
begin = fashion.resume(net, optimizer)
hvd.broadcast_parameters(net.state_dict(), root_rank=0)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters())
images, labels = fashion.data()
for step in range(begin, STEPS):
    x, y = fashion.batch(images, labels, step, BATCH, hvd.rank(), hvd.size())
    optimizer.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    if (step + 1) % 50 == 0 and hvd.rank() == 0:
        print(f"step {step + 1}: loss {loss.item():.4f}, accuracy {fashion.accuracy(net):.4f}", flush=True)
        fashion.save(net, optimizer, step + 1)
