// Hierarchical programs of hosts whose ranks load and store each other's buffers: nothing is copied into slots inside a host.
// Between hosts the very messages travel that hierarchical.cpp sends, so one host may run this and another one that.
#include "algorithms/families.h"
#include "program/part.h"

namespace muster {

namespace {

// One reference per rank of this host, by local number, to chunk `chunk` of its buffer: `mine` for this one.
Refs windows_of_host(const Hosts& h, uint16_t buffer, uint32_t chunk, const Ref& mine) {
  Refs refs;
  for (int local = 0; local < static_cast<int>(h.here().size()); ++local)
    refs.push_back(local == h.local ? mine : window(h.rank_at(h.host, local), buffer, chunk));
  return refs;
}

// After the last tile, so that ranks wait for each other once a call.
void leave_host_together(const Hosts& h, Program& p) {
  Refs others;
  for (int i = 1; i < static_cast<int>(h.here().size()); ++i)
    others.push_back(slot(h.rank_at(h.host, wrap(h.local + i, static_cast<int>(h.here().size())))));
  if (others.empty()) return;
  p.channels[0].loops.push_back({{{{}, others, 0, 0, false}, {others, {}, 0, 0, false}}});
}

}  // namespace

// A rank of a rail adds up what its host has of the rail's data; rails all-reduce; and it stores the results to all of the host.
Program hierarchical_window_all_reduce(const Shape& s) {
  const Hosts h(s.placement, s.nranks, s.rank);
  const auto width = static_cast<uint32_t>(h.count()), host = static_cast<uint32_t>(h.host);
  Builder b = start("hierarchical_window", Coll::all_reduce, s, static_cast<uint32_t>(h.rails) * width);
  if (h.local < h.rails) {
    const bool alone = h.here().size() == 1;
    const auto chunk = [first = static_cast<uint32_t>(h.local) * width](uint32_t i) { return first + i; };
    // The order of hierarchical_all_reduce, so that the same seams fuse.
    for (uint32_t i = 0; i < width && !alone; ++i) {
      const uint32_t c = chunk((host + i) % width);
      b.step(c, windows_of_host(h, kInput, c, contribution(c)), {output(c)});
    }
    std::vector<int> rail;
    for (int k = 0; k < h.count(); ++k) rail.push_back(h.rank_at(k, h.local));
    const std::function<Ref(uint32_t)> to = [](uint32_t c) { return output(c); }, own = [](uint32_t c) { return contribution(c); };
    add_part(b, ring_all_reduce({h.count(), h.host, 0, nullptr, s.channel}), {rail, chunk, alone ? own : to, to, true});
    for (uint32_t i = 0; i < width && !alone; ++i) {
      const uint32_t c = chunk((host + 1 + i) % width);
      Refs others = windows_of_host(h, kOutput, c, output(c));
      std::erase(others, output(c));
      b.step(c, {output(c)}, std::move(others));
    }
  }
  Program p = fuse(b.done());
  leave_host_together(h, p);
  return p;
}

// What the ranks of a host tell each other: the first part of hierarchical_all_gather.
Program host_all_gather(const Shape& s) {
  const Hosts h(s.placement, s.nranks, s.rank);
  Builder b = start("hierarchical", Coll::all_gather, s);
  const auto rank_of = [&h](uint32_t local) { return static_cast<uint32_t>(h.rank_at(h.host, static_cast<int>(local))); };
  add_part(b, direct_all_gather({static_cast<int>(h.here().size()), h.local, 0, nullptr, s.channel}),
           {h.here(), rank_of, [](uint32_t) { return input(0); }, [](uint32_t c) { return output(c); }, false});
  return fuse(b.done());
}

}  // namespace muster
