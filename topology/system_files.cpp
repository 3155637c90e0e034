#include "topology/system_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/text.h"

namespace muster::topology {

namespace fs = std::filesystem;

namespace {
constexpr size_t kMostText = 1 << 20, kMostNames = 65536;
}

bool SystemFiles::exists(std::string_view path) const {
  std::error_code error;
  return fs::exists(root_ + std::string(path), error);
}

std::string SystemFiles::bytes(std::string_view path, size_t most) const {
  const std::string at = root_ + std::string(path);
  std::error_code error;
  if (!fs::is_regular_file(at, error)) return {};  // a pipe would keep us waiting
  std::ifstream in(at, std::ios::binary);
  std::string r(most, '\0');
  in.read(r.data(), static_cast<std::streamsize>(most));
  r.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  return r;
}

std::optional<std::string> SystemFiles::text(std::string_view path) const {
  std::error_code error;
  const std::string at = root_ + std::string(path);
  if (!fs::is_regular_file(at, error)) return std::nullopt;
  std::ifstream in(at, std::ios::binary);
  std::string r;
  char part[4096];
  while (r.size() < kMostText && (in.read(part, sizeof part), in.gcount() > 0))
    r.append(part, static_cast<size_t>(in.gcount()));
  if (in.bad() || (r.empty() && !in.eof())) return std::nullopt;
  r.resize(std::min(r.size(), r.find('\0')));  // some drivers count the end of their text in
  return std::string(trim(r));
}

std::optional<int64_t> SystemFiles::integer(std::string_view path, std::string* said) const {
  const std::optional<std::string> t = text(path);
  if (said) *said = t.value_or("");
  return t ? parse_c_integer(*t) : std::nullopt;
}

std::vector<std::string> SystemFiles::list(std::string_view folder) const {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(root_ + std::string(folder), error), end;
       !error && it != end && names.size() < kMostNames; it.increment(error))
    names.push_back(it->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> SystemFiles::resolve(std::string_view path) const {
  std::error_code error;
  const std::string real = fs::canonical(root_ + std::string(path), error).string();
  if (error) return std::nullopt;
  if (root_.empty()) return real;
  const std::string base = fs::canonical(root_, error).string();
  if (error || !real.starts_with(base)) return std::nullopt;
  return real.substr(base.size());
}

}  // namespace muster::topology
