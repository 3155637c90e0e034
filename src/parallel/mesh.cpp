// The arithmetic of a mesh: mixed-radix numbers, the first axis being the lowest digit.
#include "muster/mesh.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace muster {
namespace {

constexpr std::array<std::string_view, 5> kUsualAxes = {"tp", "cp", "ep", "pp", "dp"};

bool is_axis_name(std::string_view name) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !name.empty() && std::all_of(name.begin(), name.end(), fits);
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {
  if (axes_.empty()) fail(Result::invalid_argument, "A mesh needs at least one axis, such as \"dp=8\".");
  std::set<std::string> names;
  int64_t ranks = 1;
  for (const MeshAxis& a : axes_) {
    if (!is_axis_name(a.name))
      fail(Result::invalid_argument, "\"{}\" can't be the name of a mesh's axis: names are letters, digits and _.", printable(a.name, 40));
    if (!names.insert(a.name).second)
      fail(Result::invalid_argument, "The mesh has two axes named {}: give each kind of parallelism one.", a.name);
    if (a.size < 1) fail(Result::invalid_argument, "The mesh's axis {} has size {}; it must be 1 or more.", a.name, a.size);
    strides_.push_back(static_cast<int>(ranks));
    ranks *= a.size;
    if (ranks > INT_MAX)
      fail(Result::invalid_argument, "The mesh has more than {} ranks from axis {} (size {}) on, which no communicator has.", INT_MAX, a.name, a.size);
  }
  size_ = static_cast<int>(ranks);
}

Mesh Mesh::parse(std::string_view text) {
  std::vector<MeshAxis> axes;
  for (std::string_view part : muster::split(text, ',')) {
    const std::string_view entry = trim(part);
    const size_t equals = entry.find('=');
    const std::string_view digits = equals == entry.npos ? "" : trim(entry.substr(equals + 1));
    const bool is_number = !digits.empty() && digits.size() <= 10 && std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
    const int64_t size = is_number ? std::stoll(std::string(digits)) : -1;
    if (size < 0 || size > INT_MAX)
      fail(Result::invalid_argument, "\"{}\" in the mesh \"{}\" isn't an axis and its size: write it like tp=8,pp=16,dp=128.", printable(entry, 40),
           printable(text, 200));
    axes.push_back({std::string(trim(entry.substr(0, equals))), static_cast<int>(size)});
  }
  return Mesh(std::move(axes));
}

std::vector<bool> Mesh::selected(std::string_view axes) const {
  std::vector<bool> selection(axes_.size());
  for (std::string_view part : muster::split(axes, '+')) {
    const std::string_view name = trim(part);
    const auto found = std::find_if(axes_.begin(), axes_.end(), [&](const MeshAxis& a) { return a.name == name; });
    if (found != axes_.end())
      selection[static_cast<size_t>(found - axes_.begin())] = true;
    else if (std::find(kUsualAxes.begin(), kUsualAxes.end(), name) == kUsualAxes.end())
      fail(Result::invalid_argument, "The mesh {} has no axis \"{}\".", text(), printable(name, 40));
  }
  return selection;
}

std::string Mesh::joined(const std::vector<bool>& selection) const {
  std::string s;
  for (size_t i = 0; i < axes_.size(); ++i)
    if (selection[i]) s += (s.empty() ? "" : "+") + axes_[i].name;
  return s;
}

int Mesh::size(std::string_view axes) const {
  const std::vector<bool> in = selected(axes);
  int product = 1;
  for (size_t i = 0; i < axes_.size(); ++i)
    if (in[i]) product *= axes_[i].size;
  return product;
}

std::vector<int> Mesh::coordinates(int rank) const {
  if (rank < 0 || rank >= size_) fail(Result::invalid_argument, "Rank {} is not in the mesh {}, which has ranks 0 to {}.", rank, text(), size_ - 1);
  std::vector<int> c;
  for (size_t i = 0; i < axes_.size(); ++i) c.push_back(rank / strides_[i] % axes_[i].size);
  return c;
}

int Mesh::coordinate(int rank, std::string_view axis) const { return group_rank(rank, axis); }

int Mesh::rank(std::span<const int> coordinates) const {
  if (coordinates.size() != axes_.size())
    fail(Result::invalid_argument, "{} coordinates for the mesh {}, which has {} axes.", coordinates.size(), text(), axes_.size());
  int rank = 0;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= axes_[i].size)
      fail(Result::invalid_argument, "Coordinate {} on axis {} of the mesh {} is not in 0 to {}.", coordinates[i], axes_[i].name, text(), axes_[i].size - 1);
    rank += coordinates[i] * strides_[i];
  }
  return rank;
}

