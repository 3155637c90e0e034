#include "support/hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "support/shell.h"

namespace muster::test {
namespace {

constexpr int kPort = 29400;  // of the job's meeting point; nobody else is in these networks
constexpr const char* kSwitchVariable = "MUSTER_TEST_SWITCH";  // "PID FD" for ranks

std::string text_of(int error) { return std::strerror(error); }  // NOLINT(concurrency-mt-unsafe)

int must_open(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC);
  if (fd < 0) throw std::runtime_error(fmt::format("open {}: {}", path, text_of(errno)));
  return fd;
}

// What a keeper says over its pipe.
struct Report {
  int error = 0;
  char step[60] = "";
};

// In the keeper. Async-signal-safe calls only: the test may have threads.
Report make_namespaces(int flags, const char* name) {
  Report r;
  const auto failed = [&](const char* step) {
    r.error = errno;
    std::strncpy(r.step, step, sizeof r.step - 1);
    return r;
  };
  if (unshare(flags) != 0) return failed("unshare(CLONE_NEWNET ...)");
  if (!(flags & CLONE_NEWNS)) return r;
  if (sethostname(name, std::strlen(name)) != 0) return failed("sethostname");
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return failed("making / private");
  if (mount("muster-test", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, nullptr) != 0)
    return failed("mounting /dev/shm");
  // /sys/class/net shows the interfaces of who mounted it. The control groups below it are the machine's.
  const int groups = open("/sys/fs/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (mount("muster-test", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0)
    return failed("mounting /sys");
  if (groups >= 0) {
    char path[40] = "/proc/self/fd/";
    char digits[12];
    int n = 0;
    for (int rest = groups; n == 0 || rest > 0; rest /= 10) digits[n++] = static_cast<char>('0' + rest % 10);
    for (char* to = path + std::strlen(path); n > 0;) *to++ = digits[--n];
    if (mount(path, "/sys/fs/cgroup", nullptr, MS_BIND | MS_REC, nullptr) != 0)
      return failed("binding /sys/fs/cgroup");
  }
  return r;
}

}  // namespace

class Hosts::Keeper {
 public:
  Keeper(int flags, const std::string& name) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const Report r = make_namespaces(flags, name.c_str());
      if (write(ends[1], &r, sizeof r) == sizeof r)
        for (;;) pause();
      _exit(1);
    }
    close(ends[1]);
    Report r;
    const bool heard = pid_ > 0 && read(ends[0], &r, sizeof r) == sizeof r;
    close(ends[0]);
    if (!heard || r.error != 0) {
      end();
      throw std::runtime_error(heard ? fmt::format("{}: {}", r.step, text_of(r.error))
                                     : "no process for a new network");
    }
  }
  ~Keeper() { end(); }
  Keeper(Keeper&& from) noexcept : pid_(std::exchange(from.pid_, -1)) {}
  Keeper& operator=(Keeper&&) = delete;

  pid_t pid() const { return pid_; }
  int open_file(const char* file, int flags = O_RDONLY) const {
    return must_open(fmt::format("/proc/{}/{}", pid_, file), flags);
  }

 private:
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  pid_t pid_ = -1;
};

namespace {

// `commands`: lines of ip's, without the word.
void run_ip(const std::string& prefix, const std::string& commands) {
  const Output o = output_of(fmt::format("{}ip -batch - 2>&1 <<'END'\n{}END\n", prefix, commands));
  if (o.status != 0) throw std::runtime_error(fmt::format("{}ip: {}of\n{}", prefix, o.text, commands));
}

void run_shell(const std::string& command) {
  const Output o = output_of(command + " 2>&1");
  if (o.status != 0) throw std::runtime_error(command + ": " + o.text);
}

std::string enter_network(int pid, int fd) { return fmt::format("nsenter --net=/proc/{}/fd/{} ", pid, fd); }

std::string port_of(int host, int rail) { return fmt::format("h{}r{}", host, rail); }

}  // namespace

