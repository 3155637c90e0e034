#include "base/options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/error.h"

namespace muster {
namespace {

constexpr Option kTable[] = {
    {"MUSTER_ALGO", OptionType::text, "", "force one algorithm for every collective that has it (see docs/programs.md), e.g. ring", true},
    {"MUSTER_CHANNELS", OptionType::integer, "0", "channels per collective, 1 to 16; 0 lets the planner choose", true},
    {"MUSTER_SLOT_BYTES", OptionType::size, "0", "largest message of one slot, 1K to 1M; 0 lets the planner choose", true},
    {"MUSTER_REPRODUCIBLE", OptionType::flag, "0", "1: one reduction order (by rank) at every size, placement and transport", true},
    {"MUSTER_WINDOWS", OptionType::flag, "1", "0: never load or store a peer's buffer directly", true},
    {"MUSTER_CHECK", OptionType::flag, "0", "1: run the checker on every program before its first use (slow; for debugging)", false},
    {"MUSTER_TIMEOUT", OptionType::seconds, "0", "seconds a call may wait without progress before it fails with a timeout; 0 = no limit", false},
    {"MUSTER_STALL_WARN", OptionType::seconds, "30", "seconds a call may wait before a warning names the ranks it waits for; 0 = never", false},
    {"MUSTER_INIT_TIMEOUT", OptionType::seconds, "120", "seconds the ranks of a communicator have to find each other", false},
    {"MUSTER_WAIT", OptionType::text, "auto", "auto, spin, yield or sleep: how a rank waits for its peers", false},
    {"MUSTER_JOB_KEY", OptionType::text, "", "secret shared by the ranks of one job; muster run sets it (rendezvous by environment)", false},
    {"MUSTER_PORT_RANGE", OptionType::text, "", "LOW-HIGH: TCP ports that Muster may listen on; empty = the kernel's choice", false},
    {"MUSTER_LOG", OptionType::text, "warn", "off, error, warn, info, debug or trace", false},
    {"NCCL_HOSTID", OptionType::text, "", "replaces the host's identity (host name and boot id), e.g. to emulate several hosts", false},
    {"NCCL_SOCKET_IFNAME", OptionType::text, "", "interfaces by name prefix; = exact, ^ exclude, comma separated", false},
    {"NCCL_SOCKET_FAMILY", OptionType::text, "", "AF_INET or AF_INET6; empty = either", false},
    {"NCCL_COMM_ID", OptionType::text, "", "HOST:PORT of the root, instead of a unique id passed by the program", false},
    {"NCCL_SHM_DISABLE", OptionType::flag, "0", "1: no shared memory between processes", true},
};

[[noreturn]] void reject(const Option& o, std::string_view v, std::string_view accepted) {
  fail(Result::invalid_usage, "{}='{}' can't be read: {} is wanted ({}). Correct or unset the variable", o.name, v, accepted, o.help);
}

int64_t parse_integer(const Option& o, std::string_view v) {
  int64_t n = 0;
  auto [end, error] = std::from_chars(v.data(), v.data() + v.size(), n);
  if (error != std::errc() || n < 0) reject(o, v, "a whole number of 0 or more");
  std::string_view rest(end, v.data() + v.size() - end);
  if (rest.empty()) return n;
  if (o.type == OptionType::size && rest.size() == 1) {
    const std::string_view units = "KMG";
    const char upper = static_cast<char>(rest[0] & ~0x20);
    if (const size_t u = units.find(upper); u != units.npos) {
      const int shift = static_cast<int>(10 * (u + 1));
      if (n <= (INT64_MAX >> shift)) return n << shift;
    }
  }
  reject(o, v, o.type == OptionType::size ? "a number of bytes, with K, M or G behind it if wished" : "a whole number");
}

std::chrono::nanoseconds parse_seconds(const Option& o, std::string_view v) {
  constexpr double kMost = 1e9;  // so that sums of times don't overflow
  double seconds = 0;
  const auto [end, error] = std::from_chars(v.data(), v.data() + v.size(), seconds);
  if (error != std::errc() || end != v.data() + v.size() || !(seconds >= 0)) reject(o, v, "a number of seconds");
  return std::chrono::nanoseconds(static_cast<int64_t>(std::min(seconds, kMost) * 1e9));
}

}  // namespace

std::span<const Option> option_table() { return kTable; }

Options Options::from_environment() {
  Options r;
  for (const Option& o : kTable) {
    Value v;
    const char* env = std::getenv(o.name);  // NOLINT(concurrency-mt-unsafe): the one place that reads the environment
    v.set = env && *env;
    v.text = v.set ? env : o.default_value;
    switch (o.type) {
      case OptionType::flag:
        if (v.text != "0" && v.text != "1") reject(o, v.text, "0 or 1");
        v.integer = v.text == "1";
        break;
      case OptionType::integer:
      case OptionType::size: v.integer = parse_integer(o, v.text); break;
      case OptionType::seconds: v.seconds = parse_seconds(o, v.text); break;
      case OptionType::text: break;
    }
    r.values_.push_back(std::move(v));
  }
  return r;
}

const Options::Value& Options::value(std::string_view name, OptionType type) const {
  for (size_t i = 0; i < std::size(kTable); ++i)
    if (name == kTable[i].name && kTable[i].type == type) return values_[i];
  fail(Result::internal_error, "no option {} of that type in the registry", name);
}

bool Options::flag(std::string_view name) const { return value(name, OptionType::flag).integer != 0; }
int64_t Options::integer(std::string_view name) const {
  for (size_t i = 0; i < std::size(kTable); ++i)
    if (name == kTable[i].name && kTable[i].type == OptionType::size) return values_[i].integer;
  return value(name, OptionType::integer).integer;
}
std::chrono::nanoseconds Options::seconds(std::string_view name) const { return value(name, OptionType::seconds).seconds; }
const std::string& Options::text(std::string_view name) const { return value(name, OptionType::text).text; }
bool Options::is_set(std::string_view name) const {
  for (size_t i = 0; i < std::size(kTable); ++i)
    if (name == kTable[i].name) return values_[i].set;
  fail(Result::internal_error, "no option {} in the registry", name);
}

std::vector<std::string> Options::agreement() const {
  std::vector<std::string> r;
  for (size_t i = 0; i < std::size(kTable); ++i)
    if (kTable[i].must_agree) r.push_back(fmt::format("{}={}", kTable[i].name, values_[i].text));
  return r;
}

}  // namespace muster
