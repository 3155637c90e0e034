#!/usr/bin/env python3
"""cuda_hop_count.py BUILD

What one hop of a ring costs our kernels, counted: PTX instructions that the first thread of a block executes between seeing a
message and having told of what it passed on, of an all-reduce of four ranks on simulated GPUs, 16 bytes per thread. A markdown
table on stdout, as in docs/cuda.md. BUILD: a build tree with its tests built. Status 77: it has no simulated GPUs."""
import collections
import glob
import os
import subprocess
import sys
import tempfile

RANKS = 4
THREADS = 512
# Steps of a rank, in order: it sends; receives, adds and passes on (RANKS - 2 times); adds and keeps the result, too; passes
# on results (RANKS - 2 times); receives the last one.
HOPS = {"receive, add, pass on": 1, "receive, add, keep, pass on": RANKS - 1, "receive, keep, pass on": RANKS}
CLASSES = {
    "loads": lambda i: i.startswith("ld.") and ("global" in i or i.startswith(("ld.v", "ld.u", "ld.b", "ld.f"))),
    "stores": lambda i: i.startswith("st.") and ("global" in i or i.startswith(("st.v", "st.u", "st.b", "st.f"))),
    "shared accesses": lambda i: i.startswith(("ld.shared", "st.shared", "atom.shared")),
    "parameters": lambda i: i.startswith("ld.param"),
    "barriers": lambda i: i.startswith(("bar.", "barrier.")),
    "warp collectives": lambda i: i.startswith(("shfl", "vote", "bar.warp", "activemask")),
    "branches": lambda i: i.split(".")[0] in ("bra", "brx"),
}


def class_of(instruction: str) -> str:
    if instruction.startswith("bar.warp"):
        return "warp collectives"
    return next((name for name, fits in CLASSES.items() if fits(instruction)), "arithmetic")


def tally_of(build: str, size: int) -> list[list[str]]:
    """Of each rank: the instructions."""
    program = os.path.join(build, "tests/cuda_sim/perf/all_reduce_perf")
    if not os.path.exists(program):
        print(f"SKIP {program} isn't there: nvcc, of the CUDA toolkit, was not found, or it isn't built")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, CUDASIM_DEVICES=str(RANKS), CUDASIM_TALLY=f"{folder}/tally", NCCL_ALGO="Ring",
                           NCCL_MAX_NCHANNELS="1", NCCL_PROTO="Simple")
        command = [program, "-g", str(RANKS), "-b", str(size), "-e", str(size), "-n", "1", "-w", "0", "-c", "0", "-a", "0"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        tallies = []
        for path in sorted(glob.glob(f"{folder}/tally.*")):
            with open(path, encoding="ascii") as lines:
                tallies.append(lines.read().split())
    if len(tallies) != RANKS:
        sys.exit(f"{len(tallies)} devices ran kernels, not {RANKS}")
    return tallies


def steps_of(instructions: list[str]) -> list[list[str]]:
    """What was executed between the last load of a counter, which was the one awaited, and the store that tells of the step."""
    steps, step = [], None
    for i in instructions:
        if i.startswith("ld.acquire.sys"):
            step = []
        if step is not None:
            step.append(i)
        if i.startswith("st.release.sys") and step is not None:
            steps.append(step)
            step = None
    return steps


def main(build: str) -> None:
    tallies = tally_of(build, RANKS * THREADS * 16)
    names = [*CLASSES, "arithmetic"]
    print("| hop | instructions | " + " | ".join(names) + " |\n|---|" + "---:|" * (len(names) + 1))
    for hop, index in HOPS.items():
        alike = collections.Counter()  # of ranks that have counted the same
        for tally in tallies:
            steps = steps_of(tally)
            if len(steps) < 2 * RANKS - 1:
                sys.exit(f"{len(steps)} steps were counted: the call was no ring")
            counts = collections.Counter(class_of(i) for i in steps[index])
            alike[tuple(counts[n] for n in names)] += 1
        columns = alike.most_common(1)[0][0]
        print(f"| {hop} | {sum(columns)} | " + " | ".join(map(str, columns)) + " |")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
