// The checker's memory: all buffers of all ranks, one symbol per unit. A unit is the smallest part of a chunk
// that any channel handles in one tile, so that channels with different parts see each other's bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "program/checker.h"
#include "program/place.h"
#include "program/symbols.h"

namespace muster {

struct Value {
  Symbols::Node node = Symbols::kNothing;
  uint32_t chunk = 0, unit = 0;  // of the collective's data: where in the contributions it comes from
  bool as_input = false;         // may be read as the caller's input
  bool as_written = false;       // may be read as something that a step has written
};

// What an output chunk must hold at the end. `rank`: whose data, where nothing is combined.
struct Expected {
  int rank = -1;
  uint32_t chunk = 0;
};

class Memory {
 public:
  Memory(std::span<const Program> programs, const CheckOptions& options);

  uint32_t units() const { return units_; }  // per chunk
  // The first unit and the number of units of each chunk that a channel handles in a tile.
  std::pair<uint32_t, uint32_t> units_of(const Channel& c, int tile) const;
  // Whether this chunk of the data reaches into the tile.
  bool has_tile(uint32_t data_chunk, int tile) const { return lengths_.empty() || tile < lengths_[data_chunk]; }
  size_t cells() const { return values_.size(); }
  size_t cell(Place at, uint32_t unit) const;
  Value& operator[](size_t cell) { return values_[cell]; }
  const Value& operator[](size_t cell) const { return values_[cell]; }

  bool is_input(const Place& at) const;
  std::string name_of(const Place& at) const;

  using ResultFn = std::function<void(const Place&, uint32_t unit, const Value& found, const Expected&)>;
  void for_each_result(int rank, const ResultFn& f) const;

 private:
  struct Buffer {
    size_t first = 0;  // cell
    uint32_t chunks = 0;
    bool input = false;
  };
  const Program& program(int rank) const { return programs_[static_cast<size_t>(rank)]; }
  void lay_out();
  void lay_out_messages();
  void fill_inputs();
  Expected expected(const Place& output) const;

  std::span<const Program> programs_;
  bool in_place_;
  std::span<const int> lengths_;  // see CheckOptions
  uint32_t parts_ = 1, tiles_ = 1, units_ = 1;
  std::vector<std::vector<Buffer>> buffers_;  // by rank and buffer
  std::vector<std::map<uint16_t, Expected>>
      received_;  // send_recv: by rank, what each received message must hold
  std::vector<Value> values_;
};

}  // namespace muster
