// What all networks have in common, over one that delivers in any order: connections, credits, failures, strangers.
#include "transports/wired_network.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "support/program_cases.h"
#include "support/shuffled_network.h"
#include "support/wire_exchange.h"
#include "transports/network_transport.h"

namespace muster {
namespace {

using test::exchange;
using test::kLargest;
using test::ShuffledNetwork;
using test::ShuffledSwitch;

TEST(WiredNetwork, AnySizesArriveInOrderWhateverTheNetworkDoes) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    ShuffledSwitch hub(2);
    bool good[2] = {};
    std::atomic<int> at_work{2};
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r)
      threads.emplace_back([&, r] {
        ShuffledNetwork network(hub, r, 2, seed * 2 + static_cast<unsigned>(r));
        exchange(network, r, 5, 1500, &good[r], &at_work);
      });
    for (auto& t : threads) t.join();
    EXPECT_TRUE(good[0] && good[1]) << "seed " << seed;
  }
}

TEST(WiredNetwork, TwoThreadsOfARankUseItAtOnce) {
  test::ShuffledRanks ranks(2);
  bool good[2][2] = {};
  std::atomic<int> at_work{4};
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r)
    for (int c = 0; c < 2; ++c) threads.emplace_back([&, r, c] { exchange(ranks[r], r, 100 + static_cast<uint64_t>(c), 600, &good[r][c], &at_work); });
  for (auto& t : threads) t.join();
  EXPECT_TRUE(good[0][0] && good[0][1] && good[1][0] && good[1][1]);
}

// One thread drives both ranks.
struct Two {
  test::ShuffledRanks ranks{2};
  ShuffledSwitch& hub = ranks.hub;
  ShuffledNetwork &a = ranks[0], &b = ranks[1];
  WireName name(uint64_t communicator, int peer) { return {communicator, peer, 0, kLargest}; }
};

TEST(WiredNetwork, MessagesMayComeBeforeTheReceiverIsAskedFor) {
  Two two;
  SlotSender& s = two.a.sender(two.name(1, 1), nullptr);
  *s.acquire(1) = std::byte{42};
  s.commit(7, false);
  for (int i = 0; i < 10; ++i) two.a.progress(1), two.b.progress(1);
  SlotReceiver& r = two.b.receiver(two.name(1, 0), nullptr);
  ASSERT_TRUE(r.ready());
  EXPECT_EQ(*r.peek(1), std::byte{42});
}

TEST(WiredNetwork, MessagesForAClosedCommunicatorAreDroppedAndNothingStays) {
  Two two;
  two.b.receiver(two.name(1, 0), nullptr);
  two.b.close(1);
  SlotSender& s = two.a.sender(two.name(1, 1), nullptr);
  std::vector<std::byte> memory(kLargest);
  s.acquire(memory.size());
  s.send_from(memory.data());
  s.commit(7, false);
  two.a.close(1);  // the message is still under way
  for (int i = 0; i < 10; ++i) two.a.progress(2), two.b.progress(2);
  EXPECT_EQ(two.a.ends(), 0u);
  EXPECT_EQ(two.b.ends(), 0u);
}

TEST(WiredNetwork, ADeadPeerIsAnErrorThatNamesItForItsCommunicatorsOnly) {
  ShuffledSwitch hub(3);
  ShuffledNetwork a(hub, 0, 3, 1), b(hub, 1, 3, 2), c(hub, 2, 3, 3);
  SlotSender& s = a.sender({1, 1, 0, kLargest}, nullptr);
  a.receiver({2, 2, 0, kLargest}, nullptr);
  hub.kill(1);
  try {
    for (int i = 0; i < 20; ++i) a.progress(1);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Result::remote_error);
    EXPECT_STREQ(e.what(), "the shuffled connection between rank 0 and rank 1 is lost: its cable was cut (ECONNRESET)");
  }
  s.commit(7, false);  // nobody waits for ever
  EXPECT_EQ(s.sent(), s.committed());
  a.progress(2);
  SlotSender& t = a.sender({2, 2, 0, kLargest}, nullptr);
  t.commit(8, false);
  for (int i = 0; i < 10; ++i) a.progress(2), c.progress(2);
  EXPECT_TRUE(c.receiver({2, 0, 0, kLargest}, nullptr).ready());
  EXPECT_THROW(a.sender({3, 1, 0, kLargest}, nullptr), Error);
}

