#include "bootstrap/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include "base/error.h"

namespace muster {

void random_bytes(void* out, size_t bytes) {
  auto* p = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t n = getrandom(p, bytes, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(errno, "getrandom");
    p += n;
    bytes -= static_cast<size_t>(n);
  }
}

Digest hmac_sha256(std::string_view key, std::string_view message) {
  Digest r;
  unsigned length = 0;
  if (!HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
            reinterpret_cast<const unsigned char*>(message.data()), message.size(), r.data(), &length) ||
      length != r.size())
    fail(Result::internal_error,
         "OpenSSL can't compute HMAC-SHA256; is SHA-256 disabled in its configuration?");
  return r;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace muster
