// How two ranks prove to each other who they are, before a connection carries anything. Their secrets are never sent.
//
//   listener -> challenge: magic, nonce                                              40 bytes
//   dialer   -> hello: magic, rank, number of the stream, of how many, nonce, HMAC-SHA256    80 bytes
//   listener -> answer: magic, verdict, HMAC-SHA256                                  48 bytes
//
// The key is the two secrets of the pair. Either HMAC is over both nonces and all that is said.
#pragma once

#include <array>
#include <cstdint>

namespace muster::tcp {

using Bytes32 = std::array<uint8_t, 32>;

struct PairKey {
  uint64_t from_dialer, to_dialer;
};

struct Challenge {
  uint64_t magic;
  Bytes32 nonce;
};

struct Hello {
  uint64_t magic;
  uint32_t from;             // rank
  uint16_t stream, streams;  // number among those that the dialer makes, and how many these are
  Bytes32 nonce;
  Bytes32 proof;
};
static_assert(sizeof(Hello) == 80);

enum class Verdict : uint64_t {
  welcome = 0,
  crossed = 1,  // the listener is dialing, too, and its connection counts
  lost = 2,     // the listener has given up this rank
};

struct Answer {
  uint64_t magic;
  Verdict verdict;
  Bytes32 proof;
};
static_assert(sizeof(Answer) == 48);

Challenge make_challenge();
bool is_challenge(const Challenge& challenge);
Hello make_hello(const PairKey& key, const Challenge& challenge, uint32_t from, uint16_t stream, uint16_t streams);
bool is_proved(const PairKey& key, const Challenge& challenge, const Hello& hello);
Answer make_answer(const PairKey& key, const Challenge& challenge, const Hello& hello, Verdict verdict);
bool is_proved(const PairKey& key, const Challenge& challenge, const Hello& hello, const Answer& answer);

}  // namespace muster::tcp