std::string Hosts::why_not(const Wiring& wiring) {
  if (geteuid() != 0) return "it takes root";
  if (output_of("command -v ip tc nsenter 2>&1").status != 0)
    return "ip, tc or nsenter is missing (iproute2, util-linux)";
  static std::map<bool, std::string> known;  // by whether rails are slow
  const auto [at, first] = known.try_emplace(!wiring.megabits.empty());
  if (first) try {
      const Hosts probe(
          {.hosts = 1, .megabits = at->first ? std::map<int, int>{{0, 100}} : std::map<int, int>{}});
    } catch (const std::exception& e) {
      at->second = e.what();
    }
  return at->second;
}

Hosts::Hosts(const Wiring& wiring) : wiring_(wiring), maker_(getpid()), switch_(-1) {
  if (is_rank_process()) {
    const char* text = std::getenv(kSwitchVariable);
    if (!text || std::sscanf(text, "%d %d", &maker_, &switch_) != 2) switch_ = -1;
    return;
  }
  std::vector<Keeper> keepers;
  keepers.emplace_back(CLONE_NEWNET, "");
  for (int h = 0; h < wiring.hosts; ++h)
    keepers.emplace_back(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC, name(h));
  switch_ = keepers[0].open_file("ns/net");
  for (int h = 0; h < wiring.hosts; ++h) {
    const Keeper& k = keepers[static_cast<size_t>(h) + 1];
    hosts_.push_back({k.open_file("ns/net"), k.open_file("ns/mnt"), k.open_file("ns/uts"),
                      k.open_file("ns/ipc"), k.open_file("root", O_PATH | O_DIRECTORY)});
  }
  wire(keepers);
}

void Hosts::wire(const std::vector<Keeper>& keepers) {
  for (int h = 0; h < size(); ++h) {
    if (!wiring_.strays) break;
    std::string commands;
    for (int s = 0; s < 2; ++s) {
      commands += fmt::format(
          "link add stray{0} type veth peer name nowhere{0}\nlink set stray{0} up\nlink set nowhere{0} up\n",
          s);
      if (wiring_.ipv4)
        commands += fmt::format("addr add 10.66.{}.1/24 dev stray{}\n", s == 0 ? 0 : h + 1, s);
      if (wiring_.ipv6)
        commands += fmt::format("addr add fd66:{}::1/64 dev stray{} nodad\n", s == 0 ? 0 : h + 1, s);
    }
    run_ip(inside(h), commands);
  }
  std::string commands;
  for (int r = 0; r < wiring_.rails; ++r) {
    commands += fmt::format("link add switch{0} type bridge mcast_snooping 0\nlink set switch{0} up\n", r);
    for (int h = 0; h < size(); ++h)
      commands += fmt::format(
          "link add {0} type veth peer name rail{1} netns {2}\nlink set {0} master switch{3} up\n",
          port_of(h, r), r, keepers[static_cast<size_t>(h) + 1].pid(), wiring_.one_switch ? 0 : r);
  }
  in_switch(commands);
  std::string names;
  for (int h = 0; h < size(); ++h) names += fmt::format("echo {} {}; ", address(h), name(h));
  for (int h = 0; h < size(); ++h) {
    commands = "link set lo up\n";
    for (int r = 0; r < wiring_.rails; ++r) {
      commands += fmt::format("link set rail{} up\n", r);
      if (wiring_.ipv4) commands += fmt::format("addr add 10.77.{}.{}/{} dev rail{}\n", r, h + 1, wiring_.one_network ? 16 : 24, r);
      if (wiring_.ipv6) commands += fmt::format("addr add fd77:{}::{}/64 dev rail{} nodad\n", r, h + 1, r);
    }
    run_ip(inside(h), commands);
    run_shell(
        fmt::format("{}sh -ec '{{ echo 127.0.0.1 localhost; {}}} >/dev/shm/hosts; mount --bind "
                    "/dev/shm/hosts /etc/hosts; rm "
                    "/dev/shm/hosts'",
                    inside(h), names));
    for (const auto& [rail, rate] : wiring_.megabits)
      run_shell(fmt::format("{}tc qdisc add dev rail{} root tbf rate {}mbit burst 128kb latency 200ms",
                            inside(h), rail, rate));
  }
  for (int h = 0; h < size(); ++h)
    for (int r = 0; r < wiring_.rails; ++r) wait_for_carrier(h, r);
}

