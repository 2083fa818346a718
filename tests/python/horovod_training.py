"""What every rank of horovod_test.py does: training, against one process with the joined batch."""
import copy
import itertools
import warnings

import torch
from torch import nn
from torch.nn import functional

import trainyard
import trainyard.torch as hvd
from horovod_operations import expect, raises

BATCH = 6


def network(seed=1):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 3))


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return (torch.randn(BATCH, 5, generator=generator),
            torch.randint(0, 3, (BATCH,), generator=generator))


def joined(step):
    parts = [batch(step, rank) for rank in range(hvd.size())]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def alone(make=sgd, steps=5):
    """The weights of one process that saw all ranks' batches."""
    model = network()
    optimizer = make(model)
    for step in range(steps):
        optimizer.zero_grad()
        x, y = joined(step)
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return list(model.parameters())


def together(make=sgd, steps=5, **options):
    model = network()
    optimizer = hvd.DistributedOptimizer(make(model), model.named_parameters(), **options)
    for step in range(steps):
        optimizer.zero_grad()
        x, y = batch(step, hvd.rank())
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return list(model.parameters())


def close(actual, wanted, tolerance=1e-6):
    for at, (one, other) in enumerate(zip(actual, wanted)):
        difference = (one - other).abs().max().item()
        assert difference <= tolerance, (at, difference)


def case_equals_one_process():
    close(together(), alone())


def case_equals_one_process_with_adam():
    make = lambda model: torch.optim.Adam(model.parameters(), lr=0.01)  # noqa: E731
    close(together(make), alone(make), 1e-5)


def case_predivide_and_groups():
    wanted = alone()
    close(together(gradient_predivide_factor=2.0), wanted)
    close(together(groups=2), wanted)
    close(together(groups=100, sparse_as_dense=True), wanted)
    model = network()
    weights = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), groups=[weights])
    for step in range(5):
        optimizer.zero_grad()
        x, y = batch(step, hvd.rank())
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    close(model.parameters(), wanted)


def case_compression():
    for compression, tolerance in ((hvd.Compression.fp16, 2e-3), (hvd.Compression.bf16, 2e-2)):
        close(together(compression=compression), alone(), tolerance)

    class Halving(hvd.Compression.none):
        """A compressor of the script's own."""

        @staticmethod
        def compress(tensor):
            return tensor / 2, None

        @staticmethod
        def decompress(tensor, ctx):
            return tensor * 2

    close(together(compression=Halving), alone())


def case_sum():
    one, other = network(), network()
    summed = hvd.DistributedOptimizer(
        torch.optim.SGD(one.parameters(), 0.1 / hvd.size()), one.named_parameters(), op=hvd.Sum)
    averaged = hvd.DistributedOptimizer(torch.optim.SGD(other.parameters(), 0.1))
    x, y = batch(0, hvd.rank())
    for model, optimizer in ((one, summed), (other, averaged)):
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    close(one.parameters(), other.parameters())


def case_backward_passes():
    passes = 3
    model, reference = network(), network()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters(),
                                         backward_passes_per_step=passes)
    single = sgd(reference)
    for step in range(2):
        optimizer.zero_grad()
        single.zero_grad()
        for at in range(passes):
            x, y = batch(10 * step + at, hvd.rank())
            functional.cross_entropy(model(x), y).backward()
            x, y = joined(10 * step + at)
            functional.cross_entropy(reference(x), y).backward()
        optimizer.step()
        single.step()
    close(model.parameters(), reference.parameters())
    # The averages of gradients are theirs, whenever they were formed.
    x, y = batch(0, hvd.rank())
    functional.cross_entropy(model(x), y).backward()
    optimizer.step()  # Sooner than it was told: what there is is taken.


def case_too_many_passes():
    if hvd.size() == 1:
        return
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    x, y = batch(0, hvd.rank())
    functional.cross_entropy(model(x), y).backward()
    error = raises(AssertionError, lambda: functional.cross_entropy(model(x), y).backward())
    assert "backward_passes_per_step" in str(error)
    raises(AssertionError, optimizer.zero_grad, "zero_grad")
    optimizer.synchronize()
    optimizer.zero_grad()


def case_unused_parameters():
    """One that has no gradient on this rank counts as zeros; `.grad` is the average of the others'."""
    model = nn.ModuleList([nn.Linear(2, 2, bias=False) for _ in range(3)])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1),
                                         model.named_parameters())
    x = torch.ones(1, 2)
    for _ in range(2):
        optimizer.zero_grad()
        used = model[0](x) if hvd.rank() == 0 else model[1](x)
        used.sum().backward()
        optimizer.step()
        if hvd.size() > 1:
            expect(model[0].weight.grad, torch.full((2, 2), 1.0) / hvd.size())
            expect(model[2].weight.grad, torch.zeros(2, 2))


