// Running a pipeline's schedule over a communicator.
#include <algorithm>
#include <chrono>
#include <map>

#include "base/error.h"
#include "base/math.h"
#include "muster/pipeline.h"

namespace muster {
namespace {

using Bytes = std::vector<std::byte>;

uint64_t fingerprint(const PipelineSchedule& s, const PipelineCosts& costs, DataType type) {
  uint64_t h = 1;
  const auto mix = [&h](int64_t value) { h = hash_combine(h, static_cast<uint64_t>(value)); };
  for (const int64_t v : {s.stages, s.micro_batches, s.chunks, costs.forward, costs.backward, static_cast<int>(type)}) mix(v);
  for (const auto& steps : s.steps)
    for (const PipelineStep& step : steps) {
      mix(static_cast<int64_t>(step.pass));
      mix(step.micro_batch);
      mix(step.chunk);
    }
  return h;
}

// What goes from one part to the next, or back: named by the part that makes it.
struct PipelineMessage {
  PipelinePass pass = PipelinePass::forward;
  int part = 0;
  int micro_batch = 0;
  int from = 0, to = 0;  // stages
};

class StageRun {
 public:
  StageRun(Communicator& comm, const PipelineSchedule& schedule, const PipelineModel& model, const PipelineCosts& costs)
      : comm_(comm), s_(schedule), model_(model), costs_(costs), parts_(schedule.stages * schedule.chunks), timing_(examine(schedule, costs)) {
    if (comm.size() != s_.stages)
      fail(Result::invalid_argument, "A pipeline of {} stages was started on the communicator {} of {} ranks: rank s is stage s.", s_.stages, comm.name(),
           comm.size());
    if (size_of(model.type) == 0) fail(Result::invalid_argument, "The pipeline's activations have the type {}, which is none.", static_cast<int>(model.type));
    stage_ = comm.rank();
    agree();
    share_sizes();
    schedule_messages();
  }

