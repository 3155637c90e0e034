// The greeting, from both ends: whoever doesn't prove that he knows the key gets nowhere, whatever he sends.
#include <sys/socket.h>

#include <atomic>
#include <cstring>

#include "bootstrap/service.h"
#include "bootstrap/unique_id.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

namespace {

const Key kKey = {1, 2, 3};
const PublicId kId = {7};

Deadline soon() { return Deadline::after(std::chrono::seconds(10)); }

// A server that answers before it was asked, so without a proof for this client's nonce.
void try_client(Input in) {
  int ends[2];
  require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
  ProcessFd client(ends[0]), server(ends[1]);
  const bool as_reply = in.flag();
  std::string reply(in.rest());
  if (as_reply) reply.replace(0, kMagicBytes, make_reply(Status::unknown, {}, {}), 0, kMagicBytes);
  if (!reply.empty()) require(send_all(server.get(), reply, soon()) == IoStatus::done, "sent");
  shutdown(server.get(), SHUT_WR);
  const Greeting g = greet(client.get(), {Purpose::join, kId, kKey, 0, 0}, soon());
  require(g.outcome != Greeting::welcome, "no welcome without a proof");
  require(g.outcome != Greeting::silent, "a closed end is noticed");
}

// A client at the door of the process: a hello that may be right, and a proof that is, but for the bits
// given.
void try_server(Input in) {
  static std::atomic<int> arrivals{0};
  static const Address door = [] {
    Service& s = Service::get();
    s.loop().call([&] { s.open({Purpose::join, kId, 0}, kKey, [](Arrival) { ++arrivals; }); });
    return s.listen_local();
  }();
  SocketError error;
  const ProcessFd client = connect_to(door, {}, soon(), error);
  require(static_cast<bool>(client), "connected");
  const int before = arrivals.load();
  bool proved = false;
  if (in.flag()) {
    std::string hello = Writer()
                            .raw(make_reply(Status::unknown, {}, {}).substr(0, kMagicBytes))
                            .u32(kProtocolVersion ^ in.byte())
                            .u32(1u ^ in.byte())
                            .raw(view(kId))
                            .u64(in.byte())
                            .u32(0)
                            .u32(0)
                            .raw(view(Digest{5}))
                            .take();
    std::string reply(kReplyBytes, 0);
    if (send_all(client.get(), hello, soon()) == IoStatus::done &&
        recv_all(client.get(), reply.data(), reply.size(), soon()) == IoStatus::done) {
      const std::string head = reply.substr(0, kReplyBytes - kProofBytes);
      Digest proof = hmac_sha256(view(kKey), Writer().text("muster client").text(hello).text(head).take());
      const Digest right = proof;
      for (size_t i = 0; i < proof.size(); ++i) proof[i] ^= in.byte();
      proved = proof == right && is_proof(kKey, hello, reply, view(right)) && reply[kMagicBytes + 4] == 0;
      send_all(client.get(), view(proof), soon());
    }
  }
  const std::string rest(in.rest());
  send_all(client.get(), rest, soon());  // the server may have closed already
  shutdown(client.get(), SHUT_WR);
  char sink[256];
  while (recv_all(client.get(), sink, 1, soon()) == IoStatus::done) {
  }
  require(arrivals.load() - before == (proved ? 1 : 0), "in comes who proved that he may");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  in.flag() ? try_client(in) : try_server(in);
  return 0;
}
