// Ranks as processes: deaths, stops, forks, signals, strangers. Tests that fork start in a fresh process,
// since a child of a process that has used the bootstrap may not use it.
#include <gmock/gmock.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <mutex>

#include "base/fd.h"
#include "bootstrap/crypto.h"
#include "bootstrap/handshake.h"
#include "bootstrap/unique_id.h"
#include "bootstrap_support.h"
#include "support/processes.h"

namespace muster {
namespace {

using namespace test;  // NOLINT
using testing::AllOf;
using testing::HasSubstr;

// What the processes of one test share.
struct Board {
  std::atomic<int> id_ready{0}, connected{0}, go{0};
  UniqueId id{};
  std::atomic<pid_t> child{0};
  std::atomic<int> reports[8] = {};
  int subject[8] = {};
  char text[8][512] = {};
};

Board* make_board() {
  void* p = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : new (p) Board;
}

// A rank in a process of its own: connects, notes what it hears, closes and exits when told to go.
pid_t start_rank(Board* b, int n, int rank, const std::function<void(Bootstrap&)>& then = {}) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  int status = 0;
  try {
    if (rank == 0) {
      b->id = make_unique_id();
      b->id_ready = 1;
    }
    eventually([&] { return b->id_ready.load() != 0; });
    auto boot = Bootstrap::connect(b->id, n, rank, Options::from_environment(), in_seconds(60));
    boot->watch([b, rank](const Bootstrap::Trouble& t) {
      b->subject[rank] = t.rank;
      strncpy(b->text[rank], t.message.c_str(), sizeof b->text[rank] - 1);
      ++b->reports[rank];
    });
    ++b->connected;
    if (then) then(*boot);
    eventually([&] { return b->go.load() != 0; });
    boot->close();
  } catch (const Error& e) {
    fprintf(stderr, "rank %d: %s\n", rank, e.what());
    status = 1;
  }
  _exit(status);
}

std::vector<pid_t> start_ranks(Board* b, int n) {
  std::vector<pid_t> pids;
  for (int r = 0; r < n; ++r) pids.push_back(start_rank(b, n, r));
  EXPECT_TRUE(eventually([&] { return b->connected == n; }));
  return pids;
}

int exit_status(pid_t pid) {
  int status = -1;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Processes, KilledRankIsNoticedByAllSurvivors) {
  IN_NEW_PROCESS("");
  Board* b = make_board();
  const auto pids = start_ranks(b, 4);
  kill(pids[2], SIGKILL);
  EXPECT_EQ(exit_status(pids[2]), -SIGKILL);
  for (const int r : {0, 1, 3}) {
    EXPECT_TRUE(eventually([&] { return b->reports[r] > 0; })) << r;
    EXPECT_EQ(b->subject[r], 2);
    EXPECT_THAT(b->text[r], AllOf(HasSubstr("rank 2 (host "), HasSubstr("pid " + std::to_string(pids[2]))));
  }
  b->go = 1;
  for (const int r : {0, 1, 3}) {
    EXPECT_EQ(exit_status(pids[static_cast<size_t>(r)]), 0);
    EXPECT_EQ(b->reports[r], 1);
  }
}

TEST(Processes, DeathEndsAnExchangeSoon) {
  IN_NEW_PROCESS("");
  Board* b = make_board();
  std::vector<pid_t> pids;
  for (int r = 0; r < 4; ++r)
    pids.push_back(start_rank(b, 4, r, [b, r](Bootstrap& boot) {
      if (r == 1) {
        eventually([&] { return b->connected == 4; });  // dying earlier would end the others' connecting
        kill(getpid(), SIGKILL);
      }
      const auto f = failure_of([&] { boot.all_gather("x", in_seconds(600)); });
      if (f.text.find("rank 1 (host ") == f.text.npos) _exit(7);
    }));
  b->go = 1;
  for (const int r : {0, 2, 3}) EXPECT_EQ(exit_status(pids[static_cast<size_t>(r)]), 0);
  EXPECT_EQ(exit_status(pids[1]), -SIGKILL);
}

TEST(Processes, StoppedRankIsNotDead) {
  IN_NEW_PROCESS("");
  Board* b = make_board();
  const auto pids = start_ranks(b, 3);
  kill(pids[1], SIGSTOP);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  for (int r = 0; r < 3; ++r) EXPECT_EQ(b->reports[r], 0);
  kill(pids[1], SIGCONT);
  b->go = 1;
  for (const pid_t p : pids) EXPECT_EQ(exit_status(p), 0);
  for (int r = 0; r < 3; ++r) EXPECT_EQ(b->reports[r], 0);
}

TEST(Processes, ExitRightBehindCloseIsClean) {
  IN_NEW_PROCESS("");
  for (int round = 0; round < 20; ++round) {
    Board* b = make_board();
    const auto pids = start_ranks(b, 3);
    b->go = 1;
    for (const pid_t p : pids) EXPECT_EQ(exit_status(p), 0);
    for (int r = 0; r < 3; ++r) EXPECT_EQ(b->reports[r], 0) << b->text[r];
  }
}

TEST(Processes, ForkedChildrenNeitherUseNorDisturbTheParents) {
  IN_NEW_PROCESS("ASAN_OPTIONS=detect_leaks=0");  // a child doesn't see what its parent's threads hold
  Board* b = make_board();
  Ranks ranks = connect_all(2);
  const UniqueId id = make_unique_id();
  for (int r = 0; r < 2; ++r)
    ranks[static_cast<size_t>(r)]->watch([b, r](const Bootstrap::Trouble&) { ++b->reports[r]; });
  for (int i = 0; i < 8; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      const auto refused = [](const std::function<void()>& f) {
        return failure_of(f).code == Result::invalid_usage;
      };
      int status = 0;
      if (!refused([] { make_unique_id(); })) status |= 1;
      if (!refused([&] { Bootstrap::connect(id, 2, 0, Options::from_environment(), in_seconds(1)); }))
        status |= 2;
      if (!refused([&] { ranks[1]->all_gather("x", in_seconds(1)); })) status |= 4;
      if (i % 2) ranks[0]->close();
      if (i % 4 > 1) ranks.clear();
      exit(status);  // with exit handlers, as a program would
    }
    EXPECT_EQ(exit_status(pid), 0);
  }
  for (const Failure& f :
       in_threads(2, [&](int r) { ranks[static_cast<size_t>(r)]->barrier(in_seconds(30)); }))
    EXPECT_EQ(f.text, "");
  for (const auto& r : ranks) r->close();
  EXPECT_EQ(b->reports[0] + b->reports[1], 0);
}

