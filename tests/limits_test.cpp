// Many ranks, communicators and threads; little memory, few descriptors, odd machines: what is used stays small and is given
// back, and what can't be had is named.
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/state.h"
#include "muster/muster.h"
#include "support/outcome.h"
#include "support/ranks.h"

namespace muster {
namespace {

using test::Outcome;
using test::outcome_of;
using test::run_process_ranks;
using test::run_processes;
using test::run_threads;
using test::Variable;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr DataType kFloat = DataType::float32, kInt = DataType::int32;
constexpr RedOp kSum = RedOp::sum;

int entries(const char* directory) {
  DIR* d = opendir(directory);
  int n = -2 - (std::string(directory) == "/proc/self/fd");  // "." and "..", and the descriptor that reads it
  while (readdir(d)) ++n;
  closedir(d);
  return n;
}
int open_descriptors() { return entries("/proc/self/fd"); }
int threads() { return entries("/proc/self/task"); }
size_t mappings() {
  std::ifstream in("/proc/self/maps");
  return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(in), {}, '\n'));
}
size_t resident_kib() {
  std::ifstream in("/proc/self/statm");
  size_t total = 0, resident = 0;
  in >> total >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE)) / 1024;
}

// One call of every kind, with `count` elements, checked.
void every_call(Communicator& c, size_t count, bool messages = true) {
  const int n = c.size(), rank = c.rank();
  const size_t all = count * static_cast<size_t>(n);
  std::vector<int> a(all, rank + 1), b(all, -1);
  const int sum = n * (n + 1) / 2;
  const auto each = [&](size_t elements, int value, const char* what) {
    ASSERT_EQ(std::count(b.begin(), b.begin() + static_cast<ptrdiff_t>(elements), value), static_cast<ptrdiff_t>(elements)) << what;
  };
  c.all_reduce(a.data(), b.data(), count, kInt, kSum);
  each(count, sum, "all_reduce");
  c.reduce_scatter(a.data(), b.data(), count, kInt, kSum);
  each(count, sum, "reduce_scatter");
  c.all_gather(a.data(), b.data(), count, kInt);
  for (size_t i = 0; i < all; ++i) ASSERT_EQ(b[i], static_cast<int>(i / count) + 1) << "all_gather";
  c.all_to_all(a.data(), b.data(), count, kInt);
  for (size_t i = 0; i < all; ++i) ASSERT_EQ(b[i], static_cast<int>(i / count) + 1) << "all_to_all";
  for (const int root : {0, n - 1}) {
    c.broadcast(a.data(), b.data(), count, kInt, root);
    each(count, root + 1, "broadcast");
    c.reduce(a.data(), b.data(), count, kInt, kSum, root);
    if (rank == root) each(count, sum, "reduce");
    c.gather(a.data(), b.data(), count, kInt, root);
    for (size_t i = 0; rank == root && i < all; ++i) ASSERT_EQ(b[i], static_cast<int>(i / count) + 1) << "gather";
    c.scatter(a.data(), b.data(), count, kInt, root);
    each(count, root + 1, "scatter");
  }
  if (!messages) return;
  group_start();
  c.send(a.data(), count, kInt, (rank + 1) % n);
  c.recv(b.data(), count, kInt, (rank + n - 1) % n);
  group_end();
  each(count, (rank + n - 1) % n + 1, "send, recv");
}

// A communicator of the same ranks as `c`.
Communicator another(Communicator& c) {
  UniqueId id{};
  if (c.rank() == 0) id = make_unique_id();
  c.broadcast(&id, &id, sizeof id, DataType::uint8, 0);
  return Communicator::init(c.size(), c.rank(), id);
}

// --- many ---

TEST(Many, SixtyFourRanks) {
  run_threads(64, [](Communicator& c, int) {
    every_call(c, 1);
    every_call(c, 700);
  });
}

// More than the kernels combine in one step.
TEST(Many, SeventyRanks) {
  run_threads(70, [](Communicator& c, int) {
    every_call(c, 3);
    every_call(c, 6000);
  });
}

TEST(Many, RanksAsProcesses) {
  run_process_ranks(16, [](Communicator& c, int) {
    every_call(c, 1);
    every_call(c, 3000);
  });
}