// Whoever waits looks once more at what came, in the same look or to another thread, before the death is told.
TEST(WiredNetwork, WhatADeadPeerHadSentIsFoundBeforeItsDeathIsTold) {
  for (const bool to_another_thread : {false, true}) {
    ShuffledSwitch hub(2);
    ShuffledNetwork a(hub, 0, 2, 1), b(hub, 1, 2, 2);
    SlotReceiver& r = a.receiver({1, 1, 0, kLargest}, nullptr);
    b.sender({1, 0, 0, kLargest}, nullptr).commit(9, false);
    for (int i = 0; i < 5; ++i) b.progress(1);
    hub.kill(1);
    if (to_another_thread)
      for (int i = 0; i < 20; ++i) a.tend();
    for (int i = 0; i < 20 && !r.ready(); ++i) ASSERT_NO_THROW(a.progress(1)) << to_another_thread;
    if (to_another_thread) {
      EXPECT_TRUE(a.progress(1)) << "what came is to be looked at";
    }
    EXPECT_TRUE(r.ready());
    EXPECT_THROW(
        for (int i = 0; i < 20; ++i) a.progress(1), Error);
  }
}

TEST(WiredNetwork, APeerThatSaidGoodbyeIsNotLost) {
  ShuffledSwitch hub(2);
  ShuffledNetwork a(hub, 0, 2, 1);
  a.receiver({1, 1, 0, kLargest}, nullptr);
  {
    ShuffledNetwork b(hub, 1, 2, 2);
    b.sender({1, 0, 0, kLargest}, nullptr).commit(9, false);
    for (int i = 0; i < 5; ++i) b.progress(1);
  }
  for (int i = 0; i < 10; ++i) a.progress(1);
  hub.kill(1);
  EXPECT_NO_THROW(a.progress(1));
  EXPECT_TRUE(a.receiver({1, 1, 0, kLargest}, nullptr).ready());
}

// What a rank says of its leaving by another way mustn't overtake what it sent.
TEST(WiredNetwork, ADrainedRankHasSentAll) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    test::ShuffledRanks ranks(3, 10 * seed);
    ShuffledNetwork &a = ranks[0], &b = ranks[1], &c = ranks[2];
    b.receiver({1, 0, 0, kLargest}, nullptr);
    SlotReceiver& r = b.receiver({1, 0, 1, kLargest}, nullptr);
    SlotSender& few = a.sender({1, 1, 0, kLargest}, nullptr);
    SlotSender& many = a.sender({1, 1, 1, kLargest}, nullptr);
    few.commit(1, false);
    for (int i = 0; i < 20; ++i) many.commit(8, false);
    a.sender({1, 2, 0, kLargest}, nullptr).commit(1, false);
    a.sender({2, 2, 0, kLargest}, nullptr).commit(1, false);  // of another communicator
    c.close(1);  // this peer has left before
    std::atomic<bool> drained{false};
    std::thread leaver([&] {
      a.drain(1);
      drained = true;
    });
    while (!drained) {
      b.tend();
      c.tend();
    }
    leaver.join();
    int come = 0;
    for (; r.ready(); ++come) r.release();
    EXPECT_EQ(come, 20) << "seed " << seed;
    EXPECT_TRUE(b.receiver({1, 0, 0, kLargest}, nullptr).ready());
  }
}

TEST(WiredNetwork, NobodyWaitsToDrainIntoADeadPeer) {
  ShuffledSwitch hub(2);
  ShuffledNetwork a(hub, 0, 2, 1);
  a.sender({1, 1, 0, kLargest}, nullptr).commit(9, false);
  hub.kill(1);
  a.drain(1);
}

