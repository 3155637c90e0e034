#include "text.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>

namespace train {

Text::Text(const std::string& path, size_t context) : context_(context) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": " + std::strerror(errno));
  for (auto c = std::istreambuf_iterator<char>(in); c != std::istreambuf_iterator<char>(); ++c)
    bytes_.push_back(static_cast<uint8_t>(*c) & 127);
  if (bytes_.size() < context + 1)
    throw std::runtime_error(path + " has " + std::to_string(bytes_.size()) +
                             " bytes: a sequence and its last target are " + std::to_string(context + 1));
}

Text::Batch Text::batch(uint64_t seed, size_t step, size_t first, size_t count) const {
  Batch b;
  for (size_t i = first; i < first + count; ++i) {
    std::seed_seq mixed{seed, static_cast<uint64_t>(step), static_cast<uint64_t>(i)};
    std::mt19937_64 random(mixed);
    const size_t begin = random() % (bytes_.size() - context_);
    b.tokens.insert(b.tokens.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin),
                    bytes_.begin() + static_cast<std::ptrdiff_t>(begin + context_));
    b.targets.insert(b.targets.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin + 1),
                     bytes_.begin() + static_cast<std::ptrdiff_t>(begin + context_ + 1));
  }
  return b;
}

}  // namespace train
