// How the ranks of a launcher's job find each other.
#include "bootstrap/rendezvous.h"

#include <gmock/gmock.h>

#include <map>

#include "bootstrap/launcher_hosts.h"
#include "bootstrap/socket.h"
#include "bootstrap/unique_id.h"
#include "bootstrap_support.h"

namespace muster {
namespace {

using namespace test;  // NOLINT
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Env = std::map<std::string, std::string>;
Launch launch_of(const Env& env) {
  return read_launch([&](const char* name) -> const char* {
    const auto v = env.find(name);
    return v == env.end() ? nullptr : v->second.c_str();
  });
}
Env with(Env env, const std::string& name, const std::string& value) {
  env[name] = value;
  return env;
}
Env without(Env env, const std::string& name) {
  env.erase(name);
  return env;
}

const Env kTorchrun = {{"RANK", "3"},
                       {"WORLD_SIZE", "4"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "10.0.0.1"},
                       {"MASTER_PORT", "29500"}};
const Env kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"PMIX_NAMESPACE", "77"}};
const Env kMpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Env kSlurm = {{"SLURM_PROCID", "1"},
                    {"SLURM_NTASKS", "2"},
                    {"SLURM_LOCALID", "1"},
                    {"SLURM_JOB_ID", "9"},
                    {"SLURM_STEP_ID", "0"}};

TEST(Launchers, AreRecognised) {
  const Launch t = launch_of(kTorchrun);
  EXPECT_EQ(t.launcher, "torchrun");
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.size, 4);
  EXPECT_EQ(t.local_rank, 1);
  ASSERT_EQ(t.meeting.size(), 1u);
  EXPECT_EQ(t.meeting[0].host, "10.0.0.1");
  EXPECT_EQ(t.meeting[0].port, 29500);
  EXPECT_TRUE(t.meeting_set);
  EXPECT_EQ(launch_of(with(kTorchrun, "MUSTER_JOB_KEY", "k")).launcher, "muster run");
  for (const auto& [env, name] : {std::pair{kOpenMpi, "Open MPI"}, {kMpich, "MPICH"}, {kSlurm, "Slurm"}}) {
    const Launch l = launch_of(env);
    EXPECT_EQ(l.launcher, name);
    EXPECT_EQ(l.rank, 1);
    EXPECT_EQ(l.size, 2);
    EXPECT_EQ(l.local_rank, 1);
    EXPECT_TRUE(l.meeting.empty());
  }
}

TEST(Launchers, TorchrunsVariablesComeFirst) {
  Env both = kOpenMpi;
  both.insert(kTorchrun.begin(), kTorchrun.end());
  EXPECT_EQ(launch_of(both).launcher, "torchrun");
  EXPECT_EQ(launch_of(without(both, "WORLD_SIZE")).launcher, "Open MPI");
}

TEST(Launchers, JobsAreToldApart) {
  EXPECT_EQ(launch_of(kOpenMpi).identity, launch_of(with(kOpenMpi, "OMPI_COMM_WORLD_RANK", "0")).identity);
  EXPECT_NE(launch_of(kOpenMpi).identity, launch_of(with(kOpenMpi, "PMIX_NAMESPACE", "78")).identity);
  EXPECT_NE(launch_of(kSlurm).identity, launch_of(with(kSlurm, "SLURM_STEP_ID", "1")).identity);
  EXPECT_EQ(launch_of(kMpich).identity, launch_of(with(kMpich, "PMI_RANK", "0")).identity);
}

std::vector<std::string> hosts_of(const Launch& l) {
  std::vector<std::string> hosts;
  for (const HostPort& m : l.meeting) hosts.push_back(m.host);
  return hosts;
}

TEST(Launchers, SeveralHostsMeetWhereTheLauncherSays) {
  Env mpi = without(with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "1"), "OMPI_COMM_WORLD_LOCAL_RANK");
  mpi["OMPI_MCA_orte_hnp_uri"] = "7.0;tcp://10.66.0.1,10.77.0.1:46227";
  mpi["OMPI_MCA_orte_node_regex"] = "login,gpu[2:7-9]@0(3)";
  const Launch l = launch_of(mpi);
  EXPECT_THAT(hosts_of(l), ElementsAre("10.66.0.1", "10.77.0.1", "login", "gpu07", "gpu08", "gpu09"));
  EXPECT_FALSE(l.meeting_set);
  EXPECT_GE(l.meeting[0].port, 1024);
  EXPECT_EQ(l.identity, launch_of(with(mpi, "OMPI_COMM_WORLD_RANK", "0")).identity);

  Env slurm = with(kSlurm, "SLURM_STEP_NUM_NODES", "2");
  slurm["SLURM_JOB_NODELIST"] = "a[1-2],b7";
  slurm["SLURM_LAUNCH_NODE_IPADDR"] = "10.0.0.9";
  EXPECT_THAT(hosts_of(launch_of(slurm)), ElementsAre("a1", "10.0.0.9"));
  slurm["SLURM_STEP_NODELIST"] = "b7,a2";
  EXPECT_THAT(hosts_of(launch_of(slurm)), ElementsAre("b7", "10.0.0.9"));
  slurm["PMI_RANK"] = "1";  // srun --mpi=pmi2
  slurm["PMI_SIZE"] = "2";
  EXPECT_EQ(launch_of(slurm).launcher, "Slurm");
  slurm["MPI_LOCALNRANKS"] = "2";  // mpiexec inside a step
  EXPECT_EQ(launch_of(slurm).launcher, "MPICH");
}

