#include "topology/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"

namespace muster::topology {
namespace {

std::string read_all(int fd, const std::string& name, size_t most) {
  std::string text;
  for (;;) {
    const size_t had = text.size();
    text.resize(had + (size_t{64} << 10));
    const ssize_t n = ::read(fd, text.data() + had, text.size() - had);
    if (n < 0 && errno != EINTR) fail_errno(errno, fmt::format("can't read {}", name));
    text.resize(had + static_cast<size_t>(n > 0 ? n : 0));
    if (n == 0) return text;
    if (text.size() > most)
      fail(Result::invalid_argument, "{} has more than {} bytes, which are the most that is read", name,
           most);
  }
}

}  // namespace

std::string load_file(const std::string& path, size_t most) {
  if (path == "-") return read_all(STDIN_FILENO, "standard input", most);
  const std::string name = printable(path, 300);
  if (path.find('\0') != std::string::npos)
    fail(Result::invalid_argument, "'{}' is no file's name: it has a byte 0", name);
  // Without O_NONBLOCK opening a FIFO waits for its writer.
  const Fd fd(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (!fd) fail_errno(errno, fmt::format("can't open {}", name));
  struct stat s {};
  if (fstat(fd.get(), &s) != 0) fail_errno(errno, fmt::format("can't look at {}", name));
  if (!S_ISREG(s.st_mode)) {
    const char* what = S_ISDIR(s.st_mode)    ? "a directory"
                       : S_ISFIFO(s.st_mode) ? "a pipe"
                       : S_ISSOCK(s.st_mode) ? "a socket"
                                             : "a device";
    fail(Result::invalid_argument, "{} is {}, and a regular file is wanted", name, what);
  }
  if (static_cast<size_t>(s.st_size) > most)
    fail(Result::invalid_argument, "{} has {} bytes, and {} are the most that is read", name, s.st_size,
         most);
  return read_all(fd.get(), name, most);
}

}  // namespace muster::topology