def case_clipping():
    model = network()
    optimizer = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    x, y = batch(0, hvd.rank())
    functional.cross_entropy(model(x), y).backward()
    optimizer.synchronize()
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    with optimizer.skip_synchronize(), warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(one.message) for one in caught)


def case_sparse_gradients():
    for as_dense in (False, True):
        torch.manual_seed(2)
        table, head = nn.Embedding(20, 4, sparse=True), nn.Linear(4, 1)
        plain_table, plain_head = copy.deepcopy(table), copy.deepcopy(head)
        named = [*table.named_parameters("table"), *head.named_parameters("head")]
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([one for _, one in named], 0.1), named, sparse_as_dense=as_dense)
        plain = torch.optim.SGD([*plain_table.parameters(), *plain_head.parameters()], 0.1)
        for step in range(3):
            rows = [torch.tensor([(3 * rank + step) % 20, 7]) for rank in range(hvd.size())]
            optimizer.zero_grad()
            head(table(rows[hvd.rank()])).mean().backward()
            optimizer.step()
            assert table.weight.grad.is_sparse
            plain.zero_grad()
            plain_head(plain_table(torch.cat(rows))).mean().backward()
            plain.step()
        close([table.weight, head.weight], [plain_table.weight, plain_head.weight])


def case_sparse_on_one_rank_only():
    """A table that only rank 0 reads: the others have no gradient, and it is sparse all the same."""
    tables = nn.ModuleList([nn.Embedding(6, 2, sparse=True) for _ in range(2)])
    nn.init.zeros_(tables[1].weight)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(tables.parameters(), 1.0),
                                         tables.named_parameters())
    for _ in range(2):
        optimizer.zero_grad()
        total = tables[0](torch.tensor([1])).sum()
        if hvd.rank() == 0:
            total = total + tables[1](torch.tensor([2])).sum()
        total.backward()
        optimizer.step()
    expect(tables[1].weight[2], torch.full((2,), -2.0 / hvd.size()))


def case_names():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    both = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.1)
    twice = list(itertools.chain(first.named_parameters(), second.named_parameters()))
    raises(ValueError, lambda: hvd.DistributedOptimizer(both, twice), "unique", "weight")
    raises(ValueError, lambda: hvd.DistributedOptimizer(both, first.named_parameters()), "lacks")
    raises(ValueError, lambda: hvd.DistributedOptimizer(both, list(first.parameters())), "tuples")
    for wrong in ({"backward_passes_per_step": 0}, {"groups": -1}, {"groups": [["x"]]},
                  {"op": hvd.Sum, "gradient_predivide_factor": 2.0},
                  {"groups": [[first.weight], [first.weight]]}):
        raises(ValueError, lambda: hvd.DistributedOptimizer(both, **wrong))
    raises(NotImplementedError, lambda: hvd.DistributedOptimizer(both, op=hvd.Adasum))


def case_ranks_that_differ():
    """Found out when the optimizer is made, on all ranks, and the group lives on."""
    if hvd.size() == 1:
        return
    model = nn.Linear(3, 4 + hvd.rank() % 2)
    raises(trainyard.Mismatch,
           lambda: hvd.DistributedOptimizer(sgd(model), model.named_parameters()), "weight")
    model = network()
    raises(trainyard.Mismatch, lambda: hvd.DistributedOptimizer(
        sgd(model), model.named_parameters(), gradient_predivide_factor=1.0 + hvd.rank()))
    state = model.state_dict() if hvd.rank() else nn.Linear(1, 1).state_dict()
    raises(trainyard.Mismatch, lambda: hvd.broadcast_parameters(state, 0))
    expect(hvd.allreduce(torch.ones(2)), torch.ones(2))


