// Each finding of `muster doctor`, with the facts that it follows from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "doctor/findings.h"
#include "doctor/report.h"
#include "support/fake_system.h"

namespace muster::doctor {
namespace {

using test::FakeSystem;
using test::SystemImage;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using topology::SystemFiles;

InterfaceFacts interface(const std::string& name, const std::string& address, double gbit_per_s = 25) {
  InterfaceFacts i;
  i.name = name;
  i.up = true;
  i.loopback = name == "lo";
  i.mtu = 1500;
  i.gbit_per_s = gbit_per_s;
  if (!address.empty()) i.addresses = {address};
  return i;
}

// Nothing to find.
Facts healthy(int rank = 0, const std::string& host = "a") {
  Facts f;
  f.rank = rank;
  f.host = host;
  f.identity = host + "/boot";
  f.place = std::hash<std::string>()(host);
  f.whole_host = true;
  f.muster = "1.0";
  f.kernel = "6.1";
  f.ucx = "1.13.1";
  f.ibverbs = "1.14.44.0";
  f.allowed_cpus = f.host_cpus = 16;
  f.memory_bytes = int64_t{64} << 30;
  f.open_files = f.open_files_hard = 65536;
  f.shm_bytes = int64_t{32} << 30;
  f.local_ports = 28232;
  f.listen_queue = 4096;
  f.interfaces = {interface("lo", "127.0.0.1/8", 0), interface("eth0", "10.0.0." + std::to_string(rank + 1) + "/24")};
  f.interface = "eth0";
  f.address = "10.0.0." + std::to_string(rank + 1);
  f.networks = {{"verbs", "no RDMA device"}, {"tcp", ""}, {"ucx", ""}};
  f.agreement = {"MUSTER_CHANNELS=0"};
  return f;
}

Job job_of(std::vector<Facts> ranks) {
  Job job;
  job.size = static_cast<int>(ranks.size());
  job.launcher = "mpirun";
  job.ranks = std::move(ranks);
  return job;
}

std::vector<std::string> ids(const std::vector<Finding>& found) {
  std::vector<std::string> r;
  for (const Finding& f : found) r.push_back(f.id);
  return r;
}
std::vector<std::string> ids(const std::vector<Located>& found) {
  std::vector<std::string> r;
  for (const Located& l : found) r.push_back(l.finding.id);
  return r;
}

// The only finding there is.
Finding only(const std::vector<Finding>& found) {
  EXPECT_EQ(found.size(), 1u) << testing::PrintToString(ids(found));
  return found.empty() ? Finding{} : found[0];
}
Located only(const std::vector<Located>& found) {
  EXPECT_EQ(found.size(), 1u) << testing::PrintToString(ids(found));
  return found.empty() ? Located{} : found[0];
}

void expect(const Finding& f, Severity severity, const std::string& id, const std::string& text, const std::string& remedy) {
  EXPECT_EQ(f.severity, severity) << f.text;
  EXPECT_EQ(f.id, id);
  EXPECT_THAT(f.text, HasSubstr(text));
  EXPECT_THAT(f.remedy, HasSubstr(remedy));
}

TEST(DoctorHost, NothingToFind) {
  EXPECT_THAT(examine_host(healthy()), IsEmpty());
  EXPECT_THAT(examine_rank(healthy()), IsEmpty());
  EXPECT_THAT(diagnose(job_of({healthy(0, "a"), healthy(1, "b")})), IsEmpty());
}

TEST(DoctorHost, SmallOrMissingSharedMemoryIsOnlyANote) {
  Facts f = healthy();
  f.shm_bytes = 64 << 20;
  expect(only(examine_host(f)), Severity::note, "shm-small", "/dev/shm holds 64 MiB. Muster doesn't use it", "--shm-size=1g");
  f.shm_bytes = (64 << 20) + 1;
  EXPECT_THAT(examine_host(f), IsEmpty());
  f.shm_bytes = kNoLimit;
  f.shm_problem = "it is mounted read-only";
  expect(only(examine_host(f)), Severity::note, "shm-unusable", "/dev/shm can't be used: it is mounted read-only", "emptyDir");
}

TEST(DoctorHost, TwoInterfacesInOneNetwork) {
  Facts f = healthy();
  f.interfaces.push_back(interface("eth1", "10.0.0.200/24"));
  expect(only(examine_host(f)), Severity::note, "same-network", "eth0, eth1 are all in 10.0.0.0/24", "arp_ignore=1");
  f.interfaces[1].rp_filter = 1;
  expect(only(examine_host(f)), Severity::warning, "same-network", "with rp_filter=1 it drops", "rp_filter=2");
  f.interfaces[2].addresses = {"10.0.1.200/24"};
  EXPECT_THAT(examine_host(f), IsEmpty());
  f.interfaces[2].addresses = {"10.0.0.200/24"};
  f.interfaces[2].up = false;
  EXPECT_THAT(examine_host(f), IsEmpty());
}

TEST(DoctorHost, RoceWithoutAGidThatRoutersKnow) {
  Facts f = healthy();
  f.rdma = {{"mlx5_0", 1, true, true, 100, {{0, "fe80::1", "IB/RoCE v1", "eth2"}, {1, "fe80::1", "RoCE v2", "eth2"}}}};
  const Finding found = only(examine_host(f));
  expect(found, Severity::warning, "no-usable-gid", "mlx5_0 port 1 is RoCE and has no GID of version 2", "Give its interface eth2 an IP address");
  EXPECT_THAT(found.text, HasSubstr("it has: 0 fe80::1 (IB/RoCE v1), 1 fe80::1 (RoCE v2)"));
  f.rdma[0].gids.push_back({2, "::ffff:10.0.0.1", "IB/RoCE v1", "eth2"});
  EXPECT_THAT(ids(examine_host(f)), ElementsAre("no-usable-gid"));
  f.rdma[0].gids.push_back({3, "::ffff:10.0.0.1", "RoCE v2", "eth2"});
  EXPECT_THAT(examine_host(f), IsEmpty());
  f.rdma[0].gids.clear();
  EXPECT_THAT(only(examine_host(f)).text, HasSubstr("it has: none"));
  f.rdma[0].up = false;  // another finding's
  EXPECT_THAT(examine_host(f), IsEmpty());
  f.rdma[0] = {"mlx5_0", 1, true, false, 400, {}};  // InfiniBand has its subnet manager
  EXPECT_THAT(examine_host(f), IsEmpty());
}

TEST(DoctorHost, FewPorts) {
  Facts f = healthy();
  f.local_ports = 4;
  expect(only(examine_host(f)), Severity::warning, "few-ports", "the kernel has 4 TCP ports to give out", "ip_local_port_range");
}

TEST(DoctorRank, Options) {
  Facts f = healthy();
  f.options_problem = "MUSTER_CHANNELS='x' can't be read";
  f.warnings = {"NCCL_DEBGU is not known. Is NCCL_DEBUG meant?"};
  const auto found = examine_rank(f);
  ASSERT_THAT(ids(found), ElementsAre("option-unreadable", "option"));
  EXPECT_EQ(found[0].severity, Severity::error);
  EXPECT_EQ(found[1].severity, Severity::warning);
  EXPECT_THAT(found[1].text, HasSubstr("Is NCCL_DEBUG meant?"));
}

TEST(DoctorRank, Interfaces) {
  Facts f = healthy();
  f.no_address = "NCCL_SOCKET_IFNAME='nope0' is the beginning of the name of no interface. This machine has lo, eth0";
  expect(only(examine_rank(f)), Severity::error, "no-interface", "nope0", "");
  f = healthy();
  f.interface = f.address = "";
  expect(only(examine_rank(f)), Severity::note, "no-network", "not even loopback", "ip link set lo up");
  f = healthy();
  f.interfaces.push_back(interface("ib0", "10.1.0.1/24", 400));
  expect(only(examine_rank(f)), Severity::warning, "slow-interface", "over eth0 with 25 Gbit/s, and ib0 has 400 Gbit/s", "NCCL_SOCKET_IFNAME=ib0");
  f.interfaces[2].addresses.clear();
  EXPECT_THAT(examine_rank(f), IsEmpty());
}

TEST(DoctorRank, Memory) {
  Facts f = healthy();
  f.group_memory = {int64_t{1} << 30, (int64_t{1} << 30) - (100 << 20)};
  expect(only(examine_rank(f)), Severity::warning, "memory-short", "may have 1 GiB of memory and has 100 MiB left", "--memory");
  f.group_memory.used = 0;
  EXPECT_THAT(examine_rank(f), IsEmpty());
  f.memfd_problem = "memfd_create: EPERM (Operation not permitted)";
  expect(only(examine_rank(f)), Severity::error, "no-shared-memory", "EPERM", "seccomp");
}

TEST(DoctorRank, Limits) {
  Facts f = healthy();
  f.open_files = 64;
  f.open_files_hard = 4096;
  expect(only(examine_rank(f)), Severity::warning, "few-files", "may have 64 files open (at most 4096)", "ulimit -n 4096; in /etc");
  f.open_files_hard = 64;
  EXPECT_THAT(only(examine_rank(f)).remedy, AllOf(Not(HasSubstr("ulimit -n ")), HasSubstr("nofile=65536")));
  f.open_files_hard = kNoLimit;
  EXPECT_THAT(only(examine_rank(f)).text, HasSubstr("(at most unlimited)"));
  f.open_files = kNoLimit;
  EXPECT_THAT(examine_rank(f), IsEmpty());
  f.group_processes = {100, 80};
  expect(only(examine_rank(f)), Severity::warning, "processes-short", "may have 100 processes and threads and has 20 left", "--pids-limit");
  f = healthy();
  f.allowed_cpus = 1;
  expect(only(examine_rank(f)), Severity::note, "one-core", "1 of 16 cores", "--cpus-per-task=2");
}

TEST(DoctorJob, RanksThatDidntCome) {
  Job job = job_of({healthy(0, "a"), healthy(2, "b")});
  job.size = 4;
  expect(only(examine_job(job)).finding, Severity::error, "rank-missing", "2 of 4 ranks didn't reach rank 0 at 10.0.0.1 (eth0) in time: ranks 1, 3",
         "firewalls");
  job.silent = {1};
  const auto found = examine_job(job);
  ASSERT_THAT(ids(found), ElementsAre("long-messages-lost", "rank-missing"));
  EXPECT_THAT(found[0].finding.text, HasSubstr("rank 1 connected to rank 0, but"));
  EXPECT_THAT(found[1].finding.text, HasSubstr("1 of 4 ranks didn't reach rank 0"));
  job.silent.clear();
  job.meeting_problem = "rank 0 can't be reached";
  expect(only(examine_job(job)).finding, Severity::error, "no-meeting", "rank 0 can't be reached", "");
}

TEST(DoctorJob, PairsThatDontReachEachOther) {
  Job job = job_of({healthy(0, "a"), healthy(1, "b"), healthy(2, "c")});
  job.reaches = {{0, 1, 80, "", true}, {0, 2, 0, "rank 2 (c) can't be reached at 10.0.0.3:4711: connect: ECONNREFUSED", false},
                 {1, 0, 90, "", true}, {1, 2, 0, "same", false}, {2, 0, 70, "", true}, {2, 1, 75, "32768 bytes didn't come back in 4 s", true}};
  const auto found = examine_job(job);
  ASSERT_THAT(ids(found), ElementsAre("unreachable", "long-messages-lost"));
  expect(found[0].finding, Severity::error, "unreachable", "c (rank 2, 10.0.0.3 on eth0) can't be reached from a, b: rank 2 (c) can't be",
         "firewalls");
  expect(found[1].finding, Severity::error, "long-messages-lost", "b (rank 1, 10.0.0.2 on eth0) can be connected to from c", "mtu 1500");
  EXPECT_EQ(found[0].finding.where, "c");
  const std::string text = text_report(job, found);
  EXPECT_THAT(text, HasSubstr("3 of 6 reached; round trips 80 us, at worst 90 us"));
  EXPECT_THAT(text, HasSubstr("2 errors, 0 warnings, 0 notes."));
}

TEST(DoctorJob, OneHostInParts) {
  Facts b = healthy(1, "a");
  b.place = 7;  // another network namespace
  const auto found = only(examine_job(job_of({healthy(0, "a"), b})));
  expect(found.finding, Severity::error, "host-in-parts", "count as one host, a, but are in 2 network namespaces", "NCCL_HOSTID");
}

TEST(DoctorJob, HostsOfOneName) {
  Facts b = healthy(1, "a");
  b.identity = "id:other";
  b.place = 7;
  const Job job = job_of({healthy(0, "a"), b});
  expect(only(examine_job(job)).finding, Severity::note, "same-host-name", "2 hosts have the name a", "");
  ASSERT_EQ(hosts_of(job).size(), 2u);
  EXPECT_EQ(hosts_of(job)[1].name, "other");
}

TEST(DoctorJob, Versions) {
  Facts b = healthy(1, "b");
  b.muster = "2.0";
  b.ucx = "";
  b.ibverbs = "1.15";
  b.nvidia = "570.86";
  b.kernel = "5.15";
  const auto found = examine_job(job_of({healthy(0, "a"), b}));
  ASSERT_THAT(ids(found), ElementsAre("versions-differ", "versions-differ", "versions-differ", "versions-differ", "versions-differ"));
  expect(found[0].finding, Severity::error, "versions-differ", "Muster: 1.0 on rank 0; 2.0 on rank 1", "Use the same");
  expect(found[1].finding, Severity::warning, "versions-differ", "UCX: none on b; 1.13.1 on a", "the same on all hosts");
  expect(found[2].finding, Severity::warning, "versions-differ", "libibverbs: 1.14.44.0 on a; 1.15 on b", "rdma-core");
  expect(found[3].finding, Severity::note, "versions-differ", "NVIDIA's driver: none on a; 570.86 on b", "");
  expect(found[4].finding, Severity::note, "versions-differ", "Linux: 5.15 on b; 6.1 on a", "");
}

TEST(DoctorJob, OptionsThatMustAgree) {
  Facts b = healthy(1, "b");
  b.agreement = {"MUSTER_CHANNELS=4"};
  const auto found = only(examine_job(job_of({healthy(0, "a"), b})));
  expect(found.finding, Severity::error, "options-differ", "rank 0 has MUSTER_CHANNELS=0, rank 1 has MUSTER_CHANNELS=4", "mpirun -x");
}

TEST(DoctorJob, Networks) {
  Facts b = healthy(1, "b");
  b.interfaces[1].mtu = 9000;
  expect(only(examine_job(job_of({healthy(0, "a"), b}))).finding, Severity::warning, "mtu-differs",
         "1500 on a (eth0); 9000 on b (eth0)", "ip link set");
  b = healthy(1, "b");
  b.interface = "lo";
  b.address = "127.0.0.1";
  expect(only(examine_job(job_of({healthy(0, "a"), b}))).finding, Severity::error, "loopback-only",
         "rank 1 on b has only 127.0.0.1 (lo), which other hosts can't reach", "NCCL_SOCKET_IFNAME must not");
  b = healthy(1, "b");
  b.rdma = {{"mlx5_0", 1, true, false, 400, {}}};
  expect(only(examine_job(job_of({healthy(0, "a"), b}))).finding, Severity::warning, "rdma-differs", "InfiniBand on b; no RDMA on a", "rdma link");
  Facts a = healthy(0, "a");
  a.rdma = {b.rdma[0], b.rdma[0]};
  expect(only(examine_job(job_of({a, b}))).finding, Severity::note, "rdma-ports-differ", "1 on b; 2 on a", "");
}

// Emulated hosts on one machine reach each other by loopback.
TEST(DoctorJob, WhatJoinsTheHosts) {
  Job job = job_of({healthy(0, "a"), healthy(1, "b")});
  EXPECT_THAT(text_report(job, {}), HasSubstr("Ranks of different hosts are joined by tcp. Not by verbs: no RDMA device. It comes before ucx.\n"));
  EXPECT_THAT(json_report(job, {}), AllOf(HasSubstr("\"name\": \"tcp\""), HasSubstr("\"problem\": \"no RDMA device\"")));
  for (Facts& f : job.ranks) f.networks[0].problem = "";
  EXPECT_EQ(choose_network(job).name, "verbs");
  EXPECT_THAT(choose_network(job).behind, ElementsAre("tcp", "ucx"));
  job.ranks[1].networks[0].problem = "port 1 is down";
  EXPECT_THAT(text_report(job, {}), HasSubstr("joined by tcp. Not by verbs: not on rank 1 (b): port 1 is down. "));
  // What others allow is theirs to say.
  job.ranks[0].network_wish = "Socket";
  job.ranks[0].networks = {{"tcp", ""}};
  EXPECT_THAT(text_report(job, {}), HasSubstr("joined by tcp. NCCL_NET=Socket asks for it.\n"));
  job.ranks[1].network_wish = "IB";
  job.ranks[1].networks = {{"verbs", "port 1 is down"}, {"ucx", ""}};
  EXPECT_THAT(choose_network(job).passed_over[0].problem, "not on rank 1 (b): NCCL_NET=IB there");
  const auto none = [&](const std::string& text) {
    expect(only(diagnose(job)).finding, Severity::error, "no-common-network", text, "NCCL_NET and NCCL_NET_PLUGIN alike on all ranks");
    EXPECT_THAT(text_report(job, {}), HasSubstr("joined by nothing: " + text));
  };
  none("there is none that all ranks can use");
  job.ranks[1].networks[1].problem = "UCX isn't installed";
  none("rank 1 on b can use none");
  job.ranks[1].networks = {};
  job.ranks[1].network_problem = "NCCL_NET='pigeons' names no network";
  none("NCCL_NET='pigeons' names no network");
}

TEST(DoctorJob, LoopbackIsEnoughOnOneMachine) {
  Facts a = healthy(0, "a"), b = healthy(1, "a");
  a.identity = "id:x", b.identity = "id:y";
  for (Facts* f : {&a, &b}) f->interface = "lo", f->address = "127.0.0.1";
  EXPECT_THAT(ids(examine_job(job_of({a, b}))), ElementsAre("same-host-name"));
}

TEST(DoctorJob, CoresAndPorts) {
  std::vector<Facts> ranks;
  for (int r = 0; r < 4; ++r) ranks.push_back(healthy(r, "a"));
  for (Facts& f : ranks) f.allowed_cpus = 2, f.cpus = {6, 7};
  expect(only(examine_job(job_of(ranks))).finding, Severity::warning, "bound-together", "4 ranks on a are bound to 2 cores together, of 16",
         "--bind-to");
  for (Facts& f : ranks) f.allowed_cpus = 1, f.cpus = {f.rank};
  EXPECT_THAT(ids(examine_job(job_of(ranks))), ElementsAre()) << "a core each";
  for (Facts& f : ranks) f.allowed_cpus = f.host_cpus = 2;
  expect(only(examine_job(job_of(ranks))).finding, Severity::note, "few-cores", "4 ranks share 2 cores on a", "");
  for (Facts& f : ranks) f.allowed_cpus = f.host_cpus = 16, f.cpu_quota = 1.5;
  expect(only(examine_job(job_of(ranks))).finding, Severity::note, "few-cores", "4 ranks share a CPU quota of 1.5 cores on a", "--cpus");
  for (Facts& f : ranks) f.cpu_quota = 0, f.port_range = "40000-40002";
  expect(only(examine_job(job_of(ranks))).finding, Severity::error, "port-range-short", "MUSTER_PORT_RANGE=40000-40002 has 3 ports for 4 ranks on a",
         "Widen");
  for (Facts& f : ranks) f.port_range = "40000-40003", f.listen_queue = 3;
  expect(only(examine_job(job_of(ranks))).finding, Severity::note, "short-listen-queue", "4 ranks come to rank 0, whose host lets 3 wait",
         "somaxconn=4096");
}

TEST(DoctorJob, FindingsOfSeveralRanksAreOne) {
  std::vector<Facts> ranks;
  for (int r = 0; r < 4; ++r) ranks.push_back(healthy(r, r < 2 ? "a" : "b"));
  for (Facts& f : ranks) f.open_files = f.open_files_hard = 256;
  ranks[1].whole_host = ranks[3].whole_host = false;
  ranks[2].local_ports = 4;
  ranks[3].local_ports = 4;
  const Job job = job_of(ranks);
  const auto found = diagnose(job);
  ASSERT_THAT(ids(found), ElementsAre("few-files", "few-ports"));
  EXPECT_THAT(found[0].ranks, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(found[1].ranks, ElementsAre(2));
  EXPECT_EQ(exit_status(found), 1);
  const std::string text = text_report(job, found);
  EXPECT_THAT(text, HasSubstr("4 of 4 ranks (mpirun), 2 hosts.\n"));
  EXPECT_THAT(text, HasSubstr("warning  few-files  (all hosts)\n"));
  EXPECT_THAT(text, HasSubstr("warning  few-ports  (b: net.ipv4.ip_local_port_range)\n"));
  EXPECT_THAT(json_report(job, found), AllOf(HasSubstr("\"status\": \"warnings\""), HasSubstr("\"id\": \"few-ports\""), HasSubstr("\"schema\": 1")));
}

TEST(DoctorReport, ExitStatus) {
  const auto with = [](Severity s) { return std::vector<Located>{{{s, "x", "", "", ""}, {}}}; };
  EXPECT_EQ(exit_status({}), 0);
  EXPECT_EQ(exit_status(with(Severity::note)), 0);
  EXPECT_EQ(exit_status(with(Severity::warning)), 1);
  EXPECT_EQ(exit_status(with(Severity::error)), 2);
}

TEST(DoctorFacts, Travel) {
  Facts f = healthy(3, "b");
  f.rdma = {{"mlx5_0", 1, true, true, 100, {{3, "::ffff:10.0.0.1", "RoCE v2", "eth2"}}}};
  f.findings = {{Severity::warning, "memlock-low", "", "text", "remedy"}};
  f.group_memory = {5, 3};
  const Facts g = facts_from_text(to_text(f));
  EXPECT_EQ(to_text(g), to_text(f));
  EXPECT_EQ(g.rdma[0].gids[0].type, "RoCE v2");
  EXPECT_EQ(g.findings[0].severity, Severity::warning);
  EXPECT_EQ(g.place, f.place);
  EXPECT_EQ(facts_from_text(R"({"rank": 2, "from another version": 1})").rank, 2);
  for (const char* wrong : {"", "[]", "{\"rank\": \"x\"}", "{"}) EXPECT_THROW(facts_from_text(wrong), Error) << wrong;
}

TEST(DoctorFacts, ControlGroups) {
  SystemImage v2;
  v2.files["/proc/self/cgroup"] = "0::/pod/container\n";
  v2.files["/sys/fs/cgroup/pod/container/memory.max"] = "max\n";
  v2.files["/sys/fs/cgroup/pod/container/pids.max"] = "100\n";
  v2.files["/sys/fs/cgroup/pod/container/pids.current"] = "7\n";
  v2.files["/sys/fs/cgroup/pod/memory.max"] = "1073741824\n";
  v2.files["/sys/fs/cgroup/pod/memory.current"] = "900000000\n";
  v2.files["/sys/fs/cgroup/pod/memory.stat"] = "anon 1\ninactive_file 400000000\nactive_file 3\n";
  const FakeSystem two(v2);
  EXPECT_EQ(group_memory_limit(SystemFiles(two.root())).limit, 1073741824);
  EXPECT_EQ(group_memory_limit(SystemFiles(two.root())).used, 500000000);
  EXPECT_EQ(group_process_limit(SystemFiles(two.root())).room(), 93);

  SystemImage v1;
  v1.files["/proc/self/cgroup"] = "5:pids:/docker/x\n4:memory:/docker/x\n1:name=systemd:/docker/x\n";
  v1.files["/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes"] = "536870912\n";
  v1.files["/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes"] = "1000\n";
  v1.files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n";
  v1.files["/sys/fs/cgroup/pids/docker/x/pids.max"] = "max\n";
  const FakeSystem one(v1);
  EXPECT_EQ(group_memory_limit(SystemFiles(one.root())).limit, 536870912);
  EXPECT_EQ(group_process_limit(SystemFiles(one.root())).limit, kNoLimit);
  EXPECT_EQ(group_memory_limit(SystemFiles("/nonexistent")).limit, kNoLimit);
}

// A card whose interface has a link-local address alone, as the kernel shows it.
SystemImage roce_host() {
  SystemImage s;
  s.add_pci("pci0000:10/0000:11:00.0", "0x020000", "0x15b3", "0x1021", "0");
  s.add_rdma("mlx5_0", "pci0000:10/0000:11:00.0", "Ethernet", "100 Gb/sec (4X EDR)");
  const std::string port = "/sys/class/infiniband/mlx5_0/ports/1/";
  for (const auto& [index, gid, type] : {std::tuple{"0", "fe80:0000:0000:0000:a288:c2ff:fe09:704e", "IB/RoCE v1"},
                                         {"1", "fe80:0000:0000:0000:a288:c2ff:fe09:704e", "RoCE v2"},
                                         {"2", "0000:0000:0000:0000:0000:0000:0000:0000", ""}}) {
    s.files[port + "gids/" + index] = std::string(gid) + "\n";
    s.files[port + "gid_attrs/types/" + index] = std::string(type) + "\n";
    s.files[port + "gid_attrs/ndevs/" + index] = "eth2\n";
  }
  s.files["/proc/self/limits"] =
      "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         8388608     "
      "         8388608              bytes     \n";
  s.files["/proc/sys/net/ipv4/ip_local_port_range"] = "40000\t40003\n";
  s.files["/proc/sys/kernel/hostname"] = "node7\n";
  return s;
}

TEST(DoctorFacts, RdmaPorts) {
  const FakeSystem system(roce_host());
  const auto ports = rdma_ports(SystemFiles(system.root()));
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_TRUE(ports[0].up && ports[0].ethernet);
  EXPECT_EQ(ports[0].gbit_per_s, 100);
  ASSERT_EQ(ports[0].gids.size(), 2u);
  EXPECT_EQ(ports[0].gids[1].address, "fe80::a288:c2ff:fe09:704e");
  EXPECT_EQ(ports[0].gids[1].type, "RoCE v2");
  EXPECT_EQ(ports[0].gids[1].interface, "eth2");
}

// A whole captured system, with what topology/ finds in it.
TEST(DoctorFacts, OfACapturedSystem) {
  const FakeSystem system(roce_host());
  Job job;
  job.ranks = {look({system.root(), true, 0, 0})};
  EXPECT_EQ(job.ranks[0].host, "node7");
  EXPECT_EQ(job.ranks[0].local_ports, 4);
  const auto found = diagnose(job);
  EXPECT_THAT(ids(found), AllOf(testing::Contains("no-usable-gid"), testing::Contains("memlock-low"), testing::Contains("few-ports")));
  EXPECT_EQ(exit_status(found), 1);
  EXPECT_THAT(text_report(job, found), AllOf(HasSubstr("may lock 8192 KiB"), HasSubstr("mlx5_0/1 RoCE 100 Gbit/s")));
}

}  // namespace
}  // namespace muster::doctor