  PipelineRun run() {
    comm_.barrier();
    const auto begin = Clock::now();
    const auto& steps = s_.steps[static_cast<size_t>(stage_)];
    auto round = rounds_.begin();
    const auto exchange_until = [&](int64_t time) {
      for (; round != rounds_.end() && round->first <= time; ++round) exchange(round->second);
    };
    for (size_t i = 0; i < steps.size(); ++i) {
      const bool is_forward = steps[i].pass == PipelinePass::forward;
      exchange_until(timing_.ends[static_cast<size_t>(stage_)][i] - (is_forward ? costs_.forward : costs_.backward));
      is_forward ? forward(steps[i]) : backward(steps[i]);
    }
    exchange_until(timing_.makespan);
    result_.total_seconds = seconds_since(begin);
    return result_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

  // What all ranks must have alike, and which parts of all stages have no layers.
  void agree() {
    const auto chunks = static_cast<size_t>(s_.chunks);
    struct Card {
      uint64_t fingerprint;
      uint64_t bad_chunks, no_callback;  // what only its own rank sees
    };
    const bool is_first = stage_ == 0, is_last = stage_ == s_.stages - 1;
    const Card mine = {fingerprint(s_, costs_, model_.type), !model_.without_layers.empty() && model_.without_layers.size() != chunks,
                       !model_.forward || !model_.backward || (is_first && (!model_.elements || !model_.load)) || (is_last && !model_.loss)};
    std::vector<Card> cards(static_cast<size_t>(s_.stages));
    comm_.all_gather(&mine, cards.data(), sizeof mine, DataType::uint8);
    for (size_t r = 0; r < cards.size(); ++r) {
      if (cards[r].fingerprint != cards[0].fingerprint)
        fail(Result::invalid_usage, "Stages 0 and {} of a pipeline have different schedules, costs or types: give the same on all ranks (this is stage {}, {}).", r,
             stage_, s_.name);
      if (cards[r].no_callback != 0)
        fail(Result::invalid_argument,
             "Stage {} of a pipeline lacks a callback: all need forward and backward, the first stage elements and load, the last one loss.", r);
      if (cards[r].bad_chunks != 0)
        fail(Result::invalid_argument, "Stage {} of a pipeline names chunks without layers for another number of chunks than the schedule's {}.", r, chunks);
    }
    std::vector<uint8_t> my_chunks(chunks, 0), all(chunks * static_cast<size_t>(s_.stages));
    for (size_t c = 0; c < model_.without_layers.size(); ++c) my_chunks[c] = model_.without_layers[c];
    comm_.all_gather(my_chunks.data(), all.data(), chunks, DataType::uint8);
    for (int k = 0; k < parts_; ++k) without_layers_.push_back(all[static_cast<size_t>(k % s_.stages) * chunks + static_cast<size_t>(k / s_.stages)] != 0);
  }

  // Stage 0 tells all sizes; what is wrong with them all stages see.
  void share_sizes() {
    elements_.assign(static_cast<size_t>(s_.micro_batches) * static_cast<size_t>(parts_ + 1), 0);
    if (stage_ == 0)
      for (int m = 0; m < s_.micro_batches; ++m)
        for (int b = 0; b <= parts_; ++b) elements_[size_index(m, b)] = model_.elements(m, b);
    comm_.broadcast(elements_.data(), elements_.data(), elements_.size(), DataType::uint64, 0);
    for (int m = 0; m < s_.micro_batches; ++m)
      for (int k = 0; k < parts_; ++k)
        if (without_layers_[static_cast<size_t>(k)] && elements(m, k) != elements(m, k + 1))
          fail(Result::invalid_argument,
               "Part {} of the pipeline (stage {}, chunk {}) has no layers, but gets {} elements of micro-batch {} and should hand on {}: both must be equal.", k,
               k % s_.stages, k / s_.stages, elements(m, k), m, elements(m, k + 1));
  }
  size_t size_index(int m, int b) const { return static_cast<size_t>(m) * static_cast<size_t>(parts_ + 1) + static_cast<size_t>(b); }
  size_t elements(int m, int boundary) const { return elements_[size_index(m, boundary)]; }
  Bytes buffer(int m, int boundary) const { return Bytes(elements(m, boundary) * size_of(model_.type)); }

  // Messages that this stage sends or receives, by the time at which they are ready on paper.
  void schedule_messages() {
    for (int stage = 0; stage < s_.stages; ++stage)
      for (size_t i = 0; i < s_.steps[static_cast<size_t>(stage)].size(); ++i) {
        const PipelineStep& step = s_.steps[static_cast<size_t>(stage)][i];
        const int k = step.chunk * s_.stages + stage, to = k + (step.pass == PipelinePass::forward ? 1 : -1);
        if (to < 0 || to >= parts_) continue;
        const PipelineMessage message = {step.pass, k, step.micro_batch, stage, to % s_.stages};
        if (message.from != message.to && (message.from == stage_ || message.to == stage_))
          rounds_[timing_.ends[static_cast<size_t>(stage)][i]].push_back(message);
      }
  }

  // One time's messages. Nothing is waited for that isn't in the same group at its other end.
  void exchange(const std::vector<PipelineMessage>& messages) {
    std::vector<Bytes> sent;  // until the group's end
    sent.reserve(messages.size());
    group_start();
    for (const PipelineMessage& message : messages) {
      const bool is_forward = message.pass == PipelinePass::forward;
      const size_t count = elements(message.micro_batch, is_forward ? message.part + 1 : message.part);
      const auto key = std::pair{is_forward ? message.part + 1 : message.part - 1, message.micro_batch};  // the part that needs it
      auto& held = is_forward ? activations_ : gradients_;
      if (message.from == stage_) {
        sent.push_back(std::move(held.extract(key).mapped()));
        comm_.send(sent.back().data(), count, model_.type, message.to);
        ++result_.messages_sent;
        result_.bytes_sent += count * size_of(model_.type);
      } else {
        Bytes& place = held[key] = Bytes(count * size_of(model_.type));
        comm_.recv(place.data(), count, model_.type, message.from);
      }
    }
    group_end();
  }

  template <class F>
  void timed(const F& callback) {
    const auto begin = Clock::now();
    callback();
    result_.busy_seconds += seconds_since(begin);
  }

  void forward(const PipelineStep& step) {
    const int m = step.micro_batch, k = step.chunk * s_.stages + stage_;
    Bytes input;
    if (k == 0) {
      input = buffer(m, 0);
      timed([&] { model_.load(m, input.data()); });
    } else {
      input = std::move(activations_.extract({k, m}).mapped());
    }
    Bytes output;
    if (without_layers_[static_cast<size_t>(k)]) {
      output = std::move(input);
    } else {
      output = buffer(m, k + 1);
      timed([&] { model_.forward(step.chunk, m, input.data(), output.data()); });
      inputs_[{k, m}] = std::move(input);
      result_.peak_activations = std::max(result_.peak_activations, static_cast<int>(inputs_.size()));
    }
    if (k + 1 == parts_) {
      Bytes& gradient = gradients_[{k, m}] = buffer(m, parts_);
      timed([&] { model_.loss(m, output.data(), gradient.data()); });
    } else {
      activations_[{k + 1, m}] = std::move(output);
    }
  }

  void backward(const PipelineStep& step) {
    const int m = step.micro_batch, k = step.chunk * s_.stages + stage_;
    Bytes gradient = std::move(gradients_.extract({k, m}).mapped());
    if (!without_layers_[static_cast<size_t>(k)]) {
      const Bytes input = std::move(inputs_.extract({k, m}).mapped());
      Bytes input_gradient = buffer(m, k);
      timed([&] { model_.backward(step.chunk, m, input.data(), gradient.data(), input_gradient.data()); });
      gradient = std::move(input_gradient);
    }
    if (k > 0) gradients_[{k - 1, m}] = std::move(gradient);
  }

  Communicator& comm_;
  const PipelineSchedule& s_;
  const PipelineModel& model_;
  const PipelineCosts costs_;
  const int parts_;
  const PipelineTiming timing_;
  int stage_ = 0;
  std::vector<bool> without_layers_;  // by part
  std::vector<uint64_t> elements_;    // by micro-batch and boundary
  std::map<int64_t, std::vector<PipelineMessage>> rounds_;
  // By part and micro-batch: what the part needs next, and the inputs that it keeps for its backward pass.
  std::map<std::pair<int, int>, Bytes> activations_, gradients_, inputs_;
  PipelineRun result_;
};

}  // namespace

PipelineRun run_pipeline(Communicator& stages, const PipelineSchedule& schedule, const PipelineModel& model, const PipelineCosts& costs) {
  return StageRun(stages, schedule, model, costs).run();
}

}  // namespace muster
