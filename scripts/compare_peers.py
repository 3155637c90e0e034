#!/usr/bin/env python3
"""Muster against Open MPI, MPICH and Gloo on this machine, interleaved in one go.

Runs the programs of bench/peers (and the hand-written loop of bench/loop) by their common method, which
bench/peers/method.h describes. In each round, for each number of ranks and each group of neighbouring sizes, the
libraries take turns, so that a machine that slows down slows all of them. A library's time is the median of the
rounds. A ratio is the median of the rounds' ratios, each of two times measured next to each other: 0.50 means half
the other's time.

  scripts/compare_peers.py --quick                              everything at a few sizes, in under two minutes
  scripts/compare_peers.py --json result.json                   everything
  scripts/compare_peers.py --ranks 2 --collectives all_reduce --begin 32K --end 1M

Exits with 1 when a Muster program failed or gave a wrong result, 2 when nothing could be run.
"""
import argparse
import collections
import datetime
import json
import math
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent
COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
OURS = ["muster", "muster-alloc"]
PEERS = ["openmpi", "mpich", "gloo", "gloo-bcube"]
LOOPS = {"muster": "loop", "muster-alloc": "loop-windows"}  # what holds each of ours to account
LIBRARIES = OURS + PEERS + list(LOOPS.values())
GEOMEAN_FROM = 16 << 10

Sample = collections.namedtuple("Sample", "ranks library collective bytes round seconds")


# ---- reading and computing ------------------------------------------------------------------------------------------

def parse_size(text):
    """'64K' -> 65536."""
    units = {"K": 10, "M": 20, "G": 30}
    text = text.strip().upper().removesuffix("IB").removesuffix("B")
    shift = units.get(text[-1:], 0)
    return int(text[:-1] if shift else text) << shift


def show_size(n):
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if n >= 1 << shift and n % (1 << shift) == 0:
            return f"{n >> shift}{unit}"
    return str(n)


def show_time(seconds):
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            break
    return f"{seconds * scale:.3g} {unit}" if seconds * scale < 999.5 else f"{seconds * scale:.0f} {unit}"


def parse_lines(text, ranks, round_number):
    """Samples of a program's output: lines "library collective bytes seconds"; all else is somebody's chatter."""
    samples = []
    for line in text.splitlines():
        words = line.split()
        if len(words) != 4 or words[0] not in LIBRARIES or words[1] not in COLLECTIVES:
            continue
        try:
            size, seconds = int(words[2]), float(words[3])
        except ValueError:
            continue
        if size > 0 and 0 < seconds < math.inf:
            samples.append(Sample(ranks, words[0], words[1], size, round_number, seconds))
    return samples


def geomean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def size_groups(begin, end, factor, per_group):
    """[(first, last), ...] that cover begin, begin * factor, ... <= end; few sizes each, so that turns are short."""
    sizes = []
    while begin <= end:
        sizes.append(begin)
        begin *= factor
    return [(group[0], group[-1]) for group in (sizes[i:i + per_group] for i in range(0, len(sizes), per_group))]


class Results:
    """Samples by (ranks, collective, bytes, library) and round."""

    def __init__(self, samples):
        self.times = collections.defaultdict(dict)
        for s in samples:
            self.times[s.ranks, s.collective, s.bytes, s.library][s.round] = s.seconds

    def cases(self):
        return sorted({key[:3] for key in self.times}, key=lambda c: (c[0], COLLECTIVES.index(c[1]), c[2]))

    def median(self, case, library):
        rounds = self.times.get((*case, library))
        return statistics.median(rounds.values()) if rounds else None

    def ratio(self, case, library, others):
        """Median over the rounds of library's time / the best of the others' in that round; None if never both."""
        mine = self.times.get((*case, library), {})
        ratios = []
        for number, seconds in mine.items():
            best = min((self.times[(*case, o)][number] for o in others if number in self.times.get((*case, o), {})),
                       default=None)
            if best is not None:
                ratios.append(seconds / best)
        return statistics.median(ratios) if ratios else None

    def ratios(self, ranks, collective, library, others):
        """{bytes: ratio} where both were measured."""
        found = {c[2]: self.ratio(c, library, others) for c in self.cases() if c[:2] == (ranks, collective)}
        return {size: r for size, r in found.items() if r is not None}


