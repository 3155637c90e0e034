#!/usr/bin/env python3
"""One benchmark under several settings between two hosts, in turns: times, and ratios to the first setting round by round.

The hosts are those of compare_hosts.py (it takes root). A setting is NAME=VARIABLE=VALUE,VARIABLE=VALUE.

  scripts/compare_settings.py --per-host 4 ring=MUSTER_ALGO=ring hierarchical=MUSTER_ALGO=hierarchical
  scripts/compare_settings.py --flags "-b 64K -e 4M -f 4 -n 40 -w 10 -c 0 --roof 0 --rotate 8M" a=MUSTER_WAIT=sleep b=MUSTER_WAIT=auto

Exits with 1 when a run failed, 2 when nothing could be run.
"""
import argparse
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import compare_peers
from compare_hosts import ADDRESSES, Hosts


def times_of(text):
    """Microseconds out of place, by size."""
    rows = [line.split() for line in text.splitlines()]
    return {int(row[0]): float(row[5]) for row in rows if len(row) > 6 and row[0].isdigit()}


def run(hosts, program, flags, per_host, variables):
    """The output of rank 0 of a job; None where a rank failed."""
    ranks, processes = 2 * per_host, []
    for rank in range(ranks):
        env = [f"RANK={rank}", f"WORLD_SIZE={ranks}", f"LOCAL_RANK={rank % per_host}", f"LOCAL_WORLD_SIZE={per_host}",
               f"MASTER_ADDR={ADDRESSES[0]}", "MASTER_PORT=29500", *variables]
        processes.append(subprocess.Popen([*hosts.inside(rank // per_host), "env", *env, program, *flags], text=True,
                                          stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
    text = processes[0].communicate()[0]
    return text if not any([p.wait() for p in processes]) else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="+", metavar="NAME=VARIABLE=VALUE,...")
    parser.add_argument("--build", type=Path, help="a build folder")
    parser.add_argument("--per-host", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", default="all_reduce_perf")
    parser.add_argument("--flags", default="-b 64K -e 16M -f 4 -n 20 -w 5 -c 0 --roof 0", help="of the program")
    args = parser.parse_args()
    if os.geteuid() != 0:
        print("compare_settings.py: it takes root to make hosts of network namespaces", file=sys.stderr)
        return 2
    build = compare_peers.find_build(args.build)
    if build is None:
        return 2
    settings = {name: [v for v in variables.split(",") if v] for name, _, variables in (s.partition("=") for s in args.settings)}
    rounds = []
    with Hosts() as hosts:
        for number in range(args.rounds):
            times = {}
            for name in list(settings)[::1 if number % 2 == 0 else -1]:
                text = run(hosts, f"{build}/bench/{args.program}", shlex.split(args.flags), args.per_host, settings[name])
                if not text or not times_of(text):
                    print(f"{name}: it failed")
                    return 1
                times[name] = times_of(text)
            rounds.append(times)
    first = next(iter(settings))
    table = []
    for size in rounds[0][first]:
        row = [compare_peers.show_size(size)]
        for name in settings:
            ratio = statistics.median(r[name][size] / r[first][size] for r in rounds)
            row.append(f"{statistics.median(r[name][size] for r in rounds):.0f} us, {ratio:.2f}")
        table.append(row)
    compare_peers.print_table(["bytes", *settings], table, None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
