#include "program/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "program/violation.h"

namespace muster {

Memory::Memory(std::span<const Program> programs, const CheckOptions& options)
    : programs_(programs),
      in_place_(options.in_place),
      lengths_(options.lengths),
      tiles_(static_cast<uint32_t>(options.tiles)) {
  constexpr uint32_t kMostParts = 1 << 12;
  for (const Program& p : programs)
    for (const Channel& c : p.channels) {
      parts_ = std::lcm(parts_, uint32_t{c.parts});
      if (parts_ > kMostParts)
        throw Violation{title_of(programs) +
                        "expected channels to share a small number of parts, found too many"};
    }
  units_ = parts_ * tiles_;
  if (!lengths_.empty()) {
    if (lengths_.size() != programs[0].chunks)
      throw Violation{title_of(programs) +
                      fmt::format("expected {} lengths, found {}", programs[0].chunks, lengths_.size())};
    for (const Program& p : programs)
      for (const Channel& c : p.channels)
        if (c.parts != parts_)
          throw Violation{title_of(programs) +
                          "expected as many parts on all channels, so that parts have lengths"};
  }
  buffers_.resize(programs.size());
  if (programs[0].coll == Coll::send_recv) {
    lay_out_messages();
  } else {
    lay_out();
  }
  size_t cells = 0;
  for (auto& of_rank : buffers_)
    for (Buffer& b : of_rank) {
      b.first = cells;
      cells += size_t{b.chunks} * units_;
    }
  values_.resize(cells);
  fill_inputs();
}

void Memory::lay_out() {
  for (const Program& p : programs_) {
    auto& buffers = buffers_[static_cast<size_t>(p.rank)];
    for (uint16_t b = kInput; b <= kScratch; ++b)
      buffers.push_back({0, has_buffer(p, p.rank, b) ? p.buffer_chunks[b] : 0, b == kInput});
    // In place the memory of one is inside the other's, whoever has which.
    if (!in_place_) continue;
    for (uint16_t b = kInput; b <= kOutput; ++b)
      for (uint32_t c = 0; c < buffers[b].chunks; ++c) {
        const Place home = in_place(p.coll, p.root, {p.rank, b, c});
        buffers[home.buffer].chunks = std::max(buffers[home.buffer].chunks, home.chunk + 1);
      }
  }
}

// A message's buffer is an input if it is sent from. Between two ranks, messages match in call order.
void Memory::lay_out_messages() {
  std::map<std::pair<int, int>, std::vector<uint16_t>> sent, received;
  for (const Program& p : programs_) {
    auto& buffers = buffers_[static_cast<size_t>(p.rank)];
    const auto use = [&](const Ref& memory, int peer, bool send) {
      if (buffers.size() <= memory.buffer) buffers.resize(memory.buffer + size_t{1});
      Buffer& b = buffers[memory.buffer];
      b.chunks = 1;
      b.input = b.input || send;
      (send ? sent[{p.rank, peer}] : received[{peer, p.rank}]).push_back(memory.buffer);
    };
    for (const Channel& c : p.channels)
      for (const Loop& l : c.loops)
        for (const Step& s : l.steps) {
          for (const Ref& r : s.sources)
            if (r.kind == Ref::Kind::local)
              for (const Ref& to : s.destinations)
                use(r, to.kind == Ref::Kind::slot ? to.peer : p.rank, true);
          for (const Ref& r : s.destinations)
            if (r.kind == Ref::Kind::local)
              for (const Ref& from : s.sources)
                use(r, from.kind == Ref::Kind::slot ? from.peer : p.rank, false);
        }
  }
  received_.resize(programs_.size());
  for (auto& [ends, buffers] : received) {
    auto& from = sent[ends];
    std::ranges::sort(from);
    std::ranges::sort(buffers);
    for (size_t k = 0; k < buffers.size(); ++k)
      received_[static_cast<size_t>(ends.second)][buffers[k]] = {ends.first,
                                                                 k < from.size() ? from[k] : UINT32_MAX};
  }
}

void Memory::fill_inputs() {
  for (size_t r = 0; r < buffers_.size(); ++r) {
    const auto rank = static_cast<int>(r);
    const Program& p = program(rank);
    const bool messages = p.coll == Coll::send_recv;
    for (uint16_t b = 0; b < buffers_[r].size(); ++b) {
      if (!buffers_[r][b].input) continue;
      const uint32_t chunks = messages                 ? buffers_[r][b].chunks
                              : has_buffer(p, rank, b) ? p.buffer_chunks[b]
                                                       : 0;
      for (uint32_t c = 0; c < chunks; ++c)
        for (uint32_t u = 0; u < units_; ++u)
          values_[cell({rank, b, c}, u)] = {static_cast<Symbols::Node>(rank),
                                            messages ? b : data_chunk(p, {rank, b, c}), u, true, false};
    }
  }
}

std::pair<uint32_t, uint32_t> Memory::units_of(const Channel& c, int tile) const {
  const uint32_t width = parts_ / c.parts;
  return {(c.part * tiles_ + static_cast<uint32_t>(tile)) * width, width};
}

size_t Memory::cell(Place at, uint32_t unit) const {
  if (in_place_) at = in_place(programs_[0].coll, programs_[0].root, at);
  return buffers_[static_cast<size_t>(at.rank)][at.buffer].first + size_t{at.chunk} * units_ + unit;
}

bool Memory::is_input(const Place& at) const {
  return buffers_[static_cast<size_t>(at.rank)][at.buffer].input;
}

std::string Memory::name_of(const Place& at) const {
  if (programs_[0].coll == Coll::send_recv) return fmt::format("rank {}'s message {}", at.rank, at.buffer);
  return fmt::format("rank {}'s {}", at.rank, to_string(local(at.buffer, at.chunk)));
}

Expected Memory::expected(const Place& output) const {
  const Program& p = program(output.rank);
  const auto me = static_cast<uint32_t>(output.rank);
  switch (p.coll) {
    case Coll::all_reduce:
    case Coll::reduce:
      return {-1, output.chunk};
    case Coll::reduce_scatter:
      return {-1, me};
    case Coll::all_gather:
    case Coll::gather:
    case Coll::all_to_all:
      return {static_cast<int>(output.chunk), data_chunk(p, output)};
    case Coll::broadcast:
      return {p.root, output.chunk};
    case Coll::scatter:
      return {p.root, me};
    default:  // send_recv
      break;
  }
  return received_[static_cast<size_t>(output.rank)].at(output.buffer);
}

void Memory::for_each_result(int rank, const ResultFn& f) const {
  const Program& p = program(rank);
  const auto whole = [&](const Place& at) {
    const Expected e = expected(at);
    for (uint32_t u = 0; u < units_; ++u)
      if (p.coll == Coll::send_recv || has_tile(e.chunk, static_cast<int>(u % tiles_)))
        f(at, u, values_[cell(at, u)], e);
  };
  if (p.coll == Coll::send_recv) {
    for (const auto& [buffer, expect] : received_[static_cast<size_t>(rank)]) whole({rank, buffer, 0});
  } else if (has_buffer(p, rank, kOutput)) {
    for (uint32_t c = 0; c < p.buffer_chunks[kOutput]; ++c) whole({rank, kOutput, c});
  }
}

}  // namespace muster
