// The `muster` commands in README.md and docs/ run as they are pasted from the checkout's root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "support/corpus.h"
#include "support/shell.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = MUSTER_SOURCE_FOLDER;

// Lines of fenced blocks that begin with the command, without what is said beside it.
std::vector<std::string> commands_of(const std::string& page) {
  std::vector<std::string> commands;
  bool fenced = false;
  const std::string text = test::text_of(kSource / page);
  for (std::string_view line : split(text, '\n')) {
    if (line.starts_with("```")) fenced = !fenced;
    if (line.starts_with("$ ")) line.remove_prefix(2);
    if (!fenced || !line.starts_with("muster ")) continue;
    line = line.substr(0, line.find(" #"));
    line = line.substr(0, line.find("  "));
    commands.emplace_back(trim(line));
  }
  return commands;
}

// Words that stand for something of the reader's.
bool has_placeholder(const std::string& command) {
  return std::regex_search(command, std::regex("(^| )[A-Z]{3,}[0-9]*( |$)|\\.\\.\\.|<"));
}

class DocsCommands : public testing::Test {
 protected:
  // What commands write lands beside links to the checkout's files, not in it.
  DocsCommands() {
    std::string pattern = (fs::temp_directory_path() / "muster-docs-XXXXXX").string();
    root = mkdtemp(pattern.data());
    for (const fs::path& entry : test::files_in(kSource)) fs::create_symlink(entry, root / entry.filename());
  }
  ~DocsCommands() override { fs::remove_all(root); }

  // Where a page says build/release, this build is meant.
  void run(std::string command) const {
    for (size_t at; (at = command.find("build/release/")) != command.npos;) command.replace(at, sizeof "build/release", MUSTER_BUILD_FOLDER "/");
    std::string path = fs::path(MUSTER_TOOL).parent_path().string();
#ifdef PERF_FOLDER
    path += ":" PERF_FOLDER;
#else
    if (command.find("_perf") != std::string::npos) return;
#endif
    const test::Output o = test::output_of("cd " + root.string() + " && export PATH=" + path +
                                           ":$PATH HOME=" + root.string() + " && { " + command + "; } 2>&1");
    if (command.ends_with("muster doctor"))
      EXPECT_LE(o.status, 1) << command << "\n" << o.text;  // it may warn of this machine
    else
      EXPECT_EQ(o.status, 0) << command << "\n" << o.text;
  }

  fs::path root;
};

TEST_F(DocsCommands, OfReadmeAndPlannerRunAsTheyAre) {
  for (const char* page : {"README.md", "docs/planner.md"}) {
    const std::vector<std::string> commands = commands_of(page);
    EXPECT_GE(commands.size(), 4u) << page;
    for (const std::string& command : commands) {
      EXPECT_FALSE(has_placeholder(command)) << page << ": " << command;
      run(command);
    }
  }
}

TEST_F(DocsCommands, OfOtherPagesRunWhereTheyNameNothingOfTheReaders) {
  size_t ran = 0;
  for (const char* page : {"docs/networking.md", "docs/parallelism.md", "docs/programs.md", "docs/topology.md"})
    for (const std::string& command : commands_of(page))
      if (!has_placeholder(command)) run(command), ++ran;
  EXPECT_GE(ran, 6u);
}

TEST(Docs, EachFindingOfTheDoctorIsListed) {
  const std::string page = test::text_of(kSource / "docs/networking.md");
  std::set<std::string> ids;
  for (const char* file : {"host_findings.cpp", "job_findings.cpp"}) {
    const std::string source = test::text_of(kSource / "tools/doctor" / file);
    const std::regex finding("add\\((?:Severity::[a-z]+|strict \\?[^,]*|s), \"([a-z-]+)\"");
    for (std::sregex_iterator i(source.begin(), source.end(), finding), end; i != end; ++i) ids.insert((*i)[1]);
  }
  EXPECT_GE(ids.size(), 25u);
  for (const std::string& id : ids) EXPECT_NE(page.find("`" + id + "`"), page.npos) << id;
}

}  // namespace
}  // namespace muster
