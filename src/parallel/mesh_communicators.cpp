// Communicators along the axes of a mesh.
#include <algorithm>

#include "base/error.h"
#include "base/host.h"
#include "base/log.h"
#include "base/math.h"
#include "base/options.h"
#include "comm/state.h"
#include "muster/mesh.h"
#include "parallel/nvlink_domains.h"

namespace muster {
namespace {

// What each rank tells the others before anything is made.
struct MeshCard {
  uint64_t layout = 0;  // of mesh and groups
  uint64_t host = 0;
};

uint64_t hash_text(const std::string& text) {  // FNV-1a: equal in every build, as std::hash need not be
  uint64_t h = 0xcbf29ce484222325ULL;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3ULL;
  return mix64(h);
}

// What the ranks' GPUs reach by NVLink, as far as the communicator knows of GPUs; else empty.
std::vector<int> domains_of(const Communicator::Impl& world) {
  const AgreedCluster& hosts = world.family->hosts;
  if (!hosts.cluster) return {};
  const bool any_gpu = std::any_of(hosts.cluster->shapes.begin(), hosts.cluster->shapes.end(),
                                   [](const auto& shape) { return !shape->all(topology::Kind::gpu).empty(); });
  if (!any_gpu) return {};
  const std::vector<int> all = nvlink_domains_of_ranks(*hosts.cluster, hosts.host_of);  // by rank of the first communicator
  std::vector<int> mine;
  for (const int r : world.family_ranks) mine.push_back(all[static_cast<size_t>(r)]);
  return mine;
}

}  // namespace

MeshCommunicators::MeshCommunicators(Communicator& world, const Mesh& mesh, const std::vector<std::string>& groups) : mesh_(mesh) {
  make(world, groups, {});
}

MeshCommunicators::MeshCommunicators(Communicator& world, const Mesh& mesh, const std::vector<std::string>& groups,
                                     std::span<const int> domain_of)
    : mesh_(mesh) {
  make(world, groups, domain_of);
}

void MeshCommunicators::make(Communicator& world, const std::vector<std::string>& groups, std::span<const int> domain_of) {
  if (world.size() != mesh_.size())
    fail(Result::invalid_argument, "The mesh {} has {} ranks, the communicator {} has {}: the product of the axes must be the number of ranks.",
         mesh_.text(), mesh_.size(), world.name(), world.size());
  rank_ = world.rank();
  std::vector<std::vector<bool>> wanted;  // in an order that doesn't depend on the caller's
  for (const std::string& axes : groups) wanted.push_back(mesh_.selected(axes));
  if (groups.empty())
    for (const MeshAxis& a : mesh_.axes()) wanted.push_back(mesh_.selected(a.name));
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());

  std::string layout = mesh_.text();
  for (const std::vector<bool>& w : wanted) layout += " " + mesh_.joined(w);
  const MeshCard mine = {hash_text(layout), hash_text(host_identity(Options::from_environment().text("NCCL_HOSTID")))};
  std::vector<MeshCard> cards(static_cast<size_t>(world.size()));
  HostStream stream;  // since a call without one goes on in the background where the communicator isn't blocking
  world.all_gather(&mine, cards.data(), sizeof mine, DataType::uint8, &stream);
  stream.synchronize();
  for (size_t r = 0; r < cards.size(); ++r)
    if (cards[r].layout != cards[0].layout)
      fail(Result::invalid_usage,
           "Ranks 0 and {} gave different meshes or groups for the communicator {}; this rank, {}, gave {}. Give the same on all ranks.", r,
           world.name(), rank_, layout);

  std::vector<int> found;
  if (domain_of.empty()) {
    found = domains_of(*world.impl());
    if (found.empty()) {
      std::map<uint64_t, int> numbers;
      for (const MeshCard& c : cards) found.push_back(numbers.emplace(c.host, static_cast<int>(numbers.size())).first->second);
    }
    domain_of = found;
  }
  warnings_ = placement_warnings(mesh_, domain_of);
  if (rank_ == 0)
    for (const std::string& w : warnings_) log_warn("{}", w);

  for (const std::vector<bool>& w : wanted) {
    const std::string axes = mesh_.joined(w);
    Config config;
    config.name = fmt::format("{} {}", world.name(), axes.empty() ? "self" : axes);
    config.blocking = world.blocking();
    const int color = axes.empty() ? rank_ : mesh_.group_leader(rank_, axes);
    communicators_.emplace(axes, world.split(color, rank_, config));
  }
}

Communicator& MeshCommunicators::operator[](std::string_view axes) {
  const std::string name = mesh_.joined(mesh_.selected(axes));
  const auto found = communicators_.find(name);
  if (found == communicators_.end())
    fail(Result::invalid_argument, "No communicator was made along \"{}\" of the mesh {}: name it in the groups given when the communicators are made.",
         axes, mesh_.text());
  return found->second;
}

}  // namespace muster
