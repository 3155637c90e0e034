#include "plan/flat_programs.h"

#include <algorithm>

#include "base/error.h"
#include "base/math.h"

namespace muster {

FlatPrograms::FlatPrograms(const ProgramMaker& maker, int nranks, const SimCall& call, const SimCosts& costs,
                           bool even_chunks)
    : call_(call), combine_work_(costs.combine_work), even_chunks_(even_chunks), nranks_(nranks) {
  if (call.element_bytes == 0 || call.tile_bytes < call.element_bytes || call.channels < 1)
    fail(Result::invalid_argument,
         "simulation of {} elements of {} bytes, in tiles of {} bytes, {} channels each: a tile must hold an "
         "element",
         call.count, call.element_bytes, call.tile_bytes, call.channels);
  tile_bytes_ = call.tile_bytes / call.element_bytes * call.element_bytes;
  for (int r = 0; r < nranks; ++r) add(maker(r), r);
  for (const FlatConnection& c : connections)
    if (c.sender == UINT32_MAX || c.receiver == UINT32_MAX)
      fail(Result::invalid_argument, "rank {} {} rank {} on lane {}, which has no step for that",
           c.sender == UINT32_MAX ? c.to : c.from, c.sender == UINT32_MAX ? "waits for" : "sends to",
           c.sender == UINT32_MAX ? c.from : c.to, c.lane);
  connection_numbers_.clear();
}

uint64_t FlatPrograms::most_tiles() const {
  uint64_t most = 0;
  for (const FlatLoop& l : loops) most = std::max(most, l.tiles);
  return most;
}

double FlatPrograms::tiles_beyond(uint64_t tiles) const {
  double most = 0;
  for (const FlatLoop& l : loops)
    most = std::max(most, static_cast<double>(l.longest) / static_cast<double>(tile_bytes_));
  return std::max(0.0, most - static_cast<double>(tiles));
}

void FlatPrograms::add(const Program& p, int rank) {
  if (rank == 0) coll_ = p.coll;
  if (p.nranks != nranks_ || p.coll != coll_ || p.rank != rank)
    fail(Result::invalid_argument,
         "rank {} of {} has the program of rank {} of {} for {}, and rank 0's is for {}", rank, nranks_,
         p.rank, p.nranks, name_of(p.coll), name_of(coll_));
  cut(splits_count(p.coll) ? p.chunks : 1);
  for (const Channel& c : p.channels) add_channel(p, c);
}

void FlatPrograms::cut(uint32_t chunks) {
  count_ = call_.count;
  chunks_ = Cut(count_, chunks, call_.element_bytes);
  if (!even_chunks_ || count_ <= chunks_.longest() * (chunks - 1)) return;
  count_ = chunks_.longest() * chunks;
  chunks_ = Cut(count_, chunks, call_.element_bytes);
}

uint64_t FlatPrograms::part_of(const Channel& c, uint64_t chunk) const {
  return Cut(chunk, uint64_t{c.parts} * static_cast<uint64_t>(call_.channels), call_.element_bytes)
      .length(c.part);
}

void FlatPrograms::add_channel(const Program& p, const Channel& c) {
  known_.clear();
  window_numbers_.clear();
  const int number = static_cast<int>(&c - p.channels.data());
  FlatChannel f;
  f.rank = p.rank;
  f.number = number;
  f.first_loop = static_cast<uint32_t>(loops.size());
  f.first_step = static_cast<uint32_t>(steps.size());
  channels.push_back(f);
  for (const Loop& l : c.loops) {
    FlatLoop loop;
    loop.first = static_cast<uint32_t>(sequence.size());
    for (const Step& s : l.steps) sequence.push_back(step_of(p, c, s));
    loop.last = static_cast<uint32_t>(sequence.size());
    // All ranks count the tiles of the longest part. Chunks have one length, but for the last that isn't
    // empty.
    const uint64_t last = count_ > 0 ? (count_ - 1) / chunks_.longest() : 0;
    loop.longest =
        std::max(part_of(c, chunks_.length(0)), part_of(c, chunks_.length(last))) * call_.element_bytes;
    loop.tiles = std::max<uint64_t>(1, ceil_div(loop.longest, tile_bytes_));
    loops.push_back(loop);
  }
  channels.back().last_loop = static_cast<uint32_t>(loops.size());
  channels.back().last_step = static_cast<uint32_t>(steps.size());
}

void FlatPrograms::keep(std::span<const uint32_t> kept, std::span<const uint32_t> members,
                        std::span<const uint32_t> connection_numbers,
                        std::span<const uint32_t> window_numbers) {
  std::vector<FlatChannel> some;
  std::vector<FlatLoop> their_loops;
  std::vector<uint32_t> their_sequence;
  for (size_t i = 0; i < kept.size(); ++i) {
    FlatChannel c = channels[kept[i]];
    const auto first = static_cast<uint32_t>(their_loops.size());
    for (uint32_t l = c.first_loop; l < c.last_loop; ++l) {
      FlatLoop loop = loops[l];
      const auto at = sequence.begin();
      const auto begin = static_cast<uint32_t>(their_sequence.size());
      their_sequence.insert(their_sequence.end(), at + loop.first, at + loop.last);
      loop.first = begin;
      loop.last = static_cast<uint32_t>(their_sequence.size());
      their_loops.push_back(loop);
    }
    for (uint32_t s = c.first_step; s < c.last_step; ++s) {
      const FlatStep& f = steps[s];
      for (uint32_t e = 0; e < uint32_t{f.receives} + f.sends; ++e)
        ends[f.first_end + e] = connection_numbers[ends[f.first_end + e]];
      for (uint32_t w = 0; w < f.windows; ++w)
        windows[f.first_window + w] = window_numbers[windows[f.first_window + w]];
    }
    c.first_loop = first;
    c.last_loop = static_cast<uint32_t>(their_loops.size());
    c.members = members[i];
    some.push_back(c);
  }
  channels = std::move(some);
  loops = std::move(their_loops);
  sequence = std::move(their_sequence);
}

uint32_t FlatPrograms::step_of(const Program& p, const Channel& c, const Step& s) {
  FlatStep f;
  scratch_ends_.clear();
  scratch_windows_.clear();
  scratch_lengths_.clear();
  const uint32_t n = splits_count(p.coll) ? p.chunks : 1;
  for (uint32_t j = 0; j < s.pieces; ++j) {
    scratch_lengths_.push_back(part_of(c, chunks_.length((s.extent + j) % n)) * call_.element_bytes);
    f.longest = std::max(f.longest, scratch_lengths_.back());
  }
  f.pieces = s.pieces;
  const auto refer = [&](const Ref& r, bool destination) {
    if (r.kind == Ref::Kind::local) return;
    if (r.peer < 0 || r.peer >= nranks_)
      fail(Result::invalid_argument, "{} {}, rank {}: {} names rank {} of {}", p.algorithm, name_of(p.coll),
           p.rank, to_string(s), r.peer, nranks_);
    const int from = destination ? p.rank : r.peer, to = destination ? r.peer : p.rank;
    if (r.kind == Ref::Kind::slot) {
      scratch_ends_.push_back(connection(from, to, r.lane, destination));
      ++(destination ? f.sends : f.receives);
    } else if (from != to) {
      scratch_windows_.push_back(window_path(static_cast<uint32_t>(scratch_windows_.size()), from, to));
    }
  };
  for (const Ref& r : s.sources) refer(r, false);
  for (const Ref& r : s.destinations) refer(r, true);
  // A connection carries one message of a step (sending and receiving are two connections).
  std::vector<uint32_t>& each = sorted_ends_;
  each = scratch_ends_;
  std::sort(each.begin(), each.end());
  if (std::adjacent_find(each.begin(), each.end()) != each.end())
    fail(Result::invalid_argument, "{} {}, rank {}: {} uses a connection twice", p.algorithm, name_of(p.coll),
         p.rank, to_string(s));
  f.windows = static_cast<uint32_t>(scratch_windows_.size());
  if (s.pieces > 0 && !s.destinations.empty()) {
    const auto sources = static_cast<double>(s.sources.size());
    f.work =
        static_cast<double>(s.destinations.size() - 1) + (sources > 1 ? (sources - 1) * combine_work_ : 1);
  }

  uint64_t hash = hash_combine(f.pieces, (uint64_t{f.receives} << 32) | f.sends);
  for (const uint64_t l : scratch_lengths_) hash = hash_combine(hash, l);
  for (const uint32_t e : scratch_ends_) hash = hash_combine(hash, e);
  for (const uint32_t w : scratch_windows_) hash = hash_combine(hash, w);
  for (auto [at, end] = known_.equal_range(hash); at != end; ++at) {
    const FlatStep& k = steps[at->second];
    if (k.pieces == f.pieces && k.receives == f.receives && k.sends == f.sends && k.windows == f.windows &&
        k.work == f.work &&
        std::equal(scratch_lengths_.begin(), scratch_lengths_.end(), lengths.begin() + k.first_length) &&
        std::equal(scratch_ends_.begin(), scratch_ends_.end(), ends.begin() + k.first_end) &&
        std::equal(scratch_windows_.begin(), scratch_windows_.end(), windows.begin() + k.first_window))
      return at->second;
  }
  f.first_length = static_cast<uint32_t>(lengths.size());
  f.first_end = static_cast<uint32_t>(ends.size());
  f.first_window = static_cast<uint32_t>(windows.size());
  lengths.insert(lengths.end(), scratch_lengths_.begin(), scratch_lengths_.end());
  ends.insert(ends.end(), scratch_ends_.begin(), scratch_ends_.end());
  windows.insert(windows.end(), scratch_windows_.begin(), scratch_windows_.end());
  steps.push_back(f);
  const auto index = static_cast<uint32_t>(steps.size() - 1);
  known_.emplace(hash, index);
  return index;
}

uint32_t FlatPrograms::connection(int from, int to, int lane, bool sender) {
  const uint64_t key =
      (static_cast<uint64_t>(from) * static_cast<uint64_t>(nranks_) + static_cast<uint64_t>(to)) << 16 |
      static_cast<uint64_t>(lane);
  const auto [at, is_new] = connection_numbers_.try_emplace(key, static_cast<uint32_t>(connections.size()));
  if (is_new) connections.push_back({from, to, lane});
  FlatConnection& c = connections[at->second];
  uint32_t& end = sender ? c.sender : c.receiver;
  const auto channel = static_cast<uint32_t>(channels.size() - 1);
  if (end != UINT32_MAX && end != channel)
    fail(Result::invalid_argument,
         "two channels of rank {} use the connection from rank {} to rank {} on lane {}",
         channels[channel].rank, from, to, lane);
  end = channel;
  return at->second;
}

uint32_t FlatPrograms::window_path(uint32_t place, int from, int to) {
  const auto [at, is_new] =
      window_numbers_.try_emplace({place, from, to}, static_cast<uint32_t>(window_paths.size()));
  if (is_new) window_paths.push_back({static_cast<uint32_t>(channels.size() - 1), from, to});
  return at->second;
}

}  // namespace muster
