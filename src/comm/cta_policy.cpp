#include "comm/cta_policy.h"

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace muster {
namespace {

struct CtaPolicy {
  std::string_view name;
  int number;  // NCCL_CTA_POLICY_* of nccl.h; bits
};
constexpr CtaPolicy kCtaPolicies[] = {{"default", 0}, {"efficiency", 1}, {"zero", 2}};
constexpr int kZeroBit = 2, kAllCtaBits = 3;

int read_one(std::string_view word, std::string_view whole) {
  for (const CtaPolicy& p : kCtaPolicies)
    if (lower(word) == p.name) return p.number;
  if (word.size() == 1 && word[0] >= '0' && word[0] <= '0' + kAllCtaBits) return word[0] - '0';
  fail(Result::invalid_usage,
       "NCCL_CTA_POLICY='{}': DEFAULT, EFFICIENCY or ZERO is wanted, or 0 to 3, or several joined by |",
       printable(whole, 200));
}

}  // namespace

bool wants_copy_engines(const Options& options, const Config& config) {
  const std::string& text = options.text("NCCL_CTA_POLICY");
  if (text.empty()) return config.copy_engines;
  int policy = 0;
  for (std::string_view rest = text;;) {
    const size_t bar = rest.find('|');
    policy |= read_one(rest.substr(0, bar), text);
    if (bar == std::string_view::npos) return (policy & kZeroBit) != 0;
    rest.remove_prefix(bar + 1);
  }
}

}  // namespace muster
