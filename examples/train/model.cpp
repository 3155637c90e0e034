#include "model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "matmul.h"

namespace train {
namespace {

constexpr float kEpsilon = 1e-5F;

// Uniform in (-1, 1), of a hash (Steele et al.'s SplitMix64) of what it is for.
float noise(uint64_t seed, uint64_t tensor, uint64_t index) {
  uint64_t z = seed * 0x9e3779b97f4a7c15 + tensor * 0xd1b54a32d192ed03 + index * 0x8cb92ba72f3d8dd7;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) / static_cast<float>(1 << 23) - 1;
}

uint64_t hash_of(const std::string& name) {
  uint64_t h = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}

// y = (x - mean) / deviation * gain + bias for each row; stats: mean and 1/deviation of each.
void norm_forward(const float* x, const float* gain, const float* bias, size_t rows, size_t n,
                  std::vector<float>& y, std::vector<float>& stats) {
  y.assign(rows * n, 0);
  stats.assign(rows * 2, 0);
  for (size_t r = 0; r < rows; ++r) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; ++i) sum += x[r * n + i];
    const double mean = sum / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) squares += (x[r * n + i] - mean) * (x[r * n + i] - mean);
    const auto m = static_cast<float>(mean),
               inverse = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(n) + kEpsilon));
    stats[2 * r] = m;
    stats[2 * r + 1] = inverse;
    for (size_t i = 0; i < n; ++i) y[r * n + i] = (x[r * n + i] - m) * inverse * gain[i] + bias[i];
  }
}

// Adds to dx, dgain and dbias.
void norm_backward(const float* x, const float* gain, const std::vector<float>& stats, const float* dy,
                   size_t rows, size_t n, float* dx, float* dgain, float* dbias) {
  for (size_t r = 0; r < rows; ++r) {
    const float mean = stats[2 * r], inverse = stats[2 * r + 1];
    double along_one = 0, along_x = 0;
    for (size_t i = 0; i < n; ++i) {
      const float unit = (x[r * n + i] - mean) * inverse, d = dy[r * n + i];
      dgain[i] += d * unit;
      dbias[i] += d;
      along_one += d * gain[i];
      along_x += d * gain[i] * unit;
    }
    const auto one = static_cast<float>(along_one / static_cast<double>(n)),
               by_x = static_cast<float>(along_x / static_cast<double>(n));
    for (size_t i = 0; i < n; ++i) {
      const float unit = (x[r * n + i] - mean) * inverse;
      dx[r * n + i] += inverse * (dy[r * n + i] * gain[i] - one - unit * by_x);
    }
  }
}

void add_bias(std::vector<float>& y, const float* bias, size_t n) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % n];
}
void add_bias_gradient(const std::vector<float>& dy, float* dbias, size_t n) {
  for (size_t i = 0; i < dy.size(); ++i) dbias[i % n] += dy[i];
}

const float kRoot = std::sqrt(2 / std::numbers::pi_v<float>);
float gelu(float x) { return 0.5F * x * (1 + std::tanh(kRoot * (x + 0.044715F * x * x * x))); }
float gelu_slope(float x) {
  const float t = std::tanh(kRoot * (x + 0.044715F * x * x * x));
  return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * kRoot * (1 + 3 * 0.044715F * x * x);
}

Columns alone;

}  // namespace

void Columns::gather(const float* own, float* all, size_t rows, size_t width) {
  std::copy_n(own, rows * width, all);
}
void Columns::sum(const float* parts, float* own, size_t rows, size_t width) {
  std::copy_n(parts, rows * width, own);
}
double Columns::cross_entropy(float* logits, const uint8_t* targets, size_t rows, size_t vocabulary) {
  double loss = 0;
  for (size_t r = 0; r < rows; ++r) {
    float* const row = logits + r * vocabulary;
    const float most = *std::max_element(row, row + vocabulary);
    double sum = 0;
    for (size_t i = 0; i < vocabulary; ++i) sum += row[i] = std::exp(row[i] - most);
    for (size_t i = 0; i < vocabulary; ++i) row[i] = static_cast<float>(row[i] / sum);
    loss -= std::log(std::max<double>(row[targets[r]], 1e-30));
  }
  return loss;
}

