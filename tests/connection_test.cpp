// A connection's lines: messages of any sizes, packed or not, arrive whole and in order, however far the sender is ahead.
#include "transports/connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace muster {
namespace {

constexpr size_t kLargest = 16384;

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
  bool more = true;           // memory can be had
  std::vector<size_t> asked;  // for so many bytes
  SlotSender sender{lines.get(), data.data(), kLargest, &to_receiver, [this](size_t bytes) {
                      asked.push_back(bytes);
                      return more;
                    }};
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

// Of the first third of the messages none is longer than 1 KiB, of the second none than 8 KiB: then the ring grows under way.
Message draw(std::mt19937& random, uint64_t number, uint64_t last) {
  static constexpr size_t kSizes[] = {0, 1, 8, 15, 16, 17, 24, 31, 32, 33, 48, 64, 65, 1000, 1024, 1025, 5000, 8192, 8193, kLargest};
  const size_t kinds = number * 3 < last ? 15 : number * 3 < 2 * last ? 18 : std::size(kSizes);
  const size_t bytes = kSizes[random() % kinds];
  return {number, bytes, bytes <= kHalfBytes && random() % 4 != 0};
}

TEST(Connection, AnySizesInOrderHoweverFarAhead) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    Pair pair;
    std::deque<Message> under_way;
    uint64_t number = 0;
    for (int step = 0; step < 12'000; ++step) {
      const bool send = random() % (seed % 3 + 2) != 0;
      if (send && pair.sender.ready()) {
        under_way.push_back(draw(random, ++number, 3000));
        pair.send(under_way.back());
      } else if (!under_way.empty()) {
        ASSERT_NO_FATAL_FAILURE(pair.receive(under_way.front())) << "seed " << seed;
        under_way.pop_front();
      } else {
        ASSERT_FALSE(pair.receiver.ready()) << "seed " << seed << ": a message that nobody sent";
      }
    }
    EXPECT_GT(number, 3000u);
  }
}

TEST(Connection, HoldsEnoughMessagesOfEachSize) {
  for (const size_t bytes : {size_t{0}, size_t{8}, kHalfBytes, kHalfBytes + 1, kInlineBytes, kInlineBytes + 1, size_t{1024}, size_t{1025}, size_t{8192},
                             size_t{8193}, kLargest})
    for (const bool pack : {false, true}) {
      if (pack && bytes > kHalfBytes) continue;
      Pair pair;
      uint64_t sent = 0, received = 0;
      for (int lap = 0; lap < 5; ++lap) {
        const uint64_t before = sent;
        for (; pair.sender.ready(); ++sent) pair.send({sent + 1, bytes, pack});
        if (lap == 0) {  // small rings have 8 KiB for messages up to 1 KiB, and 48 KiB up to 8 KiB; programs need two of any
          const size_t ring = bytes <= kInlineBytes || bytes > 8192 ? SIZE_MAX : bytes > 1024 ? 48 << 10 : 8 << 10;
          EXPECT_GE(sent, pack ? kHalves - kMostHalves : std::min<size_t>(kSlots - 1, ring / (bytes + 64) / 2)) << bytes << " bytes";
          EXPECT_GE(sent, 2u);
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

// What a connection takes: no more than its messages ask for, and all of it when it is busy with those of more than 1 KiB.
TEST(Connection, GrowsWhenBusyIfThereIsMemory) {
  constexpr size_t kFull = ByteRing::bytes_for(kLargest);
  for (const bool more : {true, false})
    for (const size_t bytes : {size_t{100}, size_t{1024}, size_t{4096}}) {
      Pair pair;
      pair.more = more;
      size_t reach = 0;
      for (uint64_t n = 1; n * bytes < (40u << 20); ++n) {
        ASSERT_TRUE(pair.sender.ready());
        std::byte* const at = pair.sender.acquire(bytes);
        std::memcpy(at, &n, sizeof n);
        reach = std::max(reach, static_cast<size_t>(at - pair.data.data()) + bytes);
        if (n * bytes < (16u << 20)) {
          ASSERT_LE(reach, bytes <= 1024 ? 8u << 10 : 48u << 10);
        }
        pair.sender.commit(n, false);
        ASSERT_TRUE(pair.receiver.ready());
        ASSERT_EQ(pair.receiver.peek(bytes), at);
        ASSERT_EQ(std::memcmp(pair.receiver.peek(bytes), &n, sizeof n), 0);
        pair.receiver.release();
      }
      EXPECT_EQ(pair.asked, bytes > 1024 ? std::vector<size_t>{kFull} : std::vector<size_t>{}) << "once, also when refused";
      if (pair.asked.empty() || !more)
        EXPECT_LE(reach, bytes <= 1024 ? 8u << 10 : 48u << 10);
      else
        EXPECT_GT(reach, kFull - 2 * kLargest);
    }
}

TEST(Connection, BetweenThreads) {
  Pair pair;
  constexpr uint64_t kMessages = 30'000;
  std::thread sender([&] {
    std::mt19937 random(7);
    for (uint64_t n = 1; n <= kMessages; ++n) {
      const Message m = draw(random, n, kMessages);
      while (!pair.sender.ready()) std::this_thread::yield();
      pair.send(m);
    }
  });
  std::mt19937 random(7);
  bool good = true;
  for (uint64_t n = 1; n <= kMessages; ++n) {
    const Message m = draw(random, n, kMessages);
    while (!pair.receiver.ready()) std::this_thread::yield();
    good = good && pair.receiver.fingerprint() == n * 77 && (m.bytes == 0 || holds(pair.receiver.peek(m.bytes), m.bytes, n));
    pair.receiver.release();
  }
  sender.join();
  EXPECT_TRUE(good);
}

}  // namespace
}  // namespace muster
