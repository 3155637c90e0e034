// Writes one rank's program step by step: Builder b(...); b.step(chunk, {sources}, {destinations}); return
// b.done();
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "program/program.h"

namespace muster {

using Refs = std::vector<Ref>;

// How many chunks the data has, and the caller's input and output. `chunks`: see Builder.
inline void set_chunks(Program& p, uint32_t chunks) {
  const auto n = static_cast<uint32_t>(p.nranks);
  p.chunks = splits_count(p.coll) ? chunks : p.coll == Coll::all_to_all ? n * n : n;
  p.buffer_chunks[kInput] = p.buffer_chunks[kOutput] = chunks;
  const bool input_per_rank =
      p.coll == Coll::reduce_scatter || p.coll == Coll::all_to_all || p.coll == Coll::scatter;
  const bool output_per_rank =
      p.coll == Coll::all_gather || p.coll == Coll::all_to_all || p.coll == Coll::gather;
  if (input_per_rank) p.buffer_chunks[kInput] = n;
  if (output_per_rank) p.buffer_chunks[kOutput] = n;
}

class Builder {
 public:
  // `chunks`: into how many parts the caller's elements are cut; 1 where splits_count(coll) is false.
  Builder(const char* algorithm, Coll coll, int nranks, int rank, int root = 0, uint32_t chunks = 1) {
    if (nranks < 1 || rank < 0 || rank >= nranks || root < 0 || root >= nranks) {
      fail(Result::internal_error, "{} {}: rank {} and root {} must be in 0..{}", algorithm, name_of(coll),
           rank, root, nranks - 1);
    }
    p_.algorithm = algorithm;
    p_.coll = coll;
    p_.nranks = nranks;
    p_.rank = rank;
    p_.root = root;
    set_chunks(p_, chunks);
    p_.channels.resize(1);
    p_.channels[0].loops.resize(1);
  }

  // Combine the sources in the order written; put the result in every destination. The data is as long as
  // chunk `extent` is, or as `pieces` consecutive ones. No destination or no piece at all: nothing is added.
  void step(uint32_t extent, Refs sources, Refs destinations, uint32_t pieces = 1) {
    add({std::move(sources), std::move(destinations), extent, pieces, false});
  }
  // The same, and the result is complete.
  void finish(uint32_t extent, Refs sources, Refs destinations, uint32_t pieces = 1) {
    add({std::move(sources), std::move(destinations), extent, pieces, true});
  }
  // Waits for a token from each of `from`, then gives one to each of `to`.
  void tokens(Refs from, Refs to) {
    if (!from.empty() || !to.empty()) steps().push_back({std::move(from), std::move(to), 0, 0, false});
  }
  void use_scratch(uint32_t chunks) { p_.buffer_chunks[kScratch] = chunks; }

  Program done() { return std::move(p_); }

 private:
  std::vector<Step>& steps() { return p_.channels[0].loops[0].steps; }
  void add(Step s) {
    if (s.pieces > 0 && !s.destinations.empty()) steps().push_back(std::move(s));
  }
  Program p_;
};

}  // namespace muster
