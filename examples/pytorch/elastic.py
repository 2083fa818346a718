"""The same with torch's own optimizer, on workers that come and go: trainyard run -f elastic.yaml"""
import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import fashion
import trainyard as ty
import trainyard.torch as tyt

train, tests = fashion.pictures(), fashion.pictures("t10k")
net = fashion.convolutions()
job = ty.job()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
state = tyt.State(job, net, optimizer)
loader = DataLoader(train, batch_sampler=job.batches(len(train)))
test_loader = DataLoader(tests, batch_sampler=job.evaluation_batches(len(tests), 1000))


def evaluate():
    for x, y in job.evaluate(test_loader):
        job.scored((net(x).argmax(1) == y).sum(), len(y))


for x, y in job.steps(loader, evaluate):
    optimizer.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    state.step(loss)