TEST(Launchers, ListsOfHostsAreExpanded) {
  EXPECT_THAT(expand_hosts("n[01-03,07],login", 9), ElementsAre("n01", "n02", "n03", "n07", "login"));
  EXPECT_THAT(expand_hosts("r[1-2]n[09-10]x", 9), ElementsAre("r1n09x", "r1n10x", "r2n09x", "r2n10x"));
  EXPECT_THAT(expand_hosts("hosta,[2:10].77.0.2@0(2)", 9), ElementsAre("hosta", "10.77.0.2"));
  EXPECT_THAT(expand_hosts("n[1-99999999]", 2), ElementsAre("n1", "n2"));
  EXPECT_THAT(expand_hosts("a,b", 1), ElementsAre("a"));
  for (const char* odd : {"", "[", "]", "n[", "n[]", "n[-]", "n[3-1]", "n[x-y]", "n[1-2", "@", ",,", "n[99999999999999999999]"})
    EXPECT_LE(expand_hosts(odd, 2).size(), 2u) << odd;
  EXPECT_THAT(contact_addresses("7.0;tcp://10.0.0.1,10.1.0.1:4711;tcp6://[fd00::1]:4712"),
              ElementsAre("10.0.0.1", "10.1.0.1", "fd00::1"));
  for (const char* odd : {"", ";", "tcp://", "7.0;usock", "://:"}) EXPECT_TRUE(contact_addresses(odd).empty()) << odd;
}

