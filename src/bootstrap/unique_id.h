// What the 128 bytes of a UniqueId mean.
#pragma once

#include "bootstrap/address.h"
#include "bootstrap/crypto.h"
#include "muster/muster.h"

namespace muster {

constexpr uint16_t kProtocolVersion = 2;  // of everything that travels between bootstraps

struct IdContent {
  Address root;        // where the ranks meet; kind none: a group of one
  bool fixed = false;  // the address was given by a person: rank 0 listens there while the ranks meet
  uint64_t place = 0;  // of the root, see host.h
  int pid = 0;         // of the root, for messages
  std::string host;    // of the root, for messages; cut at 23 characters
  PublicId public_id{};
  Key key{};
};

UniqueId encode(const IdContent& content);
// Throws invalid_argument for anything that encode didn't make, saying what is wrong with it.
IdContent decode(const UniqueId& id);

// An id that needs no meeting, for a group of one.
UniqueId make_lone_id();
// The id that every rank can make by itself of a fixed meeting point. `identity`: the point as all ranks were
// given it; `secret` may be empty: then whoever knows the point can come.
UniqueId make_fixed_id(const Address& root, std::string_view identity, std::string_view secret,
                       uint32_t generation);

}  // namespace muster