size_t Shape::parameters() const {
  return (vocabulary + context) * width + blocks * (12 * width * width + 13 * width) + 2 * width +
         width * vocabulary;
}

Part::Part(const Shape& shape, Slice slice)
    : shape_(shape),
      slice_(slice),
      columns_(slice.with ? *slice.with : alone),
      words_(columns_.vocabulary(shape.vocabulary)),
      heads_(shape.heads / slice_.columns),
      inner_(4 * shape.width / slice_.columns),
      first_block_(shape.blocks / slice_.stages * slice_.stage),
      last_block_(shape.blocks / slice_.stages * (slice_.stage + 1)) {
  if (shape.heads % slice_.columns != 0)
    throw std::invalid_argument(std::to_string(shape.heads) + " heads can't be shared by " +
                                std::to_string(slice_.columns) + " ranks");
  if (shape.blocks % slice_.stages != 0)
    throw std::invalid_argument(std::to_string(shape.blocks) + " blocks can't be shared by " +
                                std::to_string(slice_.stages) + " stages");
  const size_t w = shape.width, mine = heads_ * shape.head();
  const auto unit = [&](auto fill) {
    const size_t first = tensors_.size();
    fill();
    units_.push_back({first, tensors_.size()});
  };
  if (is_first())
    unit([&] {
      add("tokens", words_.count * w, false);
      add("positions", shape.context * w, true);
    });
  for (size_t b = first_block_; b < last_block_; ++b)
    unit([&] {
      const std::string in = "block" + std::to_string(b) + ".";
      add(in + "gain1", w, true);
      add(in + "bias1", w, true);
      add(in + "qkv", w * 3 * mine, false);
      add(in + "qkv_bias", 3 * mine, false);
      add(in + "out", mine * w, false);
      add(in + "out_bias", w, true);
      add(in + "gain2", w, true);
      add(in + "bias2", w, true);
      add(in + "up", w * inner_, false);
      add(in + "up_bias", inner_, false);
      add(in + "down", inner_ * w, false);
      add(in + "down_bias", w, true);
    });
  if (is_last())
    unit([&] {
      add("gain", w, true);
      add("bias", w, true);
      add("output", w * words_.count, false);
    });
}

void Part::add(std::string name, size_t size, bool replicated) {
  tensors_.push_back({std::move(name), size_, size, replicated});
  size_ += size;
}

void Part::initialize(float* parameters, uint64_t seed) const {
  const size_t w = shape_.width, mine = heads_ * shape_.head(), column = slice_.column;
  for (const Tensor& t : tensors_) {
    float* const p = parameters + t.offset;
    const std::string kind = t.name.substr(t.name.find('.') + 1);
    if (kind.starts_with("gain") || kind.find("bias") != kind.npos) {
      std::fill_n(p, t.size, kind.starts_with("gain") ? 1.0F : 0.0F);
      continue;
    }
    const uint64_t id = hash_of(t.name);
    // The element's index in the whole tensor, so that parts agree; 0.02 as GPT-2, smaller where a sum of
    // many is added to.
    const auto fill = [&](size_t rows, size_t columns, float scale, auto whole_index) {
      for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c) p[r * columns + c] = scale * noise(seed, id, whole_index(r, c));
    };
    const float usual = 0.04F, added = usual / std::sqrt(2.0F * static_cast<float>(shape_.blocks));
    if (kind == "qkv")  // [w, 3, heads, head]
      fill(w, 3 * mine, usual,
           [&](size_t r, size_t c) { return (r * 3 + c / mine) * w + column * mine + c % mine; });
    else if (kind == "out")
      fill(mine, w, added, [&](size_t r, size_t c) { return (column * mine + r) * w + c; });
    else if (kind == "up")
      fill(w, inner_, usual, [&](size_t r, size_t c) { return r * 4 * w + column * inner_ + c; });
    else if (kind == "down")
      fill(inner_, w, added, [&](size_t r, size_t c) { return (column * inner_ + r) * w + c; });
    else if (kind == "tokens")
      fill(words_.count, w, usual, [&](size_t r, size_t c) { return (words_.begin + r) * w + c; });
    else if (kind == "output")
      fill(w, words_.count, usual,
           [&](size_t r, size_t c) { return r * shape_.vocabulary + words_.begin + c; });
    else
      fill(1, t.size, usual, [](size_t, size_t c) { return c; });
  }
}

