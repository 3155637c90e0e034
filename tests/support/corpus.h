// Files that tests read: the project's own in tests/data, and real ones of others, which stay outside the project.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace muster::test {

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in) << "can't read " << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::filesystem::path data(const std::string& name) { return std::filesystem::path(MUSTER_SOURCE_FOLDER) / "tests/data" / name; }

// Of the environment's MUSTER_CORPUS; shared/corpus beside the source folder where that isn't set.
inline std::filesystem::path corpus() {
  const char* set = std::getenv("MUSTER_CORPUS");
  return set && *set ? std::filesystem::path(set) : std::filesystem::path(MUSTER_SOURCE_FOLDER).parent_path() / "shared/corpus";
}

inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace muster::test

// At the beginning of a test: skips it, visibly, where the real files aren't there.
#define MUSTER_NEEDS_CORPUS()                                                                                     \
  if (!std::filesystem::is_directory(::muster::test::corpus()))                                                   \
  GTEST_SKIP() << "no real topology files in " << ::muster::test::corpus() << "; MUSTER_CORPUS says where they are"
