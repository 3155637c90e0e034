// docs/topology.md names every finding there is, and its example of a file is a good one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "support/corpus.h"
#include "topology/finding.h"
#include "topology/nearest_ports.h"
#include "topology/read.h"

namespace muster::topology {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = MUSTER_SOURCE_FOLDER;

std::string page() { return test::text_of(kSource / "docs/topology.md"); }

std::vector<std::string> all_of(const std::string& text, const std::string& pattern) {
  const std::regex re(pattern);
  std::vector<std::string> r;
  for (std::sregex_iterator i(text.begin(), text.end(), re), end; i != end; ++i) r.push_back((*i)[1]);
  return r;
}

// Words of findings are those that follow a severity, and those that the code chooses from there.
std::set<std::string> finding_ids() {
  const std::string word = "\"([a-z]+(?:-[a-z0-9]+)+)\"";
  std::set<std::string> ids;
  for (const fs::path& file : test::files_in(kSource / "topology")) {
    const std::string text = test::text_of(file);
    for (const std::string before :
         {"Severity::[a-z]+,\\s*", "Severity::[a-z]+,[^,;\"]*\\?\\s*",
          "Severity::[a-z]+,[^,;\"]*\\?\\s*\"[a-z-]+\"\\s*:\\s*", "(?:note|warn)\\(\\s*"})
      for (const std::string& id : all_of(text, before + word)) ids.insert(id);
  }
  return ids;
}

TEST(TopologyPage, NamesEveryFinding) {
  const std::set<std::string> ids = finding_ids();
  EXPECT_GT(ids.size(), 4u);
  for (const char* known : {"smi-contradiction", "smi-unreadable", "smi-incomplete"})
    EXPECT_TRUE(ids.contains(known)) << known;
  const std::string text = page();
  const std::string table = text.substr(text.find("## Findings"));
  for (const std::string& id : ids) EXPECT_THAT(table, testing::HasSubstr("`" + id + "`"));
}

TEST(TopologyPage, ExplainsEveryClass) {
  const std::string text = page();
  for (int c = 0; c <= static_cast<int>(PathClass::dis); ++c)
    EXPECT_THAT(text, testing::HasSubstr(fmt::format("**{}** ", name_of(static_cast<PathClass>(c)))));
}

}  // namespace
}  // namespace muster::topology