// 2 ranks x 4 threads, each thread with 4 communicators of its own, all at once.
TEST(Many, CommunicatorsAtOnce) {
  run_process_ranks(2, [](Communicator& c, int) {
    std::vector<std::vector<Communicator>> of_thread(4);
    for (auto& comms : of_thread)
      for (int k = 0; k < 4; ++k) comms.push_back(another(c));
    std::vector<std::thread> workers;
    for (size_t t = 0; t < of_thread.size(); ++t)
      workers.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));  // the same on both ranks
        std::vector<int> a(30000), b(30000);
        for (int i = 0; i < 1500; ++i) {
          Communicator& comm = of_thread[t][random() % 4];
          const size_t count = 1 + random() % (i % 20 ? 300 : 30000);
          a[0] = a[count - 1] = i;
          comm.all_reduce(a.data(), b.data(), count, kInt, kSum);
          ASSERT_TRUE(b[0] == 2 * i && b[count - 1] == 2 * i) << "thread " << t << " call " << i;
        }
      });
    for (auto& w : workers) w.join();
  });
}

// 16 threads per rank with 8 communicators of their own each, all 128 at once, until so many calls are done.
void reduce_from_all_threads(Communicator& c, int calls) {
  const int n = c.size();
  std::vector<std::vector<Communicator>> of_thread(16);
  for (auto& comms : of_thread)
    for (int k = 0; k < 8; ++k) comms.push_back(c.split(0, 0));
  std::vector<std::thread> workers;
  for (size_t t = 0; t < of_thread.size(); ++t)
    workers.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));  // the same on all ranks
      std::vector<int> a(20000), b(a.size());
      for (int i = 0; i < calls; ++i) {
        Communicator& comm = of_thread[t][random() % 8];
        const size_t count = 1 + random() % (i % 20 ? 100 : a.size());
        a[0] = a[count - 1] = i + comm.rank();
        comm.all_reduce(a.data(), b.data(), count, kInt, kSum);
        const int sum = n * i + n * (n - 1) / 2;
        ASSERT_TRUE(b[0] == sum && b[count - 1] == sum) << "thread " << t << " call " << i;
      }
    });
  for (auto& w : workers) w.join();
}
TEST(Many, CommunicatorsReducingAtOnceFromThreads) {
  run_process_ranks(2, [](Communicator& c, int) { reduce_from_all_threads(c, 200); });
}
TEST(Many, LongCommunicatorsReducingAtOnceFromThreads) {
  run_process_ranks(4, [](Communicator& c, int) { reduce_from_all_threads(c, 3000); });
}

TEST(Many, FourCommunicatorsInterleaved) {
  run_process_ranks(2, [](Communicator& c, int rank) {
    std::vector<Communicator> comms;
    for (int k = 0; k < 4; ++k) comms.push_back(another(c));
    for (int i = 0; i < 200; ++i)
      for (int k = 0; k < 4; ++k) {
        std::vector<int> a(static_cast<size_t>(1 + i * 37 % 5000), 1000 * k + i + rank), b(a.size());
        comms[static_cast<size_t>((k + i) % 4)].all_reduce(a.data(), b.data(), a.size(), kInt, RedOp::max);
        ASSERT_THAT(std::vector<int>({b.front(), b.back()}), testing::Each(1000 * k + i + 1));
      }
  });
}

// What a process did with an earlier communicator decides nothing in a later one.
TEST(Many, ALaterCommunicatorOfRanksWithDifferentPasts) {
  run_process_ranks(4, [](Communicator& c, int rank) {
    UniqueId id{};
    if (rank == 0) id = make_unique_id();
    c.broadcast(&id, &id, sizeof id, DataType::uint8, 0);
    if (rank < 2) {
      Communicator pair = Communicator::init(2, rank, id);
      for (const size_t count : {size_t{1}, size_t{50000}, size_t{50000}, size_t{50000}}) every_call(pair, count);
      auto* memory = static_cast<int*>(mem_alloc(1 << 20));
      for (int i = 0; i < 5; ++i) pair.all_reduce(memory, memory, 1 << 18, kInt, kSum);
      mem_free(memory);
    }
    Communicator later = another(c);
    for (size_t count = 1; count < 100000; count = count * 3 + 1) every_call(later, count);
  });
}

// --- threads ---

// Whoever comes first, the first call of a communicator completes.
TEST(Threads, ComeLateToTheFirstCall) {
  for (int late = 0; late < 4; ++late)
    run_threads(4, [&](Communicator& c, int rank) {
      if (rank != late) std::this_thread::sleep_for(100ms);
      std::vector<int> in(4, -1), out(4);
      for (int p = 0; p < 4; ++p) out[static_cast<size_t>(p)] = rank * 10 + p;
      group_start();
      for (int p = 0; p < 4; ++p) {
        c.send(&out[static_cast<size_t>(p)], 1, kInt, p);
        c.recv(&in[static_cast<size_t>(p)], 1, kInt, p);
      }
      group_end();
      EXPECT_THAT(in, testing::ElementsAre(rank, 10 + rank, 20 + rank, 30 + rank));
    });
}

