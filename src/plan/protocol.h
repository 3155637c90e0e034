// How a message between GPUs says that it is there.
#pragma once

#include <cstdint>

namespace muster {

// By a flag in each 8 bytes (ll) or 128 (ll128), or by a counter after it.
enum class Protocol : uint8_t { ll, ll128, simple };
inline constexpr Protocol kProtocols[] = {Protocol::ll, Protocol::ll128, Protocol::simple};
const char* name_of(Protocol p);  // "LL", "LL128", "simple"

}  // namespace muster
