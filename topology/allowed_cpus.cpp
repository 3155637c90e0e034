#include "topology/allowed_cpus.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

namespace muster {
namespace {

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// 0 for "max", nothing or nonsense.
double number(std::string_view text) {
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  return error == std::errc() && v > 0 ? v : 0;
}

void keep_smaller(double* best, double candidate) {
  if (candidate > 0 && (*best == 0 || candidate < *best)) *best = candidate;
}

}  // namespace

std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  for (int size = 1024; size <= 1 << 20; size *= 2) {  // a machine may have more cores than cpu_set_t holds
    cpu_set_t* set = CPU_ALLOC(size);
    const size_t bytes = CPU_ALLOC_SIZE(size);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    if (ok)
      for (int c = 0; c < size; ++c)
        if (CPU_ISSET_S(c, bytes, set)) cpus.push_back(c);
    CPU_FREE(set);
    if (ok) break;
  }
  return cpus;
}

double cpu_quota(const std::string& root) {
  double best = 0;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t a = line.find(':'), b = a == line.npos ? a : line.find(':', a + 1);
    if (b == line.npos) continue;
    const std::string controllers = line.substr(a + 1, b - a - 1);
    std::string path = line.substr(b + 1);
    const bool v2 = controllers.empty();
    if (!v2 && (',' + controllers + ',').find(",cpu,") == std::string::npos) continue;
    if (!path.starts_with('/')) continue;
    for (;; path.resize(path.rfind('/'))) {
      if (path == "/") path.clear();
      if (v2) {
        std::istringstream max(first_line(root + "/sys/fs/cgroup" + path + "/cpu.max"));
        std::string quota, period;
        max >> quota >> period;
        if (number(period) > 0) keep_smaller(&best, number(quota) / number(period));
      } else {
        const std::string dir = root + "/sys/fs/cgroup/cpu" + path;
        const double period = number(first_line(dir + "/cpu.cfs_period_us"));
        if (period > 0) keep_smaller(&best, number(first_line(dir + "/cpu.cfs_quota_us")) / period);
      }
      if (path.empty()) break;
    }
  }
  return best;
}

size_t last_level_cache(const std::string& root) {
  const auto cpus = allowed_cpus();
  const std::string dir = fmt::format("{}/sys/devices/system/cpu/cpu{}/cache/index", root, cpus.empty() ? 0 : cpus[0]);
  size_t largest = 0;
  for (int i = 0; i < 10; ++i) {
    const std::string text = first_line(dir + std::to_string(i) + "/size");
    size_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc()) continue;
    const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
    largest = std::max(largest, n << (unit == "K" ? 10 : unit == "M" ? 20 : unit == "G" ? 30 : 0));
  }
  return largest;
}

}  // namespace muster
