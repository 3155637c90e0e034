// The options that have a small language of their own: interfaces, families, HOST:PORT, port ranges.
#include <net/if.h>

#include <array>

#include "bootstrap/interfaces.h"
#include "bootstrap/resolve.h"
#include "bootstrap/service.h"
#include "fuzz.h"

using namespace muster;
using namespace muster::fuzz;

namespace {

Address ipv4(uint8_t last) { return {Address::Kind::ipv4, {10, 0, 0, last}}; }
Address ipv6(uint8_t first, uint8_t second) { return {Address::Kind::ipv6, {first, second}}; }

const std::array<Interface, 5> kInterfaces{{
    {"lo", IFF_UP | IFF_RUNNING | IFF_LOOPBACK, {{Address::Kind::ipv4, {127, 0, 0, 1}}}},
    {"eth0", IFF_UP | IFF_RUNNING, {ipv4(1), ipv6(0xfe, 0x80)}},
    {"eth1", IFF_UP | IFF_RUNNING, {ipv6(0x20, 0x01)}},
    {"ib0", IFF_UP, {ipv4(2)}},
    {"docker0", IFF_UP | IFF_RUNNING, {}},
}};

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input in(data, size);
  const uint8_t kind = in.byte() % 3;
  if (kind == 0) {
    const std::string names(in.line()), family(in.line());
    succeeds_or_throws({Result::invalid_usage}, [&] {
      const auto sources = choose_sources(kInterfaces, names, family);
      require(!sources.empty(), "there is always a source");
      for (const Source& s : sources) {
        require(s.interface != "ib0" && s.interface != "docker0", "a source runs and has an address");
        require(family.find("6") == family.npos || s.address.kind != Address::Kind::ipv4,
                "a family is kept to");
      }
    });
  } else if (kind == 1) {
    const std::string text(in.rest());
    succeeds_or_throws({Result::invalid_usage}, [&] {
      const HostPort where = parse_host_port("NCCL_COMM_ID", text);
      require(!where.host.empty() && where.port > 0, "host and port are there");
      require(text.find(where.host) != text.npos, "the host is the text's");
    });
  } else {
    const std::string range(in.rest());
    require(!succeeds_or_throws({Result::invalid_usage, Result::system_error},
                                [&] { Service::get().listen({}, range); }),
            "nowhere to listen is an error");
  }
  return 0;
}