TEST(Launchers, SeveralHostsNeedAMeetingPoint) {
  for (const Env& env : {with(kOpenMpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "1"),
                         with(kMpich, "MPI_LOCALNRANKS", "1"), with(kSlurm, "SLURM_NNODES", "2")}) {
    Env local = env;
    for (const char* r : {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"}) local.erase(r);
    const auto f = failure_of([&] { launch_of(local); });
    EXPECT_EQ(f.code, Result::invalid_usage);
    EXPECT_THAT(f.text,
                AllOf(HasSubstr("several hosts"), HasSubstr("MASTER_ADDR"), HasSubstr("MASTER_PORT")));
    EXPECT_EQ(launch_of(with(with(local, "MASTER_ADDR", "h"), "MASTER_PORT", "5")).meeting.at(0).host, "h");
  }
}

TEST(Launchers, WrongVariablesAreNamedWithTheirValues) {
  const auto text = [](const Env& env) {
    const auto f = failure_of([&] { launch_of(env); });
    EXPECT_EQ(f.code, Result::invalid_usage);
    return f.text;
  };
  EXPECT_THAT(text(with(kTorchrun, "RANK", "three")), HasSubstr("RANK='three'"));
  EXPECT_THAT(text(with(kTorchrun, "RANK", "-1")), HasSubstr("RANK='-1'"));
  EXPECT_THAT(text(with(kTorchrun, "RANK", "4")), HasSubstr("RANK=4 does not fit WORLD_SIZE=4"));
  EXPECT_THAT(text(with(kTorchrun, "WORLD_SIZE", "0")), HasSubstr("WORLD_SIZE='0'"));
  EXPECT_THAT(text(with(kTorchrun, "WORLD_SIZE", "4 ")), HasSubstr("WORLD_SIZE='4 '"));
  EXPECT_THAT(text(with(kTorchrun, "WORLD_SIZE", "99999999999999999999")), HasSubstr("WORLD_SIZE="));
  EXPECT_THAT(text(with(kTorchrun, "LOCAL_RANK", "2")),
              HasSubstr("LOCAL_RANK=2 does not fit LOCAL_WORLD_SIZE=2"));
  EXPECT_THAT(text(with(kTorchrun, "MASTER_PORT", "70000")), HasSubstr("MASTER_PORT='70000'"));
  EXPECT_THAT(text(without(kTorchrun, "MASTER_PORT")), HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(text(without(without(kTorchrun, "MASTER_PORT"), "MASTER_ADDR")), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(text(without(kTorchrun, "WORLD_SIZE")), HasSubstr("RANK=3 is set, but not WORLD_SIZE"));
  EXPECT_THAT(text(without(kOpenMpi, "OMPI_COMM_WORLD_RANK")), HasSubstr("not OMPI_COMM_WORLD_RANK"));
  EXPECT_THAT(text({}), AllOf(HasSubstr("RANK"), HasSubstr("OMPI_COMM_WORLD_RANK"), HasSubstr("PMI_RANK"),
                              HasSubstr("SLURM_PROCID")));
}

TEST(HostPorts, AreReadAsPeopleWriteThem) {
  EXPECT_EQ(parse_host_port("V", "h:1").host, "h");
  EXPECT_EQ(parse_host_port("V", "[fd00::1]:65535").host, "fd00::1");
  for (const char* wrong : {"", "h", "h:", ":1", "h:0", "h:65536", "h:1x", "fd00::1:5"})
    EXPECT_EQ(failure_of([&] { parse_host_port("V", wrong); }).code, Result::invalid_usage) << wrong;
}

// Ranks as threads; each with what its launcher would tell it.
std::vector<Failure> meet(int n, uint32_t generation, const std::function<Launch(int)>& launch,
                          double seconds = 60, std::vector<UniqueId>* ids = nullptr) {
  const Options options = Options::from_environment();
  return in_threads(n, [&](int r) {
    const Deadline deadline = in_seconds(seconds);
    const UniqueId id = meet_at_launchers_point(launch(r), generation, options, deadline);
    if (ids) (*ids)[static_cast<size_t>(r)] = id;
    const auto b = Bootstrap::connect(id, n, r, options, deadline);
    EXPECT_EQ(b->all_gather(std::to_string(r), deadline).at(static_cast<size_t>(n - 1)),
              std::to_string(n - 1));
    b->close();
  });
}

uint16_t free_port() {
  SocketError error;
  Address any;
  any.kind = Address::Kind::ipv4;
  any.bytes = {127, 0, 0, 1};
  return local_address(listen_at(any, error).get()).port;
}
Launch tcp(int rank, int size, uint16_t port, const std::string& host = "127.0.0.1") {
  return launch_of({{"RANK", std::to_string(rank)},
                    {"WORLD_SIZE", std::to_string(size)},
                    {"LOCAL_RANK", std::to_string(rank)},
                    {"MASTER_ADDR", host},
                    {"MASTER_PORT", std::to_string(port)}});
}
Launch local(int rank, int size, const std::string& job) {
  return launch_of({{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
                    {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
                    {"PMIX_NAMESPACE", job}});
}

TEST(Rendezvous, OverTcpSeveralTimesInSequence) {
  const uint16_t port = free_port();
  for (uint32_t g = 1; g <= 3; ++g)
    for (const Failure& f :
         meet(4, g, [&](int r) { return tcp(r, 4, port, g == 3 ? "localhost" : "127.0.0.1"); }))
      EXPECT_EQ(f.text, "");
}

TEST(Rendezvous, GenerationsDontMix) {
  const uint16_t port = free_port();
  std::vector<UniqueId> ids[2] = {std::vector<UniqueId>(2), std::vector<UniqueId>(2)};
  for (const Failure& f : in_threads(2, [&](int g) {
         for (const Failure& inner : meet(
                  2, static_cast<uint32_t>(g), [&](int r) { return tcp(r, 2, port); }, 60, &ids[g]))
           EXPECT_EQ(inner.text, "");
       }))
    EXPECT_EQ(f.text, "");
  for (auto& pair : ids) EXPECT_EQ(decode(pair[0]).public_id, decode(pair[1]).public_id);
  EXPECT_NE(decode(ids[0][0]).public_id, decode(ids[1][0]).public_id);
}

TEST(Rendezvous, AtAUnixSocketSeveralTimesInSequence) {
  for (uint32_t g = 1; g <= 3; ++g)
    for (const Failure& f : meet(3, g, [&](int r) { return local(r, 3, "job a"); })) EXPECT_EQ(f.text, "");
}

// Something else, say the launcher's own store, holds the port and never answers.
TEST(Rendezvous, OccupiedPortIsStepped) {
  SocketError error;
  Address any;
  any.kind = Address::Kind::ipv4;
  const ProcessFd store = listen_at(any, error);
  const uint16_t port = local_address(store.get()).port;
  if (port > 65500) GTEST_SKIP() << "no ports behind " << port;
  for (const Failure& f : meet(3, 1, [&](int r) { return tcp(r, 3, port); })) EXPECT_EQ(f.text, "");
}

TEST(Rendezvous, KeyOfTheJob) {
  const uint16_t port = free_port();
  {
    const ScopedEnv key("MUSTER_JOB_KEY", "secret");
    for (const Failure& f : meet(3, 1, [&](int r) { return tcp(r, 3, port); })) EXPECT_EQ(f.text, "");
  }
  const auto options_with = [](const std::string& key) {
    const ScopedEnv env("MUSTER_JOB_KEY", key);
    return Options::from_environment();
  };
  const Options mine = options_with("secret"), theirs = options_with("guess");
  const auto f = in_threads(
      2, [&](int r) { meet_at_launchers_point(tcp(r, 2, port), 2, r == 0 ? mine : theirs, in_seconds(60)); });
  EXPECT_EQ(f[0].text, "");
  EXPECT_EQ(f[1].code, Result::invalid_usage);
  EXPECT_THAT(f[1].text, HasSubstr("MUSTER_JOB_KEY"));
}

TEST(Rendezvous, AbsentRankZeroIsATimeoutWithTheMeetingPoint) {
  const auto options = Options::from_environment();
  const auto f =
      failure_of([&] { meet_at_launchers_point(tcp(1, 2, free_port()), 1, options, in_seconds(0.5)); });
  EXPECT_EQ(f.code, Result::timeout);
  EXPECT_THAT(f.text,
              AllOf(HasSubstr("MASTER_ADDR=127.0.0.1"), HasSubstr("ECONNREFUSED"), HasSubstr("rank 0")));
  EXPECT_THAT(
      failure_of([&] { meet_at_launchers_point(local(1, 2, "nobody"), 1, options, in_seconds(0.5)); }).text,
      HasSubstr("UNIX socket"));
  const auto dns = failure_of(
      [&] { meet_at_launchers_point(tcp(1, 2, 1, "no.such.host.invalid"), 1, options, in_seconds(2)); });
  EXPECT_EQ(dns.code, Result::invalid_usage);
  EXPECT_THAT(dns.text, HasSubstr("no.such.host.invalid"));
}

TEST(Rendezvous, NcclCommIdIsTheRoot) {
  const ScopedEnv env("NCCL_COMM_ID", fmt::format("127.0.0.1:{}", free_port()));
  for (uint32_t g = 1; g <= 2; ++g)
    for (const Failure& f : meet(3, g, [&](int r) { return tcp(r, 3, 1); })) EXPECT_EQ(f.text, "");
}

// As in a new network namespace: nothing has an address, and connecting to loopback ones is refused.
TEST(Rendezvous, AtLoopbackAddressesThatAreDown) {
  IN_NEW_NETWORK();
  for (uint32_t g = 1; g <= 2; ++g)
    for (const char* host : {"127.0.0.1", "localhost", "::1"})
      for (const Failure& f : meet(3, g, [&](int r) { return tcp(r, 3, 29500, host); }, 20))
        EXPECT_EQ(f.text, "") << host;
  const ScopedEnv env("NCCL_COMM_ID", "127.0.0.1:29600");
  for (uint32_t g = 1; g <= 2; ++g)
    for (const Failure& f : meet(3, g, [&](int r) { return tcp(r, 3, 1); }, 20)) EXPECT_EQ(f.text, "");
}

TEST(Rendezvous, OneRankMeetsNobody) {
  const Options options = Options::from_environment();
  const UniqueId id =
      meet_at_launchers_point(launch_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), 1, options, in_seconds(1));
  EXPECT_EQ(Bootstrap::connect(id, 1, 0, options, in_seconds(1))->size(), 1);
  EXPECT_EQ(failure_of([&] { Bootstrap::connect(id, 2, 0, options, in_seconds(1)); }).code,
            Result::invalid_argument);
}

TEST(Rendezvous, FromTheEnvironment) {
  if (!getenv("MUSTER_TEST_INNER")) {
    rerun_in_new_process(
        "bash -c 'p=$0; pids=; for r in 0 1 2; do RANK=$r WORLD_SIZE=3 LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 "
        "MASTER_PORT=" +
        std::to_string(free_port()) +
        " \"$p\" \"$@\" & pids=\"$pids $!\"; done; s=0; for i in $pids; do wait $i || s=1; done; exit $s'");
    return;
  }
  for (int round = 0; round < 2; ++round) {
    const Options options = Options::from_environment();
    const Rendezvous r = rendezvous_from_environment(options, in_seconds(60));
    EXPECT_GT(r.size, 1);
    const auto b = Bootstrap::connect(r.id, r.size, r.rank, options, in_seconds(60));
    b->barrier(in_seconds(30));
    b->close();
  }
}
}  // namespace
}  // namespace muster
