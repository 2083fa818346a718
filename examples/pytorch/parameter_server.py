"""The same on parameter servers, or in a ring, as the job's file says: trainyard run -f parameter_server.yaml"""
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import fashion
import trainyard as ty
import trainyard.torch as tyt

train, tests = fashion.pictures(), fashion.pictures("t10k")
net = fashion.convolutions()
job = ty.job()
optimizer = tyt.ServerOptimizer(net, job)
loader = DataLoader(train, batch_sampler=job.batches(len(train)))
test_loader = DataLoader(tests, batch_sampler=job.evaluation_batches(len(tests), 1000))


def evaluate():
    for x, y in job.evaluate(test_loader):
        job.scored((net(x).argmax(1) == y).sum(), len(y))


for x, y in job.steps(loader, evaluate):
    optimizer.zero_grad()
    loss = cross_entropy(net(x), y)
    loss.backward()
    optimizer.step(loss)
