// process_vm_readv(2) out of another process against a copy inside this one: whether reading a peer's buffer through the
// kernel could beat passing it through shared slots (two copies, each at the speed of the second line).
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace {

constexpr size_t kBytes = size_t{256} << 20;

// A child that holds a buffer at the same address as this process's copy of it.
class Peer {
 public:
  Peer() : buffer_(kBytes, 1) {
    int ready[2];
    if (pipe(ready) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::memset(buffer_.data(), 2, kBytes);  // its own pages from here on
      if (write(ready[1], "", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte;
    if (read(ready[0], &byte, 1) != 1) pid_ = -1;
    close(ready[0]);
    close(ready[1]);
  }
  ~Peer() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  pid_t pid() const { return pid_; }
  std::byte* at(size_t offset) { return reinterpret_cast<std::byte*>(buffer_.data()) + offset; }

 private:
  std::vector<char> buffer_;
  pid_t pid_ = -1;
};

void read_peer(benchmark::State& state) {
  Peer peer;
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> to(bytes);
  size_t offset = 0;
  for (auto _ : state) {
    const iovec here{to.data(), bytes}, there{peer.at(offset), bytes};
    if (process_vm_readv(peer.pid(), &here, 1, &there, 1, 0) != static_cast<ssize_t>(bytes)) {
      state.SkipWithError(std::strerror(errno));
      break;
    }
    offset = (offset + bytes) % kBytes;
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}
BENCHMARK(read_peer)->RangeMultiplier(8)->Range(4 << 10, 16 << 20);

void copy_here(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0));
  std::vector<std::byte> from(kBytes), to(bytes);
  size_t offset = 0;
  for (auto _ : state) {
    std::memcpy(to.data(), from.data() + offset, bytes);
    benchmark::ClobberMemory();
    offset = (offset + bytes) % kBytes;
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}
BENCHMARK(copy_here)->RangeMultiplier(8)->Range(4 << 10, 16 << 20);

}  // namespace

BENCHMARK_MAIN();
