"""pytorch_check.py RANKS: PyTorch's NCCL backend on the libnccl.so.2 that is preloaded, ranks sharing the GPUs that are there:
all_reduce, reduce_scatter_tensor, all_gather_into_tensor, and data-parallel training of a small model against the same
steps without it. Status 1 if something is wrong."""
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 8))


def batch(step, rank):
    torch.manual_seed(1000 * step + rank)
    return torch.randn(16, 64), torch.randn(16, 8)


def train(net, batches_of, steps=3):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(steps):
        optimizer.zero_grad()
        batches = batches_of(step)
        loss = sum(torch.nn.functional.mse_loss(net(x), y) for x, y in batches) / len(batches)
        loss.backward()
        optimizer.step()


def run(rank, ranks, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", rank=rank, world_size=ranks)

    ours = torch.full((100_003,), rank + 1.0, device=device)
    dist.all_reduce(ours)
    assert torch.all(ours == ranks * (ranks + 1) / 2), "all_reduce"

    part = torch.empty(1000, device=device)
    dist.reduce_scatter_tensor(part, torch.arange(1000.0 * ranks, device=device))
    assert torch.equal(part, ranks * torch.arange(1000.0 * rank, 1000.0 * (rank + 1), device=device)), "reduce_scatter_tensor"

    whole = torch.empty(1000 * ranks, device=device)
    dist.all_gather_into_tensor(whole, torch.full((1000,), float(rank), device=device))
    assert torch.equal(whole.view(ranks, 1000)[:, 0], torch.arange(float(ranks), device=device)), "all_gather_into_tensor"

    here = [tuple(t.to(device) for t in batch(step, rank)) for step in range(3)]
    parallel = torch.nn.parallel.DistributedDataParallel(model().to(device), device_ids=[device.index])
    train(parallel, lambda step: [here[step]])
    alone = model().to(device)
    train(alone, lambda step: [tuple(t.to(device) for t in batch(step, r)) for r in range(ranks)])
    for a, b in zip(parallel.module.parameters(), alone.parameters()):
        assert torch.allclose(a, b, rtol=1e-4, atol=1e-5), "DistributedDataParallel"
    torch.cuda.synchronize()
    dist.destroy_process_group()


def main():
    ranks = int(sys.argv[1])
    with open("/proc/self/maps") as maps:
        assert "libmuster.so" in maps.read(), "libmuster.so isn't loaded: was its libnccl.so.2 preloaded?"
    version = ".".join(map(str, torch.cuda.nccl.version()))
    mp.spawn(run, args=(ranks, 20000 + os.getpid() % 20000), nprocs=ranks)
    print(f"PyTorch {torch.__version__} by NCCL {version}, {ranks} ranks: collectives and DistributedDataParallel are right")


if __name__ == "__main__":
    main()
