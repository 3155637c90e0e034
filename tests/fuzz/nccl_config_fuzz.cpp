// ncclConfig_t and ncclCollConfig_t as a caller of any header might pass them: as many bytes as their size says, and not one
// more is read. The input is which structure it is, which texts there are, and its bytes; what is left out is as the
// initializer has it.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "fuzz.h"
#include "nccl/config.h"

using namespace muster;
using namespace muster::fuzz;

namespace {

// Pointers can't be made up: null or a text.
template <class T>
void set_pointer(std::vector<char>& bytes, size_t offset, T value) {
  if (offset + sizeof value <= bytes.size()) std::memcpy(&bytes[offset], &value, sizeof value);
}

template <class T>
std::vector<char> structure(T defaults, Input& in) {
  const std::string_view given = in.rest();
  std::memcpy(&defaults, given.data(), std::min(given.size(), sizeof defaults));
  size_t size = 0;
  std::memcpy(&size, &defaults, sizeof size);
  // Of what claims to be larger than this header's, no more is read than that; the head is read of all.
  std::vector<char> bytes(std::clamp<size_t>(size, 16, sizeof defaults));
  std::memcpy(bytes.data(), &defaults, bytes.size());
  return bytes;
}

void check_comm(Input& in) {
  static const char text[] = "name";
  const uint8_t texts = in.byte();
  std::vector<char> bytes = structure(ncclConfig_t(NCCL_CONFIG_INITIALIZER), in);
  set_pointer(bytes, offsetof(ncclConfig_t, netName), texts & 1 ? text : nullptr);
  set_pointer(bytes, offsetof(ncclConfig_t, commName), texts & 2 ? text : nullptr);
  const auto* config = reinterpret_cast<const ncclConfig_t*>(bytes.data());
  succeeds_or_throws({Result::invalid_argument}, [&] {
    const Config c = nccl::parse_config(config);
    require(c.name.empty() || c.name == text, "a name is as it was given");
    require(c.min_channels >= 0 && c.min_channels <= 16 && c.max_channels >= 0 && c.max_channels <= 16, "channels that can be");
    require(nccl::parse_config_of_child(config).has_value(), "what is given is taken");
  });
}

void check_call(Input& in) {
  const std::string text(in.line());
  std::vector<char> bytes = structure(ncclCollConfig_t(NCCL_COLLCONFIG_INITIALIZER), in);
  set_pointer(bytes, offsetof(ncclCollConfig_t, ext), static_cast<ncclConfigExt_t*>(nullptr));
  set_pointer(bytes, offsetof(ncclCollConfig_t, algSelection), text.empty() ? nullptr : text.c_str());
  succeeds_or_throws({Result::invalid_argument}, [&] {
    const nccl::AlgorithmWish w = nccl::parse_config(reinterpret_cast<const ncclCollConfig_t*>(bytes.data()));
    require(w.selection == text.c_str(), "a selection is as it was given");
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  if (in.flag())
    check_call(in);
  else
    check_comm(in);
  return 0;
}