Hosts::~Hosts() {
  if (maker_ != getpid()) return;
  close(switch_);
  for (const Namespaces& h : hosts_)
    for (const int fd : {h.net, h.mounts, h.names, h.ipc, h.root}) close(fd);
}

std::string Hosts::name(int host) const {
  const auto h = static_cast<size_t>(host);
  return h < wiring_.names.size() ? wiring_.names[h] : fmt::format("host{}", host);
}

std::string Hosts::address(int host, int rail) const {
  return wiring_.ipv4 ? fmt::format("10.77.{}.{}", rail, host + 1)
                      : fmt::format("fd77:{}::{}", rail, host + 1);
}

std::string Hosts::inside(int host) const {
  const Namespaces& h = hosts_.at(static_cast<size_t>(host));
  const auto file = [&](int fd) { return fmt::format("/proc/{}/fd/{}", maker_, fd); };
  return fmt::format("nsenter --net={} --uts={} --ipc={} --mount={} --root={} --wd={} ", file(h.net),
                     file(h.names), file(h.ipc), file(h.mounts), file(h.root), file(h.root));
}

void Hosts::run(const std::vector<int>& host_of, const std::function<void(int rank)>& fn,
                const ProcessExpectations& expected) const {
  std::vector<RankStart> ranks(host_of.size());
  const std::string folder = std::filesystem::current_path();
  for (size_t r = 0; !is_rank_process() && r < host_of.size(); ++r) {
    const auto here = [&](size_t end) {
      return std::count(host_of.begin(), host_of.begin() + static_cast<long>(end), host_of[r]);
    };
    ranks[r].environment = {fmt::format("RANK={}", r),
                            fmt::format("WORLD_SIZE={}", host_of.size()),
                            fmt::format("LOCAL_RANK={}", here(r)),
                            fmt::format("LOCAL_WORLD_SIZE={}", here(host_of.size())),
                            fmt::format("MASTER_ADDR={}", address(host_of[0])),
                            fmt::format("MASTER_PORT={}", kPort),
                            fmt::format("{}={} {}", kSwitchVariable, maker_, switch_)};
    const Namespaces h = hosts_.at(static_cast<size_t>(host_of[r]));
    ranks[r].enter = [h, &folder] {
      return setns(h.net, CLONE_NEWNET) == 0 && setns(h.names, CLONE_NEWUTS) == 0 &&
             setns(h.ipc, CLONE_NEWIPC) == 0 && setns(h.mounts, CLONE_NEWNS) == 0 && fchdir(h.root) == 0 &&
             chroot(".") == 0 && chdir(folder.c_str()) == 0;
    };
  }
  run_processes(ranks, fn, expected);
}

// The kernel collects such news for up to a second.
void Hosts::wait_for_carrier(int host, int rail) const {
  run_shell(
      fmt::format("{}sh -c 'for i in $(seq 250); do grep -qx up /sys/class/net/rail{}/operstate && exit 0; "
                  "sleep 0.02; done; exit 1'",
                  inside(host), rail));
}

void Hosts::in_switch(const std::string& commands) const { run_ip(enter_network(maker_, switch_), commands); }

void Hosts::plug(int host, int rail, bool in) const {
  in_switch(fmt::format("link set {} {}\n", port_of(host, rail), in ? "up" : "down"));
}

void Hosts::pass(int host, int rail, bool on) const {
  in_switch(on ? fmt::format("link set {} master switch{}\n", port_of(host, rail), rail)
               : fmt::format("link set {} nomaster\n", port_of(host, rail)));
}

}  // namespace muster::test
