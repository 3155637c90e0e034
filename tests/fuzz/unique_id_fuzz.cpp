// Unique ids: only what encode() makes is taken, whatever its checksum.
#include <cstring>

#include "bootstrap/unique_id.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

namespace {

void try_decode(const UniqueId& id) {
  succeeds_or_throws({Result::invalid_argument}, [&] {
    const IdContent content = decode(id);
    const UniqueId again = encode(content);
    require(std::memcmp(again.internal, id.internal, sizeof id.internal) == 0,
            "an id is written as it was read");
    require(content.host.size() < 24, "a host name is short");
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  UniqueId id{};
  std::memcpy(id.internal, data, std::min(size, sizeof id.internal));
  try_decode(id);
  // The same with what only chance could find made right: beginning, version and checksum.
  constexpr size_t kHead = 10, kSum = 8;
  std::memcpy(id.internal, encode({}).internal, kHead);
  const std::string_view all(id.internal, sizeof id.internal);
  const Digest sum = hmac_sha256("muster id", all.substr(0, all.size() - kSum));
  std::memcpy(id.internal + all.size() - kSum, sum.data(), kSum);
  try_decode(id);
  return 0;
}
