// `muster program`, and the page that explains it: its example is a program that is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "plan/custom_programs.h"
#include "program/program_json.h"
#include "support/corpus.h"
#include "support/outcome.h"
#include "support/ranks.h"
#include "support/shell.h"

namespace muster {
namespace {

using test::Output;
using test::output_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Output program(const std::string& arguments) { return output_of(MUSTER_TOOL " program " + arguments + " 2>&1"); }
std::string msccl(const std::string& name) { return test::data("msccl/" + name).string(); }

class ProgramTool : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/muster_program_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name)) << text;
    return file(name);
  }

 private:
  std::filesystem::path folder_;
};

// The text between ```json and ``` in docs/programs.md.
std::string example() {
  const std::string page = test::text_of(std::filesystem::path(MUSTER_SOURCE_FOLDER) / "docs/programs.md");
  const std::string mark = "```json\n";
  const size_t begin = page.find(mark) + mark.size();
  EXPECT_GE(begin, mark.size());
  return page.substr(begin, page.find("```", begin) - begin);
}

TEST_F(ProgramTool, TheExampleOfThePageRuns) {
  const std::string path = write("halves.json", example());
  const Output o = program(path);
  EXPECT_EQ(o.status, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("name        halves\n"), HasSubstr("collective  all_reduce\n"), HasSubstr("ranks       2\n"), HasSubstr("steps       6 of all ranks, up to 3 of one\n"),
                            HasSubstr("1 times the data\n"), HasSubstr("checked     right, in place, too")));
  const test::Variable set("MUSTER_PROGRAM", path);
  test::run_threads(2, [&](Communicator& c, int rank) {
    EXPECT_THAT(c.explain("all_reduce", 7, DataType::int32), HasSubstr("halves (custom, from " + path));
    const int x[7] = {rank, 1, 2, 3, 4, 5, 6 * rank};
    int y[7] = {};
    c.all_reduce(x, y, 7, DataType::int32, RedOp::sum);
    EXPECT_THAT(y, testing::ElementsAre(1, 2, 4, 6, 8, 10, 6));
  });
}

TEST_F(ProgramTool, ConvertsMscclAlgorithms) {
  const std::string json = file("ring.json");
  EXPECT_EQ(program(msccl("allreduce_ring.xml") + " --json " + json).status, 0);
  const ProgramSet a = load_program_set(msccl("allreduce_ring.xml")), b = load_program_set(json);
  EXPECT_TRUE(a.programs == b.programs);
  EXPECT_EQ(program(json + " --json").text, test::text_of(json));
  EXPECT_THAT(program(msccl("allreduce_allpairs.xml")).text, HasSubstr("bytes       0 to 1048576\n"));
}

TEST_F(ProgramTool, ExportsBuiltInAlgorithms) {
  const std::string arguments = "--algorithm binomial --collective gather --ranks 5 --root 2 --name mine --json";
  const Output o = program(arguments);
  EXPECT_EQ(o.status, 0);
  const ProgramSet set = read_program_json(o.text, "json");
  EXPECT_EQ(set.name, "mine");
  ASSERT_EQ(set.programs.size(), 5u);
  for (int r = 0; r < 5; ++r) {
    Program right = find_algorithm(Coll::gather, "binomial")->make({5, r, 2});
    right.algorithm = "mine";
    EXPECT_TRUE(set.programs[static_cast<size_t>(r)] == right);
  }
  EXPECT_THAT(program("--algorithm ring --collective all_reduce --ranks 3 --channels 2").text, AllOf(HasSubstr("up to 2 per rank"), HasSubstr("1.333 times the data")));
  EXPECT_THAT(program("--algorithm direct --collective all_reduce --ranks 3").text, HasSubstr("combines in rank order"));
  EXPECT_THAT(program("--algorithm ring --collective all_reduce --ranks 3 --print").text, HasSubstr("ring all_reduce, rank 2 of 3, data in 3 chunks"));
  EXPECT_THAT(program("--algorithm ring --collective all_reduce --ranks 3 --dot").text, HasSubstr("digraph"));
}

TEST_F(ProgramTool, SaysWhatIsWrong) {
  std::string text = example();
  const std::string right = "\"output[1]\"}]}]},";
  text.replace(text.find(right), right.size(), "\"output[0]\"}]}]},");
  const std::string wrong = write("wrong.json", text);
  const Output o = program(wrong);
  EXPECT_EQ(o.status, 1);
  EXPECT_THAT(o.text, AllOf(HasSubstr("WRONG       halves all_reduce, 2 ranks: rank 0"), Not(HasSubstr("checked"))));
  EXPECT_EQ(program(wrong + " --print").status, 1);
  const std::pair<std::string, std::string> cases[] = {
      {"", "either a FILE or --algorithm is wanted"},
      {wrong + " --algorithm ring", "either a FILE or --algorithm is wanted"},
      {wrong + " --ranks 3", "are for --algorithm; a file says these itself"},
      {"--algorithm ring", "--algorithm needs --collective and --ranks"},
      {"--algorithm rung --collective all_reduce --ranks 3", "--algorithm rung: all_reduce has none of this name. There are: one_shot, direct, ring"},
      {"--algorithm ring --collective send_recv --ranks 3", "'send_recv' is no collective. There are: all_reduce"},
      {"--algorithm chain --collective reduce --ranks 3 --root 3", "--root 3 is not in 0..2"},
      {"--algorithm bruck --collective all_reduce --ranks 3 --channels 2", "--channels 2: bruck has one"},
      {"--algorithm ring --collective all_reduce --ranks 1024 --channels 64", "has more than 400000 steps on all ranks"},
      {wrong + " --name a,b", "--name 'a,b'"},
      {file("none.json"), "ENOENT"},
      {write("x.json", "[]"), "x.json:1:1: an object is wanted, not a list (taken for programs as JSON)"},
      {write("empty.json", ""), "empty.json is empty. Wanted are programs as JSON, which begins with {, or MSCCL's XML"},
      {write("blank.json", " \n\n"), "blank.json is nothing but blanks. Wanted are"},
      {write("words.json", "\n  hello\n"), "words.json:2:3: no program begins so, it is text that begins with 'hello'. Wanted are"},
      {write("packed.json", "\x1f\x8b...."), "packed.json:1:1: no program begins so, it is compressed with gzip: unpack it"},
      {write("cut.json", "{\n \"muster_programs\": "), "cut.json:2:"},
      {write("page.html", "<html><body/></html>"), "page.html:1:2: <html>: no MSCCL algorithm, which begins with <algo> (taken for MSCCL's XML, as it begins with <)"},
      {write("hosts.json", "{\"muster_cluster\": 1}"), "hosts.json is a topology (Muster cluster description) and has no programs"},
      {write("graph.xml", "<graphs version=\"1\"/>"), "graph.xml is a topology (NCCL graph XML) and has no programs"},
      {wrong + " --json /nonexistent/x", "can't open /nonexistent/x: ENOENT"},
  };
  for (const auto& [arguments, says] : cases) {
    const Output failed = program(arguments);
    EXPECT_EQ(failed.status, 1) << arguments;
    EXPECT_THAT(failed.text, HasSubstr(says)) << arguments;
  }
  EXPECT_EQ(program("--algorithm ring --collective all_reduce --ranks 0").status, 2);
  // Editors may put a mark before UTF-8.
  EXPECT_EQ(program(write("mark.json", "\xef\xbb\xbf" + example())).status, 0);
}

}  // namespace
}  // namespace muster
