#include "options_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "option_words.h"

namespace muster::tool {
namespace {

constexpr std::string_view kHead = R"(# Options

<!-- Written by `muster doctor --options --markdown`; a test compares. Change src/base/option_table.cpp or
     tools/muster/options_page.cpp instead. -->

Muster is told what to do by environment variables and files. `muster doctor --options` shows the value of each, where it
comes from and what follows from it, and whatever is wrong with them.

## Where values come from

The first of these that has the variable counts:

1. the environment;
2. the file that `NCCL_CONF_FILE` names, or `~/.nccl.conf` where it is unset;
3. `/etc/nccl.conf`.

An empty value is as good as none, and hides what the files say: `NCCL_ALGO= program` runs without what the administrator
chose. (Where *empty* is a value of its own, the table says so.) Variables and files are read when a communicator is made.

Files hold lines `NAME=value`. Empty lines and lines that begin with `#` say nothing; blanks around name and value don't
count; everything behind the first `=` is the value, quotes included (`NCCL_SOCKET_IFNAME==eth0` is `=eth0`). Only `NCCL_`
and `MUSTER_` variables are read from them. A line that can't be used is warned about with file and line; so is a file
that can't be read or that `NCCL_CONF_FILE` names in vain.

## Values

| type | written |
|---|---|
| flag | 0 or 1; of `NCCL_` variables any number, of which 0 is off |
| number | decimal, 0 or more; `NCCL_` variables may also be hexadecimal (`0x10`) or octal (`010`), with blanks around |
| bytes | a number; K, M or G behind it if wished |
| seconds | any number of 0 or more, `inf` too |
| text | as it is; case counts unless the table says that it doesn't |

- A `MUSTER_` value that can't be read is an error that names variable, value and what is wanted.
- An `NCCL_` number that can't be read is a warning, and the default is used. -2 and -2147483648, NCCL's marks for values
  that nobody has set, are as good as unset.
- Names, hosts and algorithms that an `NCCL_` variable asks for and that don't exist are errors.
- A variable with a name that is nearly one of those below is warned about. Names that are like none of them are told at
  `NCCL_DEBUG=INFO`, as are all that are set, with value, source and effect: each once in a process.

`*`: must be equal on all ranks of a communicator; a difference is an error that names both.

## Honoured

)";

constexpr std::string_view kTail = R"(
## Channels and algorithms by NCCL's names

`NCCL_ALGO` is written as for NCCL: `list;function:list;...`, a list being names of algorithms separated by commas, with
`^` in front for all but these; case doesn't count. A word that NCCL doesn't know is an error. What can be met:

- a list with `ring` in it, for all functions: as `MUSTER_ALGO=ring`;
- else a list with `tree` in it, for all functions: as `MUSTER_ALGO=tree`. Muster has none of the others;
- lists that exclude others than `ring` (`^tree`, `^nvls,collnetdirect`): nothing of that kind runs unless it is forced.

Anything else (`nvls` alone, `^ring`, `allreduce:tree`) is warned about, and the planner chooses. `muster plan` for GPUs meets lists of
single functions and `^ring` as well, and `NCCL_CROSS_NIC` (`docs/planner.md`).

`NCCL_PROTO` is written alike. It is met exactly by collectives on GPU memory, whose kernels have LL and Simple; where a list leaves
neither (`LL128`), the call is refused. Host memory has no protocols to choose from.

The bounds on channels follow NCCL: `CTAS` beats `NCHANNELS` beats `NRINGS`, and all beat what the program asks for.
`MUSTER_CHANNELS` beats them all.

## The log

`NCCL_DEBUG` means what it means to NCCL. `MUSTER_LOG`, where it is set, decides the level in its place.

| NCCL_DEBUG | MUSTER_LOG | logged |
|---|---|---|
| | off | nothing |
| | error | what the library can't report otherwise |
| unset | warn | also warnings |
| VERSION | | the same, and the version when rank 0 makes a communicator in this process |
| WARN | warn | the same |
| INFO, ABORT | info | also what is set, who meets whom, what is chosen |
| TRACE | debug, trace | also single steps of meeting |

A message is one line, and one write:

```
[2026-01-31 12:00:00] node7:4711:4713 [2] Muster WARN text
node7:4711:4711 [2] Muster INFO INIT text
```

that is: time, host, process, thread, rank (`-` where it isn't said for one rank), level, topic of INFO lines and beyond.
Programs that read NCCL's logs need another name (`Muster` in place of `NCCL`) and little else. Only warnings and errors
carry the time unless `NCCL_DEBUG_TIMESTAMP_LEVELS` says otherwise. Control characters in a message become blanks.

Lines go to stderr, not to stdout as NCCL's do, so that tables and pipes stay whole; `NCCL_DEBUG_FILE=/dev/stdout` changes
that. A file is made when there is something to write, and added to, never emptied, so processes may share one. What
can't be written to it goes to stderr.

## Accepted without effect

Set for NCCL, and without meaning in this build. Numbers must be numbers, or there is a warning.

)";

std::string cell(std::string_view text) {
  std::string r;
  for (const char c : text) {
    if (c == '|') r += '\\';
    r += c;
  }
  return r;
}

}  // namespace

std::string options_page() {
  std::string page(kHead);
  page += "| variable | type | default | meaning |\n|---|---|---|---|\n";
  std::vector<std::pair<std::string_view, std::vector<const Option*>>> reasons;  // in table order
  for (const Option& o : option_table()) {
    if (!o.no_effect) {
      page += fmt::format("| `{}`{} | {} | {} | {} |\n", o.name, o.must_agree ? " *" : "", words_for(o.type),
                          *o.default_value ? fmt::format("`{}`", o.default_value) : "", cell(o.help));
      continue;
    }
    const std::string_view why = o.no_effect;
    auto group = std::find_if(reasons.begin(), reasons.end(), [&](const auto& g) { return g.first == why; });
    if (group == reasons.end()) group = reasons.insert(reasons.end(), {why, {}});
    group->second.push_back(&o);
  }
  page += kTail;
  page += "| because | variables |\n|---|---|\n";
  for (const auto& [why, options] : reasons) {
    std::string names;
    for (const Option* o : options) names += fmt::format("{}`{}`", names.empty() ? "" : ", ", o->name);
    page += fmt::format("| {} | {} |\n", cell(why), names);
  }
  return page;
}

}  // namespace muster::tool