std::vector<float> Part::gathered(const std::vector<float>& own, size_t rows) const {
  std::vector<float> all(rows * shape_.width);
  columns_.gather(own.data(), all.data(), rows, shape_.width);
  return all;
}
std::vector<float> Part::summed(const std::vector<float>& parts, size_t rows) const {
  std::vector<float> own(columns_.rows(rows).count * shape_.width);
  columns_.sum(parts.data(), own.data(), rows, shape_.width);
  return own;
}
void Part::complete(size_t unit, float* const* gradients) const {
  for (size_t t = units_[unit].first; t < units_[unit].last; ++t)
    if (tensors_[t].replicated) columns_.sum_of_own_rows(gradients[t], tensors_[t].size);
}

void Part::forward_block(const float* const* p, size_t t, Saved::Block& s, std::vector<float>& x,
                         size_t sequences) const {
  const size_t w = shape_.width, n = shape_.context, d = shape_.head(), mine = heads_ * d,
               rows = sequences * n, own = columns_.rows(rows).count;
  std::vector<float> norm;
  s.x = x;
  norm_forward(x.data(), p[t + kGain1], p[t + kBias1], own, w, norm, s.stats1);
  s.norm1 = gathered(norm, rows);
  s.qkv.assign(rows * 3 * mine, 0);
  add_product(s.norm1.data(), p[t + kQkv], s.qkv.data(), rows, w, 3 * mine);
  add_bias(s.qkv, p[t + kQkvBias], 3 * mine);
  s.weights.assign(sequences * heads_ * n * n, 0);
  s.mixed.assign(rows * mine, 0);
  const float scale = 1 / std::sqrt(static_cast<float>(d));
  for (size_t q = 0; q < sequences; ++q)
    for (size_t h = 0; h < heads_; ++h)
      for (size_t i = 0; i < n; ++i) {
        const float* const query = &s.qkv[(q * n + i) * 3 * mine + h * d];
        float* const weight = &s.weights[((q * heads_ + h) * n + i) * n];
        float most = -INFINITY, sum = 0;
        for (size_t j = 0; j <= i; ++j) {
          const float* const key = &s.qkv[(q * n + j) * 3 * mine + mine + h * d];
          float dot = 0;
          for (size_t e = 0; e < d; ++e) dot += query[e] * key[e];
          weight[j] = dot * scale;
          most = std::max(most, weight[j]);
        }
        for (size_t j = 0; j <= i; ++j) sum += weight[j] = std::exp(weight[j] - most);
        float* const out = &s.mixed[(q * n + i) * mine + h * d];
        for (size_t j = 0; j <= i; ++j) {
          weight[j] /= sum;
          const float* const value = &s.qkv[(q * n + j) * 3 * mine + 2 * mine + h * d];
          for (size_t e = 0; e < d; ++e) out[e] += weight[j] * value[e];
        }
      }
  std::vector<float> part(rows * w, 0);
  add_product(s.mixed.data(), p[t + kOut], part.data(), rows, mine, w);
  std::vector<float> add = summed(part, rows);
  add_bias(add, p[t + kOutBias], w);
  for (size_t i = 0; i < x.size(); ++i) x[i] += add[i];

  s.y = x;
  norm_forward(x.data(), p[t + kGain2], p[t + kBias2], own, w, norm, s.stats2);
  s.norm2 = gathered(norm, rows);
  s.inner.assign(rows * inner_, 0);
  add_product(s.norm2.data(), p[t + kUp], s.inner.data(), rows, w, inner_);
  add_bias(s.inner, p[t + kUpBias], inner_);
  s.active.resize(s.inner.size());
  std::transform(s.inner.begin(), s.inner.end(), s.active.begin(), gelu);
  std::fill(part.begin(), part.end(), 0.0F);
  add_product(s.active.data(), p[t + kDown], part.data(), rows, inner_, w);
  add = summed(part, rows);
  add_bias(add, p[t + kDownBias], w);
  for (size_t i = 0; i < x.size(); ++i) x[i] += add[i];
}

