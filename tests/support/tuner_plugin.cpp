// A tuner plugin as others write them, declared from NCCL's public headers alone: one library per version of
// the interface (TUNER_VERSION). MUSTER_TEST_TUNER says what it does, in words separated by commas:
//   ring, tree        gives that algorithm the price 0 (version 2: names it), if it can be had
//   no_ring           makes it one that can't be had
//   dear_ring         gives it a price of an hour
//   ll                gives the protocol LL the price 0, without asking
//   channels_N        asks for N channels
//   constants         changes NCCL's constants (version 5)
//   init_fails, choose_fails
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

namespace {

using Logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);
constexpr int kInfo = 3, kWarn = 2, kError = 3;  // log levels; ncclInternalError
constexpr unsigned long kTuning = 64;

std::mutex g_mutex;
int g_contexts = 0, g_ended = 0;
std::string g_seen, g_begun;

bool has(const char* word) {
  const char* all = std::getenv("MUSTER_TEST_TUNER");
  return all && ("," + std::string(all) + ",").find("," + std::string(word) + ",") != std::string::npos;
}
int channels_wanted() {
  const std::string all = std::getenv("MUSTER_TEST_TUNER") ? std::getenv("MUSTER_TEST_TUNER") : "";
  const size_t at = all.find("channels_");
  return at == all.npos ? 0 : std::atoi(all.c_str() + at + 9);
}

struct Context {
  Logger log;
};

[[maybe_unused]] int begin(size_t ranks, size_t nodes, Logger log, void** context,
                           const std::string& more = "") {
  if (has("init_fails")) return kError;
  const std::lock_guard lock(g_mutex);
  ++g_contexts;
  g_begun = std::to_string(ranks) + " ranks, " + std::to_string(nodes) + " nodes" + more;
  log(kInfo, kTuning, __FILE__, __LINE__, "example plugin begins: %zu ranks, %s", ranks, "hello");
  log(kInfo, 1ul << 40, __FILE__, __LINE__, "of no topic");
  *context = new Context{log};
  return 0;
}

int end(void* context) {
  const std::lock_guard lock(g_mutex);
  delete static_cast<Context*>(context);
  --g_contexts;
  ++g_ended;
  return 0;
}

void see(int function, size_t bytes, int operations, const std::string& more) {
  const std::lock_guard lock(g_mutex);
  g_seen = "function " + std::to_string(function) + ", " + std::to_string(bytes) + " bytes, " +
           std::to_string(operations) + " operations" + more;
}

#if TUNER_VERSION == 2
int choose(void* context, int function, size_t bytes, int collnet, int nvls, int operations, int* algorithm,
           int* protocol, int* channels) {
  if (has("choose_fails")) return kError;
  see(function, bytes, operations, ", collnet " + std::to_string(collnet) + ", nvls " + std::to_string(nvls));
  if (has("warn"))
    static_cast<Context*>(context)->log(kWarn, kTuning, __FILE__, __LINE__, "example plugin warns");
  if (has("tree")) *algorithm = 0, *protocol = 2;
  if (has("ring")) *algorithm = 1, *protocol = 2;
  if (has("ll")) *algorithm = 1, *protocol = 0;
  if (channels_wanted()) *channels = channels_wanted();
  return 0;
}
#else
[[maybe_unused]] int choose_in_table(void* context, int function, size_t bytes, int operations,
                                     float** prices, int algorithms, int protocols, int registered,
                                     int* channels) {
  if (has("choose_fails")) return kError;
  auto* const table = reinterpret_cast<float(*)[3]>(prices);
  char text[200];
  std::snprintf(text, sizeof text, ", %d by %d, registered %d, tree %.3f, ring %.3f, ring by LL %.3f",
                algorithms, protocols, registered, static_cast<double>(table[0][2]),
                static_cast<double>(table[1][2]), static_cast<double>(table[1][0]));
  see(function, bytes, operations, text);
  if (has("warn"))
    static_cast<Context*>(context)->log(kWarn, kTuning, __FILE__, __LINE__, "example plugin warns");
  if (has("tree") && table[0][2] != -1.0f) table[0][2] = 0;
  if (has("ring") && table[1][2] != -1.0f) table[1][2] = 0;
  if (has("no_ring")) table[1][2] = -1.0f;
  if (has("dear_ring")) table[1][2] = 3.6e9f;
  if (has("ll")) table[1][0] = 0;
  if (channels_wanted()) *channels = channels_wanted();
  return 0;
}
#endif

}  // namespace

