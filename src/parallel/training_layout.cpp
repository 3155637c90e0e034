#include "parallel/training_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/text.h"
#include "muster/mesh.h"

namespace muster {
namespace {

struct AxisMember {
  const char* name;
  int ParallelSizes::*size;
};
constexpr AxisMember kAxes[] = {{"tp", &ParallelSizes::tp},
                                {"cp", &ParallelSizes::cp},
                                {"ep", &ParallelSizes::ep},
                                {"pp", &ParallelSizes::pp},
                                {"dp", &ParallelSizes::dp}};

constexpr const char* kRecompute[] = {"none", "selective", "full"};

// Each chunk's layers if the first and last had one more; 0: chunks don't divide them.
int64_t layers_of_chunk(int64_t layers, int64_t chunks) {
  if (layers % chunks == 0) return layers / chunks;
  return chunks > 1 && (layers + 2) % chunks == 0 ? (layers + 2) / chunks : 0;
}

}  // namespace

ParallelSizes parse_layout(const std::string& text) {
  ParallelSizes sizes;
  const AxisMember* last = nullptr;
  const Mesh mesh = Mesh::parse(text);
  for (const MeshAxis& axis : mesh.axes()) {
    const AxisMember* const found = std::find_if(std::begin(kAxes), std::end(kAxes),
                                                 [&](const AxisMember& a) { return axis.name == a.name; });
    if (found == std::end(kAxes))
      fail(Result::invalid_argument,
           "layout '{}': '{}' is no axis of training. There are tp, cp, ep, pp and dp", printable(text, 100),
           printable(axis.name, 40));
    if (last && found < last)
      fail(Result::invalid_argument,
           "layout '{}': axes are wanted in the order tp, cp, ep, pp, dp, innermost first",
           printable(text, 100));
    sizes.*found->size = axis.size;
    last = found;
  }
  return sizes;
}

std::string to_string(const ParallelSizes& sizes) {
  std::string text;
  for (const AxisMember& a : kAxes)
    if (sizes.*a.size != 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", a.name, sizes.*a.size);
  return text.empty() ? "dp=1" : text;
}

const char* name_of(Recompute r) { return kRecompute[static_cast<size_t>(r)]; }

Recompute recompute_named(const std::string& name) {
  for (const Recompute r : {Recompute::none, Recompute::selective, Recompute::full})
    if (name == name_of(r)) return r;
  fail(Result::invalid_argument, "'{}': none, selective or full can be recomputed", printable(name, 40));
}

void check(const Transformer& m, const Training& t) {
  check(m);
  const ParallelSizes& p = t.sizes;
  for (const AxisMember& a : kAxes)
    if (p.*a.size < 1)
      fail(Result::invalid_argument, "{} = {}: an axis has 1 or more ranks", a.name, p.*a.size);
  if (t.zero < 0 || t.zero > 3) fail(Result::invalid_argument, "ZeRO stage {}: there are 0 to 3", t.zero);
  if (t.gradient_bytes != 2 && t.gradient_bytes != 4)
    fail(Result::invalid_argument, "gradients of {} bytes: 2 and 4 are possible", t.gradient_bytes);
  if (t.micro_batch < 1 || t.interleave < 1)
    fail(Result::invalid_argument, "micro-batch {} and interleaving {}: both are 1 or more", t.micro_batch,
         t.interleave);
  if (m.heads % p.tp != 0)
    fail(Result::invalid_argument, "tp = {} doesn't divide {} heads: a divisor of it is needed", p.tp,
         m.heads);
  if (m.kv() % p.tp != 0 && p.tp % m.kv() != 0)
    fail(Result::invalid_argument, "tp = {} and {} key/value heads: one must divide the other", p.tp, m.kv());
  if (m.inner() % p.tp != 0)
    fail(Result::invalid_argument, "tp = {} doesn't divide the feed-forward size of {}", p.tp, m.inner());
  const int64_t chunks = int64_t{p.pp} * t.interleave;
  if (t.interleave > 1 && p.pp == 1)
    fail(Result::invalid_argument, "interleaving {} is of pipelines, and pp = 1", t.interleave);
  if (layers_of_chunk(m.layers, chunks) == 0)
    fail(Result::invalid_argument,
         "pp = {}{} doesn't divide {} layers (nor {}, the first and last chunk having one less)", p.pp,
         t.interleave > 1 ? fmt::format(" with {} chunks each", t.interleave) : "", m.layers, m.layers + 2);
  if (m.sequence % (int64_t{p.cp} * p.tp) != 0)
    fail(Result::invalid_argument, "cp * tp = {} doesn't divide a sequence of {}", int64_t{p.cp} * p.tp,
         m.sequence);
  if (p.ep > 1 && m.experts == 0)
    fail(Result::invalid_argument, "ep = {}: the model has no experts. Use dp = {} in its place", p.ep,
         int64_t{p.dp} * p.ep);
  if (p.ep > 1 && m.experts % p.ep != 0)
    fail(Result::invalid_argument, "ep = {} doesn't divide {} experts", p.ep, m.experts);
  const int64_t at_once = int64_t{p.dp} * p.ep * t.micro_batch;
  if (t.global_batch < 1 || t.global_batch % at_once != 0)
    fail(Result::invalid_argument,
         "a global batch of {} sequences: a multiple of {} is needed (dp {} * ep {} * micro-batch {})",
         t.global_batch, at_once, p.dp, p.ep, t.micro_batch);
  if (t.interleave > 1 && t.micro_batches() % p.pp != 0)
    fail(Result::invalid_argument, "interleaving needs a multiple of pp = {} micro-batches, and there are {}",
         p.pp, t.micro_batches());
}

int64_t layers_of_stage(const Transformer& m, const Training& t, int stage) {
  const int64_t chunks = int64_t{t.sizes.pp} * t.interleave;
  const bool fewer = m.layers % chunks != 0;
  return layers_of_chunk(m.layers, chunks) * t.interleave -
         (fewer ? (stage == 0) + (stage == t.sizes.pp - 1) : 0);
}

}  // namespace muster