def summarise(results):
    """One row per (ranks, collective, our library, what it is compared with)."""
    rows = []
    for ranks, collective in sorted({c[:2] for c in results.cases()}, key=lambda c: (c[0], COLLECTIVES.index(c[1]))):
        for ours in OURS:
            for label, others in [("best peer", PEERS), ("openmpi", ["openmpi"]), (LOOPS[ours], [LOOPS[ours]])]:
                ratios = results.ratios(ranks, collective, ours, others)
                if not ratios:
                    continue
                worst = max(ratios, key=ratios.get)
                rows.append({
                    "ranks": ranks, "collective": collective, "library": ours, "against": label,
                    "geomean_from_16K": geomean(r for size, r in ratios.items() if size >= GEOMEAN_FROM),
                    "geomean": geomean(ratios.values()), "worst": ratios[worst], "worst_bytes": worst,
                })
    return rows


# ---- printing -------------------------------------------------------------------------------------------------------

def show_ratio(ratio):
    return "-" if ratio is None else f"{ratio:.2f}"


def print_table(header, rows, out):
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        print("  ".join(str(cell).rjust(width) for cell, width in zip(row, widths)), file=out)


def print_results(results, out=None):
    for ranks, collective in dict.fromkeys(case[:2] for case in results.cases()):
        cases = [case for case in results.cases() if case[:2] == (ranks, collective)]
        present = [lib for lib in LIBRARIES if any((*case, lib) in results.times for case in cases)]
        ours = [lib for lib in OURS if lib in present]
        print(f"\n{collective}, {ranks} ranks", file=out)
        rows = [[show_size(case[2])] + [show_time(results.median(case, lib)) for lib in present] +
                [show_ratio(results.ratio(case, lib, PEERS)) for lib in ours] for case in cases]
        print_table(["bytes", *present, *(f"{lib}/best peer" for lib in ours)], rows, out)
    summary = summarise(results)
    if summary:
        print(f"\nRatios of times; below 1 Muster is faster. Geometric means from {show_size(GEOMEAN_FROM)} up.", file=out)
        print_table(["ranks", "collective", "library", "against", "geomean", "worst", "at"],
                    [[r["ranks"], r["collective"], r["library"], r["against"], show_ratio(r["geomean_from_16K"]),
                      show_ratio(r["worst"]), show_size(r["worst_bytes"])] for r in summary], out)


# ---- running --------------------------------------------------------------------------------------------------------

