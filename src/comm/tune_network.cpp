#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "base/error.h"
#include "comm/state.h"
#include "comm/time_call.h"
#include "comm/tune.h"
#include "plan/hosts_price.h"
#include "plan/selection.h"
#include "plan/solve_constant.h"

namespace muster {
namespace {

// Of a term of hosts_price.h: the call that tells it.
struct NetworkExperiment {
  const char* term;  // after "network.K."
  bool all_ranks;    // else the first rank of each host
  Coll coll;
  const char* algorithm;
  uint64_t bytes;  // of the collective's data
};

constexpr uint64_t kEager = 2 << 10, kAgreed = 128 << 10,
                   kFlow = 16 << 20;  // kFlow: rounds cost little beside it

// In the order in which they build on each other.
constexpr NetworkExperiment kLatencies[] = {
    {"latency", false, Coll::all_reduce, "doubling", 8},
    {"latency.ring", false, Coll::all_reduce, "ring", 256},
    {"overhead", true, Coll::all_to_all, "pairwise", 8},
    {"copy", false, Coll::all_reduce, "doubling", kEager},
};
constexpr NetworkExperiment kRank = {"rank", false, Coll::all_gather, "ring", kFlow};
constexpr NetworkExperiment kHandshake = {"handshake", false, Coll::all_reduce, "doubling", kAgreed};
constexpr NetworkExperiment kPort = {"port", true, Coll::all_to_all, "pairwise", kFlow};
constexpr int kNetworkExperiments = 7;

class NetworkTuning {
 public:
  NetworkTuning(Communicator& all, Constants known, std::chrono::duration<double> budget)
      : all_(all), constants_(std::move(known)), each_(budget / kNetworkExperiments) {
    require_nothing_forced(all);
    const PlanInputs& in = all.impl()->inputs;
    const std::vector<int>& host_of = in.placement->host_of;
    const auto me = host_of.begin() + all.rank();
    firsts_ = all.split(std::find(host_of.begin(), host_of.end(), *me) == me ? 0 : Communicator::kNoColor, 0);
    all_in_ = in;
    firsts_in_ = in;
    const int hosts = spread_of(in).hosts;
    firsts_in_.nranks = hosts;
    Placement one_each;
    for (int h = 0; h < hosts; ++h) one_each.host_of.push_back(h);
    firsts_in_.placement = std::make_shared<const Placement>(std::move(one_each));
  }

  Constants run() {
    for (const NetworkExperiment& e : kLatencies) measure(e);
    measure_rates();
    measure(kHandshake);
    return std::move(constants_);
  }

 private:
  std::string key(const char* term) const {
    return fmt::format("network.{}.{}", all_in_.network.kind == HostNetwork::Kind::rdma ? "rdma" : "tcp",
                       term);
  }
  const PlanInputs& inputs_of(const NetworkExperiment& e) const { return e.all_ranks ? all_in_ : firsts_in_; }
  CallShape shape_of(const NetworkExperiment& e) const {
    const PlanInputs& in = inputs_of(e);
    const uint64_t parts = splits_count(e.coll) ? 1 : static_cast<uint64_t>(in.nranks);
    CallShape shape{e.coll, DataType::float32, RedOp::sum, 0, std::max<uint64_t>(1, e.bytes / 4 / parts)};
    shape.allowed = parse_selection(e.coll, e.algorithm);
    return shape;
  }
  // Of that call, by other constants.
  double price(const NetworkExperiment& e, const Constants& k) const {
    return hosts_price(*find_algorithm(e.coll, e.algorithm), shape_of(e), inputs_of(e), k)->us;
  }

  // Microseconds; nothing where these ranks can't do it.
  std::optional<double> time(const NetworkExperiment& e) {
    const Algorithm& a = *find_algorithm(e.coll, e.algorithm);
    if (!can_run(a, shape_of(e), inputs_of(e))) return std::nullopt;
    return time_call(all_, e.all_ranks ? all_ : firsts_, shape_of(e), false, each_);
  }

  std::string how(const NetworkExperiment& e, double us) const {
    const CallShape shape = shape_of(e);
    const Spread s = spread_of(inputs_of(e));
    return fmt::format("{} {} of {} B float32, {} hosts of {} rank{}: {:.4g} us", name_of(e.coll),
                       e.algorithm, shape.count * 4, s.hosts, s.per_host, s.per_host == 1 ? "" : "s", us);
  }

  // Only values within the range count: at its ends the call takes what it takes whatever this one is.
  void measure(const NetworkExperiment& e) {
    const std::string name = key(e.term);
    if (!constants_.has(name)) return;  // TCP has no handshakes, say
    const std::optional<double> us = time(e);
    if (!us) return;
    const double value =
        solve_constant(constants_, name, *us, kMostConstant, [&](const Constants& k) { return price(e, k); });
    if (value > 2 * kLeastConstant && value < kMostConstant / 2)
      set_measured(constants_, name, value, how(e, *us));
  }

  // What one rank moves while its host's others are quiet, then what all of a host move together.
  void measure_rates() {
    const std::string rank = key("rank");
    const double known_gbytes = all_in_.network.gbytes_per_s;  // that ports have, by the topology
    const std::string port = known_gbytes > 0 ? "network.share" : key("port");
    const double per_unit = known_gbytes > 0 ? known_gbytes : 1;
    Constants wide = constants_;
    set_measured(wide, port, kMostConstant, "no bound");
    const auto solve = [&](const NetworkExperiment& e, const std::string& name, double us) {
      return solve_constant(wide, name, us, kMostConstant, [&](const Constants& k) { return price(e, k); });
    };
    const std::optional<double> alone_us = time(kRank);
    if (!alone_us) return;
    const double alone = solve(kRank, rank, *alone_us);
    set_measured(constants_, rank, alone, how(kRank, *alone_us));
    set_measured(wide, rank, alone, "");
    const int per_host = spread_of(all_in_).per_host;
    const std::optional<double> all_us = per_host > 1 ? time(kPort) : std::nullopt;
    if (all_us) {
      // What ranks bound, ports don't: then they carry at least what these ranks can.
      const double together = std::min(solve(kPort, port, *all_us) * per_unit, alone * per_host);
      set_measured(constants_, port, together / per_unit, how(kPort, *all_us));
    } else if (alone > constants_(port) * per_unit) {
      set_measured(constants_, port, alone / per_unit, how(kRank, *alone_us));  // at least that
    }
  }

  Communicator& all_;
  Communicator firsts_;
  PlanInputs all_in_, firsts_in_;
  Constants constants_;
  const std::chrono::duration<double> each_;
};

}  // namespace

Constants tune_network(Communicator& comm, Constants known, std::chrono::duration<double> budget) {
  if (!comm.impl()->inputs.placement) return known;
  return NetworkTuning(comm, std::move(known), budget).run();
}

}  // namespace muster
