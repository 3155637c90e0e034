#!/usr/bin/env python3
"""How good the host cost model is here: runs bench/predicted_vs_measured for several numbers of ranks and prints the error of
its predictions, and how far the planner's picks, by thresholds and by the model, are from the best algorithm measured.

  muster tune --output here.tuning
  MUSTER_TUNING_PROFILE=here.tuning scripts/predicted_vs_measured.py --build build/release
"""
import argparse
import collections
import statistics
import subprocess
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--build", default="build/release")
parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[2, 3, 4, 6, 8])
parser.add_argument("--sizes", default="8,128,2K,32K,512K,8M")
parser.add_argument("--time-ms", default="5")
parser.add_argument("--rows", help="a file that gets the rows; - reads nothing and measures")
parser.add_argument("--read", help="sum up a file of rows in place of measuring")
args = parser.parse_args()

lines = []
if args.read:
    lines = open(args.read).read().splitlines()
else:
    for n in args.ranks:
        command = [f"{args.build}/tools/muster", "run", "-n", str(n), "--", f"{args.build}/bench/predicted_vs_measured",
                   "--sizes", args.sizes, "--time-ms", args.time_ms]
        lines += subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
if args.rows:
    with open(args.rows, "w") as file:
        file.write("\n".join(lines) + "\n")

Row = collections.namedtuple("Row", "collective algorithm ranks bytes predicted measured by")
rows = [Row(f[0], f[1], int(f[2]), int(f[3]), float(f[4]), float(f[5]), f[6]) for f in map(str.split, lines) if len(f) == 7]
if not rows:
    sys.exit("no rows")


def error(row):
    return abs(row.predicted / row.measured - 1)


def table(title, key, chosen):
    groups = collections.defaultdict(list)
    for row in chosen:
        groups[key(row)].append(row)
    print(f"{title:<18} {'cells':>5} {'median error':>13} {'predicted/measured':>20}")
    for name in sorted(groups):
        cells = groups[name]
        ratio = statistics.median(r.predicted / r.measured for r in cells)
        print(f"{name!s:<18} {len(cells):>5} {statistics.median(map(error, cells)):>12.0%} {ratio:>20.2f}")
    print()


picked = [r for r in rows if set(r.by) & set("tmTM")]
print(f"{len(rows)} cells; median error {statistics.median(map(error, rows)):.0%}; of what is picked {statistics.median(map(error, picked)):.0%}\n")
table("ranks", lambda r: r.ranks, rows)
table("bytes", lambda r: r.bytes, rows)
table("collective", lambda r: r.collective, rows)
table("algorithm", lambda r: r.algorithm, rows)

for mark, what in (("t", "thresholds, slots"), ("m", "model, slots"), ("T", "thresholds, windows"), ("M", "model, windows")):
    for among, whose in (("that may be chosen", [r for r in rows if "x" not in r.by]), ("that may be forced", rows)):
        cells = collections.defaultdict(list)
        for row in whose:
            if mark.isupper() or row.algorithm != "window":
                cells[row.collective, row.ranks, row.bytes].append(row)
        ratios = []
        for key, could in cells.items():
            pick = [r for r in could if mark in r.by]
            if len(could) > 1 and pick:
                best = min(could, key=lambda r: r.measured)
                ratios.append((pick[0].measured / best.measured, key, pick[0].algorithm, best.algorithm))
        if not ratios:
            continue
        good = sum(r[0] <= 1.1 for r in ratios) / len(ratios)
        worst = max(ratios)
        print(f"{what:<20} {len(ratios):>4} choices; {good:.0%} within 10 % of the best of those {among}; mean ratio {statistics.mean(r[0] for r in ratios):.2f}; {sum(r[0] >= 1.5 for r in ratios)} of 1.5 or more;"
              f" worst {worst[0]:.2f}: {worst[1][0]}, {worst[1][1]} ranks, {worst[1][2]} bytes, {worst[2]} not {worst[3]}")