void Part::backward_block(const float* const* p, size_t t, const Saved::Block& s, std::vector<float>& dx,
                          float* const* g, size_t sequences) const {
  const size_t w = shape_.width, n = shape_.context, d = shape_.head(), mine = heads_ * d,
               rows = sequences * n, own = columns_.rows(rows).count;
  add_bias_gradient(dx, g[t + kDownBias], w);
  std::vector<float> dall = gathered(dx, rows);
  add_product_of_transposed(s.active.data(), dall.data(), g[t + kDown], rows, inner_, w);
  std::vector<float> dinner(rows * inner_, 0);
  add_product_by_transposed(dall.data(), p[t + kDown], dinner.data(), rows, w, inner_);
  for (size_t i = 0; i < dinner.size(); ++i) dinner[i] *= gelu_slope(s.inner[i]);
  add_bias_gradient(dinner, g[t + kUpBias], inner_);
  add_product_of_transposed(s.norm2.data(), dinner.data(), g[t + kUp], rows, w, inner_);
  std::vector<float> dpart(rows * w, 0);
  add_product_by_transposed(dinner.data(), p[t + kUp], dpart.data(), rows, inner_, w);
  norm_backward(s.y.data(), p[t + kGain2], s.stats2, summed(dpart, rows).data(), own, w, dx.data(),
                g[t + kGain2], g[t + kBias2]);

  add_bias_gradient(dx, g[t + kOutBias], w);
  dall = gathered(dx, rows);
  add_product_of_transposed(s.mixed.data(), dall.data(), g[t + kOut], rows, mine, w);
  std::vector<float> dmixed(rows * mine, 0), dqkv(rows * 3 * mine, 0), dweight(n);
  add_product_by_transposed(dall.data(), p[t + kOut], dmixed.data(), rows, w, mine);
  const float scale = 1 / std::sqrt(static_cast<float>(d));
  for (size_t q = 0; q < sequences; ++q)
    for (size_t h = 0; h < heads_; ++h)
      for (size_t i = 0; i < n; ++i) {
        const float* const weight = &s.weights[((q * heads_ + h) * n + i) * n];
        const float* const dout = &dmixed[(q * n + i) * mine + h * d];
        float along = 0;
        for (size_t j = 0; j <= i; ++j) {
          const size_t at_value = (q * n + j) * 3 * mine + 2 * mine + h * d;
          float dot = 0;
          for (size_t e = 0; e < d; ++e) {
            dot += dout[e] * s.qkv[at_value + e];
            dqkv[at_value + e] += weight[j] * dout[e];
          }
          dweight[j] = dot;
          along += dot * weight[j];
        }
        const size_t at_query = (q * n + i) * 3 * mine + h * d;
        for (size_t j = 0; j <= i; ++j) {
          const float dscore = weight[j] * (dweight[j] - along) * scale;
          const size_t at_key = (q * n + j) * 3 * mine + mine + h * d;
          for (size_t e = 0; e < d; ++e) {
            dqkv[at_query + e] += dscore * s.qkv[at_key + e];
            dqkv[at_key + e] += dscore * s.qkv[at_query + e];
          }
        }
      }
  add_bias_gradient(dqkv, g[t + kQkvBias], 3 * mine);
  add_product_of_transposed(s.norm1.data(), dqkv.data(), g[t + kQkv], rows, w, 3 * mine);
  std::fill(dpart.begin(), dpart.end(), 0.0F);
  add_product_by_transposed(dqkv.data(), p[t + kQkv], dpart.data(), rows, 3 * mine, w);
  norm_backward(s.x.data(), p[t + kGain1], s.stats1, summed(dpart, rows).data(), own, w, dx.data(),
                g[t + kGain1], g[t + kBias1]);
}