def case_wrapping_keeps_what_was():
    """State, groups, class, schedulers and parameters added later."""
    model = network()
    inner = sgd(model)
    functional.cross_entropy(model(batch(0, 0)[0]), batch(0, 0)[1]).backward()
    inner.step()
    inner.zero_grad()
    scheduler = torch.optim.lr_scheduler.StepLR(inner, 1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(inner, model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
    assert optimizer.state and optimizer.param_groups is inner.param_groups
    later = nn.Parameter(torch.zeros(2))
    optimizer.add_param_group({"params": [later], "lr": 1.0, "momentum": 0.0})
    (later * (hvd.rank() + 1)).sum().backward()
    optimizer.step()
    expect(later, torch.full((2,), -sum(range(1, hvd.size() + 1)) / hvd.size()))
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05
    copy.deepcopy(optimizer).step()


def case_broadcast_parameters():
    model = network(seed=hvd.rank() + 1)
    model.add_module("norm", nn.BatchNorm1d(3))
    root = hvd.size() - 1
    hvd.broadcast_parameters(model.state_dict(), root)
    close(list(model.parameters())[:6], network(seed=root + 1).parameters(), 0)
    hvd.broadcast_parameters(list(model.named_parameters()), 0)
    crossed = [torch.full((3, 2), float(hvd.rank())).t()]
    hvd.broadcast_parameters(crossed, root)
    expect(crossed[0], torch.full((2, 3), float(root)))
    hvd.broadcast_parameters({}, 0)
    raises(ValueError, lambda: hvd.broadcast_parameters(7, 0))
    raises(ValueError, lambda: hvd.broadcast_parameters({"epoch": 3}, 0), "broadcast_object")


def stepped(kind, model, **options):
    optimizer = kind(model.parameters(), **options)
    for step in range(2):
        optimizer.zero_grad()
        x, y = batch(step, 0)
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return optimizer


def case_broadcast_optimizer_state():
    """Options and state, where all have some, and where only the root has."""
    kinds = [(torch.optim.SGD, dict(lr=0.1, momentum=0.9)), (torch.optim.Adam, dict(lr=0.1)),
             (torch.optim.RMSprop, dict(lr=0.1)), (torch.optim.Adagrad, dict(lr=0.1))]
    for (kind, options), all_have in itertools.product(kinds, (True, False)):
        model = network()
        if hvd.rank() == 0 or all_have:
            optimizer = stepped(kind, model, **{**options, "lr": options["lr"] * (1 + hvd.rank())})
        else:
            optimizer = kind(model.parameters(), lr=9.0)
        hvd.broadcast_optimizer_state(optimizer, 0)
        wanted = stepped(kind, network(), **options).state_dict()
        state = optimizer.state_dict()
        assert state["param_groups"] == wanted["param_groups"], (kind, all_have)
        assert state["state"].keys() == wanted["state"].keys()
        for at, values in wanted["state"].items():
            for key, value in values.items():
                assert type(state["state"][at][key]) is type(value)
                if isinstance(value, torch.Tensor):
                    expect(state["state"][at][key], value)
                else:
                    assert state["state"][at][key] == value


def case_broadcast_empty_optimizer_state():
    model = network()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1 + hvd.rank(), momentum=0.5, weight_decay=0.1))
    before = [parameter.clone() for parameter in model.parameters()]
    hvd.broadcast_optimizer_state(optimizer, 0)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert not optimizer.state_dict()["state"]
    close(model.parameters(), before, 0)
    raises(ValueError, lambda: hvd.broadcast_optimizer_state(
        torch.optim.LBFGS(model.parameters()), 0), "LBFGS")
    tables = nn.ModuleList([nn.Embedding(3, 2, sparse=True), nn.Embedding(3, 2)])
    hvd.broadcast_optimizer_state(torch.optim.SGD(tables.parameters(), 0.1), 0, tables)
    assert tables[0].weight.grad is None and not tables[1].weight.grad.any()


def case_sync_batch_norm():
    """The result and the gradients of one process with the joined batch; batches of any length."""
    size, rank = hvd.size(), hvd.rank()
    parts = [torch.randn(other + 2, 4, 3, generator=torch.Generator().manual_seed(other))
             for other in range(size)]
    own, plain = hvd.SyncBatchNorm(4), nn.BatchNorm1d(4)
    mine = parts[rank].clone().requires_grad_()
    whole = torch.cat(parts).requires_grad_()
    for _ in range(2):
        result, wanted = own(mine), plain(whole)
        begin = sum(len(part) for part in parts[:rank])
        assert torch.allclose(result, wanted[begin:begin + len(mine)], atol=1e-5)
        (result ** 3).sum().backward()
        (wanted ** 3).sum().backward()
    assert torch.allclose(mine.grad, whole.grad[begin:begin + len(mine)], atol=1e-4)
    for name in ("weight", "bias"):
        total = hvd.allreduce(getattr(own, name).grad, op=hvd.Sum)
        assert torch.allclose(total, getattr(plain, name).grad, rtol=1e-4, atol=1e-4), name
    assert torch.allclose(own.running_mean, plain.running_mean, atol=1e-6)
    assert torch.allclose(own.running_var, plain.running_var, atol=1e-6)
    assert own.num_batches_tracked == plain.num_batches_tracked
    own.eval()
    plain.eval()
    assert torch.allclose(own(mine), plain(mine), atol=1e-5)
    raises(ValueError, lambda: own(torch.ones(3)))


CASES = {name[5:]: function for name, function in list(globals().items())
         if name.startswith("case_")}
