// The programs of all ranks as flat arrays for the simulator: connections have numbers, steps that are alike
// are one.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "plan/simulator.h"
#include "program/cut.h"

namespace muster {

struct FlatStep {
  uint32_t pieces = 0;        // 0: token
  uint32_t first_length = 0;  // in lengths: bytes of each piece, of all tiles
  uint64_t longest = 0;
  uint32_t first_end = 0;  // in ends: connections that it takes from, then those that it gives to
  uint16_t receives = 0, sends = 0;
  uint32_t first_window = 0;  // in windows
  uint32_t windows = 0;
  double work = 0;  // per byte of the result
};

struct FlatLoop {
  uint32_t first = 0, last = 0;  // in sequence
  uint64_t tiles = 1;
  uint64_t longest = 0;  // bytes: of a part that it handles
};

struct FlatChannel {
  int rank = 0, number = 0;
  uint32_t first_loop = 0, last_loop = 0;
  uint32_t first_step = 0, last_step = 0;  // in steps: all of its own
  uint32_t members = 1;                    // channels that it stands for (symmetry.h)
};

struct FlatConnection {
  int from = 0, to = 0;
  int lane = 0;
  uint32_t sender = UINT32_MAX, receiver = UINT32_MAX;  // channels
};

// A path over which a channel loads from or stores to a window, one for each place of a step's windows.
struct FlatWindow {
  uint32_t channel = 0;
  int from = 0, to = 0;  // ranks: which way the data goes
};

class FlatPrograms {
 public:
  FlatPrograms(const ProgramMaker& maker, int nranks, const SimCall& call, const SimCosts& costs,
               bool even_chunks = false);

  Coll coll() const { return coll_; }
  uint64_t tile_bytes() const { return tile_bytes_; }
  uint64_t most_tiles() const;                // of all loops
  double tiles_beyond(uint64_t tiles) const;  // the last one counts as far as it is full

  // Leaves only the channels of `kept`, ascending, each for so many as `members` says, whose steps then name
  // connections and window paths by the numbers that these have for them.
  void keep(std::span<const uint32_t> kept, std::span<const uint32_t> members,
            std::span<const uint32_t> connection_numbers, std::span<const uint32_t> window_numbers);

  std::vector<FlatChannel> channels;
  std::vector<FlatLoop> loops;
  std::vector<uint32_t> sequence;  // steps, in order
  std::vector<FlatStep> steps;
  std::vector<uint32_t> ends, windows;  // connections, window paths
  std::vector<uint64_t> lengths;
  std::vector<FlatConnection> connections;
  std::vector<FlatWindow> window_paths;

 private:
  void add(const Program& p, int rank);
  void cut(uint32_t chunks);
  uint64_t part_of(const Channel& c, uint64_t chunk) const;  // of a chunk's elements
  void add_channel(const Program& p, const Channel& c);
  uint32_t step_of(const Program& p, const Channel& c, const Step& s);
  uint32_t connection(int from, int to, int lane, bool sender);
  uint32_t window_path(uint32_t place, int from, int to);

  SimCall call_;
  double combine_work_;
  bool even_chunks_;
  int nranks_;
  Coll coll_ = Coll::all_reduce;
  uint64_t count_ = 0;   // that chunks_ cuts
  Cut chunks_{0, 1, 1};  // of the current program, in elements
  uint64_t tile_bytes_;
  std::unordered_map<uint64_t, uint32_t> connection_numbers_;  // by ends and lane
  std::map<std::tuple<uint32_t, int, int>, uint32_t>
      window_numbers_;                       // of the current channel, by place and ends
  std::multimap<uint64_t, uint32_t> known_;  // steps of the current channel by hash
  std::vector<uint32_t> scratch_ends_, sorted_ends_, scratch_windows_;
  std::vector<uint64_t> scratch_lengths_;
};

}  // namespace muster
