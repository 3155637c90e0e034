// An MSCCL algorithm as its file has it, before it becomes programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/xml.h"
#include "program/program_set.h"

namespace muster {

struct MscclStep {
  bool receives = false, sends = false;
  bool reads = false;     // src
  bool adds_to = false;   // dst is read, too: dst + src
  bool stores = false;    // dst
  char src_buffer = 'i', dst_buffer = 'i';  // i, o, s
  uint32_t src = 0, dst = 0, count = 1;
  int dep_block = -1, dep_step = -1;  // index in the GPU's blocks; -1: waits for nothing
  pugi::xml_node at;

  bool combines() const { return adds_to || (receives && reads); }
};

struct MscclBlock {
  int send = -1, recv = -1, channel = 0;
  std::vector<MscclStep> steps;
  pugi::xml_node at;
};

struct MscclGpu {
  uint32_t scratch = 0;
  std::vector<MscclBlock> blocks;
  pugi::xml_node at;
};

struct MscclAlgorithm {
  Coll coll = Coll::all_reduce;
  int root = 0;
  uint32_t chunks = 1;  // nchunksperloop
  bool in_place = false;
  std::vector<MscclGpu> gpus;  // by id
};

// The programs of all ranks. Throws invalid_argument for what can't be said in programs.
std::vector<Program> msccl_programs(const MscclAlgorithm& algorithm, const XmlDocument& document, const std::string& name);

}  // namespace muster