// Not allowed, and so refused, on every rank: no thread gets another's data, and none waits for ever.
TEST(Threads, TwoOnOneCommunicator) {
  for (int run = 0; run < 5; ++run)
    run_threads(2, [](Communicator& c, int) {
      std::vector<std::thread> both;
      std::atomic<int> refused{0}, wrong{0};
      for (int t = 0; t < 2; ++t)
        both.emplace_back([&] {
          std::vector<int> a(20000, 1), b(20000);
          Outcome o;
          for (int i = 0; i < 100000 && o.code == Result::success; ++i) {
            o = outcome_of([&] { c.all_reduce(a.data(), b.data(), a.size(), kInt, kSum); });
            if (o.code == Result::success && (b.front() != 2 || b.back() != 2)) ++wrong;
          }
          EXPECT_EQ(o.code, Result::invalid_usage) << o;
          EXPECT_THAT(o.text, AllOf(HasSubstr("two threads are making calls on rank"), HasSubstr("Give each thread a communicator")));
          refused += o.code == Result::invalid_usage;
        });
      for (auto& t : both) t.join();
      EXPECT_EQ(refused, 2);
      EXPECT_EQ(wrong, 0);
    });
}

// --- what is used ---

TEST(Memory, OfASegmentIsSmallAndTakenWhenUsed) {
  const auto body = [](Communicator& c, int) {
    c.barrier();
    Segment& segment = *c.impl()->segment;
    EXPECT_LT(segment.resident_bytes(), 128u << 10);
    c.barrier();
    for (int i = 0; i < 10; ++i) every_call(c, 4, false);
    EXPECT_LT(segment.resident_bytes(), 256u << 10) << "small messages need no buffers";
    c.barrier();
    for (const size_t count : {size_t{1} << 12, size_t{1} << 20}) every_call(c, count);
    c.barrier();
    EXPECT_LT(segment.resident_bytes(), 4u << 20);
  };
  run_process_ranks(2, body);
  run_threads(2, body);
  const Variable no_windows("MUSTER_WINDOWS", "0");
  run_threads(2, body);
}

// A rank knows its neighbours in a ring and a tree, not everybody: with twice as many ranks the one with most connections
// holds one or two more descriptors.
TEST(Descriptors, OfARankGrowWithTheLogarithmOfTheRanks) {
  run_process_ranks(24, [](Communicator& c, int rank) {
    const auto held_by = [&](int n) {
      UniqueId id{};
      if (rank == 0) id = make_unique_id();
      c.broadcast(&id, &id, sizeof id, DataType::uint8, 0);
      const int before = open_descriptors();
      int held = 0, most = 0;
      std::optional<Communicator> other;
      if (rank < n) {
        int x = 1, y = 0;
        other = Communicator::init(n, rank, id);
        other->all_reduce(&x, &y, 1, kInt, kSum);
        EXPECT_EQ(y, n);
        held = open_descriptors() - before;
      }
      c.all_reduce(&held, &most, 1, kInt, RedOp::max);
      if (other) other->destroy();
      return most;
    };
    held_by(24);  // what a process opens once and keeps
    const int few = held_by(6), many = held_by(24);
    EXPECT_GT(few, 0);
    EXPECT_LE(many, few + 2 * 2);  // 6 doubled twice
  });
}

TEST(Memory, OneRankHasNoSegment) {
  const int before = open_descriptors();
  Communicator c = std::move(Communicator::init_all(1)[0]);
  every_call(c, 10000);
  EXPECT_EQ(c.impl()->segment, nullptr);
  EXPECT_EQ(open_descriptors(), before);
}

