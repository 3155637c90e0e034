#include "picture.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

extern char** environ;

namespace muster::tool {
namespace {

// A file, not a pipe: Graphviz may stop reading, and nobody then waits or gets a signal.
Fd file_of(const std::string& text) {
  Fd fd(memfd_create("graph", MFD_CLOEXEC));
  if (!fd) fail_errno(errno, "can't make a file in memory");
  for (size_t written = 0; written < text.size();) {
    const ssize_t n = write(fd.get(), text.data() + written, text.size() - written);
    if (n < 0 && errno != EINTR) fail_errno(errno, "can't write a file in memory");
    if (n > 0) written += static_cast<size_t>(n);
  }
  lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

}  // namespace

void draw_svg(const std::string& dot, const std::string& file) {
  const Fd input = file_of(dot);
  std::vector<std::string> words = {"dot", "-Tsvg"};
  if (file != "-") words.push_back("-o" + file);
  std::vector<char*> arguments;
  for (std::string& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.get(), STDIN_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, "dot", &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT)
    fail(Result::system_error,
         "Graphviz's dot is not installed, which draws pictures (Debian: apt-get install graphviz). --dot "
         "prints the graph without it");
  if (error) fail_errno(error, "can't start Graphviz's dot");
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail_errno(errno, "can't wait for Graphviz's dot");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail(Result::system_error, "Graphviz's dot could not draw {}: it ended with {} {}", file,
         WIFEXITED(status) ? "status" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

}  // namespace muster::tool
