// Files of options: what lines mean, and that nothing in one does harm.
#include "base/conf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace muster {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Lines = std::vector<std::pair<std::string, std::string>>;
Lines lines_of(const ConfFile& f) {
  Lines r;
  for (const auto& l : f.lines) r.emplace_back(l.name, l.value);
  return r;
}
std::vector<int> problems_of(const ConfFile& f) {
  std::vector<int> r;
  for (const auto& p : f.problems) r.push_back(p.number);
  return r;
}

TEST(ConfFile, LinesAreNamesAndValues) {
  const ConfFile f = parse_conf(
      "# of the administrator\n"
      "NCCL_DEBUG=WARN\n"
      "\n"
      "   # indented\n"
      "NCCL_SOCKET_IFNAME==ens1f0\r\n"
      "\tNCCL_IB_HCA = mlx5_0:1,mlx5_1 \t\n"
      "NCCL_ALGO=\n"
      "A1=\"quoted\" # not a comment\n"
      "LAST=without end of line");
  EXPECT_THAT(f.problems, IsEmpty());
  EXPECT_TRUE(f.found);
  EXPECT_EQ(lines_of(f), (Lines{{"NCCL_DEBUG", "WARN"},
                                {"NCCL_SOCKET_IFNAME", "=ens1f0"},
                                {"NCCL_IB_HCA", "mlx5_0:1,mlx5_1"},
                                {"NCCL_ALGO", ""},
                                {"A1", "\"quoted\" # not a comment"},
                                {"LAST", "without end of line"}}));
  EXPECT_EQ(f.lines[1].number, 5);
  EXPECT_EQ(f.lines[5].number, 9);
}

TEST(ConfFile, WhatCannotBeUsedIsAProblemWithItsLine) {
  const ConfFile f = parse_conf(std::string("NCCL_DEBUG INFO\n"
                                            "export NCCL_DEBUG=INFO\n"
                                            "=5\n"
                                            "1A=5\n"
                                            "NCCL_ALGO=ring\n"
                                            "NCCL_ALGO=tree\n"
                                            "ZERO=a") + '\0' + "b\n" + std::string(500, 'x') + "\n");
  EXPECT_EQ(lines_of(f), (Lines{{"NCCL_ALGO", "ring"}}));
  EXPECT_THAT(problems_of(f), ElementsAre(1, 2, 3, 4, 6, 7, 8));
  EXPECT_THAT(f.problems[0].text, AllOf(HasSubstr("'NCCL_DEBUG INFO'"), HasSubstr("NAME=value")));
  EXPECT_THAT(f.problems[1].text, HasSubstr("'export NCCL_DEBUG'"));
  EXPECT_THAT(f.problems[4].text, HasSubstr("line 5"));
  EXPECT_LT(f.problems[6].text.size(), 150u);  // a wrong file isn't repeated in the log
}

TEST(ConfFile, EmptyTextsAndMarksOfEditors) {
  for (const char* text : {"", "\n\n\n", "\r\n", "#", "   "}) {
    EXPECT_THAT(parse_conf(text).lines, IsEmpty());
    EXPECT_THAT(parse_conf(text).problems, IsEmpty());
  }
  EXPECT_EQ(lines_of(parse_conf("\xef\xbb\xbfNCCL_DEBUG=INFO")), (Lines{{"NCCL_DEBUG", "INFO"}}));
}

TEST(ConfFile, AnyBytesWillDo) {
  std::mt19937 random(7);
  const std::string kLikely("=#\n\r\t \0AN_9\xff\xef\xbb\xbf", 15);
  for (int i = 0; i < 20000; ++i) {
    std::string text(random() % 64, '\0');
    for (char& c : text) c = random() % 4 ? kLikely[random() % kLikely.size()] : static_cast<char>(random());
    const ConfFile f = parse_conf(text);
    int last = 0;
    for (const auto& l : f.lines) {
      EXPECT_GT(l.number, last);
      last = l.number;
      EXPECT_EQ(l.name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789"), std::string::npos);
      EXPECT_EQ(l.value.find_first_of(std::string("\0\n", 2)), std::string::npos);
    }
  }
}

class ConfFileOnDisk : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/muster_conf_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::system(("rm -r " + folder_).c_str()); }
  std::string write(const std::string& text) {
    std::ofstream(folder_ + "/conf", std::ios::binary) << text;
    return folder_ + "/conf";
  }
  std::string folder_;
};

TEST_F(ConfFileOnDisk, IsRead) {
  const ConfFile f = read_conf_file(write("NCCL_DEBUG=INFO\nbad\n"));
  EXPECT_EQ(lines_of(f), (Lines{{"NCCL_DEBUG", "INFO"}}));
  EXPECT_THAT(problems_of(f), ElementsAre(2));
}

TEST_F(ConfFileOnDisk, ThatIsNotThereSaysSo) {
  for (const std::string& path : {folder_ + "/none", folder_ + "/none/none", write("") + "/below", std::string()}) {
    const ConfFile f = read_conf_file(path);
    EXPECT_FALSE(f.found) << path;
    EXPECT_THAT(f.problems, IsEmpty()) << path;
  }
}

TEST_F(ConfFileOnDisk, ThatIsNoFileNeitherBlocksNorThrows) {
  EXPECT_THAT(read_conf_file("/dev/null").problems, IsEmpty());
  EXPECT_TRUE(read_conf_file("/dev/null").found);
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(read_conf_file(pipe).lines, IsEmpty());  // nobody writes to it
  const ConfFile folder = read_conf_file(folder_), endless = read_conf_file("/dev/zero");
  ASSERT_THAT(problems_of(folder), ElementsAre(0));
  EXPECT_THAT(folder.problems[0].text, HasSubstr("EISDIR"));
  ASSERT_THAT(problems_of(endless), ElementsAre(0));
  EXPECT_THAT(endless.problems[0].text, HasSubstr("longer than 1048576 bytes"));
}

}  // namespace
}  // namespace muster