TEST(WiredNetwork, StrangersMessagesAreDropped) {
  Two two;
  SlotReceiver& r = two.b.receiver(two.name(1, 0), nullptr);
  WireHeader h{};
  h.communicator = 1;
  h.kind = WireKind::message;
  h.slot_bytes = kLargest;
  h.number = 1;
  h.secret = test::network_setup(0, 2).secret(1, 0);  // of the other direction
  two.hub.put(1, {h, {}});
  h.from = 17;  // no such rank
  two.hub.put(1, {h, {}});
  for (int i = 0; i < 10; ++i) two.b.progress(1);
  EXPECT_FALSE(r.ready());
  EXPECT_EQ(two.b.strangers(), 2u);
  EXPECT_EQ(two.b.ends(), 1u);
}

TEST(WiredNetwork, APlaceOutsideTheRingIsAnErrorAndNothingIsWritten) {
  Two two;
  two.b.receiver(two.name(1, 0), nullptr);
  WireHeader h{};
  h.communicator = 1;
  h.kind = WireKind::message;
  h.slot_bytes = kLargest;
  h.number = 1;
  h.bytes = 64;
  h.offset = WireEnd::ring_bytes_for(kLargest) - 63;
  h.secret = test::network_setup(0, 2).secret(0, 1);
  two.hub.put(1, {h, std::vector<std::byte>(64)});
  EXPECT_THROW(for (int i = 0; i < 10; ++i) two.b.progress(1), Error);
}

TEST(WiredNetwork, AWaitThatFailedEndsWhenNoUserMemoryIsReadAnyMore) {
  Two two;
  SlotSender& s = two.a.sender(two.name(1, 1), nullptr);
  std::vector<std::byte> memory(kLargest);
  s.acquire(memory.size());
  s.send_from(memory.data());
  s.commit(7, false);
  two.a.settle(1);
  EXPECT_EQ(s.sent(), 1u);
}

TEST(WiredNetwork, ARankWithoutAnAddressIsAnErrorThatSaysSo) {
  ShuffledSwitch hub(2);
  ShuffledNetwork a(hub, 0, 2, 1);
  a.meet({"here", ""});
  EXPECT_THROW(a.receiver({1, 1, 0, kLargest}, nullptr), Error);
}

// Programs run over it as over shared memory, and nobody overwrites what is still to be sent.
class Programs : public testing::TestWithParam<int> {};

TEST_P(Programs, AreExactOverAnyNetwork) {
  const Algorithm& a = algorithms()[static_cast<size_t>(GetParam())];
  for (const int n : {2, 3})
    for (const size_t count : {size_t{1}, size_t{64}, size_t{5000}})
      for (const bool in_place : {false, true})
        for (const int channels : {1, 2}) {
          if (a.whole && (channels > 1 || count > 100)) continue;
          const int root = rooted(a.coll) ? n - 1 : 0;
          SCOPED_TRACE(testing::Message() << name_of(a.coll) << " " << a.name << ", " << n << " ranks, count " << count
                                          << (in_place ? ", in place" : "") << ", channels " << channels);
          test::ShuffledRanks networks(n);
          std::vector<int> ranks(static_cast<size_t>(n));
          for (int r = 0; r < n; ++r) ranks[static_cast<size_t>(r)] = r;
          test::run_case({&a, n, count, root, in_place, channels, a.whole ? size_t{4096} : size_t{1024}}, [&](int r) {
            return std::make_unique<NetworkTransport>(networks[r], 7, ranks, NetworkTransport::Lanes{2, 4096, 4096}, nullptr);
          });
          if (testing::Test::HasFatalFailure()) return;
        }
}

// All but those that use windows, which hosts don't share.
std::vector<int> without_windows() {
  std::vector<int> numbers;
  for (size_t i = 0; i < algorithms().size(); ++i)
    if (!algorithms()[i].windows) numbers.push_back(static_cast<int>(i));
  return numbers;
}

INSTANTIATE_TEST_SUITE_P(All, Programs, testing::ValuesIn(without_windows()), [](const auto& param) {
  const Algorithm& a = algorithms()[static_cast<size_t>(param.param)];
  return std::string(name_of(a.coll)) + "_" + a.name;
});

}  // namespace
}  // namespace muster
