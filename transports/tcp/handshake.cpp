#include "transports/tcp/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <string>

#include "base/error.h"

namespace muster::tcp {
namespace {

constexpr uint64_t kChallengeMagic = 0x31636863'70637474, kHelloMagic = 0x316f6c68'70637474, kAnswerMagic = 0x31736e61'70637474;

Bytes32 random_nonce() {
  Bytes32 n;
  if (RAND_bytes(n.data(), static_cast<int>(n.size())) != 1) fail(Result::system_error, "OpenSSL gives no random numbers");
  return n;
}

template <class T>
void add(std::string& text, const T& v) {
  text.append(reinterpret_cast<const char*>(&v), sizeof v);
}

Bytes32 proof_of(const PairKey& key, const Challenge& c, const Hello& h, const Verdict* verdict) {
  std::string said = verdict ? "listener" : "dialer";
  add(said, c.nonce);
  add(said, h.from);
  add(said, h.stream);
  add(said, h.streams);
  add(said, h.nonce);
  if (verdict) add(said, *verdict);
  Bytes32 proof{};
  unsigned bytes = 0;
  HMAC(EVP_sha256(), &key, sizeof key, reinterpret_cast<const unsigned char*>(said.data()), said.size(), proof.data(), &bytes);
  return proof;
}

bool equal(const Bytes32& a, const Bytes32& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

}  // namespace

Challenge make_challenge() { return {kChallengeMagic, random_nonce()}; }

bool is_challenge(const Challenge& c) { return c.magic == kChallengeMagic; }

Hello make_hello(const PairKey& key, const Challenge& c, uint32_t from, uint16_t stream, uint16_t streams) {
  Hello h{kHelloMagic, from, stream, streams, random_nonce(), {}};
  h.proof = proof_of(key, c, h, nullptr);
  return h;
}

bool is_proved(const PairKey& key, const Challenge& c, const Hello& h) {
  return h.magic == kHelloMagic && equal(h.proof, proof_of(key, c, h, nullptr));
}

Answer make_answer(const PairKey& key, const Challenge& c, const Hello& h, Verdict verdict) {
  return {kAnswerMagic, verdict, proof_of(key, c, h, &verdict)};
}

bool is_proved(const PairKey& key, const Challenge& c, const Hello& h, const Answer& a) {
  return a.magic == kAnswerMagic && equal(a.proof, proof_of(key, c, h, &a.verdict));
}

}  // namespace muster::tcp
