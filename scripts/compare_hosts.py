#!/usr/bin/env python3
"""Muster against Open MPI, MPICH and Gloo between two hosts, and against what their network carries, in one go.

The hosts are network namespaces of this machine (it takes root), joined by a veth pair and nothing else: each has its own
host name, /dev/shm and System V memory. Libraries take turns as in compare_peers.py, by the same method; in each round iperf3 and
ucx_perftest measure the same network. Rates are bytes per second and direction. An all-reduce between two ranks sends as
many bytes each way as its buffer has, so its rate is to be compared with iperf3's in both directions at once; a broadcast
goes one way, as ucx_perftest's messages do.

  scripts/compare_hosts.py --quick                        a few sizes, in under a minute
  scripts/compare_hosts.py --per-host 2 --json out.json   four ranks

Exits with 1 when a Muster program failed or gave a wrong result, 2 when nothing could be run.
"""
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import compare_peers
from compare_peers import show_size, show_time

INTERFACE = "rail0"
ADDRESSES = ["10.77.0.1", "10.77.0.2"]
NAMES = ["host0", "host1"]
LIBRARIES = ["muster", "openmpi", "mpich", "gloo", "gloo-bcube"]


class Hosts:
    """Two hosts; they end with the scope, or with this process."""

    def __init__(self):
        self.keepers = []
        try:
            for name in NAMES:
                script = (f"hostname {name}; mount --make-rprivate /; mount -t tmpfs shm /dev/shm; mount -t sysfs sys /sys; ip link set lo up; "
                          f"printf '127.0.0.1 localhost\\n10.77.0.1 host0\\n10.77.0.2 host1\\n' > /dev/shm/hosts; "
                          f"mount --bind /dev/shm/hosts /etc/hosts; echo ready; exec sleep infinity")
                keeper = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "-n", "-m", "-u", "-i", "sh", "-ec", script],
                                          stdout=subprocess.PIPE, text=True)
                self.keepers.append(keeper)
                if keeper.stdout.readline() != "ready\n":
                    raise OSError("no host could be made")
            self.run(0, f"ip link add {INTERFACE} type veth peer name {INTERFACE} netns {self.keepers[1].pid}")
            for host, address in enumerate(ADDRESSES):
                self.run(host, f"ip addr add {address}/24 dev {INTERFACE} && ip link set {INTERFACE} up")
            for host in range(len(ADDRESSES)):  # the kernel may take a second to say so
                self.run(host, f"for i in $(seq 100); do grep -qx up /sys/class/net/{INTERFACE}/operstate && exit; sleep 0.05; done; exit 1")
        except BaseException:
            self.end()
            raise

    def inside(self, host):
        """The beginning of a command that runs in the host."""
        pid = self.keepers[host].pid
        return ["nsenter", "-t", str(pid), "-n", "-m", "-u", "-i", f"--root=/proc/{pid}/root", f"--wd=/proc/{pid}/cwd"]

    def run(self, host, command):
        return subprocess.run([*self.inside(host), "sh", "-c", command], check=True, capture_output=True, text=True).stdout

    def end(self):
        for keeper in self.keepers:
            keeper.kill()
            keeper.wait()
            keeper.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


