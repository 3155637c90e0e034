// The small readers of typed text.
#include "base/text.h"

#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = Input(data, size).rest();
  if (const auto n = parse_c_integer(text))
    require(parse_c_integer(std::to_string(*n)) == n, "a number is written and read again");
  require(trim(trim(text)) == trim(text) && lower(lower(text)) == lower(text), "once is enough");
  const std::string shown = printable(text, 64);
  require(shown.size() <= 64 + 3, "what is shown is short");
  for (const char c : shown)
    require(static_cast<unsigned char>(c) >= ' ', "what is shown has no control characters");
  std::string joined;
  for (const std::string_view part : split(text, ',')) joined += std::string(part) + ',';
  require(joined == std::string(text) + ',', "the parts are the whole");
  const std::string_view names[] = {"NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "MUSTER_ALGO"};
  const std::string_view near = nearest_name(text, names);
  require(near.empty() || (near.size() + 8 > text.size() && text.size() + 8 > near.size()),
          "a near name is about as long");
  for (const std::string_view name : names)
    require(nearest_name(name, names) == name, "a name is nearest to itself");
  return 0;
}