class Programs:
    """How each library's program is started from a build folder."""

    def __init__(self, build):
        self.build = build
        self.cores = len(os.sched_getaffinity(0))

    def binary(self, library):
        if library in LOOPS.values():
            return self.build / "bench/loop/loop"
        return self.build / "bench/peers" / f"peers_{library.split('-')[0]}"

    def missing(self, library):
        """Why the library can't be run, or None."""
        needs = [self.binary(library)]
        if library in OURS:
            needs.append(self.build / "tools/muster")
        for path in needs:
            if not path.exists():
                return f"{path} was not built"
        launcher = {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.hydra"}.get(library)
        return f"{launcher} is not installed" if launcher and not shutil.which(launcher) else None

    def supports(self, library, ranks, collectives):
        """The collectives that the library can be asked for, of those given."""
        if library in LOOPS.values():
            return [c for c in collectives if c == "all_reduce" and ranks == 2]
        if library == "gloo-bcube":
            return [c for c in collectives if c == "all_reduce"]
        return collectives

    def command(self, library, ranks):
        program = str(self.binary(library))
        count = ["-n", str(ranks)]
        if library in OURS:
            memory = "alloc" if library == "muster-alloc" else "malloc"
            return [str(self.build / "tools/muster"), "run", *count, "--", program, "--memory", memory]
        if library == "openmpi":
            # Told to oversubscribe, it yields while it waits; it should not when each rank has a core.
            over = ["--oversubscribe"] if ranks > self.cores else []
            return ["mpirun.openmpi", *count, *over, "--mca", "pml", "ob1", "--mca", "btl", "self,vader", program]
        if library == "mpich":
            return ["mpiexec.hydra", *count, program]
        if library == "gloo-bcube":
            return [program, *count, "--algorithm", "bcube"]
        if library == "gloo":
            return [program, *count]
        return [program, "--memory", "windows" if library == "loop-windows" else "slots"]


def run_program(command, timeout):
    """(stdout, why it failed or None). The program's whole process group is ended at the timeout."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, errors="replace", start_new_session=True, env=environment)
    try:
        out, err = process.communicate(timeout=timeout)
        why = None
    except subprocess.TimeoutExpired:
        out, err = end_group(process)
        why = f"ended after {timeout:.0f} s"
    except BaseException:
        end_group(process)
        raise
    if why is None and process.returncode != 0:
        said = [line for line in err.strip().splitlines() if line.strip()]
        why = f"exit status {process.returncode}" + (f": {said[0]}" if said else "")
    return out, why


def end_group(process):
    for sig, patience in ((signal.SIGTERM, 5), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, sig)
        except ProcessLookupError:
            pass
        try:
            return process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            continue
    return "", ""


def first_line(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip().splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def package_version(name):
    return first_line(["dpkg-query", "-W", "-f", "${Version}", name])


def environment_facts(build):
    def from_proc(path, key):
        try:
            for line in Path(path).read_text().splitlines():
                if line.startswith(key):
                    return line.split(":", 1)[1].strip()
        except OSError:
            pass
        return None

    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": from_proc("/proc/cpuinfo", "model name"),
        "cores_allowed": len(os.sched_getaffinity(0)),
        "memory": from_proc("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "load_average_before": os.getloadavg()[0],
        "versions": {
            "muster": first_line(["git", "-C", str(SOURCE), "describe", "--always", "--dirty"]),
            "openmpi": package_version("libopenmpi3"),
            "mpich": package_version("libmpich12"),
            "gloo": package_version("libgloo0"),
        },
        "build_type": next((line.split("=", 1)[1] for line in read_lines(build / "CMakeCache.txt")
                            if line.startswith("CMAKE_BUILD_TYPE:")), None),
    }


def read_lines(path):
    return path.read_text().splitlines() if path.exists() else []


def measure(programs, libraries, args, say):
    """Runs everything in turn; returns (samples, {library: [what went wrong]})."""
    samples, problems = [], collections.defaultdict(list)
    groups = size_groups(args.begin, args.end, args.factor, args.group)
    started, turn = time.monotonic(), 0
    for number in range(args.rounds):
        for ranks in args.ranks:
            for begin, end in groups:
                turn += 1
                shift = turn % len(libraries)
                for library in libraries[shift:] + libraries[:shift]:
                    collectives = programs.supports(library, ranks, args.collectives)
                    if not collectives:
                        continue
                    left = args.budget - (time.monotonic() - started) if args.budget is not None else math.inf
                    if left <= 0:
                        say(f"time budget of {args.budget:.0f} s spent in round {number + 1} of {args.rounds}, "
                            f"{ranks} ranks, from {show_size(begin)}")
                        return samples, problems
                    options = ["--collectives", ",".join(collectives), "--begin", str(begin), "--end", str(end),
                               "--factor", str(args.factor), "--time-ms", str(args.time_ms),
                               "--limit-s", str(args.limit)] + (["--rewrite"] if args.rewrite else [])
                    out, why = run_program(programs.command(library, ranks) + options, min(args.limit + 30, left + 5))
                    samples += parse_lines(out, ranks, number)
                    if why:
                        where = f"{ranks} ranks, {show_size(begin)}..{show_size(end)}, round {number + 1}"
                        problems[library].append(f"{where}: {why}")
                    say(f"round {number + 1}/{args.rounds}  {ranks} ranks  {show_size(begin)}..{show_size(end)}  "
                        f"{library}{'  ' + why if why else ''}")
    return samples, problems


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], epilog=__doc__.split("\n\n", 1)[1],
                                     formatter_class=argparse.RawDescriptionHelpFormatter)

    def names(allowed):
        def parse(text):
            found = text.split(",")
            for name in found:
                if name not in allowed:
                    raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(allowed)}")
            return found
        return parse

    parser.add_argument("--build", type=Path, help="build folder; default: build or build/release")
    parser.add_argument("--libraries", type=names(LIBRARIES), default=LIBRARIES, help=",".join(LIBRARIES))
    parser.add_argument("--collectives", type=names(COLLECTIVES), default=COLLECTIVES, help=",".join(COLLECTIVES))
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")], default=[2, 4, 8],
                        help="numbers of ranks, default 2,4,8")
    parser.add_argument("--begin", type=parse_size, default=8, help="smallest size, default 8")
    parser.add_argument("--end", type=parse_size, default=256 << 20, help="largest size, default 256M")
    parser.add_argument("--factor", type=int, help="from one size to the next; default 2")
    parser.add_argument("--rounds", type=int, help="default 5")
    parser.add_argument("--time-ms", type=float, help="measured time per size; default 50")
    parser.add_argument("--group", type=int, default=4, help="sizes per turn; default 4")
    parser.add_argument("--limit", type=float, help="seconds after which a program begins no new size; default 15")
    parser.add_argument("--budget", type=float, help="seconds after which no program is started")
    parser.add_argument("--rewrite", action="store_true", help="ranks store to their send buffers before each call")
    parser.add_argument("--quick", action="store_true",
                        help="factor 16, 2 rounds, 10 ms, limit 2 s, budget 100 s, unless given")
    parser.add_argument("--json", type=Path, help="write environment, samples and summary")
    parser.add_argument("--tsv", type=Path, help="write the samples")
    args = parser.parse_args(arguments)
    presets = {"factor": (2, 16), "rounds": (5, 2), "time_ms": (50, 10), "limit": (15, 2), "budget": (None, 100)}
    for name, (full, quick) in presets.items():
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else full)
    if args.factor < 2 or args.group < 1 or args.rounds < 1:
        parser.error("--factor must be at least 2, --group and --rounds at least 1")
    return args


def find_build(wanted):
    """The folder of the build, or None, which it says."""
    builds = [wanted] if wanted else [SOURCE / "build", SOURCE / "build/release"]
    build = next((b.resolve() for b in builds if (b / "bench").is_dir()), None)
    if build is None:
        print(f"no bench programs below {' or '.join(map(str, builds))}: build first, or pass --build", file=sys.stderr)
    return build


def those_present(programs, libraries):
    """The libraries that can be run; it says why others can't."""
    present = []
    for library in libraries:
        why = programs.missing(library)
        if why:
            print(f"without {library}: {why}", file=sys.stderr)
        else:
            present.append(library)
    return present


def main(arguments=None):
    args = parse_arguments(arguments)
    build = find_build(args.build)
    if build is None:
        return 2
    programs = Programs(build)
    libraries = those_present(programs, args.libraries)
    if not libraries:
        return 2

    terminal = sys.stderr.isatty()
    facts = environment_facts(build)

    def say(text):
        if terminal:
            print(f"\r\033[K{text[:110]}", end="", file=sys.stderr, flush=True)
        elif text.startswith("time budget"):
            print(text, file=sys.stderr)

    samples, problems = measure(programs, libraries, args, say)
    if terminal:
        print(file=sys.stderr)

    results = Results(samples)
    print(", ".join(f"{key}: {value}" for key, value in facts.items() if not isinstance(value, dict)))
    print(", ".join(f"{name} {version}" for name, version in facts["versions"].items() if version))
    print_results(results)
    for library, texts in problems.items():
        for text in texts:
            print(f"{library}: {text}")
    if args.tsv:
        lines = ["\t".join(Sample._fields)] + ["\t".join(map(str, s)) for s in samples]
        args.tsv.write_text("\n".join(lines) + "\n")
    if args.json:
        options = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()}
        args.json.write_text(json.dumps({"environment": facts, "options": options, "summary": summarise(results),
                                         "problems": problems, "samples": [s._asdict() for s in samples]}, indent=1))
    if not samples:
        return 2
    return 1 if any(library in problems for library in OURS) else 0


if __name__ == "__main__":
    sys.exit(main())