int Mesh::neighbour(int rank, std::string_view axis, int steps) const {
  const std::vector<bool> in = selected(axis);
  std::vector<int> c = coordinates(rank);
  const auto chosen = std::count(in.begin(), in.end(), true);
  if (chosen > 1) fail(Result::invalid_argument, "A step in the mesh {} is along one axis, not along \"{}\".", text(), axis);
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (!in[i]) continue;
    const int64_t there = (static_cast<int64_t>(c[i]) + steps) % axes_[i].size;
    c[i] = static_cast<int>(there < 0 ? there + axes_[i].size : there);
  }
  return this->rank(c);
}

std::vector<int> Mesh::group(int rank, std::string_view axes) const {
  const std::vector<bool> in = selected(axes);
  std::vector<int> ranks = {group_leader(rank, axes)};
  for (size_t i = 0; i < axes_.size(); ++i) {  // an outer axis repeats what the inner ones gave
    if (!in[i]) continue;
    const size_t inner = ranks.size();
    for (int k = 1; k < axes_[i].size; ++k)
      for (size_t j = 0; j < inner; ++j) ranks.push_back(ranks[j] + k * strides_[i]);
  }
  return ranks;
}

int Mesh::group_rank(int rank, std::string_view axes) const {
  const std::vector<bool> in = selected(axes);
  const std::vector<int> c = coordinates(rank);
  int place = 0, stride = 1;
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (!in[i]) continue;
    place += c[i] * stride;
    stride *= axes_[i].size;
  }
  return place;
}

int Mesh::group_leader(int rank, std::string_view axes) const {
  const std::vector<bool> in = selected(axes);
  const std::vector<int> c = coordinates(rank);
  for (size_t i = 0; i < axes_.size(); ++i)
    if (in[i]) rank -= c[i] * strides_[i];
  return rank;
}

std::string Mesh::text() const {
  std::string s;
  for (const MeshAxis& a : axes_) s += fmt::format("{}{}={}", s.empty() ? "" : ",", a.name, a.size);
  return s;
}

MeshPlacement place(const Mesh& mesh, std::string_view axes, std::span<const int> domain_of) {
  if (domain_of.size() != static_cast<size_t>(mesh.size()))
    fail(Result::invalid_argument, "{} domains were given for the mesh {}, which has {} ranks.", domain_of.size(), mesh.text(), mesh.size());
  MeshPlacement p;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (mesh.group_leader(rank, axes) != rank) continue;
    std::set<int> domains;
    for (const int member : mesh.group(rank, axes)) domains.insert(domain_of[static_cast<size_t>(member)]);
    ++p.groups;
    p.most_domains = std::max(p.most_domains, static_cast<int>(domains.size()));
    if (domains.size() > 1 && p.groups_apart++ == 0) p.first_apart = rank;
  }
  return p;
}

std::vector<std::string> placement_warnings(const Mesh& mesh, std::span<const int> domain_of) {
  std::vector<std::string> warnings;
  const MeshPlacement p = place(mesh, "tp", domain_of);
  if (p.groups_apart > 0) {
    const std::vector<int> first = mesh.group(p.first_apart, "tp");
    const bool innermost = mesh.axes().front().name == "tp";
    warnings.push_back(fmt::format(
        "Mesh {}: {} of {} tensor-parallel groups leave the fast links of one host or NVLink domain, the first being ranks {} to {} "
        "(up to {} domains in one group): every layer waits for their messages. {}",
        mesh.text(), p.groups_apart, p.groups, first.front(), first.back(), p.most_domains,
        innermost ? "Choose a tp that divides the ranks of a domain, and number ranks host by host."
                  : "Name tp first, so that its ranks are neighbours."));
  }
  return warnings;
}

}  // namespace muster
