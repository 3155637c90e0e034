#!/usr/bin/env python3
"""How good the host cost model is here: runs bench/predicted_vs_measured for several numbers of ranks and prints the error of
its predictions, and how far the planner's picks, by thresholds and by the model, are from the best algorithm.

  muster tune --output here.tuning
  MUSTER_TUNING_PROFILE=here.tuning scripts/predicted_vs_measured.py --build build/release

Each number of ranks is measured in several jobs, a round of all numbers after the other, since processes differ (where their
memory lies, how the scheduler falls into step). In a job all algorithms of a call take turns. The least of several noisy
times is too small by chance, so the best algorithm is the one that was best in the *other* jobs; in this job it is compared with
the pick, batch by batch of the same round, and the median of these ratios counts; of the jobs the median again.
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
parser.add_argument("--time-ms", default="5", help="per algorithm and size, in each job")
parser.add_argument("--rounds", default="5", help="of turns that algorithms take; fewer for the largest sizes")
parser.add_argument("--jobs", type=int, default=3, help="of each number of ranks; with one the best is the one measured so")
parser.add_argument("--rows", help="a file that gets the rows")
parser.add_argument("--read", help="sum up such files, with commas between, in place of measuring")
parser.add_argument("--worst", type=int, default=0, metavar="N", help="list so many of the worst picks")
args = parser.parse_args()

lines = []
if args.read:
    for first, file in enumerate(args.read.split(",")):
        lines += [f"{first}.{line}" for line in open(file).read().splitlines()]
else:
    for job in range(args.jobs):
        for n in args.ranks:
            command = [f"{args.build}/tools/muster", "run", "-n", str(n), "--", f"{args.build}/bench/predicted_vs_measured",
                       "--sizes", args.sizes, "--time-ms", args.time_ms, "--rounds", args.rounds]
            text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            lines += [f"{job} {line}" for line in text.splitlines()]
if args.rows:
    with open(args.rows, "w") as file:
        file.write("\n".join(lines) + "\n")

# times: us, by job and round
Row = collections.namedtuple("Row", "collective algorithm ranks bytes predicted by times")
by_call = {}
for f in map(str.split, lines):
    job, call = f[0], (f[1], f[2], int(f[3]), int(f[4]))
    row = by_call.setdefault(call, Row(*call, float(f[5]), f[6], {}))
    row.times[job] = [float(t) for t in f[7].split(",")]
rows = list(by_call.values())
if not rows:
    sys.exit("no rows")


def middle(row, jobs):
    return statistics.median(statistics.median(row.times[j]) for j in jobs)


def measured(row):
    return middle(row, row.times)


def error(row):
    return abs(row.predicted / measured(row) - 1)


def best_of(could, jobs):
    return min(could, key=lambda r: middle(r, jobs))


def ratio(pick, could):
    """Of the pick's time to the best's, each job with the best of the others."""
    ratios = []
    for job in pick.times:
        others = [j for j in pick.times if j != job] or [job]
        best = best_of(could, others)
        ratios.append(statistics.median(p / b for p, b in zip(pick.times[job], best.times[job])))
    return statistics.median(ratios)


def table(title, key, chosen):
    groups = collections.defaultdict(list)
    for row in chosen:
        groups[key(row)].append(row)
    print(f"{title:<18} {'cells':>5} {'median error':>13} {'predicted/measured':>20}")
    for name in sorted(groups):
        cells = groups[name]
        middle_ratio = statistics.median(r.predicted / measured(r) for r in cells)
        print(f"{name!s:<18} {len(cells):>5} {statistics.median(map(error, cells)):>12.0%} {middle_ratio:>20.2f}")
    print()


picked = [r for r in rows if set(r.by) & set("tmTM")]
jobs = len(rows[0].times)
print(f"{len(rows)} cells of {jobs} job{'s' if jobs > 1 else ''}; median error {statistics.median(map(error, rows)):.0%};"
      f" of what is picked {statistics.median(map(error, picked)):.0%}\n")
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
                best = best_of(could, pick[0].times)
                ratios.append((ratio(pick[0], could), key, f"{pick[0].algorithm} ({measured(pick[0]):.4g} us, predicted {pick[0].predicted:.4g})",
                               f"{best.algorithm} ({measured(best):.4g} us, predicted {best.predicted:.4g})"))
        if not ratios:
            continue
        ratios.sort(reverse=True)
        good = sum(r[0] <= 1.1 for r in ratios) / len(ratios)
        print(f"{what:<20} {len(ratios):>4} choices; {good:.0%} within 10 % of the best of those {among}; mean ratio "
              f"{statistics.mean(r[0] for r in ratios):.2f}; {sum(r[0] >= 1.5 for r in ratios)} of 1.5 or more")
        for r, (collective, ranks, size), pick, best in ratios[:max(1, args.worst)]:
            print(f"{'':<20} {r:.2f}: {collective}, {ranks} ranks, {size} bytes, {pick} not {best}")
