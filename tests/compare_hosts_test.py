#!/usr/bin/env python3
"""What scripts/compare_hosts.py reads from the network's own benchmarks, and what it makes of it."""
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))
import compare_hosts as hosts
import compare_peers as peers


class Reading(unittest.TestCase):
    def test_iperf3_the_slower_way_counts(self):
        text = json.dumps({"end": {"sum_received": {"bits_per_second": 16e9}, "sum_received_bidir_reverse": {"bits_per_second": 8e9}}})
        self.assertEqual(hosts.iperf3_rate(text), 1e9)
        self.assertIsNone(hosts.iperf3_rate(""))
        self.assertIsNone(hosts.iperf3_rate('{"error": "unable to connect"}'))

    def test_ucx_the_last_whole_line_counts(self):
        text = "iterations,50.0_percentile_lat,avg_lat\n100,1,1,1,10.00,11.00,1,1\n1000,4.3,9.8,8.0,57.24,40.5,916,654\n"
        self.assertEqual(hosts.ucx_rate(text), 40.5 * (1 << 20))
        self.assertIsNone(hosts.ucx_rate("ERROR no such device\n"))

    def test_rates_stand_beside_the_networks(self):
        samples = [peers.Sample(2, "muster", c, 1 << 20, n, t) for c, t in (("all_reduce", 1e-3), ("broadcast", 5e-4)) for n in (0, 1)]
        out = io.StringIO()
        rows = hosts.print_network(peers.Results(samples), 2, {"iperf3": [2e9, 2e9, 4e9], "ucx": {1 << 20: [4e9]}}, out)
        self.assertEqual(rows[0]["iperf3"], 2e9)
        self.assertAlmostEqual(rows[0]["all_reduce"], (1 << 20) * 1e3)
        self.assertIn("52 %", out.getvalue())  # of both

    def test_unmeasured_is_a_dash(self):
        out = io.StringIO()
        hosts.print_network(peers.Results([peers.Sample(2, "mpich", "all_reduce", 8, 0, 1e-6)]), 2, {"iperf3": [], "ucx": {}}, out)
        self.assertEqual(out.getvalue().splitlines()[-1].split(), ["8"] + ["-"] * 6)


@unittest.skipIf(os.geteuid() != 0, "hosts of network namespaces take root")
class Starting(unittest.TestCase):
    def test_two_hosts_reach_each_other_alone(self):
        try:
            two = hosts.Hosts()
        except (OSError, subprocess.CalledProcessError) as e:
            self.skipTest(f"no hosts can be made here: {e}")
        with two, tempfile.TemporaryDirectory() as folder:
            self.assertEqual([two.run(h, "hostname") for h in (0, 1)], ["host0\n", "host1\n"])
            two.run(0, "touch /dev/shm/mine")
            self.assertEqual(two.run(1, "ls /dev/shm").split(), ["hosts"])
            programs = hosts.Programs(Path("/nowhere"), two, 1, folder)
            agent = subprocess.run([programs.agent, "-x", "host1", "hostname"], capture_output=True, text=True)
            self.assertEqual(agent.stdout, "host1\n")
            ranks = programs.ranks_in_shells(2, lambda rank: ["sh", "-c", f"hostname; exit {rank + 3}", "sh"])
            done = subprocess.run(ranks, capture_output=True, text=True)
            self.assertEqual(sorted(done.stdout.split()), ["host0", "host1"])
            self.assertEqual(done.returncode, 3)


if __name__ == "__main__":
    unittest.main()
