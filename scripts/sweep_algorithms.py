#!/usr/bin/env python3
"""Where one algorithm overtakes another: runs bench/peers/peers_muster with each named setting in turn, round by round,
and prints the time at each size and which setting is fastest. The planner's thresholds come from here.

  scripts/sweep_algorithms.py --ranks 2 --collective all_reduce MUSTER_ALGO=one_shot MUSTER_ALGO=direct
  scripts/sweep_algorithms.py --ranks 2 --memory alloc MUSTER_WINDOWS=0 MUSTER_WINDOWS=1
"""
import argparse
import os
import statistics
import subprocess

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("settings", nargs="+", help="NAME=VALUE[,NAME=VALUE...] of the environment")
parser.add_argument("--build", default="build/release")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--collective", default="all_reduce")
parser.add_argument("--memory", default="malloc")
parser.add_argument("--begin", default="8")
parser.add_argument("--end", default="1M")
parser.add_argument("--factor", default="2")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--time-ms", default="20")
args = parser.parse_args()

command = [f"{args.build}/tools/muster", "run", "-n", str(args.ranks), "--", f"{args.build}/bench/peers/peers_muster",
           "--collectives", args.collective, "--memory", args.memory, "--begin", args.begin, "--end", args.end,
           "--factor", args.factor, "--time-ms", args.time_ms]
times = [{} for _ in args.settings]
for _ in range(args.rounds):
    for setting, taken in zip(args.settings, times):
        environment = dict(os.environ, **dict(pair.split("=", 1) for pair in setting.split(",")))
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            fields = line.split()
            if len(fields) == 4 and fields[2].isdigit():
                taken.setdefault(int(fields[2]), []).append(float(fields[3]) * 1e6)

print(f"{args.collective}, {args.ranks} ranks, {args.memory}; us, median of {args.rounds} rounds")
print(f"{'bytes':>10}", *(f"{s:>24}" for s in args.settings), "  fastest")
for size in sorted(times[0]):
    row = [statistics.median(t.get(size, [float("nan")])) for t in times]
    print(f"{size:>10}", *(f"{t:>24.2f}" for t in row), f"  {args.settings[row.index(min(row))]}")