double Part::forward(const float* const* p, const uint8_t* tokens, const uint8_t* targets, const float* input,
                     size_t sequences, Saved& saved, std::vector<float>* output, Watch* watch) const {
  const size_t w = shape_.width, n = shape_.context, rows = sequences * n, v = words_.count;
  const Columns::Range own = columns_.rows(rows);
  saved.sequences = sequences;
  size_t unit = 0;
  const auto enter = [&] {
    if (watch) watch->begins(unit);
  };
  const auto leave = [&] {
    if (watch) watch->ended(unit);
    ++unit;
  };
  std::vector<float> x;
  if (is_first()) {
    enter();
    saved.tokens.assign(tokens, tokens + rows);
    std::vector<float> part(rows * w);  // zeros for tokens of other ranks' vocabulary
    for (size_t r = 0; r < rows; ++r)
      if (tokens[r] - words_.begin < v) std::copy_n(p[0] + (tokens[r] - words_.begin) * w, w, &part[r * w]);
    x = summed(part, rows);
    for (size_t r = 0; r < own.count; ++r)
      for (size_t i = 0; i < w; ++i) x[r * w + i] += p[1][(own.begin + r) % n * w + i];
    leave();
  } else {
    x.assign(input, input + own.count * w);
  }
  saved.blocks.resize(last_block_ - first_block_);
  for (Saved::Block& b : saved.blocks) {
    enter();
    forward_block(p, units_[unit].first, b, x, sequences);
    leave();
  }
  double loss = 0;
  if (is_last()) {
    enter();
    const size_t t = units_[unit].first;
    saved.targets.assign(targets, targets + rows);
    saved.x = x;
    std::vector<float> norm;
    norm_forward(x.data(), p[t], p[t + 1], own.count, w, norm, saved.stats);
    saved.norm = gathered(norm, rows);
    saved.probabilities.assign(rows * v, 0);
    add_product(saved.norm.data(), p[t + 2], saved.probabilities.data(), rows, w, v);
    loss = columns_.cross_entropy(saved.probabilities.data(), targets, rows, v);
    leave();
  } else {
    *output = std::move(x);
  }
  return loss;
}

void Part::backward(const float* const* p, const Saved& saved, const float* output_gradient, float scale,
                    float* const* g, std::vector<float>* input_gradient, Watch* watch) const {
  const size_t w = shape_.width, n = shape_.context, v = words_.count, rows = saved.sequences * n;
  const Columns::Range own = columns_.rows(rows);
  size_t unit = units_.size() - 1;
  const auto enter = [&] {
    if (watch) watch->begins(unit);
  };
  const auto leave = [&] {
    complete(unit, g);
    if (watch) watch->ended(unit);
    --unit;
  };
  std::vector<float> dx(own.count * w, 0);
  if (is_last()) {
    enter();
    const size_t t = units_[unit].first;
    std::vector<float> dlogits = saved.probabilities, dpart(rows * w, 0);
    for (size_t r = 0; r < rows; ++r)
      if (saved.targets[r] - words_.begin < v) dlogits[r * v + saved.targets[r] - words_.begin] -= 1;
    for (float& d : dlogits) d *= scale;
    add_product_of_transposed(saved.norm.data(), dlogits.data(), g[t + 2], rows, w, v);
    add_product_by_transposed(dlogits.data(), p[t + 2], dpart.data(), rows, v, w);
    norm_backward(saved.x.data(), p[t], saved.stats, summed(dpart, rows).data(), own.count, w, dx.data(),
                  g[t], g[t + 1]);
    leave();
  } else {
    std::copy_n(output_gradient, dx.size(), dx.begin());
  }
  for (auto b = saved.blocks.rbegin(); b != saved.blocks.rend(); ++b) {
    enter();
    backward_block(p, units_[unit].first, *b, dx, g, saved.sequences);
    leave();
  }
  if (is_first()) {
    enter();
    const std::vector<float> dall = gathered(dx, rows);
    for (size_t r = 0; r < rows; ++r)
      for (size_t i = 0, word = saved.tokens[r] - words_.begin; word < v && i < w; ++i)
        g[0][word * w + i] += dall[r * w + i];
    for (size_t r = 0; r < own.count; ++r)
      for (size_t i = 0; i < w; ++i) g[1][(own.begin + r) % n * w + i] += dx[r * w + i];
    leave();
  } else if (input_gradient) {
    *input_gradient = std::move(dx);
  }
}

}  // namespace train
