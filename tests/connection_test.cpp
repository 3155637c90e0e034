// A connection's lines: messages of any sizes, packed or not, arrive whole and in order, however far the sender is ahead.
#include "transports/connection.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace muster {
namespace {

constexpr size_t kLargest = 4096;

struct Message {
  uint64_t number;
  size_t bytes;
  bool pack;
};

// Words that look like the sequence words of messages to come: what a payload holds must never be taken for one.
void fill(std::byte* at, size_t bytes, uint64_t number) {
  for (size_t i = 0; i < bytes; ++i) {
    const uint64_t word = 2 * (number + 1 + i / 8);
    at[i] = static_cast<std::byte>(word >> (8 * (i % 8)));
  }
}

bool holds(const std::byte* at, size_t bytes, uint64_t number) {
  std::vector<std::byte> expected(bytes);
  fill(expected.data(), bytes, number);
  return bytes == 0 || std::memcmp(at, expected.data(), bytes) == 0;
}

struct Pair {
  std::unique_ptr<ConnectionLines> lines = std::make_unique<ConnectionLines>();
  std::vector<std::byte> data = std::vector<std::byte>(ByteRing::bytes_for(kLargest));
  Doorbell to_receiver{}, to_sender{};
  SlotSender sender{lines.get(), data.data(), kLargest, &to_receiver};
  SlotReceiver receiver{lines.get(), data.data(), kLargest, &to_sender};

  void send(const Message& m) {
    if (m.bytes) fill(sender.acquire(m.bytes), m.bytes, m.number);  // a token is not acquired
    sender.commit(m.number * 77, m.pack);
  }
  void receive(const Message& m) {
    ASSERT_TRUE(receiver.ready()) << "message " << m.number << " of " << m.bytes << " bytes";
    ASSERT_EQ(receiver.fingerprint(), m.number * 77);
    if (m.bytes) {
      const std::byte* at = receiver.peek(m.bytes);
      ASSERT_TRUE(holds(at, m.bytes, m.number)) << "message " << m.number << " of " << m.bytes << " bytes";
    }
    receiver.release();
  }
};

Message draw(std::mt19937& random, uint64_t number) {
  static constexpr size_t kSizes[] = {0, 1, 8, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 1000, kLargest};
  const size_t bytes = kSizes[random() % std::size(kSizes)];
  return {number, bytes, bytes <= kHalfBytes && random() % 4 != 0};
}

TEST(Connection, AnySizesInOrderHoweverFarAhead) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    Pair pair;
    std::deque<Message> under_way;
    uint64_t number = 0;
    for (int step = 0; step < 20'000; ++step) {
      const bool send = random() % (seed % 3 + 2) != 0;
      if (send && pair.sender.ready()) {
        under_way.push_back(draw(random, ++number));
        pair.send(under_way.back());
      } else if (!under_way.empty()) {
        ASSERT_NO_FATAL_FAILURE(pair.receive(under_way.front())) << "seed " << seed;
        under_way.pop_front();
      } else {
        ASSERT_FALSE(pair.receiver.ready()) << "seed " << seed << ": a message that nobody sent";
      }
    }
    EXPECT_GT(number, 1000u);
  }
}

TEST(Connection, HoldsEnoughMessagesOfEachSize) {
  for (const size_t bytes : {size_t{0}, size_t{8}, kHalfBytes, kHalfBytes + 1, kInlineBytes, kInlineBytes + 1, kLargest})
    for (const bool pack : {false, true}) {
      if (pack && bytes > kHalfBytes) continue;
      Pair pair;
      uint64_t sent = 0, received = 0;
      for (int lap = 0; lap < 5; ++lap) {
        const uint64_t before = sent;
        for (; pair.sender.ready(); ++sent) pair.send({sent + 1, bytes, pack});
        if (lap == 0) {
          EXPECT_GE(sent, pack ? kHalves - kMostHalves : kSlots - 1) << bytes << " bytes";
        }
        EXPECT_GT(sent, before) << bytes << " bytes: no credit after all were received";
        while (received < sent) {
          ++received;
          ASSERT_NO_FATAL_FAILURE(pair.receive({received, bytes, pack}));
        }
      }
    }
}

TEST(Connection, TwoShortMessagesShareALineOnlyWhenToldSo) {
  Pair packed, apart;
  for (uint64_t n = 1; n <= 4; ++n) {
    packed.send({n, 8, true});
    apart.send({n, 8, false});
  }
  EXPECT_NE(packed.lines->slots[1].sequence[0].load(), 0u);
  EXPECT_EQ(packed.lines->slots[2].sequence[0].load(), 0u);
  EXPECT_NE(apart.lines->slots[3].sequence[0].load(), 0u);
}

TEST(Connection, BetweenThreads) {
  Pair pair;
  constexpr uint64_t kMessages = 200'000;
  std::thread sender([&] {
    std::mt19937 random(7);
    for (uint64_t n = 1; n <= kMessages; ++n) {
      const Message m = draw(random, n);
      while (!pair.sender.ready()) std::this_thread::yield();
      pair.send(m);
    }
  });
  std::mt19937 random(7);
  bool good = true;
  for (uint64_t n = 1; n <= kMessages; ++n) {
    const Message m = draw(random, n);
    while (!pair.receiver.ready()) std::this_thread::yield();
    good = good && pair.receiver.fingerprint() == n * 77 && (m.bytes == 0 || holds(pair.receiver.peek(m.bytes), m.bytes, n));
    pair.receiver.release();
  }
  sender.join();
  EXPECT_TRUE(good);
}

}  // namespace
}  // namespace muster