TEST(Processes, DeathIsNoticedThoughAChildLivesOn) {
  IN_NEW_PROCESS("");
  Board* b = make_board();
  const pid_t survivor = start_rank(b, 2, 0);
  const pid_t victim = start_rank(b, 2, 1, [b](Bootstrap&) {
    const pid_t c = fork();
    if (c == 0)
      for (;;) pause();
    b->child = c;
  });
  EXPECT_TRUE(eventually([&] { return b->child != 0; }));
  kill(victim, SIGKILL);
  exit_status(victim);
  EXPECT_TRUE(eventually([&] { return b->reports[0] == 1; }));
  kill(b->child, SIGKILL);
  b->go = 1;
  EXPECT_EQ(exit_status(survivor), 0);
}

TEST(Processes, DeadRootIsATimeoutWithItsAddress) {
  IN_NEW_PROCESS("");
  Board* b = make_board();
  const pid_t maker = fork();
  if (maker == 0) {
    b->id = make_unique_id();
    _exit(0);
  }
  exit_status(maker);
  const auto f =
      failure_of([&] { Bootstrap::connect(b->id, 2, 1, Options::from_environment(), in_seconds(1)); });
  EXPECT_EQ(f.code, Result::timeout);
  EXPECT_THAT(f.text, AllOf(HasSubstr(decode(b->id).root.text()), HasSubstr("attempts"),
                            HasSubstr("ECONNREFUSED"), HasSubstr("pid " + std::to_string(maker))));
}

TEST(Processes, RootThatDiesEndsTheMeetingSoon) {
  IN_NEW_PROCESS("");
  Board* b = make_board();
  const pid_t maker = fork();
  if (maker == 0) {
    b->id = make_unique_id();
    b->id_ready = 1;
    eventually([&] { return b->go.load() != 0; });
    _exit(0);
  }
  eventually([&] { return b->id_ready.load() != 0; });
  const auto failures = in_threads(3, [&](int i) {
    if (i < 2) return void(Bootstrap::connect(b->id, 3, i, Options::from_environment(), in_seconds(600)));
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    b->go = 1;
  });
  exit_status(maker);
  for (const size_t i : {0u, 1u}) EXPECT_THAT(failures[i].text, HasSubstr("root of the unique id"));
}

