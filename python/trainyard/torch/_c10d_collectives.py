"""The collectives of torch.distributed by those of a group.

Names and signatures are those of torch's ProcessGroup and Backend, through all their versions.
"""
from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

from trainyard import Group, InvalidArgument, Reduction
from trainyard import Work as TrainyardWork
from trainyard.torch._c10d_reduction import Reducing, reducing_of
from trainyard.torch._c10d_tensors import (Outputs, check_dense, check_same, joined, moved, packed, reduced,
                                           single, units)
from trainyard.torch._c10d_work import Work

Tensors = List[torch.Tensor]


class Collectives:
    """What needs all ranks. All methods return at once; the Work tells when it is done.

    Errors of all of them, at once: trainyard.InvalidArgument, for a tensor that is not of the CPU, sparse, of a wrong
    size or type (UnsupportedType, a TypeError). By the Work: those of trainyard.Group.
    """

    _group: Group
    _operations = 0

    # ---- To all ---------------------------------------------------------------------------------

    def broadcast(self, tensors: Any, opts: Any = None, root: int = 0) -> Work:
        """The tensor becomes that of the root."""
        tensor = single(tensors, "broadcast")
        root = opts if isinstance(opts, int) else getattr(opts, "rootRank", root)
        outputs = Outputs()
        plain = outputs.of(tensor)
        return self._work([self._group.broadcast(moved(plain), root, async_=_is_async(opts))], [tensor], outputs)

    def allreduce(self, tensors: Any, opts: Any = None, op: Any = None) -> Work:
        """The tensor becomes the reduction of all ranks'."""
        tensor = tensors if isinstance(tensors, torch.Tensor) else None
        if tensor is None and len(tensors) == 1:
            tensor = tensors[0]
        if tensor is None:
            raise InvalidArgument("allreduce: one tensor at a time; several travel together in allreduce_coalesced")
        if tensor.layout == torch.sparse_coo:
            return self.allreduce_sparse([tensor], opts if op is None else op)
        return self._reduce_all([tensor], reducing_of(opts if op is None else op), "allreduce", _is_async(opts))

    def allreduce_coalesced(self, tensors: Tensors, opts: Any = None) -> Work:
        """Each tensor becomes the reduction of all ranks'; those of one type travel together."""
        return self._reduce_all(tensors, reducing_of(opts), "allreduce_coalesced", _is_async(opts))

    def _reduce_all(self, tensors: Sequence[torch.Tensor], reducing: Reducing, what: str,
                    async_: bool = True) -> Work:
        outputs = Outputs()
        arrays = []
        for tensor in tensors:
            check_dense(tensor, what)
            arrays.append(reduced(outputs.of(tensor), what, reducing.linear))
        work = self._group.all_reduce(arrays, reducing.reduction, prescale=reducing.prescale, async_=async_)
        return self._work([work], list(tensors), outputs)

    def allreduce_sparse(self, tensors: Tensors, opts: Any = None) -> Work:
        """The sum of all ranks' sparse tensors. It is done when this returns."""
        tensor = _sparse(tensors, reducing_of(opts))
        mine = tensor.coalesce()
        counts = torch.zeros(self._group.size, dtype=torch.int64)
        self._group.all_gather(torch.tensor([mine._nnz()]), counts)
        indices = self._gather_columns(mine.indices(), counts)
        values = self._gather_columns(mine.values().reshape(mine._nnz(), -1).t(), counts).t()
        total = torch.sparse_coo_tensor(indices, values.reshape(-1, *mine.values().shape[1:]), mine.shape).coalesce()
        with torch.no_grad():
            tensor.copy_(total)
        return self._work([], [tensor])

    def _gather_columns(self, mine: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """All ranks' columns (of [rows, counts[r]]) beside each other."""
        rows = mine.shape[0]
        every = mine.new_empty(int(counts.sum()) * rows)
        sizes = [int(count) * rows * units(every) for count in counts]
        self._group.all_gather(moved(packed(mine.t())), moved(every), counts=sizes)
        return every.view(-1, rows).t()

    def barrier(self, opts: Any = None) -> Work:
        """Done when all ranks have come."""
        return self._work([self._group.barrier(async_=_is_async(opts))], [])

    # ---- To one, from one -----------------------------------------------------------------------

    def reduce(self, tensors: Any, opts: Any = None, root: int = 0, op: Any = None) -> Work:
        """The root's tensor becomes the reduction of all ranks'; the others' stay as they are."""
        tensor = single(tensors, "reduce")
        root = opts if isinstance(opts, int) else getattr(opts, "rootRank", root)
        self._check_root(root, "reduce")
        reducing = reducing_of(op if op is not None or isinstance(opts, int) else opts)
        plain = tensor if self._group.rank == root else packed(tensor).clone()
        work = self._reduce_all([plain], reducing, "reduce")
        work._tensors = [tensor]
        return work

    def gather(self, output_tensors: Any, input_tensors: Any, opts: Any = None, root: int = 0) -> Work:
        """The root's list becomes all ranks' tensors."""
        tensor = single(input_tensors, "gather")
        root = opts if isinstance(opts, int) else getattr(opts, "rootRank", root)
        self._check_root(root, "gather")
        ranks, outputs = self._group.size, Outputs()
        into, received = tensor.new_empty(0), [0] * ranks
        results: Tensors = []
        if self._group.rank == root:
            results = self._list_of(output_tensors, tensor, "gather")
            into = outputs.joined(results, filled=False)
            received = [each.numel() * units(tensor) for each in results]
        plain = packed(tensor)
        sent = [plain.numel() * units(plain) if each == root else 0 for each in range(ranks)]
        return self._work([self._exchange(plain, sent, into, received)], results, outputs)

    def scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None, root: int = 0) -> Work:
        """Each rank's tensor becomes its one of the root's list."""
        tensor = single(output_tensors, "scatter")
        root = opts if isinstance(opts, int) else getattr(opts, "rootRank", root)
        self._check_root(root, "scatter")
        ranks, outputs = self._group.size, Outputs()
        source, sent = tensor.new_empty(0), [0] * ranks
        if self._group.rank == root:
            given = self._list_of(input_tensors, tensor, "scatter")
            source, sent = joined(given), [each.numel() * units(tensor) for each in given]
        plain = outputs.of(tensor)
        received = [plain.numel() * units(plain) if each == root else 0 for each in range(ranks)]
        return self._work([self._exchange(source, sent, plain, received)], [tensor], outputs)

    # ---- From all to all ------------------------------------------------------------------------

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:
        """The list becomes all ranks' tensors, which may differ in size."""
        tensor = single(input_tensors, "allgather")
        results = self._list_of(output_tensors, tensor, "allgather")
        return self._gather_all([results], [tensor])

    def allgather_coalesced(self, output_lists: List[Tensors], input_list: Tensors, opts: Any = None) -> Work:
        """output_lists[r][i] becomes input_list[i] of rank r."""
        if len(output_lists) != self._group.size:
            raise InvalidArgument(
                f"allgather_coalesced: {len(output_lists)} lists of outputs for {self._group.size} ranks")
        if any(len(each) != len(input_list) for each in output_lists):
            raise InvalidArgument(
                f"allgather_coalesced: output lists of other lengths than the {len(input_list)} inputs")
        results = [self._list_of([each[at] for each in output_lists], tensor, "allgather_coalesced")
                   for at, tensor in enumerate(input_list)]
        work = self._gather_all(results, input_list)
        work._tensors = [tensor for each in output_lists for tensor in each]
        return work

    def _gather_all(self, results: List[Tensors], inputs: Tensors) -> Work:
        outputs, works = Outputs(), []
        for targets, tensor in zip(results, inputs):
            flat = outputs.joined(targets, filled=False)
            counts = [each.numel() * units(flat) for each in targets]
            if counts[self._group.rank] != tensor.numel() * units(tensor):
                raise InvalidArgument(f"allgather: invalid tensor size: the input has {tensor.numel()} elements, "
                                      f"and its place {targets[self._group.rank].numel()}")
            works.append(self._group.all_gather(moved(packed(tensor)), moved(flat), counts=counts, async_=True))
        return self._work(works, [tensor for targets in results for tensor in targets], outputs)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """`output` becomes all ranks' `input`, one after the other."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Each output becomes all ranks' input, one after the other."""
        into, works = Outputs(), []
        for output, tensor in zip(outputs, inputs):
            check_same([output], tensor, "all_gather")
            check_dense(tensor, "all_gather")
            if output.numel() != tensor.numel() * self._group.size:
                raise InvalidArgument(
                    f"all_gather: output tensor size must be equal to world_size times input tensor size: "
                    f"{output.numel()} and {self._group.size} times {tensor.numel()} elements")
            works.append(self._group.all_gather(moved(packed(tensor)), moved(into.of(output)),
                                                async_=_is_async(opts)))
        return self._work(works, list(outputs), into)

    def reduce_scatter(self, output_tensors: Any, input_tensors: Any, opts: Any = None, op: Any = None) -> Work:
        """The tensor becomes the reduction of all ranks' tensors at this rank's place of their lists."""
        tensor = single(output_tensors, "reduce_scatter")
        given = self._list_of(input_tensors, tensor, "reduce_scatter")
        if given[self._group.rank].numel() != tensor.numel():
            raise InvalidArgument(f"reduce_scatter: invalid tensor size: the output has {tensor.numel()} elements, "
                                  f"and its input {given[self._group.rank].numel()}")
        reducing = reducing_of(opts if op is None else op)
        outputs = Outputs()
        plain = outputs.of(tensor)
        pairs = 2 if tensor.is_complex() else 1
        work = self._group.reduce_scatter(
            reduced(joined(given), "reduce_scatter", reducing.linear),
            reduced(plain, "reduce_scatter", reducing.linear), reducing.reduction, prescale=reducing.prescale,
            counts=[each.numel() * pairs for each in given], async_=True)
        return self._work([work], [tensor], outputs)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> Work:
        """`output` becomes the reduction of all ranks' part of `input` for this rank."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        """Each output becomes the reduction of all ranks' part of its input for this rank."""
        reducing = reducing_of(opts)
        into, works = Outputs(), []
        for output, tensor in zip(outputs, inputs):
            check_same([output], tensor, "reduce_scatter")
            check_dense(tensor, "reduce_scatter")
            if tensor.numel() != output.numel() * self._group.size:
                raise InvalidArgument(
                    f"reduce_scatter: input tensor must be the same size as output size times world size: "
                    f"{tensor.numel()} and {self._group.size} times {output.numel()} elements")
            works.append(self._group.reduce_scatter(
                reduced(packed(tensor), "reduce_scatter", reducing.linear),
                reduced(into.of(output), "reduce_scatter", reducing.linear), reducing.reduction,
                prescale=reducing.prescale, async_=_is_async(opts)))
        return self._work(works, list(outputs), into)

    def alltoall(self, output_tensors: Tensors, input_tensors: Tensors, opts: Any = None) -> Work:
        """output_tensors[r] becomes input_tensors[rank] of rank r."""
        results = self._list_of(output_tensors, input_tensors[0], "alltoall")
        given = self._list_of(input_tensors, input_tensors[0], "alltoall")
        outputs = Outputs()
        into = outputs.joined(results, filled=False)
        work = self._exchange(joined(given), [each.numel() * units(into) for each in given], into,
                              [each.numel() * units(into) for each in results])
        return self._work([work], results, outputs)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor, output_split_sizes: Sequence[int],
                          input_split_sizes: Sequence[int], opts: Any = None) -> Work:
        """Sends rows of `input`, input_split_sizes[r] of them to rank r, and receives likewise.

        Without sizes the rows are divided equally.
        """
        check_same([output], input, "alltoall")
        outputs = Outputs()
        plain, source = outputs.of(output), packed(input)
        work = self._exchange(source, self._row_counts(source, input_split_sizes), plain,
                              self._row_counts(plain, output_split_sizes))
        return self._work([work], [output], outputs)

    def _row_counts(self, tensor: torch.Tensor, sizes: Sequence[int]) -> List[int]:
        rows, ranks = (tensor.shape[0] if tensor.dim() else 1), self._group.size
        if not sizes:
            if rows % ranks:
                raise InvalidArgument(f"alltoall: tensor's dim 0 does not divide equally across group size: "
                                      f"{rows} rows, {ranks} ranks")
            sizes = [rows // ranks] * ranks
        if len(sizes) != ranks:
            raise InvalidArgument(
                f"alltoall: number of tensor splits not equal to group size: {len(sizes)} and {ranks}")
        if sum(sizes) != rows:
            raise InvalidArgument(
                f"alltoall: split sizes doesn't match total dim 0 size: {list(sizes)} and {rows} rows")
        row = (tensor.numel() // rows if rows else 0) * units(tensor)
        return [size * row for size in sizes]

    def _exchange(self, source: torch.Tensor, sent: Sequence[int], into: torch.Tensor,
                  received: Sequence[int]) -> TrainyardWork:
        work = self._group.all_to_all(moved(source), moved(into), send_counts=sent, receive_counts=received,
                                      async_=True)
        assert work is not None
        return work

    # ---- How ------------------------------------------------------------------------------------

    def _work(self, works: Sequence[Optional[TrainyardWork]], tensors: Tensors,
              outputs: Optional[Outputs] = None) -> Work:
        self._operations += 1
        return Work([each for each in works if each is not None], tensors,
                    outputs.finish() if outputs is not None else None)

    def _check_root(self, root: int, what: str) -> None:
        if not 0 <= root < self._group.size:
            raise InvalidArgument(f"{what}: invalid root rank: {root} is not from 0 to {self._group.size - 1}")

    def _list_of(self, tensors: Any, like: torch.Tensor, what: str) -> Tensors:
        """One tensor for each rank, of the type of `like`: [...] or [[...]]."""
        given = tensors[0] if tensors and not isinstance(tensors[0], torch.Tensor) else tensors
        if len(given) != self._group.size:
            raise InvalidArgument(f"{what}: a list of {len(given)} tensors for {self._group.size} ranks")
        check_dense(like, what)
        check_same(given, like, what)
        return list(given)

    # Names of other versions of torch.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single


def _is_async(opts: Any) -> bool:
    """Newer versions of torch tell when they will wait at once: then this thread carries it out right away."""
    return bool(getattr(opts, "asyncOp", True))


def _sparse(tensors: Tensors, reducing: Reducing) -> torch.Tensor:
    tensor = tensors[0]
    if tensor.device.type != "cpu" or reducing != Reducing(Reduction.SUM):
        raise InvalidArgument("allreduce: sparse tensors of the CPU are summed only")
    return tensor
