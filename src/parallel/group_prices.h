// What collectives of a training job's groups take, by the planner's model: all groups of an axis at work at
// the same time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "muster/types.h"
#include "plan/constants.h"
#include "plan/links.h"
#include "program/collective.h"
#include "topology/cluster.h"

namespace muster {

// Ranks base + i * stride, i < size, for each dimension; or of these only two, one behind the other.
struct GroupDimension {
  int64_t stride = 1, size = 1;
  bool neighbours = false;
  friend auto operator<=>(const GroupDimension&, const GroupDimension&) = default;
};
using GroupShape = std::vector<GroupDimension>;

struct GroupPrice {
  double us = 0;
  std::string algorithm;
  double near_bytes = 0, far_bytes = 0;  // that a rank sends within its host and to others, on average
};

// Ranks are one per GPU in the order of hosts and GPUs. Keeps what it has worked out; of one thread at a
// time.
class GroupPrices {
 public:
  // Throws invalid_argument where the cluster has fewer GPUs. Both must outlive it.
  GroupPrices(const topology::Cluster& cluster, int64_t ranks, const Constants& constants);

  int64_t ranks() const { return static_cast<int64_t>(places_.size()); }
  int gpus_per_host() const { return whole_.spread.per_host; }
  // Of the group, of those of this shape, that is on most hosts. Its ports, and where no switch joins the
  // GPUs its links, are shared with the other groups of its hosts.
  const Links& links(const GroupShape& shape);
  // `bytes`: as nccl-tests counts sizes. Nothing to do in a group of one.
  const GroupPrice& price(const GroupShape& shape, Coll coll, DataType type, double bytes);

 private:
  const Constants& constants_;
  const topology::Cluster& cluster_;
  std::vector<RankPlace> places_;
  Links whole_;
  std::map<GroupShape, Links> links_;
  std::map<std::tuple<GroupShape, Coll, DataType, uint64_t>, GroupPrice> prices_;
};

// Of all dimensions: 1 where there are none.
int64_t size_of(const GroupShape& shape);
// "NVLink", "InfiniBand": the slowest class that the group uses.
std::string link_name(const Links& links);

}  // namespace muster
