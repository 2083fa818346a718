"""Cases of process_group_test.py: a group whose ranks change while its processes run, as torch has it from 2.15 on."""
import datetime
import os
import signal

import torch
import torch.distributed as dist

import trainyard as ty
from process_group_programs import train
from process_group_rank import LIMIT, expect
from trainyard.torch._backend import register

SHORT = datetime.timedelta(seconds=1)


class Meeting:
    """Handles by torch's store, as programs exchange them."""

    def __init__(self):
        register()
        dist.init_process_group("trainyard", timeout=LIMIT, enable_reconfigure=True)
        self.me = int(os.environ["RANK"])
        self.store = dist.distributed_c10d._get_default_store()

    def handles(self, uuid, members):
        self.store.set(f"{uuid}/{self.me}", dist._get_reconfigure_handle())
        return [self.store.get(f"{uuid}/{each}").decode() for each in members]

    def form(self, uuid, members, kind=list):
        work = dist._reconfigure(uuid=uuid, handles=kind(self.handles(uuid, members)))
        assert work.wait() and work.is_completed()
        assert dist.get_world_size() == dist.group.WORLD.size() == len(members)

    def check_sum(self, members):
        """That operations, DistributedDataParallel among them, have these ranks."""
        tensor = torch.tensor([float(self.me)])
        dist.all_reduce(tensor)
        assert tensor.item() == sum(members), (tensor, members)
        every = [None] * len(members)
        dist.all_gather_object(every, train(dist.group.WORLD)[1:])
        assert all(torch.equal(one, other) for each in every for one, other in zip(every[0], each)), "weights differ"


def case_reconfigure():
    """First two of three, then all in another order, then those that are left of them when one is killed."""
    meeting = Meeting()
    me = meeting.me
    assert dist._supports_reconfigure()
    expect(ty.NotInitialized, lambda: dist.all_reduce(torch.ones(1)), "_reconfigure()")
    if me != 2:
        meeting.form(1, [1, 0])
        assert dist.get_rank() == 1 - me
        meeting.check_sum([1, 0])
    meeting.form(2, [2, 0, 1])
    assert dist.get_rank() == (me + 1) % 3
    meeting.check_sum([2, 0, 1])
    if me == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    lost = expect(ty.RankLost, lambda: [dist.barrier() for _ in range(1000)], "rank 0")
    assert lost.rank == 0, "by the numbers of the group"
    meeting.form(3, [0, 1], set)
    meeting.check_sum([0, 1])
    # Any number that is new will do: this one is larger than what the library counts groups by.
    meeting.form(1 << 62, [0, 1])
    meeting.check_sum([0, 1])
    dist.destroy_process_group()


def case_reconfigure_mistakes():
    register()
    expect(ty.InvalidArgument, lambda: dist.init_process_group(
        "cpu:trainyard,cuda:gloo", store=dist.HashStore(), rank=0, world_size=1, enable_reconfigure=True), "one backend")
    meeting = Meeting()
    me = meeting.me
    handles = meeting.handles(1, [0, 1])
    for given, words in (([handles[1 - me]], "not among"), ([], "0 handles"),
                         ([handles[me]] * 2, "2 handles, of which 1 differ"),
                         ([handles[me], "gloo:0:-1:0:127.0.0.1:1"], "'gloo:0:-1:0:127.0.0.1:1'")):
        expect(ty.InvalidArgument, lambda: dist._reconfigure(uuid=1, handles=given), words)
    if me == 0:
        expect(ty.TimedOut, lambda: dist._reconfigure(uuid=1, handles=handles, timeout=SHORT), "rank 1")
        expect(ty.InvalidArgument, lambda: dist._reconfigure(uuid=2, handles=handles), "one reconfigure()")
        meeting.store.set("over", "")
    # The other one has not come, and its handle is still good.
    meeting.store.get("over")
    meeting.form(2, [0, 1])
    meeting.check_sum([0, 1])
    dist.destroy_process_group()
