// `muster program`: checks, shows and converts the programs of a file, or those of an algorithm that is built in.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithms.h"
#include "base/error.h"
#include "base/text.h"
#include "commands.h"
#include "plan/custom_programs.h"
#include "plan/planner.h"
#include "program/program_json.h"
#include "say.h"

namespace muster::tool {
namespace {

struct ProgramOptions {
  std::string file, algorithm, collective, json, name;
  int ranks = 0, root = 0, channels = 1;
  bool print = false, dot = false;
};

ProgramSet built_in(const ProgramOptions& o) {
  const Coll coll = collective_named(o.collective);
  const Algorithm* const a = find_algorithm(coll, o.algorithm);
  if (!a) {
    std::vector<const char*> known;
    for (const Algorithm& k : algorithms())
      if (k.coll == coll) known.push_back(k.name);
    fail(Result::invalid_argument, "--algorithm {}: {} has none of this name. There are: {}", printable(o.algorithm, 60), name_of(coll), fmt::join(known, ", "));
  }
  if (o.root < 0 || o.root >= o.ranks) fail(Result::invalid_argument, "--root {} is not in 0..{}", o.root, o.ranks - 1);
  if (a->whole && o.channels > 1) fail(Result::invalid_argument, "--channels {}: {} has one, since its messages are not cut", o.channels, a->name);
  ProgramSet set;
  set.name = a->name;
  set.idea = a->idea;
  set.in_place = a->in_place;
  Choice choice;
  choice.algorithm = a;
  choice.channels = o.channels;
  size_t steps = 0;  // checked while they are made: all at once may be more than memory holds
  for (int r = 0; r < o.ranks; ++r) {
    set.programs.push_back(program_of(choice, {o.ranks, r, o.root}));
    for (const Channel& c : set.programs.back().channels)
      for (const Loop& l : c.loops) steps += l.steps.size();
    if (steps > kMostProgramSteps)
      fail(Result::invalid_argument, "{} of {} ranks and {} channels has more than {} steps on all ranks: take fewer of either", a->name, o.ranks,
           o.channels, kMostProgramSteps);
  }
  return set;
}

// What each rank sends or stores into peers' memory, in chunks of the collective's data.
double most_sent(const ProgramSet& set) {
  double most = 0;
  for (const Program& p : set.programs) {
    double sent = 0;
    for (const Channel& c : p.channels)
      for (const Loop& l : c.loops)
        for (const Step& s : l.steps)
          for (const Ref& r : s.destinations)
            if (r.kind != Ref::Kind::local) sent += static_cast<double>(s.pieces) / c.parts;
    most = std::max(most, sent);
  }
  return most;
}

std::string summary(const ProgramSet& set, const CheckResult& proof) {
  const Program& first = set.programs[0];
  size_t channels = 0, steps = 0, longest = 0, scratch = 0;
  for (const Program& p : set.programs) {
    size_t own = 0;
    for (const Channel& c : p.channels)
      for (const Loop& l : c.loops) own += l.steps.size();
    steps += own;
    longest = std::max(longest, own);
    channels = std::max(channels, p.channels.size());
    scratch = std::max(scratch, size_t{p.buffer_chunks[kScratch]});
  }
  std::string text = fmt::format("name        {}\n", set.name);
  if (!set.idea.empty()) text += fmt::format("idea        {}\n", set.idea);
  text += fmt::format("collective  {}{}\n", name_of(first.coll), rooted(first.coll) ? fmt::format(", root {}", first.root) : "");
  text += fmt::format("ranks       {}\n", set.programs.size());
  if (set.min_bytes != 0 || set.max_bytes != UINT64_MAX)
    text += fmt::format("bytes       {} to {}\n", set.min_bytes, set.max_bytes == UINT64_MAX ? "any" : fmt::format("{}", set.max_bytes));
  text += fmt::format("channels    up to {} per rank\n", channels);
  text += fmt::format("steps       {} of all ranks, up to {} of one\n", steps, longest);
  const bool split = splits_count(first.coll);
  const double sent = most_sent(set) / (split ? first.chunks : 1);
  text += fmt::format("sent        by the rank that sends most: {:.4g} times {}\n", sent, split ? "the data" : "a rank's block");
  if (scratch) text += fmt::format("scratch     up to {} chunks of {}\n", scratch, split ? fmt::format("1/{} of the data", first.chunks) : "a rank's block");
  if (!proof.ok) return text + fmt::format("WRONG       {}\n", proof.message);
  text += fmt::format("checked     right{}", set.in_place ? ", in place, too" : "; a call in place has its input copied first");
  if (reduces(first.coll)) text += proof.rank_order ? "; combines in rank order" : "; the order of combination is its own";
  return text + "\n";
}

int run_program(const ProgramOptions& o, bool to_json) {
  const bool from_file = !o.file.empty();
  if (from_file == !o.algorithm.empty()) fail(Result::invalid_argument, "either a FILE or --algorithm is wanted");
  if (from_file && (!o.collective.empty() || o.ranks || o.root || o.channels != 1))
    fail(Result::invalid_argument, "--collective, --ranks, --root and --channels are for --algorithm; a file says these itself");
  if (!from_file && (o.collective.empty() || o.ranks == 0)) fail(Result::invalid_argument, "--algorithm needs --collective and --ranks");
  ProgramSet set = from_file ? load_program_set(o.file) : built_in(o);
  if (!o.name.empty()) {
    if (!is_program_name(o.name)) fail(Result::invalid_argument, "--name '{}': 1 to {} bytes without commas are wanted", printable(o.name, 60), kMostProgramName);
    set.name = o.name;
    for (Program& p : set.programs) p.algorithm = o.name;
  }
  const CheckResult proof = prove(set);
  const bool json_here = to_json && o.json.empty();
  if (to_json && !json_here) write_file(o.json, write_program_json(set));
  if (json_here) say(write_program_json(set));
  if (o.dot) say(to_dot(set.programs));
  if (o.print)
    for (const Program& p : set.programs) say(to_string(p));
  const std::string text = summary(set, proof);
  if (json_here || o.dot || o.print) {
    if (!proof.ok) std::fprintf(stderr, "muster: %s\n", proof.message.c_str());
  } else {
    say(text);
  }
  return proof.ok ? 0 : 1;
}

}  // namespace

void add_program(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("program", "Check, show and convert programs of collectives (docs/programs.md)");
  const auto o = std::make_shared<ProgramOptions>();
  command->add_option("file", o->file, "Programs as JSON, or an algorithm of MSCCL's XML; - is standard input");
  command->add_option("--algorithm", o->algorithm, "A built-in one instead, e.g. ring");
  command->add_option("--collective", o->collective, "Its collective, e.g. all_reduce");
  command->add_option("--ranks", o->ranks, "Its ranks")->check(CLI::Range(1, static_cast<int>(kMostProgramRanks)));
  command->add_option("--root", o->root, "Its root (default 0)");
  command->add_option("--channels", o->channels, "Its channels (default 1)")->check(CLI::Range(1, static_cast<int>(kMostProgramParts)));
  command->add_option("--name", o->name, "Another name for it");
  CLI::Option* json = command->add_option("--json", o->json, "Write it as JSON to OUT, or to standard output")->expected(0, 1)->type_name("[OUT]");
  command->add_flag("--print", o->print, "Print each rank's program");
  command->add_flag("--dot", o->dot, "Print all ranks' programs as a picture for Graphviz (dot -Tsvg)");
  command->callback([o, json, &status] { status = run_program(*o, json->count() > 0); });
}

}  // namespace muster::tool
