// Sizes as people write them.
#include "base/size_text.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(SizeText, IsRead) {
  EXPECT_EQ(parse_size("0"), 0u);
  EXPECT_EQ(parse_size("8"), 8u);
  EXPECT_EQ(parse_size("1K"), 1024u);
  EXPECT_EQ(parse_size("1k"), 1024u);
  EXPECT_EQ(parse_size("128M"), 128u << 20);
  EXPECT_EQ(parse_size("1.5G"), uint64_t{3} << 29);
  EXPECT_EQ(parse_size("2T"), uint64_t{2} << 40);
  EXPECT_EQ(parse_size("0.5"), 0u);
  for (const char* bad :
       {"", "K", "-1", "8X", "8KB", "8 K", "1e400", "nan", "inf", "9999999T", "0x8", "1,5K"})
    EXPECT_EQ(parse_size(bad), std::nullopt) << bad;
}

TEST(SizeText, IsReadAsItIsWritten) {
  EXPECT_EQ(size_text(0), "0");
  EXPECT_EQ(size_text(1000), "1000");
  EXPECT_EQ(size_text(1536), "1536");
  EXPECT_EQ(size_text(96 << 10), "96K");
  EXPECT_EQ(size_text(uint64_t{5} << 50), "5120T");
  for (int bit = 0; bit < 60; ++bit)
    EXPECT_EQ(parse_size(size_text(uint64_t{3} << bit)), uint64_t{3} << bit) << bit;
}

}  // namespace
}  // namespace muster
