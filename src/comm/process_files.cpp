#include "comm/process_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <charconv>
#include <climits>
#include <fstream>
#include <map>

#include "base/error.h"

namespace muster {
namespace {

// Names in a folder that are numbers. False: it can't be read, see errno.
bool numbers_in(const std::string& folder, std::vector<int>& numbers) {
  DIR* const open = opendir(folder.c_str());
  if (!open) return false;
  while (const dirent* e = readdir(open)) {
    const std::string_view name = e->d_name;
    int n = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), n).ptr == name.data() + name.size())
      numbers.push_back(n);
  }
  closedir(open);
  return true;
}

// The last of its numbers, one for each numbering that it lives in.
int inner_pid_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("NSpid:")) continue;
    const size_t at = line.find_last_of(" \t");
    int inner = pid;
    if (at != line.npos) std::from_chars(line.data() + at + 1, line.data() + line.size(), inner);
    return inner;
  }
  return pid;
}

bool is_mine(int pid) {
  struct stat st {};
  return stat(fmt::format("/proc/{}", pid).c_str(), &st) == 0 && st.st_uid == geteuid();
}

}  // namespace

std::vector<HeldFile> find_memory_files(const char* name, std::span<const int> pids,
                                        std::vector<std::string>& problems) {
  std::vector<int> all(pids.begin(), pids.end());
  if (pids.empty() && !numbers_in("/proc", all)) fail_errno(errno, "reading /proc", "It must be mounted");
  const std::string wanted = fmt::format("/memfd:{} (deleted)", name);

  std::vector<HeldFile> files;
  std::map<std::pair<dev_t, ino_t>, size_t> known;
  for (const int pid : all) {
    if (pids.empty() && !is_mine(pid)) continue;
    const std::string folder = fmt::format("/proc/{}/fd/", pid);
    std::vector<int> descriptors;
    if (!numbers_in(folder, descriptors)) {
      // Without being asked for it may have ended meanwhile, or be one that hides from its own user.
      if (!pids.empty())
        problems.push_back(fmt::format("pid {} can't be looked into: {}", pid, describe_errno(errno)));
      continue;
    }
    std::map<size_t, bool> held;
    for (const int descriptor : descriptors) {
      const std::string path = folder + std::to_string(descriptor);
      char target[PATH_MAX];
      const ssize_t n = readlink(path.c_str(), target, sizeof target);
      if (n < 0 || std::string_view(target, static_cast<size_t>(n)) != wanted) continue;
      Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
      struct stat st {};
      if (!fd || fstat(fd.get(), &st) != 0) continue;  // closed meanwhile
      const auto [at, fresh] = known.try_emplace({st.st_dev, st.st_ino}, files.size());
      if (fresh) files.push_back({std::move(fd), {}});
      if (held[at->second]) continue;
      held[at->second] = true;
      files[at->second].holders.push_back({pid, inner_pid_of(pid), read_process(pid)});
    }
  }
  return files;
}

}  // namespace muster
