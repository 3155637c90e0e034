// Two ranks of the verbs transport in one process, each with RDMA devices of its own.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "support/outcome.h"
#include "transports/verbs/verbs_network.h"

namespace muster::test {

// A short time, 4.096 us * 2^14 * 7, so that a pulled cable is noticed soon; one in which an emulated processor moves what is
// under way: Soft-RoCE that sends again what was only late now and then confuses itself (IBV_WC_REM_INV_REQ_ERR).
inline NetworkSetup verbs_setup(int rank, const std::string& devices, const std::string& gid = "", const std::string& queues = "1",
                                const std::optional<std::string>& timeout_exponent = "14") {
  const Variable hca("NCCL_IB_HCA", devices), index("NCCL_IB_GID_INDEX", gid.empty() ? std::optional<std::string>() : gid),
      pairs("NCCL_IB_QPS_PER_CONNECTION", queues), timeout("NCCL_IB_TIMEOUT", timeout_exponent), lost("MUSTER_LINK_TIMEOUT", "6"), patience("MUSTER_INIT_TIMEOUT", "4");
  NetworkSetup s;
  s.rank = rank;
  s.nranks = 2;
  s.options = Options::inspect("/nonexistent");
  s.secret = [](int from, int to) { return static_cast<uint64_t>(from) * 1000003 + static_cast<uint64_t>(to) * 97 + 11; };
  s.rank_name = [](int r) { return fmt::format("rank {} (host h{})", r, r); };
  return s;
}

struct VerbsPair {
  explicit VerbsPair(const std::string& first = "rxe0", const std::string& second = "rxe1", const std::string& queues = "1",
                     const std::optional<std::string>& timeout_exponent = "14")
      : a(verbs_setup(0, first, "", queues, timeout_exponent)), b(verbs_setup(1, second, "", queues, timeout_exponent)) {
    a.meet({a.address(), b.address()});
    b.meet({a.address(), b.address()});
  }
  verbs::VerbsNetwork a, b;
};

}  // namespace muster::test
