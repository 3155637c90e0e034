// Memory that lasts, and what adapters are told of it: what is registered, how often, and what is never taken
// for it.
#include "transports/registrations.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "base/error.h"
#include "muster/muster.h"

namespace muster {
namespace {

constexpr size_t kPage = 4096;

struct Pages {
  explicit Pages(size_t bytes, void* at = nullptr) : bytes_(bytes) {
    void* const p = mmap(at, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED_NOREPLACE : 0), -1, 0);
    if (p != MAP_FAILED) data = static_cast<std::byte*>(p);
  }
  ~Pages() { munmap(data, bytes_); }
  LastingMemory::Span span() const { return {data, bytes_}; }
  std::byte* data = nullptr;

 private:
  size_t bytes_;
};

// An adapter that remembers what is registered with it.
struct Adapter {
  struct Registered {
    uintptr_t begin;
    size_t bytes;
    int number;
  };
  std::set<int> now;  // numbers
  int made = 0;
  size_t most = SIZE_MAX;  // bytes of a range that it takes
  Registrations::Register function() {
    return [this](std::span<const std::byte> m) -> std::shared_ptr<const void> {
      if (m.size() > most) fail(Result::system_error, "too much");
      now.insert(++made);
      return std::shared_ptr<Registered>(
          new Registered{reinterpret_cast<uintptr_t>(m.data()), m.size(), made}, [this](Registered* r) {
            now.erase(r->number);
            delete r;
          });
    };
  }
};
const Adapter::Registered& of(const std::shared_ptr<const void>& r) {
  return *static_cast<const Adapter::Registered*>(r.get());
}

// --- LastingMemory ---

TEST(LastingMemory, FindsTheRangeThatHoldsAllBytes) {
  LastingMemory m;
  const Pages p(4 * kPage);
  const uint64_t life = m.add({p.data + kPage, 2 * kPage}, false, nullptr);
  EXPECT_EQ(m.find(p.data + kPage, 2 * kPage).life, life);
  EXPECT_EQ(m.find(p.data + 3 * kPage - 1, 1).life, life);
  EXPECT_EQ(m.find(p.data + kPage - 1, 1).life, 0u);
  EXPECT_EQ(m.find(p.data + 3 * kPage - 1, 2).life, 0u);
  EXPECT_EQ(m.find(p.data + 3 * kPage, 1).life, 0u);
  EXPECT_EQ(m.find(p.data + 2 * kPage, SIZE_MAX).life, 0u);
  m.end(life);
  EXPECT_EQ(m.find(p.data + kPage, 1).life, 0u);
  EXPECT_FALSE(m.lives(life));
  m.end(life);
}

TEST(LastingMemory, RangesMayOverlapAndEachHasALifeOfItsOwn) {
  LastingMemory m;
  const Pages p(4 * kPage);
  const uint64_t whole = m.add(p.span(), true, nullptr),
                 part = m.add({p.data + kPage, kPage}, false, nullptr),
                 again = m.add({p.data + kPage, kPage}, false, nullptr);
  EXPECT_NE(part, again);
  EXPECT_EQ(m.find(p.data + kPage, 2 * kPage).life, whole);
  m.end(again);
  EXPECT_EQ(m.find(p.data + kPage, kPage).life, part);
  m.end(part);
  EXPECT_EQ(m.find(p.data + kPage, kPage).life, whole);
}

TEST(LastingMemory, EndsWhatTouchesARangeAndWhatAnOwnerHas) {
  LastingMemory m;
  const Pages p(4 * kPage);
  int owner = 0;
  const uint64_t left = m.add({p.data, kPage + 1}, false, &owner),
                 middle = m.add({p.data + 2 * kPage, 16}, false, nullptr),
                 right = m.add({p.data + 3 * kPage, kPage}, false, nullptr);
  uint64_t ended = m.ended();
  m.end_within({p.data + kPage, 2 * kPage});
  EXPECT_NE(m.ended(), ended);
  EXPECT_FALSE(m.lives(left));
  EXPECT_FALSE(m.lives(middle));
  EXPECT_TRUE(m.lives(right));
  ended = m.ended();
  m.end_all_of(nullptr);
  EXPECT_EQ(m.ended(), ended);
  const uint64_t owned = m.add({p.data, 8}, false, &owner);
  m.end_all_of(&owner);
  EXPECT_FALSE(m.lives(owned));
  EXPECT_TRUE(m.lives(right));
}

TEST(LastingMemory, MemoryOfMemAllocLastsUntilItIsFreed) {
  void* const a = mem_alloc(10000);
  const auto& m = LastingMemory::of_process();
  const LastingMemory::Range first = m.find(a, 10000);
  ASSERT_NE(first.life, 0u);
  EXPECT_TRUE(first.shared);
  // What is registered of it ends with it, in whatever order the program does that.
  const uint64_t part =
      LastingMemory::of_process().add({static_cast<std::byte*>(a) + 100, 100}, false, nullptr);
  mem_free(a);
  EXPECT_EQ(m.find(a, 1).life, 0u);
  EXPECT_FALSE(m.lives(part));
  void* const b = mem_alloc(10000);
  EXPECT_EQ(a, b);
  EXPECT_NE(m.find(b, 10000).life, first.life);
  mem_free(b);
}

TEST(LastingMemory, AForkedChildBeginsWithNone) {
  void* const a = mem_alloc(kPage);
  const pid_t child = fork();
  if (child == 0) _exit(LastingMemory::of_process().find(a, kPage).life == 0 ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_NE(LastingMemory::of_process().find(a, kPage).life, 0u);
  mem_free(a);
}

// --- Registrations ---

TEST(Registrations, ARangeIsRegisteredOnceAsAWhole) {
  LastingMemory m;
  Adapter adapter;
  Registrations r(adapter.function(), {}, m);
  const Pages p(4 * kPage), other(kPage);
  m.add(p.span(), false, nullptr);
  EXPECT_EQ(r.find(other.data, 8), nullptr);
  const auto found = r.find(p.data + 5000, 3000);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(of(found).begin, reinterpret_cast<uintptr_t>(p.data));
  EXPECT_EQ(of(found).bytes, 4 * kPage);
  EXPECT_EQ(r.find(p.data, 4 * kPage), found);
  EXPECT_EQ(r.find(p.data, 4 * kPage + 1), nullptr);
  EXPECT_EQ(adapter.made, 1);
  EXPECT_EQ(r.bytes(), 4 * kPage);
}

TEST(Registrations, OtherMemoryAtTheSamePlaceIsNeverTakenForIt) {
  LastingMemory m;
  Adapter adapter;
  Registrations r(adapter.function(), {}, m);
  std::byte* at = nullptr;
  {
    const Pages p(kPage);
    at = p.data;
    const uint64_t life = m.add(p.span(), false, nullptr);
    EXPECT_EQ(of(r.find(at, 100)).number, 1);
    m.end(life);
  }
  const Pages p(kPage, at);
  ASSERT_EQ(p.data, at);
  EXPECT_EQ(r.find(at, 100), nullptr);
  EXPECT_TRUE(adapter.now.empty());
  m.add(p.span(), false, nullptr);
  EXPECT_EQ(of(r.find(at, 100)).number, 2);
}

TEST(Registrations, WhatIsInUseOutlastsItsRange) {
  LastingMemory m;
  Adapter adapter;
  Registrations r(adapter.function(), {}, m);
  const Pages p(kPage);
  const uint64_t life = m.add(p.span(), false, nullptr);
  auto used = r.find(p.data, 1);
  m.end(life);
  r.sweep();
  EXPECT_EQ(r.ranges(), 0u);
  EXPECT_EQ(adapter.now.size(), 1u);
  used.reset();
  EXPECT_TRUE(adapter.now.empty());
}

TEST(Registrations, TheLeastRecentlyUsedGiveWay) {
  LastingMemory m;
  Adapter adapter;
  const Pages p(8 * kPage);
  for (size_t i = 0; i < 8; ++i) m.add({p.data + i * kPage, kPage}, false, nullptr);
  const auto number = [&](Registrations& r, size_t i) {
    return of(r.find(p.data + i * kPage, kPage)).number;
  };
  for (const bool by_bytes : {false, true}) {
    Registrations r(
        adapter.function(),
        by_bytes ? Registrations::Limits{.bytes = 3 * kPage + 5} : Registrations::Limits{.ranges = 3}, m);
    const int before = adapter.made;
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(number(r, i), before + static_cast<int>(i) + 1);
    EXPECT_EQ(number(r, 0), before + 1);
    EXPECT_EQ(number(r, 3), before + 4);  // in place of 1
    EXPECT_EQ(r.ranges(), 3u);
    EXPECT_EQ(number(r, 0), before + 1);
    EXPECT_EQ(number(r, 2), before + 3);
    EXPECT_EQ(number(r, 1), before + 5);
    EXPECT_EQ(adapter.now.size(), 3u);
  }
  EXPECT_TRUE(adapter.now.empty());
}

TEST(Registrations, WhatCantBeRegisteredIsTriedAgainWhenSomethingWasGivenBack) {
  LastingMemory m;
  Adapter adapter;
  adapter.most = kPage;
  Registrations r(adapter.function(), {.bytes = 4 * kPage}, m);
  const Pages p(16 * kPage);
  const uint64_t small = m.add({p.data, kPage}, false, nullptr);
  m.add({p.data + kPage, 2 * kPage}, false, nullptr);
  m.add({p.data + 4 * kPage, 8 * kPage}, false, nullptr);
  EXPECT_EQ(r.find(p.data + 4 * kPage, 1), nullptr);  // more than all may be
  EXPECT_EQ(r.find(p.data + kPage, 1), nullptr);
  EXPECT_NE(r.find(p.data, 1), nullptr);
  adapter.most = SIZE_MAX;
  EXPECT_EQ(r.find(p.data + kPage, 1), nullptr);
  m.end(m.add({p.data + 15 * kPage, 1}, false, nullptr));  // it was never registered
  EXPECT_EQ(r.find(p.data + kPage, 1), nullptr);
  m.end(small);
  EXPECT_NE(r.find(p.data + kPage, 1), nullptr);
  EXPECT_EQ(r.bytes(), 2 * kPage);
}

TEST(Registrations, WhereForkTakesPagesOnlySharedMemoryIsRegistered) {
  LastingMemory m;
  Adapter adapter;
  Registrations r(adapter.function(), {.only_shared = true}, m);
  const Pages p(2 * kPage);
  m.add({p.data, kPage}, false, nullptr);
  m.add({p.data + kPage, kPage}, true, nullptr);
  EXPECT_EQ(r.find(p.data, 1), nullptr);
  EXPECT_NE(r.find(p.data + kPage, 1), nullptr);
}

}  // namespace
}  // namespace muster