class Programs(compare_peers.Programs):
    """How each library's ranks are started, `per_host` in either host."""

    def __init__(self, build, hosts, per_host, folder):
        super().__init__(build)
        self.hosts, self.per_host, self.folder = hosts, per_host, Path(folder)
        self.agent = self.folder / "agent"  # stands for ssh
        cases = "".join(f"{name}) exec {shlex.join(hosts.inside(h))} sh -c \"$*\" ;;\n" for h, name in enumerate(NAMES))
        self.agent.write_text(f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\nhost=$1; shift\n'
                              f'case $host in\n{cases}esac\nexit 1\n')
        self.agent.chmod(0o755)
        self.runs = 0

    def supports(self, library, ranks, collectives):
        return [c for c in collectives if c == "all_reduce"] if library == "gloo-bcube" else collectives

    def ranks_in_shells(self, ranks, command_of):
        """One shell command that runs all ranks and ends with rank 0's status, which is all ranks'."""
        lines = []
        for rank in reversed(range(ranks)):
            host = rank // self.per_host
            command = shlex.join([*self.hosts.inside(host), *command_of(rank)])
            lines.append(f'{command} "$@"' + ("" if rank == 0 else " &"))
        return ["sh", "-c", "\n".join([*lines, "status=$?; wait; exit $status"]), "ranks"]

    def command(self, library, ranks):
        program = str(self.binary(library))
        names = ",".join(f"{name}:{self.per_host}" for name in NAMES)
        self.runs += 1
        if library == "muster":
            return self.ranks_in_shells(ranks, lambda rank: [
                "env", f"RANK={rank}", f"WORLD_SIZE={ranks}", f"LOCAL_RANK={rank % self.per_host}",
                f"LOCAL_WORLD_SIZE={self.per_host}", f"MASTER_ADDR={ADDRESSES[0]}", "MASTER_PORT=29500", program])
        if library == "openmpi":
            over = ["--oversubscribe"] if ranks > self.cores else []
            return [*self.hosts.inside(0), "mpirun.openmpi", "--allow-run-as-root", "--mca", "plm_rsh_agent", str(self.agent), "-H", names,
                    "-n", str(ranks), *over, "--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp", program]
        if library == "mpich":
            return [*self.hosts.inside(0), "mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", str(self.agent), "-hosts", names,
                    "-n", str(ranks), program]
        store = self.folder / f"gloo-{self.runs}"
        store.mkdir()
        algorithm = ["--algorithm", "bcube"] if library == "gloo-bcube" else []
        return self.ranks_in_shells(ranks, lambda rank: [program, "-n", str(ranks), "--rank", str(rank), "--store", str(store),
                                                         "--interface", INTERFACE, *algorithm])


def iperf3_rate(text):
    """Bytes per second each way of iperf3 --bidir -J; the slower of the two. None where it failed."""
    try:
        end = json.loads(text)["end"]
    except (ValueError, KeyError):
        return None
    return min(end["sum_received"]["bits_per_second"], end["sum_received_bidir_reverse"]["bits_per_second"]) / 8


def ucx_rate(text):
    """Bytes per second over all messages of ucx_perftest -f -v, or None."""
    for line in reversed(text.splitlines()):
        fields = line.split(",")
        if len(fields) == 8 and fields[0].strip().isdigit():
            return float(fields[5]) * (1 << 20)  # of its MB
    return None


