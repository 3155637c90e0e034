// A mesh of processes: every rank of a communicator has a coordinate on each of a few named axes, and ranks that differ only
// on some axes form the groups in which one kind of parallelism communicates.
//
// The first axis is the innermost: neighbours on it are neighbours in rank, so where ranks are numbered host by host it stays
// inside a host if its size divides the host's ranks; the last axis is the outermost. So "tp=8,pp=16,dp=128" keeps tensor
// parallelism inside hosts of 8, has stages on different hosts and copies of the model farthest apart. The order is the
// user's and is never changed. Names are free; those in use are tp (tensor), cp (context, or sequence), ep (expert),
// pp (pipeline) and dp (data).
//
// Errors are muster::Error. Mesh is a value: const calls from any thread.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muster/muster.h"

namespace muster {

struct MeshAxis {
  std::string name;  // letters, digits and _
  int size = 1;      // ranks along it, 1 or more
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

// The arithmetic alone: no communicator, no memory that grows with the ranks.
//
// `axes` in the calls below names one axis, or several joined by +, in any order: "dp", "dp+cp". One of tp, cp, ep, pp and dp
// that the mesh doesn't have has size 1 and coordinate 0; any other name that it doesn't have: invalid_argument.
class MUSTER_API Mesh {
 public:
  // Innermost first. invalid_argument: no axis, a name twice or unfit, a size below 1, more than 2^31 - 1 ranks.
  explicit Mesh(std::vector<MeshAxis> axes);
  // "tp=8,pp=16,dp=128", blanks allowed; the same errors, and for what can't be read.
  static Mesh parse(std::string_view text);

  const std::vector<MeshAxis>& axes() const { return axes_; }
  int size() const { return size_; }             // ranks
  int size(std::string_view axes) const;         // of each group along them: the product of their sizes
  int coordinate(int rank, std::string_view axis) const;
  std::vector<int> coordinates(int rank) const;  // one per axis, in the mesh's order
  int rank(std::span<const int> coordinates) const;
  // Where one walks to from `rank` by `steps` along an axis, round its end.
  int neighbour(int rank, std::string_view axis, int steps) const;

  // The ranks that differ from `rank` on these axes only, itself included, in increasing order.
  std::vector<int> group(int rank, std::string_view axes) const;
  // This rank's place in that group.
  int group_rank(int rank, std::string_view axes) const;
  // The group's smallest rank, which names it.
  int group_leader(int rank, std::string_view axes) const;

  std::string text() const;  // what parse reads
  friend bool operator==(const Mesh& a, const Mesh& b) { return a.axes_ == b.axes_; }

 private:
  friend class MeshCommunicators;
  MUSTER_HIDDEN std::vector<bool> selected(std::string_view axes) const;
  MUSTER_HIDDEN std::string joined(const std::vector<bool>& selection) const;

  std::vector<MeshAxis> axes_;
  std::vector<int> strides_;
  int size_ = 1;
};

// How an axis lies on parts of a machine or cluster.
struct MeshPlacement {
  int groups = 0;         // along the axis
  int groups_apart = 0;   // of these, have ranks in several domains
  int first_apart = -1;   // leader of the first of them
  int most_domains = 1;   // in which one group has ranks
};

// domain_of: for each rank a number, equal for ranks that are joined by fast links: those of one host, or of one NVLink domain.
MUSTER_API MeshPlacement place(const Mesh& mesh, std::string_view axes, std::span<const int> domain_of);
// One sentence for each thing that costs much: tensor parallelism, whose messages are on the critical path of every layer
// (two all-reduces forward and two backward; Shoeybi et al. 2019, "Megatron-LM", section 3), leaves a domain. Empty: nothing.
MUSTER_API std::vector<std::string> placement_warnings(const Mesh& mesh, std::span<const int> domain_of);

// The communicators of this rank's groups.
//
// All are made by the constructor, one after the other in an order that the mesh alone gives, so that no two ranks can wait
// for each other in different ones, and later uses never have to be collective over more than their own group.
class MUSTER_API MeshCommunicators {
 public:
  // Collective over `world`, which stays usable. `groups`: axes or combinations of them ("dp", "dp+cp"), the same on all ranks,
  // in any order; empty: every axis of the mesh. invalid_argument: the world has not mesh.size() ranks; invalid_usage on all
  // ranks: they gave different meshes or groups. Warnings about the placement are logged by rank 0: on the NVLink domains of
  // GPUs where hosts have as many GPUs as ranks (the i-th rank of a host, when all first met, is taken to use the i-th), else on
  // hosts.
  MeshCommunicators(Communicator& world, const Mesh& mesh, const std::vector<std::string>& groups = {});
  // The same with a domain for each rank, as in place(), instead of what was found.
  MeshCommunicators(Communicator& world, const Mesh& mesh, const std::vector<std::string>& groups, std::span<const int> domain_of);

  const Mesh& mesh() const { return mesh_; }
  int rank() const { return rank_; }  // in the mesh
  int coordinate(std::string_view axis) const { return mesh_.coordinate(rank_, axis); }
  // Ranks in it are ordered as in Mesh::group. invalid_argument: not made.
  Communicator& operator[](std::string_view axes);
  // What was found about the placement, also on ranks other than 0.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  MUSTER_HIDDEN void make(Communicator& world, const std::vector<std::string>& groups, std::span<const int> domain_of);

  Mesh mesh_;
  int rank_ = 0;
  std::map<std::string, Communicator, std::less<>> communicators_;  // by axes in the mesh's order, joined by +
  std::vector<std::string> warnings_;
};

}  // namespace muster
