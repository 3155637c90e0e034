// From PTX to machine code: the translator makes C++ of it and the compiler a shared object for each kernel
// when it is first used. They are kept in a folder, named by what they were made of, which processes may
// share.
#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "faults.h"
#include "modules.h"

extern "C" char** environ;

namespace cuda_sim {
namespace {

namespace fs = std::filesystem;

std::string hash(const std::string& text) {  // FNV-1a, 64 bits
  uint64_t h = 1469598103934665603ull;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  char digits[20];
  snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(h));
  return digits;
}

std::string contents(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream all;
  all << in.rdbuf();
  return all.str();
}

std::string joined(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + word;
  return line;
}

// Runs a command without what was preloaded into this program.
bool run(const std::vector<std::string>& command) {
  std::vector<char*> arguments, environment;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  for (char** variable = environ; *variable; variable++)
    if (strncmp(*variable, "LD_PRELOAD=", 11) && strncmp(*variable, "LD_LIBRARY_PATH=", 16))
      environment.push_back(*variable);
  environment.push_back(nullptr);
  if (option("CUDASIM_VERBOSE", 0)) fprintf(stderr, "cuda_sim: %s\n", joined(command).c_str());
  pid_t pid;
  int status = -1;
  if (posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), environment.data()) == 0)
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  if (status != 0) fprintf(stderr, "cuda_sim: failed: %s\n", joined(command).c_str());
  return status == 0;
}

// One process at a time makes a file; the others wait for it.
class FileLock {
 public:
  explicit FileLock(const std::string& path) : fd_(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666)) {
    if (fd_ >= 0) flock(fd_, LOCK_EX);
  }
  ~FileLock() {
    if (fd_ >= 0) close(fd_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

template <class Make>
bool make_once(const std::string& path, Make make) {  // make(temporary path)
  if (fs::exists(path)) return true;
  FileLock lock(path + ".lock");
  if (fs::exists(path)) return true;
  std::string temporary = path + ".new";
  std::error_code failed;
  if (!make(temporary)) return false;
  fs::rename(temporary, path, failed);
  if (failed) fprintf(stderr, "cuda_sim: %s: %s\n", path.c_str(), failed.message().c_str());
  return !failed;
}

struct Tools {
  fs::path cache = text_option("CUDASIM_CACHE", CUDA_SIM_CACHE);
  fs::path translator = CUDA_SIM_TRANSLATOR;
  fs::path support = translator / "ptx_support.h";  // what translated kernels include
  std::vector<std::string> compile{CUDA_SIM_CXX, "-std=c++17", "-march=native",
                                   "-fPIC",      "-w",         "-ffp-contract=off"};
  std::string version;  // of all that a translated kernel is made with

  Tools() {
    std::istringstream flags(text_option("CUDASIM_CXXFLAGS", "-O1"));
    for (std::string flag; flags >> flag;) compile.push_back(flag);
    if (option("CUDASIM_CHECK", 0)) compile.push_back("-DCSIM_CHECK");
    if (!text_option("CUDASIM_TALLY").empty()) compile.push_back("-DCSIM_TALLY");
    if (peer_fault() != PeerFault::kNone) compile.push_back("-DCSIM_PEER_FAULT");
#ifdef CUDA_SIM_RACE_CHECKER
    compile.insert(compile.end(), {"-g1", "-fsanitize=thread"});  // reports name lines; -g takes twice as long
#endif
    std::string sources;
    for (const auto& file : fs::directory_iterator(translator))
      if (file.is_regular_file()) sources += hash(contents(file.path())) + " ";
    version = hash(sources + contents(translator / "../runtime/execution.h") + joined(compile));
    std::error_code failed;
    fs::create_directories(cache, failed);
    if (failed) fprintf(stderr, "cuda_sim: %s: %s\n", cache.c_str(), failed.message().c_str());
  }
};

// The support header, precompiled. Its folder; kernels compile without it, too, for longer.
fs::path precompiled_header(const Tools& tools) {
  fs::path folder = tools.cache / ("support-" + tools.version);
  std::error_code exists;
  fs::create_directory(folder, exists);
  make_once(folder / "ptx_support.h.gch", [&](const std::string& out) {
    std::vector<std::string> command = tools.compile;
    command.insert(command.end(), {"-x", "c++-header", tools.support, "-o", out});
    return run(command);
  });
  return folder;
}

bool compile_kernel(const Tools& tools, const std::string& ptx, const std::string& kernel,
                    const std::string& out) {
  std::string source = out + ".cpp";
  if (!run({"python3", "-B", tools.translator / "ptx_to_cpp.py", ptx, source, kernel.empty() ? "-" : kernel}))
    return false;
  std::vector<std::string> command = tools.compile;
  command.insert(command.end(),
                 {"-shared", "-I" + precompiled_header(tools).string(), "-I" + tools.translator.string(),
                  "-include", "ptx_support.h", source, "-o", out});
  return run(command);
}

}  // namespace

const std::string* ptx_of(Module* m) {
  if (!m->unusable && m->ptx.empty()) m->unusable = !extract_ptx(m->fat_binary, &m->ptx);
  return m->unusable ? nullptr : &m->ptx;
}

const TranslatedModule* translate(Module* m, const std::string& kernel) {
  static const Tools tools;
  const std::string* found = ptx_of(m);
  if (!found) return nullptr;
  if (m->cache_path.empty()) {
    const std::string& ptx = *found;
    std::string path = tools.cache / ("module-" + hash(ptx));
    bool written = make_once(path + ".ptx", [&](const std::string& out) {
      std::ofstream file(out, std::ios::binary);
      file << ptx;
      return file.flush().good();
    });
    if (!written) return nullptr;
    m->cache_path = path;
  }
  std::string object = m->cache_path + "-" + hash(kernel + " " + tools.version) + ".so";
  bool made = make_once(object, [&](const std::string& out) {
    return compile_kernel(tools, m->cache_path + ".ptx", kernel, out);
  });
  if (!made) return nullptr;
  void* library = dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* describe =
      library ? reinterpret_cast<const TranslatedModule* (*)()>(dlsym(library, "csim_module")) : nullptr;
  if (!describe) {
    fprintf(stderr, "cuda_sim: %s\n", dlerror());
    return nullptr;
  }
  return describe();
}

}  // namespace cuda_sim