// Communicators that were destroyed, thrown away, aborted or never came to be leave nothing behind.
TEST(Leaks, FiveHundredCommunicators) {
  const Variable quiet("MUSTER_LOG", "off");
  run_process_ranks(2, [](Communicator& c, int rank) {
    int descriptors = 0, tasks = 0;
    size_t maps = 0, resident = 0;
    for (int i = 0; i < 500; ++i) {
      {
        Communicator other = another(c);
        int x = rank, y = 0;
        other.all_reduce(&x, &y, 1, kInt, kSum);
        EXPECT_EQ(y, 1);
        std::vector<float> a(20000, 1), b(a.size());
        other.all_reduce(a.data(), b.data(), a.size(), kFloat, kSum);
        EXPECT_EQ(b.back(), 2);
        if (i % 5 == 1) {
          HostStream stream;
          other.all_reduce(a.data(), b.data(), a.size(), kFloat, kSum, &stream);
          stream.synchronize();
        }
        c.barrier();  // nobody is in a call of it any more
        if (i % 5 == 2) other.abort();
        if (i % 5 != 3) other.destroy();
      }
      if (i % 5 == 4) {
        // One that fails while it is made: the ranks don't agree.
        UniqueId id{};
        if (rank == 0) id = make_unique_id();
        c.broadcast(&id, &id, sizeof id, DataType::uint8, 0);
        const Variable differ("MUSTER_CHANNELS", rank ? "2" : "3");
        EXPECT_EQ(outcome_of([&] { Communicator::init(2, rank, id); }).code, Result::invalid_usage);
      }
      c.barrier();
      if (i == 150) {
        descriptors = open_descriptors();
        tasks = threads();
        maps = mappings();
        resident = resident_kib();
      }
    }
    // Sockets of the last one may still be closing.
    for (int i = 0; i < 200 && open_descriptors() > descriptors; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_LE(open_descriptors(), descriptors);
    EXPECT_LE(threads(), tasks);
    EXPECT_LE(mappings(), maps + 4);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LE(resident_kib(), resident + 2048);
#else
    (void)resident;
#endif
  });
}

// Sixteen idle communicators of four ranks: threads sleep, and there are not more of them than with one.
TEST(Idle, CommunicatorsCostNothing) {
  run_process_ranks(4, [](Communicator& c, int) {
    const int before = threads();
    std::vector<Communicator> comms;
    for (int k = 0; k < 16; ++k) {
      comms.push_back(another(c));
      comms.back().barrier();
    }
    EXPECT_EQ(threads(), before);
    c.barrier();
    std::this_thread::sleep_for(100ms);
    const auto cpu = [] {
      timespec t{};
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
    };
    const double start = cpu();
    std::this_thread::sleep_for(2s);
    EXPECT_LT(cpu() - start, 0.02);  // 1 %
    c.barrier();
  });
}

// --- limits of the process ---

void limit(decltype(RLIMIT_NOFILE) what, rlim_t value) {
  const rlimit l{value, value};
  ASSERT_EQ(setrlimit(what, &l), 0);
}

TEST(Limits, SixtyFourDescriptors) {
  const Variable quiet("MUSTER_LOG", "off"), patience("MUSTER_INIT_TIMEOUT", "20");
  run_processes(3, [](int) {
    limit(RLIMIT_NOFILE, 64);
    Communicator c = Communicator::from_environment();
    std::vector<Communicator> comms;
    for (int k = 0; k < 6; ++k) {
      comms.push_back(another(c));
      every_call(comms.back(), 5000);
    }
    // On, until there are no more: an error on all ranks, that names the limit on the one that met it.
    Outcome o;
    for (int k = 0; k < 60 && o.code == Result::success; ++k) o = outcome_of([&] { comms.push_back(another(c)); });
    EXPECT_THAT(o.code, testing::AnyOf(Result::system_error, Result::remote_error, Result::timeout)) << o;
    EXPECT_THAT(o.text, HasSubstr("ulimit -n")) << o;
    comms.clear();
    c.barrier();
    for (int k = 0; k < 3; ++k) every_call(c, 5000);
    Communicator again = another(c);
    every_call(again, 100);
  });
}

// The first descriptors of a process may be anything.
TEST(Limits, NoStandardStreams) {
  for (const char* windows : {"0", "1"}) {
    const Variable w("MUSTER_WINDOWS", windows);
    run_processes(3, [](int) {
      close(STDIN_FILENO);
      close(STDERR_FILENO);
      Communicator c = Communicator::from_environment();
      every_call(c, 50000);
    });
  }
}

TEST(Limits, NoLockedMemory) {
  run_processes(2, [](int) {
    limit(RLIMIT_MEMLOCK, 0);
    Communicator c = Communicator::from_environment();
    every_call(c, 50000);
    mem_free(mem_alloc(1 << 20));
  });
}

// The arena of mem_alloc is as large as the machine's memory; where limits don't allow that, communicators do without.
TEST(Limits, FileSize) {
  run_processes(2, [](int rank) {
    if (rank == 1) limit(RLIMIT_FSIZE, 1 << 30);
    Communicator c = Communicator::from_environment();
    every_call(c, 50000);
    const Outcome o = outcome_of([&] { mem_free(mem_alloc(1 << 20)); });
    EXPECT_EQ(o.code, rank == 1 ? Result::system_error : Result::success) << o;
    EXPECT_THAT(o.text, rank == 1 ? HasSubstr("the file size limit is 1073741824. Raise it (ulimit -f)") : HasSubstr(""));
  });
  run_processes(2, [](int rank) {
    if (rank == 0) limit(RLIMIT_FSIZE, 1 << 16);
    const Outcome o = outcome_of([&] { Communicator::from_environment(); });
    EXPECT_EQ(o.code, Result::system_error) << o;
    EXPECT_THAT(o.text, HasSubstr("ulimit -f"));
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(Limits, AddressSpace) {
  run_processes(2, [](int rank) {
    if (rank == 1) limit(RLIMIT_AS, rlim_t{4} << 30);
    Communicator c = Communicator::from_environment();
    every_call(c, 50000);
  });
}
#endif

// --- namespaces ---

bool write_file(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return ok;
}

// This process in namespaces of its own, as root there. Call it before there are threads.
bool enter(int flags) {
  const std::string uid = "0 " + std::to_string(geteuid()) + " 1", gid = "0 " + std::to_string(getegid()) + " 1";
  if (unshare(CLONE_NEWUSER | flags) != 0) return false;
  write_file("/proc/self/setgroups", "deny");
  return write_file("/proc/self/uid_map", uid) && write_file("/proc/self/gid_map", gid);
}

bool can_unshare() {
#if defined(__SANITIZE_THREAD__)
  return false;  // it starts a thread of its own in every process
#endif
  const pid_t pid = fork();
  if (pid == 0) _exit(enter(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID) && mount("tmpfs", "/dev/shm", "tmpfs", MS_RDONLY, nullptr) == 0 ? 0 : 1);
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

#define SKIP_WITHOUT_NAMESPACES() \
  if (!can_unshare()) GTEST_SKIP() << "user namespaces can't be made here"

TEST(Namespaces, ReadOnlyAndTinySharedMemoryFolders) {
  SKIP_WITHOUT_NAMESPACES();
  run_processes(3, [](int rank) {
    ASSERT_TRUE(enter(CLONE_NEWNS));
    ASSERT_EQ(mount("tmpfs", "/dev/shm", "tmpfs", rank == 0 ? MS_RDONLY : 0, rank == 1 ? "size=4k" : "mode=0700"), 0);
    Communicator c = Communicator::from_environment();
    for (const size_t count : {size_t{1}, size_t{100000}}) every_call(c, count);
    EXPECT_EQ(entries("/dev/shm"), 0);
  });
}

TEST(Namespaces, OfProcessNumbers) {
  SKIP_WITHOUT_NAMESPACES();
  run_processes(2, [](int) {
    ASSERT_TRUE(enter(CLONE_NEWPID));
    const pid_t inner = fork();
    if (inner == 0) {
      EXPECT_EQ(getpid(), 1);
      Communicator c = Communicator::from_environment();
      for (const size_t count : {size_t{1}, size_t{100000}}) every_call(c, count);
      auto* memory = static_cast<int*>(mem_alloc(1 << 20));
      c.all_reduce(memory, memory, 1 << 18, kInt, kSum);
      c.destroy();
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = -1;
    waitpid(inner, &status, 0);
    EXPECT_EQ(status, 0);
  });
}

// Host names that differ are different hosts to everybody, unless NCCL_HOSTID says otherwise.
TEST(Namespaces, OfHostNames) {
  SKIP_WITHOUT_NAMESPACES();
  const auto in_own_host = [](int rank) {
    const std::string name = "node." + std::string(1, static_cast<char>('a' + rank));
    ASSERT_TRUE(enter(CLONE_NEWUTS));
    ASSERT_EQ(sethostname(name.data(), name.size()), 0);
  };
  const Variable debug("NCCL_DEBUG", "INFO");
  const auto expect_hosts = [&](int rank, const std::string& hosts) {
    in_own_host(rank);
    testing::internal::CaptureStderr();
    Communicator c = Communicator::from_environment();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(hosts));
    every_call(c, 1000);
  };
  run_processes(2, [&](int rank) { expect_hosts(rank, "1 of them on this host, to others by "); });
  const Variable same("NCCL_HOSTID", "one");
  run_processes(2, [&](int rank) { expect_hosts(rank, "processes of one host"); });
}

}  // namespace
}  // namespace muster
