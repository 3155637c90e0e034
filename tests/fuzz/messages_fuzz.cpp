// The messages between a rank and the root: what is taken is what is written again.
#include "bootstrap/root.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  const uint8_t kind = in.byte() % 3;
  const std::string_view message = in.rest();
  if (kind == 0) {
    if (const auto join = Join::decode(message)) {
      require(join->encode() == message, "a join is written as it was read");
      require(join->rank >= 0 && join->rank < join->nranks, "a rank is one of nranks");
    }
  } else if (kind == 1) {
    if (const auto answer = Answer::decode(message)) {
      std::string again = answer->encode();
      if (answer->code == Result::internal_error)
        again.replace(0, 4, message.substr(0, 4));  // also for unknown codes
      require(again == message, "an answer is written as it was read");
      require(answer->code != Result::in_progress && *name_of(answer->code) != '?', "a code is known");
    }
  } else {
    Reader r(message);
    const Address a = Address::read(r);
    if (r.ok()) {
      Writer w;
      a.write(w);
      require(message.starts_with(w.take()), "an address is written as it was read");
      socklen_t length = 0;
      const sockaddr_storage s = a.to_sockaddr(&length);
      require(length <= sizeof s && (length == 0) == (a.kind == Address::Kind::none), "a length fits");
      require(!a.text().empty() && !a.host_text().empty(), "an address has a text");
      if (a.kind == Address::Kind::ipv4 ||
          (a.kind == Address::Kind::ipv6 && (a.scope == 0 || a.is_link_local()))) {
        const Address back = Address::from_sockaddr(reinterpret_cast<const sockaddr*>(&s));
        require(back.port == a.port && back.host_text().starts_with(a.host_text().substr(0, 3)),
                "a socket address comes back");
      }
    }
  }
  return 0;
}
