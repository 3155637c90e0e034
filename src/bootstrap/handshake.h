// How two processes prove to each other that they know an id's key, before either believes a byte of the
// other.
//
//   client -> hello: magic, version, purpose, public id, token, rank, nonce          80 bytes
//   server -> reply: magic, version, status, nonce, HMAC(key, "server", all before)  80 bytes
//   client -> proof: HMAC(key, "client", all before)                                 32 bytes
//
// Roles are part of what is proved, so that neither's proof can be played back as the other's. What is wrong
// with a hello (another version, an id that nobody waits for) is answered without a proof: such an answer is
// a hint, not a fact.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "bootstrap/crypto.h"
#include "bootstrap/interfaces.h"
#include "bootstrap/socket.h"
#include "muster/types.h"

namespace muster {

enum class Purpose : uint32_t { join = 1, ring = 2, descriptors = 3, meet = 4, tree = 5 };

struct Hello {
  Purpose purpose = Purpose::join;
  PublicId id{};
  uint64_t token = 0;  // tells endpoints of one id and purpose apart
  uint32_t rank = 0;   // the client's
  Digest nonce{};
};

enum class Status : uint32_t { welcome = 0, other_version = 1, unknown = 2 };

constexpr size_t kHelloBytes = 80;
constexpr size_t kReplyBytes = 80;
constexpr size_t kProofBytes = 32;
constexpr size_t kMagicBytes = 8;

bool begins_as_hello(std::string_view first_bytes);  // up to kMagicBytes of them
struct ParsedHello {
  uint32_t version = 0;
  Hello hello;
};
ParsedHello parse_hello(std::string_view hello);
std::string make_reply(Status status, const Key& key, std::string_view hello);
bool is_proof(const Key& key, std::string_view hello, std::string_view reply, std::string_view proof);
// A secret of this connection alone, known to both ends.
Digest session_secret(const Key& key, std::string_view hello, std::string_view reply);

// What a client says of itself, and whom it wants.
struct Credentials {
  Purpose purpose = Purpose::join;
  PublicId id{};
  Key key{};
  uint64_t token = 0;
  uint32_t rank = 0;
};

struct Greeting {
  enum Outcome { welcome, other_version, unknown, wrong_key, silent, closed, stranger } outcome = closed;
  uint32_t version = 0;  // the server's, for other_version
  Digest secret{};       // for welcome
};
const char* explain(Greeting::Outcome outcome);  // for those that aren't welcome
// The client's side in parts.
std::string make_hello(const Credentials& credentials);
Greeting judge_reply(const Credentials& credentials, std::string_view hello, std::string_view reply);
Digest make_proof(const Key& key, std::string_view hello, std::string_view reply);
// All of it, on a connected non-blocking socket.
Greeting greet(int fd, const Credentials& credentials, Deadline deadline);

struct Connection {
  ProcessFd fd;
  Digest secret{};
  std::string hindrance;  // why the attempt before the one that worked did not; empty: the first worked
};
struct DialPolicy {
  std::string whom;  // for messages: "the root of the unique id (host h, pid 7)"
  std::string remedy;
  int refusals = 0;  // ends after so many refused connections in a row; 0: only the deadline ends it
  Result code = Result::timeout;
};
// Connects and greets, again and again with growing pauses, until it works or can't any more. Throws with the
// address, the number of attempts, the last reason, and the remedy.
Connection dial(const Address& target, const Source& source, const Credentials& credentials,
                Deadline deadline, const DialPolicy& policy);

// Growing, random pauses between attempts, so that many ranks don't knock in step.
class Backoff {
 public:
  void pause(Deadline deadline);

 private:
  std::chrono::milliseconds next_{5};
};

}  // namespace muster
