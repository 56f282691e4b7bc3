"""Several processes that train one module, each on its share of every step.

Started by ``torchrun``, which tells every process its rank through the environment; without it there is one
process and nothing here does anything. Gradients are averaged once they are computed, so if batch statistics do not
depend on the shares (those of single tasks do not), they are the gradients of one process.

Running means and variances of batch normalisation differ between processes, as each sees other rows. They are
averaged whenever the module is validated or saved; after a validation all have those of the process that validates.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Processes:
    """The processes of a run, seen from one of them."""

    rank: int  # of this process, 0 to ``count - 1``
    count: int
    device: torch.device  # where this process computes

    @property
    def writes(self) -> bool:
        """Whether this is the process that validates and writes files."""
        return self.rank == 0

    def share(self, n_units: int) -> slice:
        """Which of a step's units are those of this process: contiguous shares that differ by one at most."""
        return slice(self.rank * n_units // self.count, (self.rank + 1) * n_units // self.count)

    def average_gradients(self, module: nn.Module) -> None:
        """Average the gradients over the processes, all in one message. Every process must have the same ones."""
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        if self.count == 1 or not gradients:
            return
        averaged = self.mean(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, values in zip(gradients, averaged.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(values.view_as(gradient))

    def mean(self, value: Tensor) -> Tensor:
        """The mean of a tensor over the processes."""
        if self.count > 1:
            dist.all_reduce(value)
            value = value / self.count
        return value

    def gather(self, arrays: Mapping[str, Tensor], n_units: int) -> dict[str, Tensor]:
        """Arrays of all units from those of each process's share, units leading; none if a process has none."""
        if self.count == 1:
            return dict(arrays)
        if float(self.mean(torch.tensor(float(bool(arrays)), device=self.device))) < 1:
            return {}
        whole = {}
        for name in sorted(arrays):
            # Every process adds its share to zeros: shares may differ in length, sums do not round.
            part = arrays[name]
            total = part.new_zeros(n_units, *part.shape[1:])
            total[self.share(n_units)] = part
            dist.all_reduce(total)
            whole[name] = total
        return whole

    def average_buffers(self, module: nn.Module) -> None:
        """Average floating-point buffers, such as running statistics, over the processes."""
        if self.count == 1:
            return
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.copy_(self.mean(buffer.clone()))

    def take_buffers(self, module: nn.Module) -> None:
        """Take over the buffers of the writing process, such as what it fitted to validation classes."""
        if self.count > 1:
            for buffer in module.buffers():
                dist.broadcast(buffer, 0)

    def agree(self, value: float) -> float:
        """The value that the writing process has."""
        if self.count == 1:
            return value
        told = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(told, 0)
        return float(told)


@contextmanager
def processes(
    device: str,  # with "cuda" every process takes the GPU of its local rank
) -> Iterator[Processes]:
    """Join the other processes that ``torchrun`` started, and leave them at the end.

    Raises
    ------
    ValueError
        If there is no such device.
    """
    count, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    here = _device(device, int(os.environ.get("LOCAL_RANK", "0")) if count > 1 else None)
    if count == 1:
        yield Processes(0, 1, here)
        return
    # Functions of this module take the process group as a default argument, if there is one when it is first imported
    # (by any optimiser); the group's threads would then outlive it and could abort the interpreter at its end.
    importlib.import_module("torch.distributed.nn")
    dist.init_process_group("nccl" if here.type == "cuda" else "gloo")
    try:
        yield Processes(rank, count, here)
    finally:
        dist.destroy_process_group()


def _device(name: str, local_rank: int | None) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"training.device: {name!r} is no device; expected one such as 'cpu' or 'cuda'") from None
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(f"training.device is {name!r}, but torch finds no GPU: use 'cpu'")
        if device.index is None:
            device = torch.device("cuda", torch.cuda.current_device() if local_rank is None else local_rank)
        if device.index >= torch.cuda.device_count():
            raise ValueError(f"there are {torch.cuda.device_count()} GPUs, none with number {device.index}")
        torch.cuda.set_device(device)
    return device
