// The few cryptographic operations that authentication needs, done by OpenSSL. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

using Digest = std::array<uint8_t, 32>;
using Key = std::array<uint8_t, 32>;
using PublicId = std::array<uint8_t, 16>;

void random_bytes(void* out, size_t bytes);
template <class T>
T random_value() {
  T r;
  random_bytes(&r, sizeof r);
  return r;
}

// Throws system_error when the process is ending.
Digest hmac_sha256(std::string_view key, std::string_view message);
bool process_is_ending();  // nothing can be proved any more, and nobody needs to be told
bool equal_in_constant_time(std::string_view a, std::string_view b);

template <size_t N>
std::string_view view(const std::array<uint8_t, N>& a) {
  return {reinterpret_cast<const char*>(a.data()), N};
}
template <size_t N>
std::array<uint8_t, N> to_array(std::string_view bytes) {  // missing bytes are zero
  std::array<uint8_t, N> r{};
  for (size_t i = 0; i < N && i < bytes.size(); ++i) r[i] = static_cast<uint8_t>(bytes[i]);
  return r;
}

// A name of 16 bytes made of a text: the same text gives the same name everywhere.
inline PublicId name_of_text(std::string_view text) {
  return to_array<16>(view(hmac_sha256("muster name", text)));
}

}  // namespace muster
