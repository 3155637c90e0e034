// How a message between GPUs says that it is there.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace muster {

// By a flag in each 8 bytes (ll) or 128 (ll128), or by a counter after it.
enum class Protocol : uint8_t { ll, ll128, simple };
inline constexpr Protocol kProtocols[] = {Protocol::ll, Protocol::ll128, Protocol::simple};
const char* name_of(Protocol p);  // "LL", "LL128", "simple"

// Those that a list leaves: names separated by commas, in any case; with ^ in front all but these; all where
// it is empty. Throws invalid_argument for a word that is no protocol's, and where none is left.
std::vector<Protocol> protocols_of(std::string_view list);

}  // namespace muster
