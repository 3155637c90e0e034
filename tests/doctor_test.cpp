// `muster doctor --options`: what is set, from where, to what effect; and the reference page made from the same table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "base/options.h"
#include "support/shell.h"

namespace muster {
namespace {

using test::Output;
using test::output_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Both streams.
Output doctor(const std::string& variables, const std::string& flags = "--options") {
  return output_of("env -i HOME=/nonexistent " + variables + " " MUSTER_TOOL " doctor " + flags + " 2>&1");
}

TEST(Doctor, TheReferencePageIsWhatItPrints) {
  std::ifstream in(MUSTER_OPTIONS_PAGE);
  ASSERT_TRUE(in) << MUSTER_OPTIONS_PAGE;
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  const Output o = doctor("NCCL_DEBUG=INFO MUSTER_CHANNELS=x", "--options --markdown");  // whatever is set
  EXPECT_EQ(o.status, 0);
  EXPECT_TRUE(o.text == page) << "docs/options.md is out of date: muster doctor --options --markdown > docs/options.md";
  for (const Option& option : option_table()) EXPECT_THAT(page, HasSubstr(std::string("`") + option.name + "`"));
}

TEST(Doctor, ShowsValueSourceAndEffect) {
  char file[] = "/tmp/muster_doctor_XXXXXX";
  const int fd = mkstemp(file);
  ASSERT_GE(fd, 0);
  std::ofstream(file) << "NCCL_NTHREADS=22\nNCCL_HOSTID=here\nbad\n";
  const Output o = doctor("NCCL_DEBUG=INFO MUSTER_JOB_KEY=hidden NCCL_CONF_FILE=" + std::string(file));
  remove(file);
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("now set to 'INFO' (environment)\n"), HasSubstr(std::string("now set to 'here' (") + file + ":2)\n"),
                            HasSubstr(std::string("now set to '22' (") + file + ":1), no effect: it is about GPUs, and this build moves data between host memories only\n")));
  EXPECT_THAT(o.text, AllOf(HasSubstr("now set (environment)\n"), Not(HasSubstr("hidden"))));
  EXPECT_THAT(o.text, AllOf(HasSubstr("Look at:\n"), HasSubstr(std::string(file) + ":3: 'bad' has no '='")));
  EXPECT_THAT(o.text, Not(HasSubstr("MUSTER_TEST")));
  close(fd);
}

TEST(Doctor, SaysWhatIsWrong) {
  EXPECT_THAT(doctor("").text, Not(AnyOf(HasSubstr("Look at:"), HasSubstr("now set"))));
  const Output soft = doctor("NCCL_DEBGU=INFO NCCL_SHM_DISABLE=yes NCCL_DEBUG=loud NCCL_DEBUG_SUBSYS=INIT,NOTHING");
  EXPECT_EQ(soft.status, 0);
  EXPECT_THAT(soft.text, AllOf(HasSubstr("Is NCCL_DEBUG meant?"), HasSubstr("NCCL_SHM_DISABLE='yes' can't be read"), HasSubstr("NCCL_DEBUG='loud'"), HasSubstr("'NOTHING'")));
  for (const char* wrong : {"MUSTER_CHANNELS=x", "MUSTER_LOG=loud"}) {
    const Output hard = doctor(wrong);
    EXPECT_EQ(hard.status, 1) << wrong;
    const std::string name(wrong, std::string(wrong).find('='));
    EXPECT_THAT(hard.text, AllOf(HasSubstr("muster: " + name + "='"), HasSubstr("is wanted"))) << wrong;
  }
}

// What one host's wrong setting comes to, and its exit status.
TEST(Doctor, OneHostAlone) {
  const Output fine = doctor("", "");
  EXPECT_LE(fine.status, 1) << fine.text;
  EXPECT_THAT(fine.text, AllOf(HasSubstr("This host alone"), HasSubstr("0 errors")));
  for (const auto& [name, text] : {std::pair("nope0", "is the beginning of the name of no interface"), {"127.0.0.1", "looks like an address"}}) {
    const Output o = doctor(std::string("NCCL_SOCKET_IFNAME=") + name, "");
    EXPECT_EQ(o.status, 2) << o.text;
    EXPECT_THAT(o.text, AllOf(HasSubstr("error    no-interface"), HasSubstr(text), HasSubstr("This machine has lo")));
  }
  const Output json = doctor("MUSTER_CHANNELS=x", "--json");
  EXPECT_EQ(json.status, 2);
  EXPECT_THAT(json.text, AllOf(HasSubstr("\"status\": \"errors\""), HasSubstr("\"id\": \"option-unreadable\"")));
  EXPECT_EQ(doctor("", "--markdown").status, 2);  // goes with --options
}

TEST(Doctor, Limits) {
  const Output o = output_of("ulimit -Sn 64; env -i HOME=/nonexistent " MUSTER_TOOL " doctor 2>&1");
  EXPECT_EQ(o.status, 1) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("warning  few-files"), HasSubstr("may have 64 files open"), HasSubstr("ulimit -n ")));
}

}  // namespace
}  // namespace muster
