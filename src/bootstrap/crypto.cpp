#include "bootstrap/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <shared_mutex>

#include "base/error.h"

namespace muster {
namespace {

// OpenSSL clears up when the process exits, under the feet of threads that still connect or serve; also of one that is just
// making it ready. So it is asked not to, and doesn't if nobody had made it ready before. Else ours runs before that, since it
// is registered after: it waits for those that are in OpenSSL, and no other gets in any more.
class UntilExit {
 public:
  UntilExit() : lock_(state().mutex) {
    if (state().ended) fail(Result::system_error, "the process is ending");
  }
  static bool has_ended() { return state().ended; }

 private:
  struct State {
    std::shared_mutex mutex;
    std::atomic<bool> ended{false};
  };
  static State& state() {
    static State* const s = [] {
      OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_LOAD_CRYPTO_STRINGS | OPENSSL_INIT_ADD_ALL_DIGESTS, nullptr);
      std::atexit([] {
        state().ended = true;  // first, so that the lock isn't passed on from reader to reader
        const std::lock_guard wait(state().mutex);
      });
      return new State;  // threads may outlive every static object
    }();
    return *s;
  }
  std::shared_lock<std::shared_mutex> lock_;
};

}  // namespace

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

bool process_is_ending() { return UntilExit::has_ended(); }

Digest hmac_sha256(std::string_view key, std::string_view message) {
  const UntilExit openssl;
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
