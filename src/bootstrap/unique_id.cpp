#include "bootstrap/unique_id.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "bootstrap/host.h"

namespace muster {
namespace {

constexpr std::string_view kIdMagic{"\x8dMuster\n", 8};
constexpr size_t kHostBytes = 24;
constexpr size_t kChecksumBytes = 8;
constexpr size_t kCheckedBytes = sizeof(UniqueId) - kChecksumBytes;
constexpr uint16_t kFixed = 1;

std::string_view bytes_of(const UniqueId& id) { return {id.internal, sizeof id.internal}; }
std::string checksum(std::string_view checked) {
  return std::string(view(hmac_sha256("muster id", checked)).substr(0, kChecksumBytes));
}

}  // namespace

UniqueId encode(const IdContent& c) {
  std::string host = c.host.substr(0, kHostBytes - 1);
  host.resize(kHostBytes);
  Writer w;
  w.raw(kIdMagic).u16(kProtocolVersion).u8(c.fixed ? kFixed : 0);
  c.root.write(w);
  w.u64(c.place).u32(static_cast<uint32_t>(c.pid)).raw(host).raw(view(c.public_id)).raw(view(c.key));
  std::string all = w.take();
  if (all.size() > kCheckedBytes)
    fail(Result::internal_error, "a unique id needs {} bytes, {} is the most", all.size(), kCheckedBytes);
  all.resize(kCheckedBytes);
  all += checksum(all);
  UniqueId id;
  std::memcpy(id.internal, all.data(), sizeof id.internal);
  return id;
}

IdContent decode(const UniqueId& id) {
  constexpr const char* remedy =
      "Pass all 128 bytes that make_unique_id returned on one rank, unchanged, to every rank";
  const std::string_view all = bytes_of(id);
  if (std::all_of(all.begin(), all.end(), [](char c) { return c == 0; }))
    fail(Result::invalid_argument, "the unique id is all zeros: it was never filled in. {}", remedy);
  Reader r(all);
  if (r.raw(kIdMagic.size()) != kIdMagic)
    fail(Result::invalid_argument, "the unique id is garbage: it doesn't begin as one. {}", remedy);
  if (const uint16_t version = r.u16(); version != kProtocolVersion)
    fail(
        Result::invalid_argument,
        "the unique id is of bootstrap protocol {}, this process speaks {}. Use the same Muster on all ranks",
        version, kProtocolVersion);
  if (!equal_in_constant_time(checksum(all.substr(0, kCheckedBytes)), all.substr(kCheckedBytes)))
    fail(Result::invalid_argument,
         "the unique id is damaged or was read half-written (its checksum is wrong). {}", remedy);
  IdContent c;
  c.fixed = r.u8() == kFixed;
  c.root = Address::read(r);
  c.place = r.u64();
  c.pid = static_cast<int>(r.u32());
  const std::string host(r.raw(kHostBytes));
  c.host = host.c_str();
  c.public_id = to_array<16>(r.raw(16));
  c.key = to_array<32>(r.raw(32));
  if (!r.ok() || bytes_of(encode(c)) != all)
    fail(Result::invalid_argument, "the unique id holds what no Muster writes. {}", remedy);
  return c;
}

UniqueId make_lone_id() {
  const Host host = this_host();
  return encode({{}, false, host.place, host.pid, host.name, random_value<PublicId>(), random_value<Key>()});
}

UniqueId make_fixed_id(const Address& root, std::string_view identity, std::string_view secret,
                       uint32_t generation) {
  IdContent c;
  c.root = root;
  c.fixed = true;
  const std::string all = Writer().text("muster fixed id").text(identity).u32(generation).take();
  c.public_id = name_of_text(all);
  c.key = hmac_sha256(secret, all);
  return encode(c);
}

}  // namespace muster