#define SHOWN extern "C" __attribute__((visibility("default")))

#if TUNER_VERSION == 2
struct Plugin {
  const char* name;
  int (*init)(size_t, size_t, Logger, void**);
  int (*get)(void*, int, size_t, int, int, int, int*, int*, int*);
  int (*destroy)(void*);
};
SHOWN const Plugin ncclTunerPlugin_v2 = {
    "example", [](size_t r, size_t n, Logger l, void** c) { return begin(r, n, l, c); }, choose, end};
#elif TUNER_VERSION == 3
struct Plugin {
  const char* name;
  int (*init)(size_t, size_t, Logger, void**);
  int (*get)(void*, int, size_t, int, float**, int, int, int*);
  int (*destroy)(void*);
};
SHOWN const Plugin ncclTunerPlugin_v3 = {
    "example", [](size_t r, size_t n, Logger l, void** c) { return begin(r, n, l, c); },
    [](void* c, int f, size_t b, int o, float** t, int a, int p, int* ch) {
      return choose_in_table(c, f, b, o, t, a, p, -1, ch);
    },
    end};
#elif TUNER_VERSION == 4
struct Plugin {
  const char* name;
  int (*init)(size_t, size_t, Logger, void**);
  int (*get)(void*, int, size_t, int, float**, int, int, int, int*);
  int (*destroy)(void*);
};
SHOWN const Plugin ncclTunerPlugin_v4 = {
    "example", [](size_t r, size_t n, Logger l, void** c) { return begin(r, n, l, c); }, choose_in_table,
    end};
#else
struct Domains {
  int domains, least, most;
};
struct Constants {
  double base[7][3], hops[3][7][3], others[5][4][3];
};
struct Plugin {
  const char* name;
  int (*init)(void**, uint64_t, size_t, size_t, Logger, Domains*, Constants*);
  int (*get)(void*, int, size_t, int, float**, int, int, int, int*);
  int (*finalize)(void*);
};
static int begin_in_domains(void** context, uint64_t communicator, size_t ranks, size_t nodes, Logger log,
                            Domains* d, Constants* constants) {
  if (has("constants")) constants->others[4][3][2] = 1;
  return begin(ranks, nodes, log, context,
               std::string(communicator ? "" : ", no id") + ", " + std::to_string(d->domains) +
                   " domains of " + std::to_string(d->least) + " to " + std::to_string(d->most));
}
#if TUNER_VERSION == 5
SHOWN const Plugin ncclTunerPlugin_v5 = {"example", begin_in_domains, choose_in_table, end};
#else
SHOWN const Plugin ncclTunerPlugin_v6 = {"example", begin_in_domains, choose_in_table, end};
#endif
#endif

// For the tests. Texts are good until the thread asks again.
static int locked(const int& number) {
  const std::lock_guard lock(g_mutex);
  return number;
}
static const char* locked(const std::string& text) {
  static thread_local std::string copy;
  const std::lock_guard lock(g_mutex);
  copy = text;
  return copy.c_str();
}
SHOWN int example_contexts() { return locked(g_contexts); }
SHOWN int example_ended() { return locked(g_ended); }
SHOWN const char* example_seen() { return locked(g_seen); }
SHOWN const char* example_begun() { return locked(g_begun); }