class Network:
    """What the network itself carries, by iperf3 and ucx_perftest."""

    def __init__(self, hosts, streams, seconds):
        self.hosts, self.streams, self.seconds = hosts, streams, seconds

    def against_server(self, server, port, client):
        """The client's output; the server runs in the other host as long as that takes."""
        process = subprocess.Popen([*self.hosts.inside(1), "sh", "-c", f"exec {server}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.hosts.run(1, f"for i in $(seq 100); do grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6 && exit; sleep 0.1; done; exit 1")
            return subprocess.run([*self.hosts.inside(0), "sh", "-c", f"exec {client}"], capture_output=True, text=True,
                                  timeout=20 + 5 * self.seconds).stdout
        except subprocess.TimeoutExpired:
            return ""
        finally:
            process.kill()
            process.wait()

    def iperf3(self):
        """Bytes per second each way, both ways at once."""
        return iperf3_rate(self.against_server(
            "iperf3 -s -1", 5201, f"iperf3 -c {ADDRESSES[1]} -P {self.streams} --bidir -t {self.seconds} -J"))

    def ucx(self, size):
        """Bytes per second one way, of messages of this size."""
        common = f"env UCX_NET_DEVICES={INTERFACE} ucx_perftest"
        messages = max(50, min(200000, int(self.seconds * 1e9 / 4 / (size + 2000))))
        return ucx_rate(self.against_server(
            common, 13337, f"{common} {ADDRESSES[1]} -t tag_bw -s {size} -n {messages} -w {messages // 10} -f -v"))


def sizes_of(args):
    size, sizes = args.begin, []
    while size <= args.end:
        sizes.append(size)
        size *= args.factor
    return sizes


def show_rate(rate):
    return "-" if rate is None else f"{rate / 1e9:.3g}"


def print_network(results, ranks, network, out=None):
    """Muster's rates next to the network's; returns the rows."""
    iperf3 = statistics.median(network["iperf3"]) if network["iperf3"] else None
    rows, table = [], []
    for size in sorted({case[2] for case in results.cases()}):
        reduced = results.median((ranks, "all_reduce", size), "muster")
        sent = results.median((ranks, "broadcast", size), "muster")
        ucx = statistics.median(network["ucx"][size]) if network["ucx"].get(size) else None
        row = {"bytes": size, "all_reduce": size / reduced if reduced else None, "iperf3": iperf3,
               "broadcast": size / sent if sent else None, "ucx_perftest": ucx}
        rows.append(row)
        share = lambda a, b: f"{100 * a / b:.0f} %" if a and b else "-"
        table.append([show_size(size), show_rate(row["all_reduce"]), show_rate(iperf3), share(row["all_reduce"], iperf3),
                      show_rate(row["broadcast"]), show_rate(ucx), share(row["broadcast"], ucx)])
    print("\nRates in GB/s each way; iperf3 in both directions at once, ucx_perftest's tag_bw in one", file=out)
    compare_peers.print_table(["bytes", "all_reduce", "iperf3", "share", "broadcast", "ucx_perftest", "share"], table, out)
    return rows


def parse_arguments(arguments):
    own = compare_peers.argparse.ArgumentParser(add_help=False)
    own.add_argument("--per-host", type=int, default=1, help="ranks in either host, default 1")
    own.add_argument("--streams", type=int, default=1, help="TCP connections of iperf3 each way, default 1")
    ours, rest = own.parse_known_args(arguments)
    if {"-h", "--help"} & set(rest):
        print(__doc__)
        own.print_help()
    if not any(a.startswith("--libraries") for a in rest):
        rest += ["--libraries", ",".join(LIBRARIES)]
    if not any(a.startswith("--collectives") for a in rest):
        rest += ["--collectives", "all_reduce,broadcast"]
    if not any(a.startswith("--end") for a in rest):
        rest += ["--end", "64M"]
    args = compare_peers.parse_arguments(rest)
    args.per_host, args.streams = ours.per_host, ours.streams
    args.ranks = [2 * args.per_host]
    return args


def main(arguments=None):
    args = parse_arguments(arguments)
    if os.geteuid() != 0:
        print("compare_hosts.py: it takes root to make hosts of network namespaces", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left
    build = compare_peers.find_build(args.build)
    if build is None:
        return 2
    os.environ.setdefault("UCX_TLS", "tcp,self")  # it would find ways between processes that no two hosts have
    with Hosts() as hosts, tempfile.TemporaryDirectory(prefix="compare-hosts-") as folder:
        os.chmod(folder, 0o755)
        programs = Programs(build, hosts, args.per_host, folder)
        libraries = compare_peers.those_present(programs, args.libraries)
        if not libraries:
            return 2
        network = {"iperf3": [], "ucx": {}}
        seconds = 1 if args.quick else 3
        probe = Network(hosts, args.streams, seconds)
        facts = compare_peers.environment_facts(build)
        samples, problems = [], {}
        started, rounds = time.monotonic(), args.rounds
        for number in range(rounds):
            if shutil.which("iperf3"):
                network["iperf3"] += [rate for rate in [probe.iperf3()] if rate]
            if shutil.which("ucx_perftest"):
                for size in sizes_of(args):
                    rate = probe.ucx(size)
                    if rate:
                        network["ucx"].setdefault(size, []).append(rate)
            args.rounds, left = 1, args.budget - (time.monotonic() - started) if args.budget is not None else None
            if left is not None and left <= 0:
                break
            budget, args.budget = args.budget, left
            found, wrong = compare_peers.measure(programs, libraries, args, lambda text: print(text, file=sys.stderr) if sys.stderr.isatty() else None)
            args.budget = budget
            samples += [s._replace(round=number) for s in found]
            for library, texts in wrong.items():
                problems.setdefault(library, []).extend(texts)

    results = compare_peers.Results(samples)
    print(", ".join(f"{key}: {value}" for key, value in facts.items() if not isinstance(value, dict)))
    print(", ".join(f"{name} {version}" for name, version in facts["versions"].items() if version))
    compare_peers.print_results(results)
    rows = print_network(results, args.ranks[0], network)
    for library, texts in problems.items():
        for text in texts:
            print(f"{library}: {text}")
    if args.json:
        args.json.write_text(json.dumps({"environment": facts, "rates": rows, "iperf3": network["iperf3"], "ucx_perftest": network["ucx"],
                                         "summary": compare_peers.summarise(results), "problems": problems,
                                         "samples": [s._asdict() for s in samples]}, indent=1))
    if not samples:
        return 2
    return 1 if "muster" in problems else 0


if __name__ == "__main__":
    sys.exit(main())
