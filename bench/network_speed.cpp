// network_speed [NETWORK [INTERFACE]]: what a network moves between two processes of this machine, message by message as
// executors use it: the time of a short message each way, and the rate in one direction, from memory that isn't copied at the
// sender and is read where it lands. What is longer than a network's messages goes in several, as in executors. Beside it:
// ucx_perftest -t ucp_am_lat, -t ucp_am_bw.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "transports/make_network.h"

using namespace muster;
using Clock = std::chrono::steady_clock;

namespace {

constexpr uint64_t kCommunicator = 1;

void put(int fd, const std::string& s) {
  const size_t n = s.size();
  if (write(fd, &n, sizeof n) != sizeof n || write(fd, s.data(), n) != static_cast<ssize_t>(n)) fail_errno(errno, "writing to the other process");
}
std::string get(int fd) {
  size_t n = 0;
  if (read(fd, &n, sizeof n) != sizeof n) fail(Result::system_error, "the other process has ended");
  std::string s(n, 0);
  for (size_t at = 0; at < n;) {
    const ssize_t r = read(fd, s.data() + at, n - at);
    if (r <= 0) fail(Result::system_error, "the other process has ended");
    at += static_cast<size_t>(r);
  }
  return s;
}

class End {
 public:
  End(Network& network, int rank, int lane, size_t slot_bytes)
      : network_(network),
        out_(network.sender({kCommunicator, 1 - rank, lane, slot_bytes}, nullptr)),
        in_(network.receiver({kCommunicator, 1 - rank, lane, slot_bytes}, nullptr)) {}
  void send(const std::byte* memory, size_t bytes) {
    while (!out_.ready()) network_.progress(kCommunicator);
    std::byte* const at = out_.acquire(bytes);
    bytes > kInlineBytes ? out_.send_from(memory) : static_cast<void>(std::memcpy(at, memory, bytes));
    out_.commit(1, false);
  }
  void receive(size_t bytes) {
    while (!in_.ready()) network_.progress(kCommunicator);
    sink_ = *in_.peek(bytes);
    in_.release();
  }
  void flush() {
    while (out_.sent() != out_.committed() || in_.sent() != in_.credits()) network_.progress(kCommunicator);
  }

 private:
  Network& network_;
  SlotSender& out_;
  SlotReceiver& in_;
  volatile std::byte sink_{};
};

double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

void run(Network& network, int rank) {
  int lane = 0;
  {
    End end(network, rank, lane++, 1024);
    const std::byte memory[8] = {};
    double best = 1e9;
    for (int round = 0; round < 10; ++round) {
      constexpr int kTimes = 500;
      const auto start = Clock::now();
      for (int i = 0; i < kTimes; ++i) {
        if (rank == 0) end.send(memory, 8);
        end.receive(8);
        if (rank == 1) end.send(memory, 8);
      }
      best = std::min(best, microseconds(Clock::now() - start) / kTimes / 2);
    }
    end.flush();
    if (rank == 0) fmt::print("{:>10} {:>10} {:10.2f} us\n", 8, "latency", best);
  }
  for (const size_t bytes : {size_t{16} << 10, size_t{64} << 10, size_t{128} << 10, size_t{256} << 10, size_t{512} << 10, size_t{1} << 20}) {
    const size_t message = std::min(bytes, network.slot_bytes()), times = (size_t{64} << 20) / message;
    End end(network, rank, lane++, message);
    std::vector<std::byte> memory(bytes * 4);
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
      const auto start = Clock::now();
      for (size_t i = 0; i < times; ++i) rank == 0 ? end.send(memory.data() + i * message % memory.size(), message) : end.receive(message);
      rank == 0 ? end.receive(1) : end.send(memory.data(), 1);
      best = std::min(best, microseconds(Clock::now() - start));
    }
    end.flush();
    if (rank == 0) fmt::print("{:>10} {:>10} {:10.0f} MB/s\n", bytes, "one way", static_cast<double>(times * message) / best);
  }
}

}  // namespace

int main(int argc, char** argv) {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) return 1;
  const pid_t child = fork();
  const int rank = child == 0 ? 1 : 0;
  int status = 0;
  try {
    NetworkSetup setup;
    setup.rank = rank;
    setup.nranks = 2;
    setup.secret = [](int from, int to) { return static_cast<uint64_t>(2 * from + to + 1); };
    setup.rank_name = [](int r) { return fmt::format("rank {}", r); };
    setup.interfaces = {argc > 2 ? argv[2] : "lo"};
    const auto network = make_network(argc > 1 ? argv[1] : "tcp", setup);
    put(rank == 0 ? down[1] : up[1], network->address());
    const std::string other = get(rank == 0 ? up[0] : down[0]);
    network->meet(rank == 0 ? std::vector{network->address(), other} : std::vector{other, network->address()});
    run(*network, rank);
  } catch (const std::exception& e) {
    fmt::print(stderr, "rank {}: {}\n", rank, e.what());
    status = 1;
  }
  if (rank == 0) waitpid(child, nullptr, 0);
  return status;
}
