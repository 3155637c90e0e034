// Descriptors that are handed out by the helper thread, to who has the ticket.
#include "bootstrap/descriptor_offer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "support/outcome.h"

namespace muster {
namespace {

using test::outcome_of;
using testing::AllOf;
using testing::HasSubstr;
using namespace std::chrono_literals;

Fd file() { return Fd(memfd_create("descriptor_offer_test", MFD_CLOEXEC)); }

ino_t number_of(const Fd& fd) {
  struct stat s{};
  EXPECT_EQ(fstat(fd.get(), &s), 0);
  return s.st_ino;
}

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

Fd take(const DescriptorTicket& ticket, std::chrono::milliseconds patience = 60s) {
  return take_descriptor(ticket, "rank 7", Deadline::after(patience));
}

TEST(DescriptorOffer, WhoeverHasTheTicketGetsTheFile) {
  Fd first = file(), second = file();
  const ino_t wanted = number_of(first), other = number_of(second);
  const DescriptorOffer offer(std::move(first)), another(std::move(second));
  std::vector<std::thread> takers;
  for (int t = 0; t < 4; ++t)
    takers.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) EXPECT_EQ(number_of(take((t % 2 ? another : offer).ticket())), t % 2 ? other : wanted);
    });
  for (std::thread& t : takers) t.join();
}

TEST(DescriptorOffer, NobodyElseGetsIt) {
  const DescriptorOffer offer(file());
  DescriptorTicket wrong = offer.ticket();
  wrong.key[31] ^= 1;
  const auto refused = outcome_of([&] { take(wrong); });
  EXPECT_EQ(refused.code, Result::invalid_argument) << refused;
  EXPECT_THAT(refused.text, AllOf(HasSubstr("rank 7"), HasSubstr("can't prove that it knows the key")));
  wrong = offer.ticket();
  ++wrong.token;
  EXPECT_EQ(outcome_of([&] { take(wrong, 100ms); }).code, Result::system_error);
}

TEST(DescriptorOffer, EndsWithTheObject) {
  take(DescriptorOffer(file()).ticket());  // the helper thread and its socket stay
  std::optional<DescriptorOffer> offer(file());
  const DescriptorTicket ticket = offer->ticket();
  take(ticket);
  offer.reset();
  const auto late = outcome_of([&] { take(ticket, 100ms); });
  EXPECT_EQ(late.code, Result::system_error) << late;
  EXPECT_THAT(late.text, AllOf(HasSubstr("rank 7"), HasSubstr("network namespace")));
}

TEST(DescriptorOffer, LeavesNoDescriptors) {
  take(DescriptorOffer(file()).ticket());
  const size_t before = open_descriptors();
  for (int i = 0; i < 50; ++i) {
    const DescriptorOffer offer(file());
    take(offer.ticket());
    take(offer.ticket());
  }
  // The helper thread closes its ends when it has sent; there is nothing else to wait for.
  const auto limit = Deadline::after(60s);
  while (open_descriptors() > before && !limit.expired()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace muster
