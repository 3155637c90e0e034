"""The comparison's reading and arithmetic, and one run of it over programs that only pretend."""
import contextlib
import importlib.util
import io
import json
import os
import stat
import sys
import tempfile
import time
import unittest
from pathlib import Path

PATH = Path(__file__).resolve().parent.parent / "scripts" / "compare_peers.py"
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("compare_peers", PATH)
compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)


def samples(library, times, collective="all_reduce", ranks=2):
    """times: {bytes: [seconds of round 0, round 1, ...]}"""
    return [compare.Sample(ranks, library, collective, size, number, seconds)
            for size, rounds in times.items() for number, seconds in enumerate(rounds)]


class Reading(unittest.TestCase):
    def test_takes_result_lines_and_nothing_else(self):
        text = ("openmpi all_reduce 8 0.000000302\n"
                "[host:1] WARNING: something about 4 words\n"
                "openmpi all_reduce eight 0.1\n"
                "openmpi all_reduce 16 nan\n"
                "openmpi all_reduce 16 0\n"
                "unknown all_reduce 16 0.5\n"
                "openmpi allreduce 16 0.5\n"
                "openmpi all_reduce 16 0.5 more\n"
                "muster-alloc broadcast 268435456 1.25e-2\n"
                "gloo all_red")
        self.assertEqual(compare.parse_lines(text, 4, 1),
                         [compare.Sample(4, "openmpi", "all_reduce", 8, 1, 3.02e-7),
                          compare.Sample(4, "muster-alloc", "broadcast", 268435456, 1, 0.0125)])

    def test_sizes(self):
        for text, size in [("8", 8), ("64K", 65536), ("1m", 1 << 20), ("2GiB", 2 << 30), ("16KB", 16384)]:
            self.assertEqual(compare.parse_size(text), size)
        for size, text in [(8, "8"), (1536, "1536"), (65536, "64K"), (1 << 20, "1M"), (3 << 30, "3G")]:
            self.assertEqual(compare.show_size(size), text)

    def test_times(self):
        for seconds, text in [(None, "-"), (7e-8, "0.07 us"), (3.02e-7, "0.302 us"), (1.5e-3, "1.5 ms"), (2, "2 s")]:
            self.assertEqual(compare.show_time(seconds), text)

    def test_groups_cover_each_size_once(self):
        self.assertEqual(compare.size_groups(8, 256, 2, 4), [(8, 64), (128, 256)])
        self.assertEqual(compare.size_groups(8, 2000, 16, 1), [(8, 8), (128, 128)])
        self.assertEqual(compare.size_groups(8, 4, 2, 4), [])


class Arithmetic(unittest.TestCase):
    def test_geomean(self):
        self.assertAlmostEqual(compare.geomean([0.5, 2]), 1)
        self.assertIsNone(compare.geomean([]))

    def test_ratio_is_the_median_of_the_rounds_against_the_best_peer_of_each(self):
        results = compare.Results(samples("muster", {8: [1, 10, 3]}) + samples("openmpi", {8: [2, 20, 30]}) +
                                  samples("mpich", {8: [4, 16, 3]}) + samples("loop", {8: [0.1, 0.1, 0.1]}))
        case = (2, "all_reduce", 8)
        self.assertEqual(results.median(case, "muster"), 3)
        self.assertEqual(results.ratio(case, "muster", compare.PEERS), 0.625)  # of 0.5, 0.625 and 1
        self.assertIsNone(results.ratio(case, "muster-alloc", compare.PEERS))

    def test_ratio_skips_rounds_that_lack_either(self):
        mine = samples("muster", {8: [1, 1]})
        theirs = [compare.Sample(2, "gloo", "all_reduce", 8, 1, 4)]
        self.assertEqual(compare.Results(mine + theirs).ratio((2, "all_reduce", 8), "muster", ["gloo"]), 0.25)

    def test_summary_takes_the_geomean_from_16k_and_the_worst_of_all(self):
        results = compare.Results(samples("muster", {8: [3], 16384: [1], 32768: [2]}) +
                                  samples("openmpi", {8: [2], 16384: [2], 32768: [16]}))
        row = next(r for r in compare.summarise(results) if r["against"] == "best peer")
        self.assertAlmostEqual(row["geomean_from_16K"], 0.25)
        self.assertEqual((row["worst"], row["worst_bytes"]), (1.5, 8))

    def test_table_marks_what_is_missing(self):
        out = io.StringIO()
        compare.print_results(compare.Results(samples("muster", {8: [1e-6], 16: [1e-6]}) +
                                              samples("mpich", {8: [2e-6]})), out)
        lines = [line.split() for line in out.getvalue().splitlines()]
        self.assertIn(["8", "1", "us", "2", "us", "0.50"], lines)
        self.assertIn(["16", "1", "us", "-", "-"], lines)


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.build = Path(folder.name)

    def program(self, name, script):
        path = self.build / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def compare(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = compare.main(["--build", str(self.build), "--json", str(self.build / "out.json"),
                                   "--tsv", str(self.build / "out.tsv"), *arguments])
        return status, out.getvalue(), err.getvalue()

    def test_whole_way(self):
        self.program("tools/muster", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
        self.program("bench/peers/peers_muster", "echo muster all_reduce 8 0.000001\n")
        self.program("bench/peers/peers_gloo", "echo gloo all_reduce 8 0.000004\necho 'it is wrong' >&2\nexit 1\n")
        status, out, err = self.compare("--libraries", "muster,gloo,loop", "--ranks", "2", "--begin", "8", "--end", "8",
                                        "--rounds", "2")
        self.assertEqual(status, 0)  # only a Muster program's failure is ours
        self.assertIn("without loop: ", err)
        self.assertIn("gloo: 2 ranks, 8..8, round 1: exit status 1: it is wrong", out)
        written = json.loads((self.build / "out.json").read_text())
        self.assertEqual(len(written["samples"]), 4)
        self.assertEqual(written["summary"][0]["worst"], 0.25)
        self.assertEqual(len((self.build / "out.tsv").read_text().splitlines()), 5)

    def test_our_failure_is_the_exit_status(self):
        self.program("tools/muster", "exit 1\n")
        self.program("bench/peers/peers_muster", "")
        self.program("bench/peers/peers_gloo", "echo gloo all_reduce 8 0.000004\n")
        self.assertEqual(self.compare("--libraries", "muster,gloo", "--ranks", "2", "--end", "8", "--rounds", "1")[0], 1)

    def test_spent_budget_stops_the_run(self):
        self.program("bench/peers/peers_gloo", "echo gloo all_reduce 8 0.000004\n")
        status, _, err = self.compare("--libraries", "gloo", "--ranks", "2", "--end", "8", "--budget", "0")
        self.assertEqual(status, 2)
        self.assertIn("time budget of 0 s spent in round 1 of 5, 2 ranks, from 8", err)

    def test_nothing_built(self):
        self.assertEqual(self.compare()[0], 2)

    def test_a_program_that_hangs_is_ended_with_its_children(self):
        self.program("hang", f"echo gloo all_reduce 8 0.5\nsleep 60 & echo $! > {self.build}/pid\nwait\n")
        out, why = compare.run_program([str(self.build / "hang")], timeout=1)
        self.assertEqual((out, why), ("gloo all_reduce 8 0.5\n", "ended after 1 s"))
        child = int((self.build / "pid").read_text())
        deadline = time.monotonic() + 10
        while is_running(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(is_running(child))


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


if __name__ == "__main__":
    unittest.main()
