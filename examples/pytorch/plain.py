"""Fashion-MNIST in one process."""
import os

import torch
from torch.nn.functional import cross_entropy

import fashion

STEPS, BATCH = int(os.environ.get("STEPS", 300)), 128

net = fashion.network()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
begin = fashion.resume(net, optimizer)
images, labels = fashion.data()
for step in range(begin, STEPS):
    x, y = fashion.batch(images, labels, step, BATCH)
    optimizer.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    if (step + 1) % 50 == 0:
        print(f"step {step + 1}: loss {loss.item():.4f}, accuracy {fashion.accuracy(net):.4f}", flush=True)
        fashion.save(net, optimizer, step + 1)
