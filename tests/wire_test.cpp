// What comes from other ranks and hosts is taken only as it was written: nothing missing, nothing added,
// nothing that no writer makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "bootstrap/root.h"
#include "bootstrap/unique_id.h"
#include "comm/card.h"
#include "support/outcome.h"

namespace muster {
namespace {

using testing::HasSubstr;

Address ipv4() { return {Address::Kind::ipv4, {10, 1, 2, 3}, 4711, 0}; }
Join join() { return {3, 8, 0x1122334455667788, ipv4(), {"host", 42, 7}, 1000, "0.1.0"}; }

Answer answer() {
  Answer a;
  a.communicator_id = 99;
  a.next = ipv4();
  a.next_token = 5;
  a.next_host = {"next", 1, 2};
  a.prev_host = {"prev", 3, 4};
  return a;
}

// No prefix of `whole` is taken, nor `whole` with something behind it.
template <class Decode>
void expect_taken_only_whole(const std::string& whole, Decode decode) {
  EXPECT_TRUE(decode(whole));
  for (size_t n = 0; n < whole.size(); ++n) EXPECT_FALSE(decode(whole.substr(0, n))) << n << " bytes";
  EXPECT_FALSE(decode(whole + '\0'));
}

TEST(Wire, IntegersAndTextsComeBack) {
  const std::string bytes = Writer()
                                .u8(255)
                                .u16(65535)
                                .u32(1)
                                .u64(1ull << 63)
                                .i32(-2)
                                .text("")
                                .text(std::string_view("a\0b", 3))
                                .take();
  Reader r(bytes);
  EXPECT_EQ(r.u8(), 255);
  EXPECT_EQ(r.u16(), 65535);
  EXPECT_EQ(r.u32(), 1u);
  EXPECT_EQ(r.u64(), 1ull << 63);
  EXPECT_EQ(r.i32(), -2);
  EXPECT_EQ(r.text(), "");
  EXPECT_FALSE(r.at_end());
  EXPECT_EQ(r.text(), std::string("a\0b", 3));
  EXPECT_TRUE(r.ok());
  EXPECT_TRUE(r.at_end());
}

TEST(Wire, PastTheEndEverythingIsEmpty) {
  Reader r(std::string_view("\xff\xff\xff\xff", 4));
  EXPECT_EQ(r.text(), "");  // of 4 GiB, it says
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.u8(), 0);
  EXPECT_FALSE(r.ok());
}

TEST(Join, IsTakenOnlyWhole) {
  expect_taken_only_whole(join().encode(), [](const std::string& m) { return Join::decode(m).has_value(); });
}

TEST(Join, NumbersThatFitNoGroupAreRefused) {
  constexpr int kInt = std::numeric_limits<int>::max();
  for (const auto& [rank, nranks] :
       {std::pair{-1, 8}, {8, 8}, {0, 0}, {0, -1}, {0, (1 << 20) + 1}, {kInt, kInt}, {-kInt - 1, kInt}}) {
    Join j = join();
    j.rank = rank;
    j.nranks = nranks;
    EXPECT_FALSE(Join::decode(j.encode())) << rank << " of " << nranks;
  }
}

// They go into messages to all ranks, which have a limit.
TEST(Join, EndlessNamesAreRefused) {
  Join j = join();
  j.host.name.assign(255, 'h');
  j.version.assign(255, 'v');
  EXPECT_TRUE(Join::decode(j.encode()));
  j.host.name += 'h';
  EXPECT_FALSE(Join::decode(j.encode()));
  j = join();
  j.version.assign(1 << 20, 'v');
  EXPECT_FALSE(Join::decode(j.encode()));
}

TEST(Answer, IsTakenOnlyWhole) {
  expect_taken_only_whole(answer().encode(),
                          [](const std::string& m) { return Answer::decode(m).has_value(); });
}

TEST(Answer, AnErrorIsNeverASuccess) {
  for (const int code : {-1, 7, 9, 1000, std::numeric_limits<int>::min()}) {
    Answer a = answer();
    a.code = static_cast<Result>(code);
    const auto taken = Answer::decode(a.encode());
    ASSERT_TRUE(taken);
    EXPECT_EQ(taken->code, Result::internal_error) << code;
  }
}

TEST(ErrorCode, NumbersOfErrorsAreTaken) {
  for (const int code : {1, 2, 3, 4, 5, 6, 8}) EXPECT_EQ(error_code(code), static_cast<Result>(code));
  EXPECT_EQ(error_code(0), Result::internal_error);
}

TEST(Address, UnknownKindsAreRefused) {
  for (int kind = 0; kind < 256; ++kind) {
    Address a = ipv4();
    a.kind = static_cast<Address::Kind>(kind);
    Writer w;
    a.write(w);
    const std::string bytes = w.take();
    Reader r(bytes);
    const Address back = Address::read(r);
    EXPECT_EQ(r.ok(), kind == 0 || kind == 1 || kind == 4 || kind == 6) << kind;
    if (r.ok()) {
      EXPECT_EQ(back, a);
    }
  }
}

// The checksum holds no secret: a right one doesn't mean that the rest is right.
TEST(UniqueId, RightChecksumOverWhatNoOneWritesIsRefused) {
  IdContent content;
  content.root = ipv4();
  content.host = "host";
  const UniqueId good = encode(content);
  EXPECT_EQ(decode(good).root, ipv4());
  const auto with = [&](size_t at, char value) {
    UniqueId id = good;
    id.internal[at] = value;
    const std::string sum(view(hmac_sha256("muster id", {id.internal, 120})).substr(0, 8));
    sum.copy(id.internal + 120, 8);
    return id;
  };
  constexpr size_t kFlags = 10, kKind = 11, kHost = 11 + 23 + 12, kHostBytes = 24, kLast = 119;
  EXPECT_NO_THROW(decode(with(kHost, 'H')));
  for (const auto& [at, value] :
       {std::pair{kFlags, 2}, {kKind, 5}, {kHost + kHostBytes - 1, 'x'}, {kLast, 1}}) {
    const auto o =
        test::outcome_of([&, at = at, value = value] { decode(with(at, static_cast<char>(value))); });
    EXPECT_EQ(o.code, Result::invalid_argument) << at;
    EXPECT_THAT(o.text, HasSubstr("Pass all 128 bytes")) << at;
  }
}

TEST(Card, TextsOfAnyBytesComeBack) {
  Card c;
  c.set("host", std::string("a\nhost\tb\n"));
  c.set("=MUSTER_ALGO", std::string("ring\n=MUSTER_CHECK\t1"));
  c.set("", std::string("\0\t\n", 3));
  c.set("pid", -5);
  EXPECT_EQ(Card::read(c.write()).fields(), c.fields());
  EXPECT_EQ(Card::read(c.write()).number<int>("pid"), -5);
  EXPECT_TRUE(Card::read("").fields().empty());
}

TEST(Card, IsTakenOnlyWhole) {
  Card c;
  c.set("pid", 5);
  const std::string whole = c.write();
  for (size_t n = 1; n < whole.size(); ++n)
    EXPECT_EQ(test::outcome_of([&] { Card::read(whole.substr(0, n)); }).code, Result::internal_error) << n;
  EXPECT_EQ(test::outcome_of([&] { Card::read(whole + whole); }).code, Result::internal_error);  // twice
}

TEST(Card, WhatIsMissingOrNoNumberIsNamed) {
  Card c;
  c.set("pid", std::string("12x"));
  EXPECT_THAT(test::outcome_of([&] { c.number("pid"); }).text, HasSubstr("pid='12x'"));
  EXPECT_THAT(test::outcome_of([&] { c.number("cache"); }).text, HasSubstr("lacks cache"));
}

}  // namespace
}  // namespace muster
