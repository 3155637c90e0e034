// The text that is learned: bytes of a file, and which of them belong to which step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace train {

class Text {
 public:
  // Throws std::runtime_error where the file can't be read or is shorter than a sequence and its last target.
  Text(const std::string& path, size_t context);

  // Sequences [first, first + count) of a step, one behind the other: any rank finds those of any other.
  struct Batch {
    std::vector<uint8_t> tokens, targets;
  };
  Batch batch(uint64_t seed, size_t step, size_t first, size_t count) const;

 private:
  const size_t context_;
  std::vector<uint8_t> bytes_;  // ASCII
};

}  // namespace train