TEST(Processes, RankThatDiesEndsTheMeetingSoon) {
  IN_NEW_PROCESS("");
  Board* b = make_board();
  const pid_t victim = fork();
  if (victim == 0) {
    eventually([&] { return b->id_ready.load() != 0; });
    failure_of([&] { Bootstrap::connect(b->id, 3, 1, Options::from_environment(), in_seconds(600)); });
    _exit(0);
  }
  b->id = make_unique_id();
  b->id_ready = 1;
  const auto failures = in_threads(2, [&](int i) {
    if (i == 0) return void(Bootstrap::connect(b->id, 3, 0, Options::from_environment(), in_seconds(600)));
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    kill(victim, SIGKILL);
  });
  exit_status(victim);
  EXPECT_EQ(failures[0].code, Result::remote_error);
  EXPECT_THAT(failures[0].text, AllOf(HasSubstr("rank 1"), HasSubstr("pid " + std::to_string(victim)),
                                      HasSubstr("left while")));
}

// Strangers at the port: nobody is delayed, whatever they send, and the process survives any number of them.
TEST(Strangers, AreIgnored) {
  const int n = 4;
  const UniqueId id = make_unique_id();
  const Address port = decode(id).root;
  std::atomic<bool> stop{false};
  std::thread scanner([&] {
    std::vector<ProcessFd> silent;
    const std::string http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n", magic{"\x8dMusterH", 8};
    for (size_t i = 0; !stop; ++i) {
      SocketError error;
      ProcessFd fd = connect_to(port, {}, in_seconds(5), error);
      if (!fd) continue;
      std::string bytes(64, 'x');
      switch (i % 5) {
        case 0:
          bytes = std::string(i / 5 % 8, 'x');
          break;
        case 1:
          bytes = http;
          break;
        case 2:
          random_bytes(bytes.data(), bytes.size());
          break;
        case 3:
          bytes = magic.substr(0, i / 5 % 9);
          break;
        default:
          bytes = magic + std::string(kHelloBytes - magic.size(), static_cast<char>(i));
          break;
      }
      send_all(fd.get(), bytes, in_seconds(1));
      if (i % 2) silent.push_back(std::move(fd));
      if (silent.size() > 500) silent.erase(silent.begin(), silent.begin() + 100);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (const Failure& f : in_threads(n, [&](int r) {
         std::this_thread::sleep_for(std::chrono::milliseconds(400 * r));
         const auto b = Bootstrap::connect(id, n, r, Options::from_environment(), in_seconds(60));
         b->barrier(in_seconds(30));
         b->close();
       }))
    EXPECT_EQ(f.text, "");
  stop = true;
  scanner.join();
}

TEST(Strangers, SilentOnesAreLimitedInNumber) {
  const UniqueId id = make_unique_id();
  std::vector<ProcessFd> silent;
  for (int i = 0; i < 1000; ++i) {
    SocketError error;
    silent.push_back(connect_to(decode(id).root, {}, in_seconds(30), error));
    ASSERT_TRUE(silent.back()) << describe_errno(error.error);
  }
  EXPECT_TRUE(eventually([&] {
    int dropped = 0;
    for (auto& s : silent) {
      char c;
      dropped += recv(s.get(), &c, 1, 0) == 0;
    }
    return dropped >= 1000 - 256;
  }));
  for (const Failure& f : in_threads(2, [&](int r) {
         Bootstrap::connect(id, 2, r, Options::from_environment(), in_seconds(60))->close();
       }))
    EXPECT_EQ(f.text, "");
}

// A process may exit while threads of ours connect or serve; OpenSSL has cleared up by then.
TEST(Exit, WhileAThreadComputesDigests) {
  for (int round = 0; round < 8; ++round)
    test::run_processes(8, [](int) {
      for (int i = 0; i < 4; ++i)
        std::thread([] {
          try {
            for (;;) hmac_sha256("key", "message");
          } catch (const Error&) {
          }
        }).detach();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::exit(0);  // as a return from main
    });
}

// A profiler's signals at every thread, the service's included.
std::atomic<int> g_signals{0};
// Who knocks at a process that is ending finds nobody; that is no error of the process.
TEST(Exit, AKnockIsNoError) {
  static Board* const b = make_board();
  ASSERT_NE(b, nullptr);
  const std::string log = testing::TempDir() + "muster_exit_" + std::to_string(getpid());
  const pid_t ending = fork();
  if (ending == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const Fd file(open(log.c_str(), O_CREAT | O_WRONLY, 0600));
    dup2(file.get(), STDERR_FILENO);
    std::atexit([] {  // registered first, so it runs last
      b->go = 1;
      eventually([] { return b->connected.load() != 0; });
    });
    b->id = make_unique_id();
    b->id_ready = 1;
    std::exit(0);
  }
  const pid_t knocking = fork();
  if (knocking == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    eventually([] { return b->go.load() != 0; });
    b->reports[0] = failure_of([] { Bootstrap::connect(b->id, 2, 1, Options::from_environment(), in_seconds(0.5)); }).text.empty() ? 0 : 1;
    b->connected = 1;
    _exit(0);
  }
  for (const pid_t pid : {knocking, ending}) waitpid(pid, nullptr, 0);
  std::ifstream in(log);
  const std::string said((std::istreambuf_iterator<char>(in)), {});
  std::remove(log.c_str());
  EXPECT_EQ(b->reports[0], 1);
  EXPECT_EQ(said, "");
}

TEST(Signals, ProfilerStorm) {
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) {
    g_signals.fetch_add(1, std::memory_order_relaxed);
  };  // no SA_RESTART: calls end with EINTR
  sigaction(SIGPROF, &action, &before);
  std::atomic<bool> stop{false};
  std::thread storm([&] {
    const auto self = static_cast<pid_t>(syscall(SYS_gettid));
    while (!stop) {
      DIR* d = opendir("/proc/self/task");
      while (const dirent* e = readdir(d)) {
        const pid_t tid = atoi(e->d_name);
        if (tid > 0 && tid != self) syscall(SYS_tgkill, getpid(), tid, SIGPROF);
      }
      closedir(d);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int round = 0; round < 5; ++round) {
    const Ranks ranks = connect_all(3);
    for (const Failure& f : in_threads(3, [&](int r) {
           for (int i = 0; i < 20; ++i)
             ranks[static_cast<size_t>(r)]->all_gather(std::string(1000, 'x'), in_seconds(30));
           ranks[static_cast<size_t>(r)]->exchange_fds(
               {0, 1, 2}, {STDERR_FILENO}, [](int, std::vector<Fd>) {}, in_seconds(30));
         }))
      EXPECT_EQ(f.text, "");
    for (const auto& r : ranks) r->close();
  }
  stop = true;
  storm.join();
  EXPECT_GT(g_signals.load(), 0);
  sigaction(SIGPROF, &before, nullptr);
}

// "name: value" lines of the service thread's status file; fails unless there is exactly one such thread.
std::string service_status(const std::string& name) {
  std::vector<std::string> values;
  DIR* d = opendir("/proc/self/task");
  while (const dirent* e = readdir(d)) {
    const std::string task = std::string("/proc/self/task/") + e->d_name;
    std::string comm;
    if (std::ifstream file(task + "/comm"); !std::getline(file, comm) || comm != "muster-svc") continue;
    std::ifstream status(task + "/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(name + ":")) values.push_back(line.substr(name.size() + 1));
  }
  closedir(d);
  EXPECT_EQ(values.size(), 1u);
  return values.empty() ? "" : values[0];
}

TEST(Signals, OneServiceThreadThatBlocksThemAllAndSleeps) {
  const Ranks ranks = connect_all(2);
  EXPECT_THAT(service_status("SigBlk"), HasSubstr("ffff"));
  const auto switches = [] { return std::stol(service_status("voluntary_ctxt_switches")); };
  ranks[0]->watch(
      [](const Bootstrap::Trouble&) {});  // what is still under way from connecting comes before this
  const long before = switches();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LE(switches() - before, 5);
  for (const auto& r : ranks) r->close();
}

TEST(Limits, TooFewDescriptorsIsNoEndlessLoop) {
  IN_NEW_PROCESS("");
  const UniqueId id = make_unique_id();
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const int spare = dup(0);
  close(spare);
  const rlim_t normal = limit.rlim_cur;
  limit.rlim_cur = static_cast<rlim_t>(spare + 1);  // the client's socket fits, the accepted one doesn't
  setrlimit(RLIMIT_NOFILE, &limit);
  const auto failure = failure_of([&] {
    // What connect does before this needs descriptors too, so the id's port is called directly.
    const IdContent c = decode(id);
    dial(c.root, {}, {Purpose::join, c.public_id, c.key, 0, 0}, in_seconds(1), {"the root", ""});
  });
  EXPECT_EQ(failure.code, Result::timeout);
  limit.rlim_cur = static_cast<rlim_t>(spare);  // nor does the client's
  setrlimit(RLIMIT_NOFILE, &limit);
  const auto at_once = failure_of([&] {
    const IdContent c = decode(id);
    dial(c.root, {}, {Purpose::join, c.public_id, c.key, 0, 0}, in_seconds(100), {"the root", ""});
  });
  EXPECT_EQ(at_once.code, Result::system_error);
  EXPECT_THAT(at_once.text, HasSubstr("EMFILE"));
  EXPECT_THAT(at_once.text, HasSubstr("ulimit -n"));
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  EXPECT_LT(used.ru_utime.tv_sec + used.ru_stime.tv_sec, 1);
  limit.rlim_cur = normal;
  setrlimit(RLIMIT_NOFILE, &limit);
  const Ranks ranks = connect_all(2);
  for (const auto& r : ranks) r->close();
}

}  // namespace
}  // namespace muster
