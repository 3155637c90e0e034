// How a step of a pipeline is written: "F3", with its chunk as letters "F3a".
#pragma once

#include <string>

#include "muster/pipeline.h"

namespace muster {

std::string pipeline_label(const PipelineStep& step, bool with_chunk);

}  // namespace muster
