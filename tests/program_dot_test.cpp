// Pictures of programs: each step and each message is there, and Graphviz draws them as they are meant.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // mkdtemp

#include <array>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "algorithms/algorithms.h"

namespace muster {
namespace {

using testing::HasSubstr;

std::vector<Program> ranks_of(const Algorithm& a, int n, int channels = 1) {
  std::vector<Program> programs;
  for (int r = 0; r < n; ++r) {
    const Program p = a.make({n, r, n - 1});
    programs.push_back(channels == 1 ? p : replicate(p, channels));
  }
  return programs;
}

// All ranks send to all others, twice.
std::vector<Program> messages_of(int n) {
  std::vector<Program> programs;
  for (int r = 0; r < n; ++r) {
    std::vector<Message> messages;
    for (int peer = 0; peer < n; ++peer)
      for (int i = 0; i < 2; ++i) {
        messages.push_back({true, peer});
        messages.push_back({false, peer});
      }
    programs.push_back(send_recv(n, r, messages));
  }
  return programs;
}

struct Picture {
  std::set<std::string> steps;
  std::multiset<std::string> arrows;  // "from->to"
};

// What a picture must show, by following the queues of the connections.
Picture expected(const std::vector<Program>& programs) {
  Picture p;
  std::map<std::array<int, 3>, std::deque<std::string>> queues;
  const auto walk = [&](const auto& visit) {
    for (const Program& program : programs)
      for (size_t c = 0; c < program.channels.size(); ++c) {
        std::string before;
        for (size_t l = 0; l < program.channels[c].loops.size(); ++l)
          for (size_t s = 0; s < program.channels[c].loops[l].steps.size(); ++s) {
            std::ostringstream name;
            name << 'r' << program.rank << '_' << c << '_' << l << '_' << s;
            visit(program.rank, program.channels[c].loops[l].steps[s], name.str(), before);
            before = name.str();
          }
      }
  };
  walk([&](int rank, const Step& step, const std::string& name, const std::string& before) {
    p.steps.insert(name);
    if (!before.empty()) p.arrows.insert(before + "->" + name);
    for (const Ref& r : step.destinations)
      if (r.kind == Ref::Kind::slot) queues[{rank, r.peer, r.lane}].push_back(name);
  });
  walk([&](int rank, const Step& step, const std::string& name, const std::string&) {
    for (const Ref& r : step.sources)
      if (r.kind == Ref::Kind::slot) {
        auto& queue = queues.at({r.peer, rank, r.lane});
        p.arrows.insert(queue.front() + "->" + name);
        queue.pop_front();
      }
  });
  return p;
}

// Graphviz's drawing of `dot` in a format of its.
class Graphviz {
 public:
  Graphviz() {
    std::string name = testing::TempDir() + "muster-dot-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~Graphviz() { std::filesystem::remove_all(folder_); }
  static bool installed() { return std::system("dot -V >/dev/null 2>&1") == 0; }

  std::string draw(const std::string& dot, const std::string& format) const {
    std::ofstream(folder_ / "in") << dot;
    const std::string at = folder_.string();
    const int status =
        std::system(("dot -T" + format + " -o " + at + "/out " + at + "/in 2>" + at + "/err").c_str());
    EXPECT_EQ(status, 0);
    EXPECT_EQ(read("err"), "") << dot;
    return read("out");
  }

 private:
  std::string read(const char* name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::filesystem::path folder_;
};

// The texts between `before` and `after`.
std::multiset<std::string> all_between(const std::string& text, const std::string& before,
                                       const std::string& after) {
  std::multiset<std::string> r;
  for (size_t at = 0; (at = text.find(before, at)) != std::string::npos;) {
    at += before.size();
    r.insert(text.substr(at, text.find(after, at) - at));
  }
  return r;
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

void expect_drawn(const Graphviz& graphviz, const std::vector<Program>& programs) {
  SCOPED_TRACE(to_string(programs[0]));
  const Picture want = expected(programs);
  const std::string dot = to_dot(programs);

  std::string svg = graphviz.draw(dot, "svg");
  replace_all(svg, "&#45;", "-");
  replace_all(svg, "&gt;", ">");
  Picture got;
  for (const std::string& title : all_between(svg, "<title>", "</title>")) {
    if (title.find("->") != title.npos)
      got.arrows.insert(title);
    else if (std::count(title.begin(), title.end(), '_') == 3)
      got.steps.insert(title);
  }
  EXPECT_EQ(got.steps, want.steps);
  EXPECT_EQ(got.arrows, want.arrows);

  // Each step is below its column's head, and the heads are in order.
  std::map<std::string, std::pair<double, double>> places;
  std::istringstream plain(graphviz.draw(dot, "plain"));
  for (std::string line; std::getline(plain, line);) {
    std::istringstream words(line);
    std::string kind, name;
    double x = 0, y = 0;
    if (words >> kind >> name >> x >> y && kind == "node") places[name] = {x, y};
  }
  double previous = -1;
  size_t channels = 0;
  for (const Program& p : programs) channels = std::max(channels, p.channels.size());
  for (size_t c = 0; c < channels; ++c)
    for (const Program& p : programs) {
      if (c >= p.channels.size()) continue;
      const std::string head = "r" + std::to_string(p.rank) + "_" + std::to_string(c);
      ASSERT_TRUE(places.contains(head)) << head;
      EXPECT_GT(places[head].first, previous);
      previous = places[head].first;
      for (const std::string& step : want.steps)
        if (step.starts_with(head + "_")) {
          EXPECT_NEAR(places[step].first, previous, 0.05) << step;
          EXPECT_LT(places[step].second, places[head].second) << step;
        }
    }
  for (const std::string& arrow : want.arrows) {
    const size_t at = arrow.find("->");
    EXPECT_GT(places[arrow.substr(0, at)].second, places[arrow.substr(at + 2)].second)
        << arrow << " leads upwards";
  }
}

TEST(Dot, HasABoxPerStepAndAnArrowPerMessageWithItsChunk) {
  const std::string dot = to_dot(ranks_of(*find_algorithm(Coll::all_reduce, "ring"), 3));
  EXPECT_THAT(dot, HasSubstr("label=\"ring all_reduce, 3 ranks, data in 3 chunks\""));
  EXPECT_THAT(dot, HasSubstr("r0_0_0_0 [label=\"0: contribution(2)\\l   -> slot(1)\\l\""));
  // What rank 0 sends first is what rank 1 receives first.
  EXPECT_THAT(
      dot, HasSubstr(
               "r0_0_0_0 -> r1_0_0_1 [color=\"0.667 1.0 0.75\", fontcolor=\"0.667 1.0 0.75\", label=\"2\"]"));
  EXPECT_EQ(all_between(dot, " [color=", "]").size(), 3u * 4u);
  EXPECT_EQ(all_between(dot, "penwidth=3", "]").size(), 3u);  // where a chunk is complete
}

TEST(Dot, TokensAreDashed) {
  const std::string dot = to_dot(ranks_of(*find_algorithm(Coll::all_gather, "window"), 3));
  EXPECT_EQ(all_between(dot, "style=dashed", "]").size(), 3u * 2u);
}

// Chunks of a collective that doesn't split its data are ranks'.
TEST(Dot, MessagesOfAnAllGatherNameWhoseDataTheyCarry) {
  const std::string dot = to_dot(ranks_of(*find_algorithm(Coll::all_gather, "ring"), 3));
  EXPECT_EQ(all_between(dot, "label=\"0\"", "]").size(), 2u);
  EXPECT_EQ(all_between(dot, "label=\"1\"", "]").size(), 2u);
  EXPECT_EQ(all_between(dot, "label=\"2\"", "]").size(), 2u);
}

// A program that never ends is drawn, too: that is when one wants to see it.
TEST(Dot, ProgramsThatWaitForEachOther) {
  std::vector<Program> programs = ranks_of(*find_algorithm(Coll::all_reduce, "ring"), 3);
  for (Program& p : programs) std::swap(p.channels[0].loops[0].steps[0], p.channels[0].loops[0].steps[1]);
  EXPECT_THAT(to_dot(programs), HasSubstr("r2_0_0_4"));
  EXPECT_EQ(to_dot({}).back(), '\n');
}

TEST(Dot, GraphvizDrawsEveryAlgorithmAsItIs) {
  if (!Graphviz::installed()) GTEST_SKIP() << "Graphviz's dot is not installed (apt-get install graphviz)";
  const Graphviz graphviz;
  for (const Algorithm& a : algorithms()) expect_drawn(graphviz, ranks_of(a, 4));
  expect_drawn(graphviz, ranks_of(*find_algorithm(Coll::all_reduce, "halving_doubling"), 6));
}

TEST(Dot, GraphvizDrawsChannelsAndMessages) {
  if (!Graphviz::installed()) GTEST_SKIP() << "Graphviz's dot is not installed (apt-get install graphviz)";
  const Graphviz graphviz;
  expect_drawn(graphviz, ranks_of(*find_algorithm(Coll::all_reduce, "ring"), 3, 3));
  expect_drawn(graphviz, messages_of(3));
}

}  // namespace
}  // namespace muster
