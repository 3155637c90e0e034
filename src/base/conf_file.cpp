#include "base/conf_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace muster {
namespace {

constexpr size_t kMostBytes = 1 << 20;

bool is_name(std::string_view s) {
  const auto letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; };
  return !s.empty() && letter(s[0]) && std::all_of(s.begin(), s.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

ConfFile parse_conf(std::string_view text) {
  ConfFile file;
  file.found = true;
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // the mark some editors put before UTF-8
  std::map<std::string, int, std::less<>> seen;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = line.find('=');
    if (equals == line.npos) {
      file.problems.push_back({number, fmt::format("'{}' has no '='; NAME=value is wanted", printable(line, 60))});
      continue;
    }
    const std::string_view name = trim(line.substr(0, equals)), value = trim(line.substr(equals + 1));
    if (!is_name(name)) {
      file.problems.push_back({number, fmt::format("'{}' is no name of a variable; NAME=value is wanted", printable(name, 60))});
    } else if (value.find('\0') != value.npos) {
      file.problems.push_back({number, fmt::format("the value of {} holds a zero byte", printable(name, 60))});
    } else if (const auto [before, first] = seen.emplace(name, number); !first) {
      file.problems.push_back({number, fmt::format("{} is set in line {} already, which counts", printable(name, 60), before->second)});
    } else {
      file.lines.push_back({number, std::string(name), std::string(value)});
    }
  }
  return file;
}

ConfFile read_conf_file(const std::string& path) {
  const auto unreadable = [](const std::string& why) {
    ConfFile file;
    file.found = true;
    file.problems.push_back({0, "can't be read: " + why});
    return file;
  };
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));  // also opens a pipe nobody writes to
  if (!fd) return errno == ENOENT || errno == ENOTDIR ? ConfFile{} : unreadable(describe_errno(errno));
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unreadable(describe_errno(errno));
    if (n == 0) return parse_conf(text);
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMostBytes) return unreadable(fmt::format("it is longer than {} bytes", kMostBytes));
  }
}

}  // namespace muster
